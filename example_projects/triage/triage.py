"""Three lists of patients: which changes would move a patient, to which list, and for whom none would (proved)."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from borrowed import Progress, end_on_signals, use_store
from matplotlib.figure import Figure
from patients import CONSTRAINTS, FEATURES, LISTS, patients
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlflow_cf
from mlflow_cf import Target

HERE = Path(__file__).resolve().parent
ROUTINE = Target(label="routine", means="a routine appointment is enough")
SURELY = Target(label="routine", min_probability=0.5)  # not only more probable than both others


def main(arguments: list[str] | None = None) -> None:
    """Tell the whole story."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--patients", type=int, default=40, metavar="N", help="of each list to explain (default: 40)")
    add("--seed", type=int, default=0, help="of the searches (default: 0)")
    add("--store", default=str(HERE / ".demo"), metavar="FOLDER", help="keep runs and models there (default: .demo)")
    chosen = parser.parse_args(arguments)
    progress = Progress()
    # MLFLOW_TRACKING_URI comes first; `mlflow run` sets it, and opens a run that belongs to an experiment already.
    store = "" if "MLFLOW_TRACKING_URI" in os.environ else chosen.store
    use_store(store, "" if "MLFLOW_RUN_ID" in os.environ else "triage")
    rows, lists = patients()
    progress.step(f"Data: {len(rows)} patients; " + ", ".join(f"{(lists == one).sum()} {one}" for one in LISTS))
    with mlflow.start_run(run_name="triage"):
        model = fitted(rows, lists)
        confused = _confusion(rows, lists, progress)
        uri = mlflow_cf.log_model(
            model,
            "triage",
            rows,
            lists,
            target=ROUTINE,
            constraints=CONSTRAINTS,
            features=FEATURES,
            certify=True,
            seed=chosen.seed,
        ).model_uri
        explained = mlflow_cf.load_model(uri)
        now = pd.Series(model.predict(rows), rows.index)
        asked = {one: rows[now == one].head(chosen.patients) for one in LISTS}
        _one_patient(explained, asked["urgent"].head(1))
        progress.step(f"Which other list is nearest, for up to {chosen.patients} patients of each list")
        leads = _where_changes_lead(explained, asked)
        progress.step("What it takes from urgent to routine")
        _all_the_way(explained, asked["urgent"])
        progress.step("Measuring the answers of urgent patients")
        mlflow_cf.evaluate(uri, asked["urgent"], groups=["sex"])
        mlflow.log_figure(_figure(confused, leads), "where_changes_lead.png")
    program = f"mlflow ui --backend-store-uri {mlflow.get_tracking_uri()}"
    progress.step(f"Logged: the model, an evaluation of it, where_changes_lead.png; look at them with\n  {program}")


def fitted(rows: pd.DataFrame, lists: pd.Series) -> Pipeline:
    """Return a logistic regression over all three lists."""
    columns = make_column_transformer((OneHotEncoder(drop="if_binary"), ["sex"]), remainder=StandardScaler())
    return make_pipeline(columns, LogisticRegression(max_iter=1_000)).fit(rows, lists)


def _confusion(rows: pd.DataFrame, lists: pd.Series, progress: Progress) -> pd.DataFrame:
    """Print and return how patients are mistaken who were not learned from: true list -> predicted list."""
    guessed = cross_val_predict(fitted(rows, lists), rows, lists, cv=5)
    share = float((guessed == lists).mean())
    mlflow.log_metric("accuracy", share)
    progress.step(f"Model: a logistic regression, right about {share:.0%} of patients that it has not seen")
    table = pd.DataFrame(confusion_matrix(lists, guessed, labels=LISTS), LISTS, LISTS)
    print(f"\n{table.rename_axis(index='truly', columns='predicted').to_string()}\n")
    return table


def _one_patient(explained: mlflow_cf.ExplainedModel, patient: pd.DataFrame) -> None:
    """Print one patient, and what would lead to another list, to routine, and to routine more surely."""
    print("\nOne urgent patient: " + ", ".join(f"{name} {value}" for name, value in patient.iloc[0].items()))
    questions = {"any other list": Target.other(), "routine": ROUTINE, "routine with 0.5": SURELY}
    for question, target in questions.items():
        (answer,) = explained.explain(patient, target=target)
        for found in answer.counterfactuals:
            proved = "proved nearest" if found.proof == "optimal" else "checked"
            print(f"  to {question}: {found.text} (probability {found.probability:.2f}, {proved})")
        if not answer.counterfactuals:
            print(f"  to {question}: {answer.status}, {answer.reason}")
    print()


def _where_changes_lead(explained: mlflow_cf.ExplainedModel, asked: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Print and return to which list the nearest changes lead: list now -> list then, or the status without one."""
    pairs = [
        (now, answer.counterfactuals[0].prediction if answer.counterfactuals else answer.status)
        for now, rows in asked.items()
        for answer in explained.explain(rows, target=Target.other())
    ]
    now, then = zip(*pairs, strict=True)
    leads = pd.crosstab(pd.Series(now), pd.Series(then)).reindex(index=LISTS, fill_value=0)
    leads = leads.reindex(columns=[*LISTS, *(name for name in leads if name not in LISTS)], fill_value=0)
    print(f"\n{leads.rename_axis(index='now', columns='then').to_string()}\n")
    worse = sum(LISTS.index(after) > LISTS.index(before) for before, after in pairs if after in LISTS)
    print(f"{worse} of these changes lead to a more urgent list: any other list is not a better one.\n")
    return leads


def _all_the_way(explained: mlflow_cf.ExplainedModel, urgent: pd.DataFrame) -> None:
    """Print for how many urgent patients the way to routine exists, and which measurements move on it."""
    for question, target in {"to routine": ROUTINE, "to routine with 0.5": SURELY}.items():
        told = explained.explain(urgent, target=target)
        found = [answer.counterfactuals[0] for answer in told if answer.counterfactuals]
        moved = pd.Series([change.feature for one in found for change in one.changes]).value_counts()
        proved = sum(one.proof == "optimal" for one in found)
        print(f"  {question}: {told.summary}; {proved} are proved to be the nearest")
        print("    they change " + ", ".join(f"{name} ({count})" for name, count in moved.items()))


def _figure(confused: pd.DataFrame, leads: pd.DataFrame) -> Figure:
    """Return both tables side by side."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    titles = ("What the model mistakes", "Where the nearest change leads")
    for axes, table, title, names in zip(
        figure.subplots(1, 2), (confused, leads), titles, (("predicted", "truly"), ("then", "now")), strict=True
    ):
        axes.imshow(table.to_numpy(), cmap="Blues")
        axes.set(title=title, xlabel=names[0], ylabel=names[1])
        axes.set_xticks(range(table.shape[1]), table.columns)
        axes.set_yticks(range(len(table)), table.index)
        for (y, x), count in np.ndenumerate(table.to_numpy()):
            dark = count > table.to_numpy().max() / 2
            axes.text(x, y, str(count), ha="center", va="center", color="white" if dark else "black")
    return figure


if __name__ == "__main__":
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    logging.getLogger("mlflow_cf.artifact.publish.requirements").setLevel(logging.ERROR)  # no package index is needed
    end_on_signals()
    main()
