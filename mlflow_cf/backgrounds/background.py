"""A background of more rows than an artifact, or memory, holds: some of its rows, and what was counted in all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from mlflow_cf.backgrounds.counting import Counted, Counting, GroupCounts, count
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import Feature, FeatureSpace, Floats, JointCounts, Table
from mlflow_cf.features.codec import encode_column, raw_array
from mlflow_cf.features.infer import checked_overrides, infer_feature
from mlflow_cf.parquet import footer, parquet_files

BLOCK_BYTES: Final = 64 * 1024**2  # of rows that are read at once
LEAST_ROWS, MOST_ROWS = 1024, 1024**2
SAMPLE: Final = 5_000


@dataclass(frozen=True, eq=False)
class ColumnCounts:
    """The values of a column in all rows, as the model takes them.

    Attributes:
        values: (k,) distinct values; counts: (k,) rows of each, or of a number from it up to the next one.
        missing: rows without a value.
        complete: whether all values are there.
        step: of whole numbers not all of which are there: the largest step that reaches all; None for others.
    """

    values: pd.Series[Any]
    counts: NDArray[np.int64]
    missing: int
    complete: bool
    step: int | None


@dataclass(frozen=True, eq=False)
class Background:
    """Training data of any size: a sample of rows, and counts of all. It stands wherever rows of `data` may.

    Every feature's admissible values, their counts, its range and its deviation are those of all rows. A column with
    more distinct values than the sample has rows keeps those of the sample; of a number also its ends, and each value
    counts the rows from it up to the next one.

    Attributes:
        rows: (n, d) the sample.
        labels: (n,) the training target of its rows, where a column was named for it.
        columns: what was counted of each column.
        groups: the combinations of values of groups, as tables of values, with their counts.
        total: how many rows there are.
    """

    rows: pd.DataFrame
    labels: NDArray[np.generic] | None
    columns: Mapping[str, ColumnCounts]
    groups: Mapping[tuple[str, ...], tuple[pd.DataFrame, NDArray[np.int64]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    total: int = 0

    @classmethod
    def from_parquet(
        cls,
        path: str | Path,
        *,
        labels: str | None = None,
        columns: Sequence[str] | None = None,
        groups: Sequence[Sequence[str]] = (),
        sample: int = SAMPLE,
        seed: int = 0,
    ) -> Background:
        """Count all rows of a parquet file, or of all files in a folder, with some dozens of megabytes in memory.

        Args:
            path: the file or folder.
            labels: the column with the training target, which is no feature.
            columns: the features; None: all other columns.
            groups: features that constraints let change together: the combinations that occur are counted, of up to
                20,000; of other groups, those of the sample are known.
            sample: rows to draw, by the `seed`.

        Raises:
            InputError: no parquet files, no rows, a column that is missing somewhere or of several types, or an
                infinite number.
        """
        files = parquet_files(Path(path))
        named = footer(files[0]).schema.to_arrow_schema().names
        features = [name for name in named if name != labels] if columns is None else list(columns)
        wanted = [*features, *([] if labels is None else [labels])]
        kinds = _kinds(files, wanted)
        _check(features, groups, sample, sum(footer(file).num_rows for file in files))
        size = min(max(LEAST_ROWS, BLOCK_BYTES // (16 * len(wanted))), MOST_ROWS)

        def blocks() -> Iterator[pa.Table]:
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches(size, columns=wanted):
                    read = dict(zip(batch.schema.names, batch.columns, strict=True))
                    yield pa.table({name: known(read[name], kinds[name]) for name in wanted})

        together = [tuple(name for name in features if name in set(group)) for group in groups]
        return cls.of(count(blocks, together, sample, seed), labels)

    @classmethod
    def of(cls, counting: Counting, labels: str | None) -> Background:
        """Return the background that a finished `counting` of columns stands for.

        The column `labels` is the training target, and no feature; None: there is none.
        """
        features = [name for name in counting.columns if name != labels]
        table, columns = {}, {}
        for name in features:
            counted = counting.columns[name]
            both = pa.chunked_array([counted.values.cast(counting.sample[name].type), *counting.sample[name].chunks])
            missing = pa.chunked_array([*both.chunks, pa.array([None], both.type)]) if counted.missing else both
            plain, size = missing.to_pandas(), len(counted.values)
            table[name] = plain.iloc[size : len(both)].reset_index(drop=True)
            columns[name] = _column(plain, size, counted)
        target = None if labels is None else counting.sample[labels].to_pandas().to_numpy()
        groups = {names: _group(one, columns) for names, one in counting.groups.items()}
        return cls(pd.DataFrame(table), target, MappingProxyType(columns), MappingProxyType(groups), counting.rows)

    def __len__(self) -> int:
        """Return how many rows the sample has."""
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Background({self.total:,} rows, {len(self.columns)} columns, {len(self.rows):,} rows drawn)"

    def space(self, names: Sequence[str], overrides: Mapping[str, Mapping[str, Any]] | None = None) -> FeatureSpace:
        """Return the features of the columns `names`, as `FeatureSpace.infer` does of a table of all rows.

        `overrides` are facts by column that win over what was counted, as the argument `features` of `wrap`.

        Raises:
            InputError: a column that was not counted, that cannot be described, or none that varies.
        """
        given = checked_overrides(overrides, names)
        features = tuple(_feature(name, self.columns[name], given.get(name, {})) for name in names)
        if all(feature.constant for feature in features):
            raise InputError("data", "no column varies", "give rows that differ")
        joint = (_joint(FeatureSpace(features), *one) for one in self.groups.values() if set(one[0]) <= set(names))
        return FeatureSpace(features, tuple(joint))


def taken(data: Table | Background, labels: ArrayLike | None) -> tuple[Table, ArrayLike | None, Background | None]:
    """Return the rows of what is passed as `data`, their labels, and the background they are drawn from, if any."""
    if not isinstance(data, Background):
        return data, labels, None
    return data.rows, data.labels if labels is None else labels, data


def _check(features: Sequence[str], groups: Sequence[Sequence[str]], sample: int, rows: int) -> None:
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:
        raise InputError("sample", f"{sample!r} is no number of rows", f"leave it out for {SAMPLE:,}")
    if not rows or not features:
        raise InputError("data", f"{rows:,} rows and {len(features)} columns", "give at least two rows")
    for number, group in enumerate(groups):
        for name in group:
            if name not in features:
                raise InputError(f"groups[{number}].{name}", "not a feature", did_you_mean(name, features))


def _kinds(files: Sequence[Path], wanted: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the type in which each column is read, which holds those of all files."""
    found: dict[str, pa.DataType] = {}
    for file in files:
        schema = footer(file).schema.to_arrow_schema()
        for name in wanted:
            if name not in schema.names:
                raise InputError(f"{file.name}.{name}", "column is missing", did_you_mean(name, schema.names))
            kind = readable(schema.field(name).type)
            known = found.setdefault(name, kind)
            if kind != known:
                found[name] = _joined(file, name, known, kind)
    return found


