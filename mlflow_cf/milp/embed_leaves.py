"""Trees as rows: one leaf of every tree is reached, whose boxes of cells hold all that the row has.

For each tree, feature and set of cells, the leaves that take nothing but these cells together need the feature to be
in one of them. That is at least as tight as a row per split, and leaves need not be integer once the cells are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.milp.affine import Affine, Columns, difference
from mlflow_cf.milp.cells import CellBook, CellColumns
from mlflow_cf.milp.program import Entries, Program
from mlflow_cf.structures.parts import Leaves, Limits

Flags = NDArray[np.bool_]


def embed_leaves(book: CellBook, leaves: Leaves) -> list[Affine]:
    """Return the sums of trees."""
    program = book.program
    reached = np.ones(len(leaves.tree), dtype=np.bool_)
    asked: list[tuple[CellColumns, Columns, Flags]] = []
    for feature, (lookup, limits) in enumerate(zip(leaves.lookups, leaves.limits, strict=True)):
        if len(limits.leaf):
            cells = book.of(feature, lookup)
            taken = _taken(limits, cells, lookup.size)
            reached[limits.leaf[~taken.any(axis=1)]] = False
            asked.append((cells, limits.leaf, taken))
    columns = np.full(len(leaves.tree), -1)
    columns[reached] = program.add_columns(np.zeros(int(reached.sum())), np.ones(int(reached.sum())))
    _one_per_tree(program, leaves.tree[reached], columns[reached])
    for cells, leaf, taken in asked:
        _add_limits(program, cells, taken, (leaves.tree[leaf], columns[leaf]))
    return _sums(leaves, reached, columns[reached])


def _taken(limits: Limits, cells: CellColumns, size: int) -> Flags:
    """Return which of the cells (c,) that may occur each of the leaves takes."""
    if limits.taken is not None:
        return limits.taken[:, cells.cells]
    inside = (limits.low[:, None] <= cells.cells) & (cells.cells <= limits.high[:, None])
    return np.where(cells.cells == size - 1, limits.missing[:, None], inside)


def _one_per_tree(program: Program, tree: Columns, columns: Columns) -> None:
    _, row = np.unique(tree, return_inverse=True)
    ones = np.ones(int(row.max(initial=-1)) + 1)
    program.add_rows(ones, ones, Entries(row, columns, np.ones(len(columns))))


def _add_limits(program: Program, cells: CellColumns, taken: Flags, where: tuple[Columns, Columns]) -> None:
    """Add what leaves in trees, by their columns, ask of one feature.

    `taken` (leaves, c) are the cells that each takes.
    """
    tree, columns = where
    some = taken.any(axis=1) & ~taken.all(axis=1) & (columns >= 0)
    taken, tree, columns = taken[some], tree[some], columns[some]
    if not len(taken):
        return
    sets, kind = np.unique(taken, axis=0, return_inverse=True)
    kind = kind.ravel()
    allowed = [cells.among(members) for members in sets]
    outside = sets.astype(np.float32) @ (~sets).T.astype(np.float32) > 0  # (s, t): whether s takes a cell that t lacks
    starts = np.flatnonzero(np.diff(tree, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(tree)], strict=True):
        here = kind[start:stop]
        distinct = np.unique(here)
        within = ~outside[np.ix_(here, distinct)]
        parts = []
        for at, number in enumerate(distinct.tolist()):
            chosen = columns[start:stop][within[:, at]]
            leaves = Affine(chosen, np.ones(len(chosen)), 0.0, 0.0, 1.0)
            parts.append(difference(leaves, allowed[number]))
        program.require(parts, -np.inf, 0.0)


def _sums(leaves: Leaves, reached: Flags, columns: Columns) -> list[Affine]:
    """Return the sums over the leaves that are reached, one of which per tree is 1."""
    value, tree = leaves.value[reached], leaves.tree[reached]
    starts = np.flatnonzero(np.diff(tree, prepend=-1))
    if not len(starts):
        return [Affine.of(float(base)) for base in leaves.base]
    low = leaves.base + np.minimum.reduceat(value, starts).sum(axis=0)
    high = leaves.base + np.maximum.reduceat(value, starts).sum(axis=0)
    return [_sum(columns, value[:, k], float(leaves.base[k]), (float(low[k]), float(high[k]))) for k in range(len(low))]


def _sum(columns: Columns, value: Floats, base: float, ends: tuple[float, float]) -> Affine:
    some = value != 0
    return Affine(columns[some], value[some], base, *ends)
