"""Rows of a Spark data frame measured by its workers: the driver gets sums, and a sample of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Final

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit, xxhash64

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import CounterfactualError, InputError, did_you_mean
from mlflow_cf.evaluation.measure.bins import Grouper
from mlflow_cf.evaluation.measure.lines import GroupSource, asked_groups, grouped
from mlflow_cf.evaluation.measure.measured import PART, Measuring, inliers_of
from mlflow_cf.evaluation.measure.moments import Sums, Tally
from mlflow_cf.evaluation.measure.panel import Block, Key, Measured, Panel, named
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.features import FeatureSpace
from mlflow_cf.metrics import Inliers
from mlflow_cf.spark.columns import rows_of
from mlflow_cf.spark.errors import told
from mlflow_cf.spark.grouping import Grouping, joined, plain_column
from mlflow_cf.spark.shipped import opened

SAMPLE: Final = 1_000  # rows that lines, pictures and reports show
BUCKETS: Final = 16  # the sums of so many parts are put together by workers before the driver has them
SUMS: Final = "bucket int, sums binary"
WORKERS: Final = "workers"  # failures of all explainers

More = Callable[[Panel, Block, Measured, Sequence[Bools]], Iterator[tuple[str, Sums]]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that are measured.

    Attributes:
        df: the data frame, with the columns that are needed.
        grouping: their groups.
        labels: the column with the true targets, if there is one.
    """

    df: DataFrame
    grouping: Grouping
    labels: str | None

    @classmethod
    def of(cls, df: DataFrame, inputs: Sequence[str], groups: GroupSource | None, labels: object) -> Rows:
        """Take the columns that models need, those of groups and that of labels.

        Raises:
            InputError: one is missing or there twice, or does not fit; or no rows.
        """
        if labels is not None and not isinstance(labels, str):
            raise InputError("labels", f"a {type(labels).__name__} beside a data frame of Spark", "name its column")
        wanted = {name: f"groups.{name}" for name in asked_groups(groups)} | ({labels: "labels"} if labels else {})
        for name, path in wanted.items():
            if df.columns.count(name) != 1:
                fact = "two columns have this name" if name in df.columns else f"{name!r} is no column of rows"
                raise InputError(path, fact, did_you_mean(name, df.columns, "columns"))
        chosen = df.select([col(f"`{name}`") for name in dict.fromkeys([*inputs, *wanted])])
        if chosen.isEmpty():
            raise InputError("rows", "there are none", "pass at least one row")
        return cls(chosen, Grouping.of(chosen, groups), labels)

    def sample(self, seed: int, most: int = SAMPLE) -> pa.RecordBatch:
        """Return some of the rows, drawn by the seed and by what they hold, however they are parted."""
        names = [col(f"`{name}`") for name in self.df.columns]
        return joined(self.df.orderBy(xxhash64(lit(seed), *names)).limit(most).toArrow())

    def table(self, batch: pa.RecordBatch, space: FeatureSpace) -> pd.DataFrame:
        """Return rows as a table with the features of a model, and beside them the columns of groups and labels."""
        table = rows_of(batch, space)
        others = [*self.grouping.groupers, *([] if self.labels is None else [self.labels])]
        beside = {name: plain_column(batch, name) for name in others if name not in table.columns}
        return table.assign(**beside)


