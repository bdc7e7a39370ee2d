"""Classes of cells: where leaves add to pairs of features in rectangles, many cells of a feature are all one.

The table of a pair has a line and a column per class, so that it is small even where thousands of cells are tried.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.blocks import Tables
from mlflow_cf.structures.kernels.nodes import Array
from mlflow_cf.structures.kernels.pairs import Rectangles, Tried


@kernel
def find_classes(rectangles: Rectangles, tried: Tried, order: Array, ends: Array, tables: Tables) -> None:
    """Write the classes of the cells tried into `tables`, how many they are, and where the tables of pairs start.

    Cells that no rectangle tells apart are of one class.

    Args:
        rectangles: of all pairs; tried: the cells.
        order: (t,) where each of the cells stands among the values.
        ends: flags that are False, one per class of `tables` and one more per side.
        tables: room for what is written.
    """
    spans = rectangles.spans
    for at in range(len(spans)):
        for part in range(4):
            side = 2 * spans[at, 0] + part // 2
            ends[tables.side[side] + side + spans[at, 1 + part]] = True
    for side in range(tables.counts.size):
        feature = tables.second[side // 2] if side % 2 else tables.first[side // 2]
        known, begin, flag = -1, tried.start[feature], tables.side[side] + side
        for place in range(tried.start[feature + 1] - begin):
            known += place == 0 or ends[flag + place]
            tables.classes[tables.side[side] + order[begin + place] - begin] = known
        tables.counts[side] = known + 1
    for pair in range(tables.first.size):
        tables.place[pair + 1] = tables.place[pair] + tables.counts[2 * pair] * tables.counts[2 * pair + 1]


@kernel
def add_rectangles(rectangles: Rectangles, value: Array, tried: Tried, order: Array, tables: Tables) -> None:
    """Add the `value` (leaves, k) of each rectangle's leaf to the tables, which are 0; see `find_classes`."""
    for at in range(len(rectangles.leaf)):
        leaf, pair = rectangles.leaf[at], rectangles.spans[at, 0]
        lines, columns = tables.counts[2 * pair], tables.counts[2 * pair + 1]
        for one in range(2):
            line = _class_at(rectangles.spans[at, 1 + one], tables.first[pair], 2 * pair, tried, order, tables)
            for two in range(2):
                place = rectangles.spans[at, 3 + two]
                column = _class_at(place, tables.second[pair], 2 * pair + 1, tried, order, tables)
                if line < lines and column < columns:
                    sign = 1.0 if (one == two) == (leaf >= 0) else -1.0
                    for k in range(value.shape[1]):
                        corner = tables.place[pair] + line * columns + column
                        tables.added[corner, k] += sign * value[max(leaf, -1 - leaf), k]
    for pair in range(tables.first.size):
        columns = tables.counts[2 * pair + 1]
        for k in range(value.shape[1]):
            total = 0.0
            for at in range(tables.place[pair], tables.place[pair + 1]):
                line = (at - tables.place[pair]) // columns
                total = tables.added[at, k] + (total if at - tables.place[pair] - line * columns else 0.0)
                tables.added[at, k] = total + (tables.added[at - columns, k] if line else 0.0)


@numba.njit(inline="always")
def _class_at(place: Any, feature: Any, side: Any, tried: Tried, order: Array, tables: Tables) -> Any:
    """Return the class of a cell tried; behind the last one, how many there are."""
    start = tried.start[feature]
    if place >= tried.start[feature + 1] - start:
        return tables.counts[side]
    return np.int64(tables.classes[tables.side[side] + order[start + place] - start])
