"""What would bring this house to between 400,000 and 420,000? Plans of renovations, the cheapest first."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

import mlflow
import pandas as pd
from borrowed import Progress, end_on_signals, use_store
from houses import CONSTRAINTS, FEATURES, PRICE, houses
from matplotlib.figure import Figure
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_absolute_error
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

import mlflow_cf
from mlflow_cf import Explanation, Explanations, Target

HERE = Path(__file__).resolve().parent
LOW, HIGH = 400_000, 420_000  # from here on it pays to sell; up to here a buyer gets the subsidised loan
ASKED = (330_000, 450_000)  # the valuations of the houses that are asked about
SHOWN = 3
# Behind ten columns for the levels of place, heating and loft: no valuation rises with energy use or an old kitchen.
MONOTONE = [0] * 10 + [0, 1, 1, 1, -1, -1]


def main(arguments: list[str] | None = None) -> None:
    """Tell the whole story."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--rows", type=int, default=3_000, metavar="N", help="sales to learn from (default: 3,000)")
    add("--houses", type=int, default=40, metavar="N", help="houses to ask about (default: 40)")
    add("--seed", type=int, default=0, help="for houses, model and plans (default: 0)")
    add("--store", default=str(HERE / ".demo"), metavar="FOLDER", help="keep runs and models there (default: .demo)")
    chosen = parser.parse_args(arguments)
    progress = Progress()
    # MLFLOW_TRACKING_URI comes first; `mlflow run` sets it, and opens a run that belongs to an experiment already.
    store = "" if "MLFLOW_TRACKING_URI" in os.environ else chosen.store
    use_store(store, "" if "MLFLOW_RUN_ID" in os.environ else "house_price")
    table = houses(chosen.rows, chosen.seed)
    others = houses(max(1_000, 10 * chosen.houses), chosen.seed + 1)
    with mlflow.start_run(run_name="house_price"):
        model = fitted(table, chosen.seed)
        rows, valued = others.drop(columns=PRICE), model.predict(others.drop(columns=PRICE))
        error = mean_absolute_error(others[PRICE], valued)
        mlflow.log_metric("mean_absolute_error", error)
        progress.step(f"Model: boosted trees; {len(others):,} other sales are off by {error:,.0f} EUR on average")
        uri = _logged(model, table, chosen.seed)
        rows = rows[(valued > ASKED[0]) & (valued < ASKED[1])].head(chosen.houses)
        progress.step(f"Planning for {len(rows)} houses that are valued from {ASKED[0]:,} to {ASKED[1]:,} EUR")
        explained = mlflow_cf.load_model(uri)
        told = explained.explain(rows)
        _some(rows, told)
        _all(explained, rows, told)
        progress.step("Measuring the plans")
        mlflow_cf.evaluate(uri, rows, groups=["place"])
        mlflow.log_figure(_figure(told), "plans.png")
    program = f"mlflow ui --backend-store-uri {mlflow.get_tracking_uri()}"
    progress.step(f"Logged: the model, an evaluation of it, plans.png; look at them with\n  {program}")


def fitted(table: pd.DataFrame, seed: int) -> Pipeline:
    """Return boosted trees fitted to the prices of houses."""
    levels = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["place", "heating", "loft"]), remainder="passthrough"
    )
    trees = HistGradientBoostingRegressor(max_iter=150, monotonic_cst=MONOTONE, random_state=seed)
    return make_pipeline(levels, trees).fit(table.drop(columns=PRICE), table[PRICE])


def _logged(model: Pipeline, table: pd.DataFrame, seed: int) -> str:
    """Log the model in the active run, explained by plans that end in the interval; return its URI."""
    return mlflow_cf.log_model(
        model,
        "house_price",
        table.drop(columns=PRICE),
        table[PRICE],
        target=Target(low=LOW, high=HIGH, means=f"the house is valued between {LOW:,} and {HIGH:,} EUR"),
        constraints=CONSTRAINTS,
        features=FEATURES,
        explainer="cscf",  # it looks for the cheapest plan; other explainers for the nearest row
        values="continuous",  # what works lead to is rarely a number that another house has
        certify=True,
        seed=seed,
    ).model_uri


