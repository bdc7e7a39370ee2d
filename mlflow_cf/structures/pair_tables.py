"""Joint effects of two changes on raw scores, tabulated by classes of values with equal effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures.kernels.blocks import (
    Blocks,
    ListedPairs,
    Sides,
    SingleEffects,
    Tables,
    Threshold,
    bound_blocks,
    copy_tables,
    list_near,
)

Numbers = NDArray[np.intp]
FIRST_ROOM = 2**12  # pairs of values, before it is known how many there are


def no_threshold(outputs: int) -> Threshold:
    """Return the threshold of `outputs` raw scores that all pairs pass."""
    return Threshold(np.zeros(outputs), 0.0)


@dataclass(frozen=True, eq=False)
class PairTables:
    """Joint effects for some pairs of columns; single effects and distances are passed with each question."""

    tables: Tables

    @property
    def size(self) -> int:
        """Number of floats in the tables."""
        return self.tables.added.size

    @classmethod
    def empty(cls, first: Numbers, second: Numbers, start: Numbers) -> PairTables:
        """Return unfilled tables for pairs of columns `first` (p,), `second` (p,); `start` (d + 1,) as in `Tables`."""
        sizes = np.diff(start)[np.column_stack([first, second]).ravel()]
        side, counts = np.append(0, sizes.cumsum()), np.empty(len(sizes), dtype=np.intp)
        place = np.zeros(len(first) + 1, dtype=np.intp)
        classes = np.empty(side[-1], dtype=np.int32)
        return cls(Tables(first, second, start, classes, side[:-1], counts, place, np.empty((0, 0))))

    def blocks(self, alone: SingleEffects, threshold: Threshold) -> Blocks:
        """Return the blocks that may have a pair within the limit that passes the threshold."""
        most, outputs = self.tables.place[-1], len(alone.base)
        ends = np.empty((2, most, outputs))
        found = Blocks(np.empty((most, 3), dtype=np.int32), np.empty(most), np.empty(most, dtype=np.intp), *ends)
        count = bound_blocks(self.tables, alone, threshold, self._sides, found)
        return Blocks(*(part[:count] for part in found))

    def near(self, alone: SingleEffects, threshold: Threshold, blocks: NDArray[np.int32]) -> ListedPairs:
        """Return the pairs in `blocks` (b, 3), adjacent per pair of columns, that are within the limit and pass."""
        room, outputs = FIRST_ROOM, len(alone.base)
        while True:
            near = ListedPairs(np.empty((room, 2), dtype=np.intp), np.empty((room, outputs)))
            count = list_near(self.tables, alone, threshold, self._sides, blocks, near)
            if count <= room:
                return ListedPairs(near.at[:count], near.sums[:count])
            room = count

    @cached_property
    def _sides(self) -> Sides:
        """Workspace of the kernels."""
        values, outputs = int(np.diff(self.tables.start).max(initial=0)), self.tables.added.shape[1]
        ends, links = np.empty((2, 2, values, outputs)), np.empty((3, 2, values), dtype=np.int32)
        return Sides(*np.empty((3, 2, values)), *ends, *links)


def side_by_side(parts: Sequence[Tables], most: int) -> Tables | None:
    """Return the tables of several structures for the same pairs as one, their raw scores concatenated.

    None if it would have more than `most` floats.
    """
    whole, outputs = parts[0], sum(part.added.shape[1] for part in parts)
    side = np.repeat(np.arange(len(whole.side)), np.diff([*whole.side.tolist(), len(whole.classes)]))
    key = side
    for part in parts:  # one number for the classes of a value in all tables
        key = key * (int(part.classes.max(initial=0)) + 1) + part.classes
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    counts = np.bincount(side[first], minlength=len(whole.counts))
    ends = counts.cumsum()
    classes = (number - (ends - counts)[side]).astype(whole.classes.dtype)
    place = np.append(0, (counts[::2] * counts[1::2]).cumsum())
    if place[-1] * outputs > most:
        return None
    together = whole._replace(classes=classes, counts=counts, place=place, added=np.empty((place[-1], outputs)))
    begin = 0
    for part in parts:
        copy_tables(part, part.classes[first], begin, together)
        begin += part.added.shape[1]
    return together
