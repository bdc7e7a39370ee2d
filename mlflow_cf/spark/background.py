"""A background of a Spark data frame: counted by its workers; the driver gets the counts and a sample of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, rand

from mlflow_cf.backgrounds import Background
from mlflow_cf.backgrounds.background import SAMPLE, known, readable
from mlflow_cf.backgrounds.counting import MOST_TOGETHER, CellCounter, ColumnCounter, Counted, Counting, GroupCounts
from mlflow_cf.errors import InputError, did_you_mean

STATES: Final = "name string, state binary"
CELLS: Final = "name string, counts array<bigint>"
_FACTS: Final = b"facts"


def background(
    df: DataFrame,
    *,
    labels: str | None = None,
    columns: Sequence[str] | None = None,
    groups: Sequence[Sequence[str]] = (),
    sample: int = SAMPLE,
    seed: int = 0,
) -> Background:
    """Count all rows of a Spark data frame as `mlflow_cf.Background.from_parquet` counts those of files.

    The data frame is computed once for the counts, once for the sample, once for each group, and once more if some
    column has more distinct values than the sample has rows: cache it where that is costly. The same `seed` draws the
    same rows as long as the data frame is parted in the same way.

    Args:
        df: the rows; moments are taken in the session's zone, without it.
        labels: the column with the training target, which is no feature.
        columns: the features; None: all other columns.
        groups: features that constraints let change together.
        sample: rows to draw, by the `seed`.

    Raises:
        InputError: no rows, a column that is missing or there twice.
    """
    features = [name for name in df.columns if name != labels] if columns is None else list(columns)
    wanted = [*features, *([] if labels is None else [labels])]
    for name in [*wanted, *(name for group in groups for name in group)]:
        if df.columns.count(name) != 1:
            fact = "two columns have this name" if name in df.columns else "column is missing"
            raise InputError(f"df.{name}", fact, did_you_mean(name, df.columns, "columns"))
    rows = df.select([col(f"`{name}`") for name in wanted])
    drawn = _plain(rows.orderBy(rand(seed)).limit(sample).toArrow())
    if not drawn.num_rows or not features:
        raise InputError("df", f"{drawn.num_rows} rows and {len(features)} columns", "give at least two rows")

    def merge(states: pa.Table) -> pa.Table:  # Spark looks at how many arguments a function has
        return merge_columns(states, sample)

    states = rows.mapInArrow(CountColumns(sample), STATES).groupBy("name").applyInArrow(merge, STATES)
    counters = {row.name: from_bytes(row.name, bytes(row.state), sample) for row in states.collect()}
    cells = {name: CellCounter.of(one, drawn[name]) for name, one in counters.items() if not one.complete}
    counted = {name: one.counted for name, one in counters.items() if one.complete} | _cells(rows, cells)
    for name in wanted:  # of no value in any row
        counted.setdefault(name, Counted(pa.array([], drawn[name].type), np.empty(0, np.int64), 0, complete=True))
    total = counted[wanted[0]].missing + int(counted[wanted[0]].counts.sum())
    together = {}
    for group in groups:
        names = tuple(name for name in features if name in set(group))
        found = _plain(rows.groupBy(*(col(f"`{name}`") for name in names)).count().limit(MOST_TOGETHER + 1).toArrow())
        if found.num_rows <= MOST_TOGETHER:
            counts = found.column(len(names)).to_numpy()
            together[names] = GroupCounts(found.select(list(range(len(names)))), counts)
    return Background.of(Counting(total, drawn, {name: counted[name] for name in wanted}, together), labels)


@dataclass(frozen=True)
class CountColumns:
    """Counts the rows of a partition, column by column; yields what it has seen of each."""

    most: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the state of each column."""
        counters: dict[str, ColumnCounter] = {}
        before = 0
        for batch in batches:
            block = _plain(pa.Table.from_batches([batch]))
            for name in block.column_names:
                counters.setdefault(name, ColumnCounter(name, self.most)).add(block[name], before)
            before += batch.num_rows
        yield from _states(counters)


def merge_columns(states: pa.Table, most: int) -> pa.Table:
    """Return the state of one column in all rows, of those in all partitions."""
    name = states["name"][0].as_py()
    merged = ColumnCounter(name, most)
    for state in states["state"]:
        merged.merge(from_bytes(name, state.as_py(), most))
    return pa.Table.from_batches(_states({name: merged}))


@dataclass(frozen=True)
class CountCells:
    """Counts the rows of a partition by the values that are kept of columns with too many."""

    cells: Mapping[str, CellCounter]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the counts of each column."""
        for batch in batches:
            block = _plain(pa.Table.from_batches([batch]))
            for name, one in self.cells.items():
                one.add(block[name])
        yield _cell_batch({name: one.counts.tolist() for name, one in self.cells.items()})


def _merge_cells(counts: pa.Table) -> pa.Table:
    """Return the sum of the counts of one column in all partitions."""
    summed = np.sum([one.as_py() for one in counts["counts"]], axis=0)
    return pa.Table.from_batches([_cell_batch({counts["name"][0].as_py(): summed.tolist()})])


def _cells(rows: DataFrame, cells: Mapping[str, CellCounter]) -> dict[str, Counted]:
    """Return the columns with too many values, counted by those that are kept."""
    if not cells:
        return {}
    wide = rows.select([col(f"`{name}`") for name in cells])
    for row in wide.mapInArrow(CountCells(cells), CELLS).groupBy("name").applyInArrow(_merge_cells, CELLS).collect():
        cells[row.name].counts += np.array(row.counts, dtype=np.int64)
    return {name: one.counted for name, one in cells.items()}


def _cell_batch(counts: Mapping[str, list[int]]) -> pa.RecordBatch:
    columns = [pa.array(list(counts)), pa.array(list(counts.values()), pa.list_(pa.int64()))]
    return pa.RecordBatch.from_arrays(columns, names=["name", "counts"])


def _states(counters: Mapping[str, ColumnCounter]) -> Iterator[pa.RecordBatch]:
    columns = [pa.array(list(counters)), pa.array(map(to_bytes, counters.values()), pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, names=["name", "state"])


def to_bytes(counter: ColumnCounter) -> bytes:
    """Return what a counter has seen, as Arrow writes tables."""
    ends = None if counter.ends is None else [one.item() for one in counter.ends]
    seen = [counter.missing, ends, counter.divisor, counter.first, counter.fraction, counter.complete]
    table = counter.values.values
    if table.num_columns:
        table = table.append_column("count", pa.array(counter.values.counts))
    table = table.replace_schema_metadata({_FACTS: json.dumps(seen).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def from_bytes(name: str, state: bytes, most: int) -> ColumnCounter:
    """Return a counter that has seen what `to_bytes` wrote."""
    table = pa.ipc.open_stream(state).read_all()
    missing, ends, divisor, first, fraction, complete = json.loads(table.schema.metadata[_FACTS])
    pair: Any = None if ends is None else tuple(np.array(ends))
    found = ColumnCounter(name, most, missing, pair, divisor, first, fraction)
    found.values.complete = complete
    if complete and table.num_columns:
        found.values.add_counted(table.select([0]), table["count"].to_numpy())
    return found


def _plain(table: pa.Table) -> pa.Table:
    """Return rows of Spark in the types in which they are counted."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            column = pc.local_timestamp(column)  # noqa: PLW2901  as pandas gets it from Spark
        columns[name] = known(column, readable(column.type))
    return pa.table(columns).replace_schema_metadata(None)
