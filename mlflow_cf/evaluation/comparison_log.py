"""A comparison in MLflow: one run with a child per version, metrics on the logged models, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import mlflow
import pandas as pd

from mlflow_cf.evaluation.comparison import Comparison
from mlflow_cf.evaluation.versions import Version

MOST_WORDS: Final = 4_000  # characters of a description
FOLDER: Final = "compare"  # of tables and figures among the artifacts of the run
TABLES: Final = ("aggregates", "survival", "burden", "advice", "differences")
TAG: Final = "cf.compared"


@contextmanager
def comparing(names: Sequence[str]) -> Iterator[str]:
    """Work in the active run, or in a new one that ends with the block; the value is its id."""
    active = mlflow.active_run()
    if active is not None:
        mlflow.set_tag(TAG, ", ".join(names))
        yield active.info.run_id
        return
    with mlflow.start_run(run_name=f"compare {names[0]} to {names[-1]}", tags={TAG: ", ".join(names)}) as run:
        yield run.info.run_id


@contextmanager
def versioned(version: Version) -> Iterator[str]:
    """Work in a child run, tagged with the logged model and the registered version; the value is its id."""
    known = version.candidate
    name, number = known.registered or (None, None)
    tags = {
        "cf.version": known.name,
        "cf.uri": known.source if isinstance(known.source, str) else None,
        "cf.model_id": known.model_id,
        "cf.registered_model": name,
        "cf.registered_version": number,
    }
    with mlflow.start_run(run_name=known.name, nested=True, tags={k: v for k, v in tags.items() if v}) as run:
        yield run.info.run_id


def log_metrics(metrics: Mapping[str, float], run_id: str, model_id: str | None) -> None:
    """Log metrics to the run of a version and to its logged model."""
    if metrics:
        mlflow.log_metrics(dict(metrics), run_id=run_id, model_id=model_id)


def log_comparison(comparison: Comparison) -> None:
    """Log tables and figures to the active run."""
    from mlflow_cf.evaluation.comparison_figures import figures_of  # noqa: PLC0415  matplotlib, which no server needs

    for name in TABLES:
        table: pd.DataFrame = getattr(comparison, name)
        if len(table):
            # MLflow selects texts as objects
            texts = {column: object for column in table.columns if table[column].dtype == "str"}
            mlflow.log_table(table.astype(texts), f"{FOLDER}/{name}.json")
    for name, figure in figures_of(comparison).items():
        mlflow.log_figure(figure, f"{FOLDER}/{name}.png")
    # what the run's page shows first
    mlflow.set_tag("mlflow.note.content", f"```\n{comparison!r}"[:MOST_WORDS] + "\n```")
    mlflow.log_dict({"notes": list(comparison.notes), "left_out": dict(comparison.failed)}, f"{FOLDER}/notes.json")
