"""Encoded values of linear models and networks: the entries of the first layer that come from one feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.dense import First
from mlflow_cf.structures.layers.columns import Column, IntervalColumn, LevelColumn, NumberColumn, value_of_missing
from mlflow_cf.structures.parts import Choice, Number
from mlflow_cf.structures.trees.cells import Lookup, last_values


@dataclass(frozen=True)
class LevelCodes:
    """Levels, whose codes are their entries."""

    count: int

    def encode(self, codes: Floats) -> Floats:
        """Return the entries (n,) of raw codes (n,)."""
        return codes


# an interval column numbers its intervals
Source = NumberColumn | IntervalColumn | LevelCodes
Entries = tuple[tuple[Number | Choice, ...], ...]


def key_of(column: Column) -> object:
    """Return a key that is equal for encoded columns of one feature that are functions of the same entry."""
    if isinstance(column, IntervalColumn):
        return id(column.number), id(column.cuts)
    return "levels" if isinstance(column, LevelColumn) else id(column)


def merged(group: Sequence[tuple[Column, Floats]]) -> tuple[Source, Floats, int]:
    """Return the source of the entry of encoded columns with one key, its rows of the table and `First.levels`."""
    rows = np.array([row for _, row in group], dtype=np.float64)
    one = group[0][0]
    if isinstance(one, NumberColumn):
        return one, rows.sum(axis=0, keepdims=True), -1
    tables = [column.table for column, _ in group if not isinstance(column, NumberColumn)]
    levels = len(tables[0]) - 2
    source = LevelCodes(levels) if isinstance(one, LevelColumn) else _numbered(one)
    return source, np.column_stack(tables) @ rows, levels


def _numbered(column: IntervalColumn) -> IntervalColumn:
    """Return the column whose values are the numbers of the intervals, which are then like levels."""
    return replace(column, table=np.append(np.arange(len(column.cuts) + 1.0), np.nan))


def ends_of(sources: Sequence[Source]) -> Floats | None:
    """Return the ends, ascending, of the intervals of a raw number; None if it also enters as a number."""
    if any(isinstance(source, NumberColumn) for source in sources):
        return None
    cuts = [_raw_cuts(source) for source in sources if isinstance(source, IntervalColumn)]
    return np.unique(np.concatenate([*cuts, [np.inf]]))


def _raw_cuts(column: IntervalColumn) -> Floats:
    """Return the last raw number of every interval, without the last interval."""
    return last_values(column.number, column.cuts, narrow=False)


def entries_of(sources: Sequence[Sequence[Source]], first: First) -> Entries | None:
    """Return the terms that every feature adds to the first layer; None if a number has no formula."""
    starts, levels = iter(first.start.tolist()), iter(first.levels.tolist())
    entries = []
    for feature in sources:
        found = [_entry(source, first.table[(at := next(starts)) : at + next(levels) + 2]) for source in feature]
        known = tuple(entry for entry in found if entry is not None)
        if len(known) < len(found):
            return None
        entries.append(known)
    return tuple(entries)


def _entry(source: Source, rows: Floats) -> Number | Choice | None:
    """Return the term of an entry with these rows of the table; a number has one row."""
    if isinstance(source, LevelCodes):
        return Choice(Lookup.of(np.append(np.arange(float(source.count)), np.inf)), rows)
    if isinstance(source, IntervalColumn):
        if source.number.gap is not None:
            return None
        cuts = np.append(_raw_cuts(source), np.inf)
        filled = value_of_missing(source)
        return Choice(Lookup.of(cuts, None if np.isnan(filled) else int(filled)), rows)
    affine = source.affine
    return None if affine is None else Number(affine, value_of_missing(source), rows[0])
