"""What `mlflow_cf.compare` does with a Spark data frame: its workers measure all rows under all versions at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import Model
from pyspark.sql import DataFrame

from mlflow_cf.artifact.served import origin_of
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.compare.summed import SummedVersions, compared_sums
from mlflow_cf.evaluation.compare.versions import Versions, open_versions
from mlflow_cf.evaluation.compare.versions_compared import Sheet
from mlflow_cf.evaluation.measure.lines import GroupSource, grouped
from mlflow_cf.evaluation.measure.measured import Measuring
from mlflow_cf.evaluation.measure.panel import Panel, Whole
from mlflow_cf.evaluation.measure.result import contestants
from mlflow_cf.evaluation.source import Source
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.model.flavors import OWN_FLAVOR, fetch
from mlflow_cf.spark.evaluate import sampled_task
from mlflow_cf.spark.explain import inputs_of
from mlflow_cf.spark.measuring import Rows, measure
from mlflow_cf.spark.shipped import ship


def sheet_of(
    name_or_uris: object,
    rows: DataFrame,
    measuring: Measuring,
    *,
    versions: Sequence[int | str] | None = None,
    labels: Any = None,
    explainers: Sequence[ExplainerSource] | None = None,
    groups: GroupSource | None = None,
) -> Sheet:
    """Return what `compare` works on; workers start when it is carried out.

    Raises:
        InputError: arguments that do not fit; no version that can be compared.
    """
    found = _sent(open_versions(name_or_uris, pd.DataFrame(columns=rows.columns), versions))
    folders = {one.name: fetch(str(one.source)) for one in found.compared}
    models = {one.name: explained for one, explained in found.compared.items()}
    signatures: list[Any] = [Model.load(str(folder)).signature for folder in folders.values()]
    inputs = dict.fromkeys(name for one in signatures for name in inputs_of(rows, one.inputs))
    known = Rows.of(rows, list(inputs), groups, labels)
    chosen = {name: contestants([one.explainer] if explainers is None else explainers) for name, one in models.items()}
    first = next(iter(models.values()))
    sample = known.sample(first.policy.seed if measuring.seed is None else measuring.seed)

    @cache
    def summed() -> SummedVersions:
        sent = {name: ship(rows.sparkSession, one, origin_of(one).manifest_sha256) for name, one in folders.items()}
        work = measure(known, sent, chosen, measuring, compared_sums)
        panel = Panel(models, chosen, {}, work.groups, known.labels is not None)
        return SummedVersions(panel, work.over(known.df))

    def whole(name: str) -> Whole:
        return summed().panel.whole(summed().tally, name)

    tasks, tables = {}, {}
    for one, explained in found.compared.items():
        source = Source(explained, one.model_id, folders[one.name])
        task = sampled_task(source, known, sample, measuring, chosen[one.name], partial(whole, one.name))
        tasks[one.name] = replace(task, competing=explainers is not None)
        tables[one.name] = task.rows
    table = _joined(tables)
    return Sheet(found, tasks, table, grouped(table, known.grouping.groupers), summed)


def _sent(found: Versions) -> Versions:
    """Return the versions that workers can be sent."""
    failed = dict(found.failed)
    compared = {}
    for candidate, explained in found.compared.items():
        if isinstance(candidate.source, str | Path) and OWN_FLAVOR in Model.load(str(fetch(candidate.source))).flavors:
            compared[candidate] = explained
        else:
            failed[candidate.name] = "Spark's workers are sent explained models that were logged or saved; log it"
    if not compared:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise InputError("versions", f"none can be compared ({reasons})", "mend one, or name others")
    return Versions(compared, found.newest, failed, found.notes)


def _joined(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the columns of all tables of the same rows."""
    joined = pd.concat(list(tables.values()), axis=1)
    return joined.loc[:, ~joined.columns.duplicated()]