@dataclass(frozen=True, eq=False)
class Measure:
    """What a worker does with the rows of a partition.

    Attributes:
        models: the names that workers find models by, by the names of the models.
        explainers: of each model, by name.
        measuring: how; without a time limit, and with `lof` unknown.
        row_s: seconds for each row and explainer; None: no clock.
        groupers, groups: as in `Grouping`.
        labels: the column with the true targets, if there is one.
        more: further sums of a measured block.
    """

    models: Mapping[str, str]
    explainers: Mapping[str, Mapping[str, ExplainerSource]]
    measuring: Measuring
    row_s: float | None
    groupers: Mapping[str, Grouper]
    groups: Sequence[tuple[str, str]]
    labels: str | None
    more: More | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sums of all blocks as one row."""
        tally = None
        for batch in batches:
            for start in range(0, batch.num_rows, PART):
                own = self.tally(batch.slice(start, PART), {} if tally is None else tally.failures)
                tally = own if tally is None else tally.merged(own)
        if tally is not None:
            yield _row(TaskContext.get().partitionId() % BUCKETS, tally)  # type: ignore[union-attr]

    def tally(self, batch: pa.RecordBatch, failures: Mapping[str, str]) -> Tally:
        """Return the sums of some rows; who has failed before is not asked again."""
        if WORKERS in failures:
            return Tally({}, failures)
        try:
            panel = self.panel(batch.num_rows)
        except CounterfactualError as error:
            return Tally({}, {WORKERS: error.message})
        beside = pd.DataFrame({name: plain_column(batch, name) for name in self.groupers}, index=range(batch.num_rows))
        labels = None if self.labels is None else plain_column(batch, self.labels).to_numpy()
        block = Block(lambda space: rows_of(batch, space), grouped(beside, self.groupers), labels)
        members = panel.members(block.groups)
        measured = panel.measure(
            block, {key: failures[name] for key in panel.keys if (name := failed(key)) in failures}
        )
        sums = dict(panel.sums(measured, members))
        if self.more is not None:
            sums |= dict(self.more(panel, block, measured, members))
        return Tally(sums, {failed(key): why for key, why in measured.failures.items()})

    def panel(self, rows: int) -> Panel:
        """Return who measures so many rows; models are opened once in a worker process."""
        limit = None if self.row_s is None else self.row_s * rows
        models = {name: opened(sent) for name, sent in self.models.items()}
        measuring = {
            name: replace(self.measuring, time_limit_s=limit, lof=_inliers(sent) or False)
            for name, sent in self.models.items()
        }
        return Panel(models, self.explainers, measuring, self.groups, self.labels is not None)

    def over(self, df: DataFrame) -> Tally:
        """Let the workers measure all rows.

        Raises:
            InputError: workers that cannot open a model, or that fail.
        """
        fix = "install the same mlflow-cf, and the model's requirements, for the Python of Spark's workers"
        try:
            sums = df.mapInArrow(self, SUMS).groupBy("bucket").applyInArrow(_merge, SUMS).select("sums").collect()
        except PySparkException as error:
            raise InputError(WORKERS, f"cannot measure the rows ({told(error)})", fix) from error
        tally = reduce(Tally.merged, (Tally.from_bytes(bytes(row.sums)) for row in sums))
        if WORKERS in tally.failures:
            raise InputError(WORKERS, f"cannot open a model ({tally.failures[WORKERS]})", fix)
        return tally


def failed(key: Key) -> str:
    """Return what a `Tally` calls the failure of an explainer."""
    return named("failure", *key)


def _merge(rows: pa.Table) -> pa.Table:
    """Return the sums of several partitions as one row."""
    tally = reduce(Tally.merged, (Tally.from_bytes(one.as_py()) for one in rows["sums"]))
    return pa.Table.from_batches([_row(rows["bucket"][0].as_py(), tally)])


def _row(bucket: int, tally: Tally) -> pa.RecordBatch:
    columns = [pa.array([bucket], pa.int32()), pa.array([tally.to_bytes()], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "sums"])


# As for models: a worker process is given many parts of data frames, and nothing else outlives a part.
@lru_cache(maxsize=8)
def _inliers(sent: str) -> Inliers | None:
    return inliers_of(opened(sent))


def measure(
    rows: Rows,
    models: Mapping[str, str],
    explainers: Mapping[str, Mapping[str, ExplainerSource]],
    how: Measuring,
    more: More | None = None,
) -> Measure:
    """Return what workers do with `rows`: with models that were sent by these names, and their explainers.

    A time limit is shared evenly by the rows, and counts the time of all workers together.
    """
    limit = None if how.time_limit_s is None else how.time_limit_s / rows.df.count()
    plain, grouping = replace(how, time_limit_s=None, lof=False, keep=None), rows.grouping
    return Measure(models, explainers, plain, limit, grouping.groupers, tuple(grouping.groups), rows.labels, more)
