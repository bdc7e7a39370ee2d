"""A model that is only a function: what its answers promise, what they do not, and how many questions they take."""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from borrowed import Progress, ask, end_on_signals, serving, use_store
from mlflow.models import infer_signature
from orders import CONSTRAINTS, FEATURES, PAID, orders
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlflow_cf

HERE = Path(__file__).resolve().parent
ASKED = 2  # customers who ask the server
TREES = ["sklearn.tree._tree.Tree"]  # skops wants to be told that the forest's own trees may be loaded
NEEDS = [f"{name}=={version(name)}" for name in ("mlflow", "pandas", "scikit-learn", "skops")]
POLICY: dict[str, Any] = {
    "target": {"label": 1, "means": "the order may be paid by invoice"},
    "constraints": CONSTRAINTS,
    "features": FEATURES,
    "output": "score",  # what the function answers: shares of being paid, and 0.5 decides
}


class Counted:
    """A function that counts how often it is called, and with how many rows."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls, self.rows = function, 0, 0

    def __call__(self, table: pd.DataFrame) -> Any:
        """Answer as the function does."""
        self.calls, self.rows = self.calls + 1, self.rows + len(table)
        return self.function(table)


def main(arguments: list[str] | None = None) -> None:
    """Tell the whole story."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--rows", type=int, default=3_000, metavar="N", help="orders to learn from (default: 3,000)")
    add("--customers", type=int, default=20, metavar="N", help="refused orders to explain (default: 20)")
    add("--port", type=int, default=0, metavar="N", help="port of the server (default: any free one)")
    add("--seed", type=int, default=0, help="for orders, models and searches (default: 0)")
    add("--store", default=str(HERE / ".demo"), metavar="FOLDER", help="keep runs and models there (default: .demo)")
    chosen = parser.parse_args(arguments)
    progress = Progress()
    # MLFLOW_TRACKING_URI comes first; `mlflow run` sets it, and opens a run that belongs to an experiment already.
    store = "" if "MLFLOW_TRACKING_URI" in os.environ else chosen.store
    use_store(store, "" if "MLFLOW_RUN_ID" in os.environ else "black_box")
    table = orders(chosen.rows, chosen.seed)
    rows = table.drop(columns=PAID)
    with mlflow.start_run(run_name="black_box"):
        box_uri = _black_box(table, chosen.seed)
        box = mlflow.pyfunc.load_model(box_uri).predict
        others = orders(100 + 10 * chosen.customers, chosen.seed + 1).drop(columns=PAID)
        refused = others[box(others) <= 0.5].head(chosen.customers)
        progress.step(f"Logged the black box: three rules and two models; it refuses {(box(rows) <= 0.5).mean():.0%}")
        uri = mlflow_cf.log_model(box_uri, "explained", rows, **POLICY, seed=chosen.seed).model_uri
        explained = mlflow_cf.load_model(uri)
        progress.step(f"Logged it again with its explainer; its structure: {explained.describe()['structure']}")
        _count(mlflow_cf.wrap(counted := Counted(box), rows, **POLICY, seed=chosen.seed), counted, refused)
        _promises(explained, refused)
        progress.step("Measuring the answers")
        mlflow_cf.evaluate(uri, refused)
    _serve(uri, refused.head(ASKED), chosen.port, progress)
    print(f"Look at the run with\n  mlflow ui --backend-store-uri {mlflow.get_tracking_uri()}")


