"""Groups of the rows of a Spark data frame: bins at quartiles that its workers find, and the labels that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as sql
from pyspark.sql.functions import col, count, count_distinct, date_diff, expr, floor, isnan, lit, when
from pyspark.sql.functions import max as largest_of
from pyspark.sql.functions import min as least_of
from pyspark.sql.functions import sum as sum_of

from mlflow_cf.evaluation.measure.bins import (
    FEW_VALUES,
    QUARTILES,
    Bins,
    Days,
    Grouper,
    Values,
    day_bins,
    number_bins,
)
from mlflow_cf.evaluation.measure.lines import MISSING, GroupSource, asked_groups, check_few, edge_bins
from mlflow_cf.features import Floats
from mlflow_cf.reporting.groups import order_of

VALUE: Final = "value"


@dataclass(frozen=True, eq=False)
class Grouping:
    """What tells the group of each row, and which groups there may be.

    Attributes:
        groupers: by column.
        groups: column and label of each.
    """

    groupers: Mapping[str, Grouper]
    groups: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, df: DataFrame, groups: GroupSource | None) -> Grouping:
        """Look at the columns by which groups are asked for, as `groupers_of` does; some jobs for each.

        Raises:
            InputError: too many values, or bins of what is no number.
        """
        groupers: dict[str, Grouper] = {}
        found: list[tuple[str, str]] = []
        for name, edges in asked_groups(groups).items():
            groupers[name] = _grouper(df, name, edges, binned=not isinstance(groups, Mapping))
            labels = {*_labels(df, name, groupers[name]), MISSING}
            found += [(name, label) for label in sorted(labels, key=order_of)]
        return cls(groupers, found)


def plain_column(batch: pa.RecordBatch, name: str) -> pd.Series[Any]:
    """Return a column that is no feature as pandas has it, alike in all blocks: whole numbers stay whole beside nulls.

    Decimals become doubles. Moments are in the session's zone, without it.
    """
    column = batch.column(name)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = pc.local_timestamp(column)
    if column.null_count and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        return pd.Series(column.to_pylist(), dtype=object)
    found: pd.Series[Any] = column.to_pandas(date_as_object=False)
    return found


def _grouper(df: DataFrame, name: str, edges: Sequence[float] | None, *, binned: bool) -> Grouper:
    kind = df.schema[name].dataType
    numbers = isinstance(kind, sql.NumericType)
    if edges is not None:
        return edge_bins(name, edges, numbers=numbers)
    if binned and isinstance(kind, sql.DateType | sql.TimestampType | sql.TimestampNTZType):
        days = Spread.of(df, date_diff(col(f"`{name}`").cast("date"), lit("1970-01-01").cast("date")))
        return Days() if days.distinct <= FEW_VALUES else day_bins(days)
    if binned and numbers:
        spread = Spread.of(df, col(f"`{name}`"))
        if spread.distinct > FEW_VALUES and spread.least < spread.largest:
            return number_bins(spread, whole=spread.whole)
    value = col(f"`{name}`")
    known = when(~isnan(value), value) if isinstance(kind, sql.DoubleType | sql.FloatType) else value
    check_few(name, df.agg(count_distinct(known)).collect()[0][0])
    return Values()


def _labels(df: DataFrame, name: str, grouper: Grouper) -> list[str]:
    """Return the labels of the groups that there are."""
    if isinstance(grouper, Bins):
        return list(grouper.names)
    value = col(f"`{name}`")
    distinct = df.select((value.cast("date") if isinstance(grouper, Days) else value).alias(name)).distinct().toArrow()
    column = plain_column(joined(distinct), name)
    return list(grouper.labels(column.dropna()))


def joined(table: pa.Table) -> pa.RecordBatch:
    """Return a table in one piece."""
    columns = [pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in table]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


@dataclass(frozen=True, eq=False)
class Spread:
    """What bins need to know of finite numbers in a data frame; see `mlflow_cf.evaluation.measure.bins.Spread`.

    Attributes:
        rows: the numbers, in a column ``value``.
        distinct: different ones, infinite ones among them; finite: how many are.
        least, largest: of them; NaN of none.
        whole: whether all are.
    """

    rows: DataFrame
    distinct: int
    finite: int
    least: float
    largest: float
    whole: bool

    @classmethod
    def of(cls, df: DataFrame, value: Column) -> Spread:
        """Look at all rows once."""
        number = value.cast("double")
        rows = df.select(number.alias(VALUE)).where(col(VALUE).isNotNull() & ~isnan(VALUE))
        finite = rows.where(~col(VALUE).isin(float("inf"), float("-inf")))
        distinct = rows.agg(count_distinct(VALUE)).collect()[0][0]
        facts = finite.agg(
            count(VALUE), least_of(VALUE), largest_of(VALUE), sum_of((col(VALUE) != floor(col(VALUE))).cast("int"))
        ).collect()[0]
        least, largest = (float("nan") if one is None else float(one) for one in facts[1:3])
        return cls(finite, int(distinct), int(facts[0]), least, largest, not facts[3])

    @property
    def quartiles(self) -> Floats:
        """The values at the quartiles, or just above."""
        # half a row before the one that is meant: that is where its share of the rows begins, whatever rounding does
        places = [(np.ceil(share * (self.finite - 1)) + 0.5) / self.finite for share in QUARTILES]
        at = [expr(f"percentile_disc({place!r}) WITHIN GROUP (ORDER BY {VALUE})") for place in map(float, places)]
        return np.array(self.rows.agg(*at).collect()[0], dtype=np.float64)

    @property
    def second(self) -> float:
        """The least but one."""
        return float(self.rows.where(col(VALUE) > self.least).agg(least_of(VALUE)).collect()[0][0])

    def filled(self, edges: Floats) -> bool:
        """Return whether no bin between these edges (k,) is empty."""
        ends = [float("-inf"), *edges.tolist(), float("inf")]
        inside = [largest_of(((col(VALUE) >= low) & (col(VALUE) < high)).cast("int")) for low, high in pairwise(ends)]
        return all(self.rows.agg(*inside).collect()[0])
