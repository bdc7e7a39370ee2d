"""The nearest of many points to each of some others: exact, to the last bit what a table of all distances would tell.

Points are vectors of an `Embedding`, in which a category takes one coordinate per level. Two points differ in at most
two of these; to add up where they are equal changes no sum, so that one column of levels stands for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Embedding, Floats
from mlflow_cf.kernel import inner, kernel

Array = NDArray[Any]
Neighbours = tuple[Floats, NDArray[np.intp]]
NO_LEVEL: Final = -1.0
WORK: Final = 2**24  # differences that are added up together: 15 ms
CHUNK: Final = 32  # points whose least distance is looked at before each of them: most are farther than all kept
ROUNDING: Final = 1.0 + 1e-12  # more than a square root and its square may be apart, relatively


@dataclass(frozen=True, eq=False)
class Columns:
    """Points by column.

    Attributes:
        values: (c, n) coordinates, or the positions of levels; `NO_LEVEL` where a point has none.
        mismatch: (c,) what a level that the other point does not have adds to the squared distance; 0: coordinates.
    """

    values: Floats
    mismatch: Floats

    @classmethod
    def of(cls, embedding: Embedding, points: Floats) -> Columns:
        """Return points (n, p) as columns: a feature each, and the coordinates behind all features."""
        values, mismatch = [], []
        for feature, block in zip(embedding.space.features, embedding.blocks, strict=True):
            own = points[:, block]
            category = not (feature.has_order or feature.kind == "boolean")
            there = own != 0.0
            level = there.argmax(axis=1) if there.shape[1] else NO_LEVEL  # of a column that is always missing: none
            values.append(np.where(there.any(axis=1), level, NO_LEVEL) if category else own[:, 0])
            mismatch.append(embedding.level_weight * embedding.level_weight if category else 0.0)
        rest = points[:, embedding.width :].T
        return cls(np.vstack([*values, rest]), np.array(mismatch + [0.0] * len(rest)))


def neighbours(points: Columns, asked: Columns, count: int, *, itself: bool = False) -> Iterator[Neighbours]:
    """Yield the distances (k, count) of the nearest of points (n) to some rows asked about (k), and which.

    In the order of the points; of those equally far away the first. With `itself` both are the same points, and none
    is its own neighbour.
    """
    values, rows = np.ascontiguousarray(points.values), np.ascontiguousarray(asked.values.T)
    size = max(1, WORK // values.size)
    squared, kept = np.empty(values.shape[1]), np.empty(count)
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        distance, nearest = np.empty((len(some), count)), np.empty((len(some), count), np.intp)
        nearest_points((values, points.mismatch), some, start if itself else -1, (squared, kept), (distance, nearest))
        yield distance, nearest


@kernel
def nearest_points(
    points: tuple[Array, Array], rows: Array, own: int, room: tuple[Array, Array], found: tuple[Array, Array]
) -> None:
    """Write the distances (k, count) of the nearest points, and which, as `neighbours` yields them.

    Args:
        points: what `Columns` holds of them.
        rows: (k, c) asked about.
        own: the point that the first row is, the others follow; -1: rows are no points.
        room: for the squared distances (n,) of a row, and the least of them (count,).
        found: distances and places, which are written.
    """
    (squared, kept), (values, mismatch), (distance, nearest) = room, points, found
    for row in range(len(rows)):
        add_up(values, mismatch, rows[row], squared)
        if own >= 0:
            squared[own + row] = np.inf
        keep_least(squared, kept)
        write_least(squared, kept, distance[row], nearest[row])


@inner
def add_up(values: Array, mismatch: Array, row: Array, squared: Array) -> None:
    """Write the squared distances (n,) of points (c, n) to a row (c,)."""
    squared[:] = 0.0
    for column in range(len(values)):
        value, level, there = row[column], mismatch[column], values[column]
        if level == 0.0:
            for at in range(len(squared)):
                apart = there[at] - value
                squared[at] += apart * apart
        else:
            lost = level if value >= 0.0 else 0.0
            for at in range(len(squared)):
                # one after the other, as coordinates are added up
                added = squared[at] + (level if there[at] >= 0.0 else 0.0) + lost
                squared[at] = squared[at] if there[at] == value else added


@inner
def keep_least(squared: Array, kept: Array) -> None:
    """Write the least (k,) of some numbers (n,), the largest of these first."""
    count = len(kept)
    for at in range(count):
        kept[at] = squared[at]
    for top in range(count // 2 - 1, -1, -1):
        settle(kept, top, kept[top])
    for start in range(count, len(squared), CHUNK):
        end = min(start + CHUNK, len(squared))
        if least_of(squared, start, end) < kept[0]:
            for at in range(start, end):
                if squared[at] < kept[0]:
                    settle(kept, 0, squared[at])


@inner
def settle(kept: Array, at: int, value: float) -> None:
    """Put a number into a heap from a place downwards, so that none has a larger one below it."""
    while True:
        child = 2 * at + 1
        if child >= len(kept):
            break
        if child + 1 < len(kept) and kept[child + 1] > kept[child]:
            child += 1
        if kept[child] <= value:
            break
        kept[at] = kept[child]
        at = child
    kept[at] = value


@inner
def least_of(squared: Array, start: int, end: int) -> float:
    """Return the least number of a part."""
    least: float = squared[start]
    for at in range(start + 1, end):
        least = min(least, squared[at])
    return least


@inner
def write_least(squared: Array, kept: Array, distance: Array, nearest: Array) -> None:
    """Write the roots (k,) of the numbers (n,) that are kept, and where they stand; of equal roots the first ones.

    Squares that differ may have equal roots.
    """
    count, last, limit = len(kept), math.sqrt(kept[0]), kept[0] * ROUNDING
    tied, place = count, 0
    for at in range(count):
        if math.sqrt(kept[at]) < last:
            tied -= 1
    for start in range(0, len(squared), CHUNK):
        end = min(start + CHUNK, len(squared))
        if place < count and least_of(squared, start, end) <= limit:
            for at in range(start, end):
                root = math.sqrt(squared[at]) if squared[at] <= limit else np.inf
                if root < last or (root == last and tied > 0):
                    if root == last:
                        tied -= 1
                    distance[place], nearest[place] = root, at
                    place += 1