def cost(answer: Explanation) -> float:
    """Return what the works of a plan cost together, in thousands of EUR."""
    return sum(step.effort * step.discount for step in answer.counterfactuals[0].plan)


def _some(rows: pd.DataFrame, told: Explanations) -> None:
    """Print the first houses, those with a plan before those without."""
    order = sorted(range(len(told)), key=lambda at: (told[at].status == "already", not told[at].counterfactuals))
    without = [at for at in order if told[at].status not in ("found", "already")]
    for at in [*order[:SHOWN], *without[:1]]:
        answer = told[at]
        print("\n" + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in rows.iloc[at].items()))
        print(f"  valued at {answer.prediction:,.0f} EUR")
        for found in answer.counterfactuals:
            steps = found.text.split("\n")[1:]
            print("\n".join(f"  {step}" for step in steps))
            more, bill = float(str(found.prediction)) - float(str(answer.prediction)), 1_000 * cost(answer)
            print(f"  then valued at {found.prediction:,.0f} EUR: {more:,.0f} more, for works of {bill:,.0f}")
        if not answer.counterfactuals:
            print(f"  {answer.status}: {answer.reason}")
    print()


def _all(explained: mlflow_cf.ExplainedModel, rows: pd.DataFrame, told: Explanations) -> None:
    """Print what came of all houses, and of those without a plan whether any change at all would do."""
    found = [answer for answer in told if answer.counterfactuals]
    works = pd.Series([step.action for answer in found for step in answer.counterfactuals[0].plan], dtype=object)
    pays = sum(answer.counterfactuals[0].prediction - answer.prediction > 1_000 * cost(answer) for answer in found)
    proved = sum(answer.counterfactuals[0].proof == "optimal" for answer in found)
    print(f"In all: {told.summary}")
    print(f"  {proved} plans are proved to be the cheapest of up to three works")
    print(f"  {pays} plans raise the value by more than they cost")
    print("  works: " + ", ".join(f"{name} ({n})" for name, n in works.value_counts().items()))
    without = [at for at, answer in enumerate(told) if answer.status not in ("found", "already")]
    if without:
        # The exact search knows no works: it asks for any row within the constraints, and proves where there is none.
        at_all = explained.explain(rows.iloc[without], explainer="exact")
        print(f"  houses without a plan, if no work had to lead there: {at_all.summary}\n")


def _figure(told: Explanations) -> Figure:
    """Return the valuation of each house before and after its plan, with what the works cost."""
    found = sorted((one for one in told if one.counterfactuals), key=lambda one: float(str(one.prediction)))
    figure = Figure(figsize=(8, 1.5 + 0.22 * len(found)), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(LOW / 1_000, HIGH / 1_000, color="tab:green", alpha=0.15)
    for y, answer in enumerate(found):
        before, after = (
            float(str(value)) / 1_000 for value in (answer.prediction, answer.counterfactuals[0].prediction)
        )
        axes.annotate("", (after, y), (before, y), arrowprops={"arrowstyle": "->", "color": "tab:blue"})
        axes.text(before - 1, y, f"{cost(answer):.0f}", ha="right", va="center", fontsize=8)
    axes.set(title="What brings a house into the interval; numbers are the works, in thousand EUR")
    axes.set(xlabel="valuation, thousand EUR", yticks=[], ylim=(-1, len(found)), xlim=(ASKED[0] / 1_000 - 10, 430))
    return figure


if __name__ == "__main__":
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    logging.getLogger("mlflow_cf.artifact.publish.requirements").setLevel(logging.ERROR)  # no package index is needed
    end_on_signals()
    main()