def readable(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are counted: decimals as doubles, days as moments, encoded ones as they are."""
    if pa.types.is_dictionary(kind):
        return readable(kind.value_type)
    if pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.timestamp("us") if pa.types.is_date(kind) else kind


def _joined(file: Path, name: str, known: pa.DataType, kind: pa.DataType) -> pa.DataType:
    plain = (pa.types.is_integer, pa.types.is_floating)
    if not all(any(test(one) for test in plain) for one in (known, kind)):
        raise InputError(f"{file.name}.{name}", f"is {kind} here, and {known} in a file before", "use one type")
    return pa.int64() if pa.types.is_integer(known) and pa.types.is_integer(kind) else pa.float64()


def known(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in the type in which it is counted, with nulls for what is not a number."""
    cast = column.cast(kind)
    return pc.if_else(pc.is_nan(cast), pa.scalar(None, kind), cast) if pa.types.is_floating(kind) else cast


def _column(plain: pd.Series[Any], size: int, counted: Counted) -> ColumnCounts:
    values = plain.iloc[:size].reset_index(drop=True)
    return ColumnCounts(values, counted.counts, counted.missing, counted.complete, counted.step)


def _group(one: GroupCounts, columns: Mapping[str, ColumnCounts]) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    table = {}
    for name in one.values.column_names:
        column, like = one.values[name], columns[name].values.dtype
        plain = column.to_pandas()
        table[name] = plain if plain.dtype == like else plain.astype(like)
    return pd.DataFrame(table), one.counts


def _feature(name: str, column: ColumnCounts, override: Mapping[str, Any]) -> Feature:
    """Describe a column from its distinct values, then put in the counts of all rows."""
    absent = pd.Series([None] * bool(column.missing), dtype=object).astype(column.values.dtype)
    distinct = pd.concat([column.values, absent], ignore_index=True) if column.missing else column.values
    feature = infer_feature(name, distinct, override)
    if feature.constant:
        return feature
    codes, _ = encode_column(feature, raw_array(column.values))
    at = np.searchsorted(feature.values, codes)
    counts: Floats = np.bincount(at, weights=column.counts, minlength=len(feature.values)).astype(np.float64)
    step = feature.step
    if step is not None and not column.complete and feature.numeric and "step" not in override:
        step = None if feature.kind == "date" else float(column.step or 1)
    return replace(feature, counts=counts, mad=_mad(feature.values, counts), step=step)


def _mad(values: Floats, counts: Floats) -> float:
    """Return the median absolute deviation of values that occur so often, or their standard deviation where it is 0."""
    if values[0] == values[-1]:
        return 0.0
    mad = _median(np.abs(values - _median(values, counts)), counts)
    if mad > 0:
        return mad
    rows = counts.sum()
    mean = float(values @ counts / rows)
    return float(np.sqrt(((values - mean) ** 2) @ counts / (rows - 1)))


def _median(values: Floats, counts: Floats) -> float:
    """Return the median of values that occur so often: of an even number of rows, the mean of the middle two."""
    order = np.argsort(values, kind="stable")
    below, rows = counts[order].cumsum(), counts.sum()
    middle = [values[order[np.searchsorted(below, place, side="right")]] for place in ((rows - 1) // 2, rows // 2)]
    return float(sum(middle) / 2)


def _joint(space: FeatureSpace, table: pd.DataFrame, counts: NDArray[np.int64]) -> JointCounts:
    """Return the combinations of a group as codes, in ascending order."""
    columns = tuple(sorted(space.index[name] for name in table.columns))
    coded = [encode_column(space.features[column], raw_array(table[space.names[column]]))[0] for column in columns]
    codes = np.column_stack(coded)
    order = np.lexsort(np.where(np.isnan(codes), np.inf, codes).T[::-1])
    return JointCounts(columns, codes[order], counts[order].astype(np.float64))
