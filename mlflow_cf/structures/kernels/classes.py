"""Classes of cells with equal joint effects: cells of a feature that no edge of a rectangle of leaves separates.

The table of a pair has a row and a column per class, so that it is small even where thousands of cells are tried.
"""

from __future__ import annotations

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.blocks import Tables
from mlflow_cf.structures.kernels.nodes import Array
from mlflow_cf.structures.kernels.pairs import Rectangles, TriedCells


@kernel
def find_classes(rectangles: Rectangles, tried: TriedCells, order: Array, ends: Array, tables: Tables) -> None:
    """Write the classes of the tried cells, their numbers, and the offsets of the tables of pairs into `tables`.

    Cells that no rectangle separates are of one class.

    Args:
        rectangles: of all pairs; tried: the cells.
        order: (t,) position of each of the cells among the values.
        ends: zeros, one per entry of `tables.classes` and one more per side; overwritten by the classes of the cells
            of every side in ascending order, then the number of classes.
        tables: where the results are written.
    """
    spans = rectangles.spans
    for at in range(len(spans)):
        for part in range(4):
            side = 2 * spans[at, 0] + part // 2
            ends[tables.side[side] + side + spans[at, 1 + part]] = 1
    for side in range(tables.counts.size):
        feature = tables.second[side // 2] if side % 2 else tables.first[side // 2]
        begin, known, flag = tried.start[feature], -1, tables.side[side] + side
        size = tried.start[feature + 1] - begin
        for place in range(size):
            known += ends[flag + place] if place else 1
            ends[flag + place] = known
            tables.classes[tables.side[side] + order[begin + place] - begin] = known
        tables.counts[side] = ends[flag + size] = known + 1
    for pair in range(tables.first.size):
        tables.place[pair + 1] = tables.place[pair] + tables.counts[2 * pair] * tables.counts[2 * pair + 1]


@kernel
def add_rectangles(rectangles: Rectangles, value: Array, ends: Array, tables: Tables) -> None:
    """Add the `value` (nodes, k) of each rectangle's leaf to the zero tables, at corners, then as prefix sums."""
    spans, added = rectangles.spans, tables.added
    for at in range(len(rectangles.leaf)):
        leaf, output, pair = rectangles.leaf[at, 0], rectangles.leaf[at, 1], spans[at, 0]
        first, second = tables.side[2 * pair] + 2 * pair, tables.side[2 * pair + 1] + 2 * pair + 1
        lines, columns = tables.counts[2 * pair], tables.counts[2 * pair + 1]
        for corner in range(4):
            line, column = ends[first + spans[at, 1 + corner // 2]], ends[second + spans[at, 3 + corner % 2]]
            if line < lines and column < columns:
                sign = 1.0 if (corner in (0, 3)) == (leaf >= 0) else -1.0
                place = tables.place[pair] + line * columns + column
                for k in range(value.shape[1]):
                    added[place, max(k, output)] += sign * value[max(leaf, -1 - leaf), k]
    for pair in range(tables.first.size):
        begin, columns = tables.place[pair], tables.counts[2 * pair + 1]
        for k in range(added.shape[1]):
            for line in range(tables.counts[2 * pair]):
                total, place = 0.0, begin + line * columns
                for column in range(columns):
                    total += added[place + column, k]
                    added[place + column, k] = total + (added[place + column - columns, k] if line else 0.0)