def _black_box(table: pd.DataFrame, seed: int) -> str:
    """Fit both models, log them with the code around them as one pyfunc, and return its URI."""
    members = {
        "forest": RandomForestClassifier(100, max_depth=8, random_state=seed),
        "neighbours": KNeighborsClassifier(25, algorithm="brute"),
    }
    rows, paid = table.drop(columns=PAID), table[PAID]
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: str(Path(folder) / name) for name in members}
        for name, member in members.items():
            columns = make_column_transformer((OneHotEncoder(), ["delivery"]), remainder=StandardScaler())
            fitted = make_pipeline(columns, member).fit(rows, paid)
            mlflow.sklearn.save_model(
                fitted, paths[name], pip_requirements=NEEDS, serialization_format="skops", skops_trusted_types=TREES
            )
        return mlflow.pyfunc.log_model(
            name="checkout",
            python_model=str(HERE / "checkout.py"),
            artifacts=paths,
            signature=infer_signature(rows, np.array([0.5])),
            input_example=rows.head(2),
            pip_requirements=NEEDS,
        ).model_uri


def _count(explained: mlflow_cf.ExplainedModel, counted: Counted, refused: pd.DataFrame) -> None:
    """Explain one order after the other, and print how often the black box was called for each."""
    lines = []
    for at in range(len(refused)):
        counted.calls, counted.rows, start = 0, 0, time.perf_counter()
        (answer,) = explained.explain(refused.iloc[[at]])
        seconds = time.perf_counter() - start
        text = answer.counterfactuals[0].text.partition(":")[0] if answer.counterfactuals else answer.reason
        lines.append((counted.calls, counted.rows, seconds, answer.status, text))
    print("\ncalls  rows  seconds  status     what would have to change")
    for line in lines[:10]:
        print("{:5}{:6}{:9.2f}  {:11}{}".format(*line))
    calls, rows = (np.mean([line[at] for line in lines]) for at in (0, 1))
    mlflow.log_metrics({"calls_per_order": calls, "rows_per_order": rows})
    print(f"\nOn average an order takes {calls:.0f} calls of the black box, with {rows:,.0f} rows in all.\n")


def _promises(explained: mlflow_cf.ExplainedModel, refused: pd.DataFrame) -> None:
    """Print what holds of the answers, and what is not known of them."""
    told = explained.explain(refused, certify=True)
    found = [at for at, answer in enumerate(told) if answer.counterfactuals]
    if not found:
        print("No refused order has an answer.\n")
        return
    answers = pd.DataFrame([dict(told[at].counterfactuals[0].row) for at in found])
    checked = explained.verify(refused.iloc[found], answers)
    proofs = [told[at].counterfactuals[0].proof for at in found]
    print(f"Promised: {sum(one.valid for one in checked)} of {len(found)} answers are accepted by the black box itself")
    print(f"          {sum(not one.broken for one in checked)} of {len(found)} answers meet every constraint")
    print(f"          {sum(not one.needless for one in checked)} of {len(found)} answers need each of their changes")
    print(f"Not promised: {proofs.count('none')} of {len(found)} might have a nearer one; certificates were asked for:")
    print(f"          {told[found[0]].reason}")
    for answer in told:
        if answer.status == "not_found":
            print(f"          no answer is no proof that there is none: {answer.status}, {answer.reason}")
            break
    print()


def _serve(uri: str, customers: pd.DataFrame, port: int, progress: Progress) -> None:
    """Ask the real server for two answers each."""
    rows = customers.astype(object).to_dict("split", index=False)
    body = {"dataframe_split": rows, "params": {"counterfactual": {"count": 2}}}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(uri, port, Path(folder) / "server.log", 90, progress) as address,
    ):
        progress.step(f"Asking {address}/invocations with {body['params']}")
        for (_, customer), reply in zip(customers.iterrows(), ask(address, body), strict=True):
            print("\n" + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in customer.items()))
            print(f"  may be paid by invoice: {reply['prediction']} (share {reply['probability']:.2f})")
            for found in reply["counterfactuals"]:
                print(f"  {found['text']} (share {found['probability']:.2f}, proof {found['proof']})")
    progress.step("Server stopped")


if __name__ == "__main__":
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    warnings.filterwarnings("ignore", "Hint: Inferred schema contains integer", UserWarning)  # no value is missing here
    logging.getLogger("mlflow_cf.artifact.publish.requirements").setLevel(logging.ERROR)  # no package index is needed
    end_on_signals()
    main()
