"""What the benchmark writes to MLflow: one run, and a nested run per data set and model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import mlflow
import pandas as pd
from parts.contest import Pair
from parts.gates import Gate


def use_store(folder: str) -> None:
    """Keep the runs in `folder` (a database and the artifacts), or where MLflow is set to when it is empty."""
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # INFO tells of every new table of the database
    if not folder:
        return
    home = Path(folder).resolve()
    home.mkdir(parents=True, exist_ok=True)
    mlflow.set_tracking_uri(f"sqlite:///{home / 'mlflow.db'}")
    if mlflow.get_experiment_by_name("benchmark") is None:
        mlflow.create_experiment("benchmark", artifact_location=(home / "artifacts").as_uri())
    mlflow.set_experiment("benchmark")


def log_pair(pair: Pair, found: Sequence[Gate], extra: Mapping[str, float]) -> None:
    """Write one nested run: settings, all figures, a line per method, per row and per promise.

    Args:
        pair: what all methods did.
        found: the promises.
        extra: more figures.
    """
    with mlflow.start_run(run_name=pair.name, nested=True):
        mlflow.log_params(
            {
                "data_set": pair.case.name,
                "model": pair.model,
                "structure": pair.explained.opened.note,
                "rows": len(pair.case.rejected),
                "background_rows": len(pair.case.background),
            }
        )
        mlflow.log_metrics({"accuracy": pair.case.accuracy, "broken": len(pair.broken), **extra})
        mlflow.log_metric("gates_missed", sum(not gate.kept for gate in found))
        log_figures({**pair.measured, "proofs": pair.certificates.figures()})
        mlflow.log_table(_with_names(pair.measured), "methods.json")
        rows = [told.assign(method=method, row=range(len(told))) for method, told in pair.lines.items()]
        mlflow.log_table(pd.concat(rows, ignore_index=True), "answers.json")
        mlflow.log_table(pd.DataFrame([{**vars(gate), "kept": gate.kept} for gate in found]), "gates.json")


def log_figures(measured: Mapping[str, Mapping[str, float]]) -> None:
    """Write figures of several methods to the active run, each as ``method/figure``."""
    mlflow.log_metrics(
        {f"{method}/{key}": value for method, values in measured.items() for key, value in values.items()}
    )


def _with_names(measured: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    return pd.DataFrame([{"method": method, **values} for method, values in measured.items()])
