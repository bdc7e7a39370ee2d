"""Counts of all rows of a table that is read in blocks: twice, if some column has too many values to count them all.

The first time, every column's distinct values are counted as long as there are no more than a limit, and rows are
drawn: those with the smallest of random numbers that are drawn in the order of the rows, so that the sizes of blocks do
not matter. A column with more values keeps those of the drawn rows, and its ends. The second time, rows are counted by
these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlflow_cf.errors import InputError

MOST_TOGETHER: Final = 20_000  # combinations of values of a group that are counted
Blocks = Callable[[], Iterator[pa.Table]]  # reads all rows anew
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Counted:
    """The values of one column in all rows.

    Attributes:
        values: (k,) distinct ones, in no order.
        counts: (k,) rows that have each; of a number whose values are not all kept, rows from it up to the next one.
        missing: rows without a value.
        complete: whether all values are kept.
        step: of whole numbers not all of which are kept: the largest step that reaches all; None for others.
    """

    values: pa.Array
    counts: Counts
    missing: int
    complete: bool
    step: int | None = None


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """The combinations of values that a group of columns has in all rows.

    Attributes:
        values: (t, columns) distinct combinations.
        counts: (t,) rows that have each.
    """

    values: pa.Table
    counts: Counts


@dataclass(frozen=True, eq=False)
class Counting:
    """What was counted.

    Attributes:
        rows: how many there are.
        sample: the drawn rows, in their order.
        columns: each column by its name.
        groups: each group whose combinations were counted, by its names.
    """

    rows: int
    sample: pa.Table
    columns: dict[str, Counted]
    groups: dict[tuple[str, ...], GroupCounts]


def count(blocks: Blocks, groups: Sequence[tuple[str, ...]], sample: int, seed: int) -> Counting:
    """Count all rows of blocks, each of which has the same columns of the same types.

    Args:
        blocks: yields the rows; it is called twice at most.
        groups: names of columns whose combinations are counted.
        sample: rows to draw, and the most distinct values of a column that are all kept.
        seed: of the draw.

    Raises:
        InputError: an infinite number.
    """
    drawing = _Drawing(sample, np.random.default_rng(seed))
    columns: dict[str, ColumnCounter] = {}
    together = {names: Together(MOST_TOGETHER) for names in groups}
    rows = 0
    for block in blocks():
        drawing.add(block)
        for name in block.column_names:
            columns.setdefault(name, ColumnCounter(name, sample)).add(block[name], rows)
        for names, one in together.items():
            one.add(block.select(names))
        rows += block.num_rows
    drawn = drawing.rows
    counted = {names: one.grouped for names, one in together.items() if one.complete}
    wide = {name: CellCounter.of(column, drawn[name]) for name, column in columns.items() if not column.complete}
    for block in blocks() if wide else ():
        for name, cells in wide.items():
            cells.add(block[name])
    found = {name: wide[name].counted if name in wide else column.counted for name, column in columns.items()}
    return Counting(rows, drawn, {name: found[name] for name in drawn.column_names}, counted)


@dataclass
class Together:
    """Distinct rows of a few columns and how often each occurs, while there are no more than `most`."""

    most: int
    complete: bool = True
    _kept: pa.Table | None = None

    def add(self, block: pa.Table) -> None:
        """Count the rows of a block."""
        if not self.complete:
            return
        self.add_counted(block, np.ones(block.num_rows, dtype=np.int64))

    def add_counted(self, rows: pa.Table, counts: Counts) -> None:
        """Count rows that occur so often each."""
        block = rows.append_column("", pa.array(counts))
        parts = [block] if self._kept is None else [self._kept, block]
        *names, _ = block.column_names
        summed = pa.concat_tables(parts).group_by(names, use_threads=False).aggregate([("", "sum")])
        self._kept = summed.rename_columns([*names, ""])
        self.complete = summed.num_rows <= self.most
        if not self.complete:
            self._kept = None

    @property
    def grouped(self) -> GroupCounts:
        """The distinct rows with their counts."""
        return GroupCounts(self.values, self.counts)

    @property
    def values(self) -> pa.Table:
        """The distinct rows."""
        return pa.table({}) if self._kept is None else self._kept.drop_columns([""])

    @property
    def counts(self) -> Counts:
        """How often each occurs."""
        return np.empty(0, np.int64) if self._kept is None else self._kept[""].to_numpy()


@dataclass
class ColumnCounter:
    """One column while rows are read for the first time.

    Attributes:
        name: of the column.
        most: values that are counted.
        missing: rows without a value.
        ends: the least and the greatest number.
        divisor: what all differences of whole numbers are multiples of; first: the first of them.
        fraction: a number that is not whole, if there is one.
        values: distinct ones.
    """

    name: str
    most: int
    missing: int = 0
    ends: tuple[Any, Any] | None = None
    divisor: int = 0
    first: int | None = None
    fraction: float | None = None
    values: Together = field(init=False)

    def __post_init__(self) -> None:
        self.values = Together(self.most)

    @property
    def complete(self) -> bool:
        """Whether all values are counted."""
        return self.values.complete

    def add(self, column: pa.ChunkedArray, before: int) -> None:
        """Look at the rows of a block, of which so many come before."""
        if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
            row = before + pc.index(pc.is_inf(column), value=True).as_py()
            raise InputError(f"data.{self.name}", f"row {row:,} is infinite", "clean the column")
        self.missing += column.null_count
        known = column.drop_null()
        self.values.add(pa.table({"value": known}))
        if len(known) and is_number(column.type):
            self._look(numbers(known))

    def _look(self, known: NDArray[Any]) -> None:
        """Take down the ends of numbers, the step of whole ones, and one that is not whole."""
        low, high = known.min(), known.max()
        if self.ends is not None:
            low, high = min(low, self.ends[0]), max(high, self.ends[1])
        self.ends = low, high
        if known.dtype.kind in "iu":
            self.first = int(known[0]) if self.first is None else self.first
            # whatever divides all gaps of a block, and the way from it to the first value, divides all gaps
            gaps = np.diff(np.unique(known)).tolist()
            self.divisor = gcd(self.divisor, int(known[0]) - self.first, *gaps)
        elif self.fraction is None:
            fractions = known[np.floor(known) != known]
            self.fraction = float(fractions[0]) if len(fractions) else None

    def merge(self, other: ColumnCounter) -> None:
        """Take up what was seen of other rows of the column."""
        self.missing += other.missing
        self.divisor = gcd(self.divisor, other.divisor, (other.first or 0) - (self.first or other.first or 0))
        self.first = other.first if self.first is None else self.first
        self.fraction = other.fraction if self.fraction is None else self.fraction
        both = [ends for ends in (self.ends, other.ends) if ends is not None]
        self.ends = (min(low for low, _ in both), max(high for _, high in both)) if both else None
        if not (self.complete and other.complete):
            self.values = Together(self.most, complete=False)
        elif other.values.values.num_columns:
            self.values.add_counted(other.values.values, other.values.counts)

    @property
    def counted(self) -> Counted:
        """All values, where they are counted."""
        values = self.values.values
        kept = values.column(0).combine_chunks() if values.num_columns else pa.array([], pa.null())
        return Counted(kept, self.values.counts, self.missing, complete=True)


@dataclass
class CellCounter:
    """A column with too many values to keep them all, while rows are read for the second time.

    Attributes:
        values: those that are kept, ascending.
        counts: rows so far, by the value that they are counted with.
        missing: rows without a value.
        step: as in `Counted`.
    """

    values: pa.Array
    counts: Counts
    missing: int
    step: int | None

    @classmethod
    def of(cls, column: ColumnCounter, drawn: pa.ChunkedArray) -> CellCounter:
        """Set up with the values of drawn rows; of numbers, with the ends, and one that is not whole if any is."""
        values = drawn.drop_null().combine_chunks().unique().sort()
        if is_number(drawn.type):
            more = [one for one in (*(column.ends or ()), column.fraction) if one is not None]
            known = numbers(values)
            values = pa.array(np.unique(np.append(known, np.array(more, dtype=known.dtype)))).cast(drawn.type)
        step = column.divisor if column.divisor and pa.types.is_integer(drawn.type) else None
        return cls(values, np.zeros(len(values), dtype=np.int64), column.missing, step)

    def add(self, column: pa.ChunkedArray) -> None:
        """Count the rows of a block."""
        known = column.drop_null()
        if is_number(column.type):
            at = np.searchsorted(numbers(self.values), numbers(known), side="right") - 1
        else:
            at = pc.index_in(known, value_set=self.values).drop_null().to_numpy()
        self.counts += np.bincount(at, minlength=len(self.values))

    @property
    def counted(self) -> Counted:
        """The values with their counts."""
        return Counted(self.values, self.counts, self.missing, complete=False, step=self.step)


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type have an order and distances."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind))


def numbers(values: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return known numbers, or moments as whole numbers of their unit."""
    plain = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
    found: NDArray[Any] = np.asarray(plain)
    return found


@dataclass
class _Drawing:
    """Draws rows: those with the smallest of random numbers, one for each row in order."""

    most: int
    rng: np.random.Generator
    _kept: pa.Table | None = None
    _drawn: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def add(self, block: pa.Table) -> None:
        """Draw among the rows of a block and those drawn before; they stay in the order in which they came."""
        drawn = self.rng.random(block.num_rows)
        bar = np.inf if len(self._drawn) < self.most else self._drawn.max()
        chosen = np.flatnonzero(drawn < bar)
        rows = block.take(pa.array(chosen))
        joined = rows if self._kept is None else pa.concat_tables([self._kept, rows])
        self._drawn = np.append(self._drawn, drawn[chosen])
        if len(self._drawn) > self.most:
            kept = np.sort(np.argsort(self._drawn, kind="stable")[: self.most])
            joined, self._drawn = joined.take(pa.array(kept)), self._drawn[kept]
        self._kept = joined.combine_chunks()

    @property
    def rows(self) -> pa.Table:
        """The drawn rows."""
        return pa.table({}) if self._kept is None else self._kept
