"""Train a credit model, log it, log and register it with its explainer, and explain the refused applicants."""

from __future__ import annotations

import argparse
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import mlflow
import pandas as pd
from mlflow import MlflowClient
from mlflow.models.model import ModelInfo
from pipelines import MODELS, build_pipeline, log_plain
from progress import Progress, end_on_signals
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from store import use_store
from tables import Table, learn_from, read_table

import mlflow_cf
from mlflow_cf import Constraints, InputError

HERE = Path(__file__).resolve().parent
ALIAS = "champion"
STATUSES = ("found", "already", "infeasible", "not_found", "budget", "invalid")
FURTHER = ("cf/l0", "cf/gower", "cf/seconds_p95")  # metrics that are logged beside the headline ones
SHOWN = ("cf/coverage", "cf/validity", "cf/n_changed", "cf/gower", "cf/seconds_p50", "cf/seconds_p95")


@dataclass(frozen=True)
class Split:
    """Rows and labels to learn from and to test on."""

    rows: pd.DataFrame
    labels: pd.Series
    test_rows: pd.DataFrame
    test_labels: pd.Series


def options() -> argparse.ArgumentParser:
    """Return the command line; empty texts mean the default, so that an MLproject file can pass everything on."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--data", default="", metavar="FILE", help="CSV file with one header line (default: generated applications)")
    add("--target", default="", metavar="COLUMN", help="column of the CSV to predict (default: the last one)")
    add("--favourable", default="1", metavar="LABEL", help="label that applicants hope for (default: 1)")
    add("--drop", default="", metavar="A,B", help="columns of the CSV to leave out")
    add("--constraints", default="", metavar="FILE", help="what counterfactuals must respect, YAML or JSON")
    add("--rows", type=int, default=0, metavar="N", help="rows to use (default: 10,000 generated, a CSV whole)")
    add("--rows-to-explain", type=int, default=100, metavar="N", help="refused test rows to explain (default: 100)")
    add("--model", choices=MODELS, default="logistic", help="classifier (default: logistic)")
    add("--experiment", default="credit", metavar="NAME", help="MLflow experiment (default: credit)")
    add("--registered-name", default="credit", metavar="NAME", help="registered model (default: credit)")
    add("--seed", type=int, default=0, help="for generator, split, classifier and explainer (default: 0)")
    add("--store", default="", metavar="FOLDER", help="keep runs and models there (default: MLflow's own setting)")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the entry point `train`."""
    chosen = options().parse_args(arguments)
    progress = Progress()
    frame, source = read_table(chosen.data, chosen.rows, chosen.seed)
    table = learn_from(frame, source, chosen.target, chosen.favourable, chosen.drop)
    progress.step(
        f"Data: {len(table.rows):,} rows with {table.rows.shape[1]} columns from {table.source}; "
        f"{table.labels.name} = {table.favourable} in {table.share:.0%}"
    )
    constraints = _constraints(chosen)
    progress.step(f"Store: {chosen.store or mlflow.get_tracking_uri()}")
    # A run that `mlflow run` has started belongs to an experiment already.
    use_store(chosen.store, "" if "MLFLOW_RUN_ID" in os.environ else chosen.experiment)
    with mlflow.start_run():
        split = _split(table, chosen.seed)
        pipeline = _fit(split, table, chosen, progress)
        refused = split.test_rows[pipeline.predict(split.test_rows) != table.favourable].head(chosen.rows_to_explain)
        if refused.empty:
            raise SystemExit("The model refuses none of the test rows, so there is nothing to explain.")
        progress.step(f"Logging the explained model and registering it as {chosen.registered_name!r}")
        info = _log_and_register(pipeline, split, table, constraints, refused, chosen)
        _evaluate(info.model_uri, refused, progress)
        MlflowClient().set_registered_model_alias(chosen.registered_name, ALIAS, str(info.registered_model_version))
        progress.step(f"Version {info.registered_model_version} of {chosen.registered_name!r} is now the {ALIAS}")


def _constraints(chosen: argparse.Namespace) -> Constraints:
    """Read the constraints: those of the applications unless other data are given."""
    file = chosen.constraints or ("" if chosen.data else str(HERE / "constraints.yaml"))
    try:
        return Constraints.read(file or None)
    except InputError as error:
        raise SystemExit(f"--constraints: {error.message}") from error


def _split(table: Table, seed: int) -> Split:
    parts = train_test_split(table.rows, table.labels, stratify=table.labels, random_state=seed)
    return Split(parts[0], parts[2], parts[1], parts[3])


def _fit(split: Split, table: Table, chosen: argparse.Namespace, progress: Progress) -> Pipeline:
    """Fit the pipeline and log it with its parameters and test scores."""
    pipeline = build_pipeline(chosen.model, split.rows, chosen.seed).fit(split.rows, split.labels)
    favourable = pipeline.predict_proba(split.test_rows)[:, list(pipeline.classes_).index(table.favourable)]
    accuracy = float(pipeline.score(split.test_rows, split.test_labels))
    auc = float(roc_auc_score(split.test_labels == table.favourable, favourable))
    mlflow.log_params({"model": chosen.model, "seed": chosen.seed, "training_rows": len(split.rows)})
    mlflow.log_params({"target_column": table.labels.name, "favourable_label": table.favourable})
    mlflow.log_metrics({"accuracy": accuracy, "auc": auc})
    progress.step(
        f"Model: {chosen.model}; accuracy {accuracy:.2f}, AUC {auc:.2f} on {len(split.test_rows):,} test rows"
    )
    log_plain(pipeline, split.test_rows.head(3))
    return pipeline


def _log_and_register(
    pipeline: Pipeline,
    split: Split,
    table: Table,
    constraints: Constraints,
    refused: pd.DataFrame,
    chosen: argparse.Namespace,
) -> ModelInfo:
    """Log the pipeline with all it takes to explain its decisions, as a new version: the one call this is all about."""
    try:
        return mlflow_cf.log_model(
            pipeline,
            name="explained",
            data=split.rows,
            labels=split.labels,
            target=table.favourable,
            constraints=constraints,
            seed=chosen.seed,
            registered_model_name=chosen.registered_name,
            input_example=refused.head(3),
        )
    except InputError as error:
        raise SystemExit(error.message) from error


def _evaluate(model_uri: str, refused: pd.DataFrame, progress: Progress) -> None:
    """Explain the rows and log how good the answers are, to this run and to the logged model."""
    progress.step(f"Explaining {len(refused)} refused applicants")
    found = mlflow_cf.evaluate(model_uri, refused, metrics=FURTHER)
    counts = {name: int(found.metrics[f"cf/status/{name}"]) for name in STATUSES}
    progress.step("Outcome: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count))
    if not found.metrics.get("cf/coverage"):
        raise SystemExit(f"None of the refused applicants has a counterfactual: {found.table['reason'][0]}")
    progress.step("Logged: " + ", ".join(f"{name} {found.metrics[name]:.3g}" for name in SHOWN))


if __name__ == "__main__":
    # How the model could do without a package index; the demo's server runs in this very environment.
    logging.getLogger("mlflow_cf.artifact.publish.requirements").setLevel(logging.ERROR)
    end_on_signals()
    main()
