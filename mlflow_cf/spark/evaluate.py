"""What `mlflow_cf.evaluate` does with a Spark data frame: its workers measure all rows, the driver a sample of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from mlflow.models import Model
from pyspark.sql import DataFrame

from mlflow_cf.artifact.served import origin_of
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.evaluate import Task
from mlflow_cf.evaluation.measure.lines import GroupSource
from mlflow_cf.evaluation.measure.measured import Measuring, inliers_of
from mlflow_cf.evaluation.measure.panel import Panel, Whole
from mlflow_cf.evaluation.measure.result import contestants
from mlflow_cf.evaluation.source import Source
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.spark.explain import inputs_of
from mlflow_cf.spark.measuring import Rows, measure
from mlflow_cf.spark.shipped import ship


def task_of(
    source: Source,
    rows: DataFrame,
    measuring: Measuring,
    *,
    labels: Any = None,
    explainers: Sequence[ExplainerSource] | None = None,
    groups: GroupSource | None = None,
    risk: bool = False,
    metrics: Sequence[str] = (),
) -> Task:
    """Return what `evaluate` is asked for, checked before any run is opened; workers start when it is carried out.

    Raises:
        InputError: arguments that do not fit.
    """
    explained, folder = source.explained, source.folder
    if folder is None:
        fix = "log it with mlflow_cf.log_model and pass its URI"
        raise InputError("model", "Spark's workers cannot be sent a model that is in memory alone", fix)
    if isinstance(metrics, str):
        raise InputError("metrics", f"{metrics!r} is not a list of names", f"pass [{metrics!r}]")
    chosen = contestants([explained.explainer] if explainers is None else explainers)
    signature: Any = Model.load(str(folder)).signature
    known = Rows.of(rows, inputs_of(rows, signature.inputs), groups, labels)
    sample = known.sample(explained.policy.seed if measuring.seed is None else measuring.seed)

    def elsewhere() -> Whole:
        sent = ship(rows.sparkSession, folder, origin_of(folder).manifest_sha256)
        work = measure(known, {"": sent}, {"": chosen}, measuring)
        panel = Panel({"": explained}, work.explainers, {}, work.groups, known.labels is not None)
        return panel.whole(work.over(known.df), "")

    task = sampled_task(source, known, sample, measuring, chosen, elsewhere)
    return replace(task, competing=explainers is not None, risk=risk, metrics=tuple(metrics))


def sampled_task(
    source: Source,
    rows: Rows,
    sample: pa.RecordBatch,
    measuring: Measuring,
    explainers: Mapping[str, ExplainerSource],
    elsewhere: Callable[[], Whole],
) -> Task:
    """Return the task to evaluate a model on a sample of the rows, and beside it on all of them `elsewhere`."""
    explained = source.explained
    table = rows.table(sample, explained.space)
    labels = None if rows.labels is None else table[rows.labels].to_numpy()
    beside = lines.Beside.of(table, labels, rows.grouping.groupers, explained)
    how = replace(measuring, lof=inliers_of(explained))
    return Task(source, table, beside, explainers, how, competing=False, elsewhere=elsewhere)
