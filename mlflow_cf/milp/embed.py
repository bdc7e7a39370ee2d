"""Structures as rows of a mixed-integer program.

Linear models and ReLU networks get bounds on every neuron, by intervals over what the row may have. Of every tree one
leaf is reached. For each tree, feature and threshold, the leaves that end there or before together need the feature to
be at most there: at least as tight as one row per split, and leaves need not be integer once the cells are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.milp.affine import Affine, Columns, difference, total
from mlflow_cf.milp.cells import CellBook, CellColumns
from mlflow_cf.milp.program import Entries, NotLinearError, Program
from mlflow_cf.milp.variables import Chosen, Variables
from mlflow_cf.structures.capabilities import parts_of
from mlflow_cf.structures.layers.columns import ClippedLine as Formula
from mlflow_cf.structures.layers.columns import NotOpenedError
from mlflow_cf.structures.parts import Choice, Dense, LeafLimits, Leaves, Number, Part
from mlflow_cf.structures.structure import Structure


def embed(program: Program, variables: Variables, structure: Structure) -> list[Affine]:
    """Return the sums of a structure, in order.

    Args:
        program, variables: to which it is added.
        structure: over all features.

    Raises:
        NotLinearError: rows cannot express it.
    """
    parts = _parts(structure)
    book = CellBook(program, variables)
    sums: list[Affine] = []
    for part in parts:
        sums += embed_leaves(book, part) if isinstance(part, Leaves) else embed_dense(book, part)
    return sums


def check_linear(structure: Structure) -> None:
    """Refuse a structure that rows cannot express.

    Raises:
        NotLinearError: it says why.
    """
    for part in _parts(structure):
        if not isinstance(part, Leaves):
            check_activation(part)


def _parts(structure: Structure) -> tuple[Part, ...]:
    try:
        return parts_of(structure)
    except NotOpenedError as error:
        raise NotLinearError(str(error)) from error


MOST_WIDTH: Final = 1  # of a first layer whose inputs need no columns of their own


def embed_dense(book: CellBook, dense: Dense) -> list[Affine]:
    """Return the sums of the last layer.

    Raises:
        NotLinearError: another activation than relu between layers.
    """
    check_activation(dense)
    sums = _first(book, dense)
    for weights, bias in zip(dense.weights, dense.biases, strict=True):
        hidden = [rectified(book.program, one) for one in sums]
        sums = [_weighted(hidden, weights[:, k]).plus(float(bias[k])) for k in range(len(bias))]
    return sums


def check_activation(dense: Dense) -> None:
    """Refuse another activation than relu between layers.

    Raises:
        NotLinearError: it says which.
    """
    if dense.weights and dense.activation != "relu":
        raise NotLinearError(f"a network with {dense.activation} between its layers")


def _first(book: CellBook, dense: Dense) -> list[Affine]:
    """Return the sums of the first layer."""
    parts: list[list[Affine]] = [[] for _ in dense.bias]
    for feature, entries in enumerate(dense.entries):
        for entry in entries:
            found = _number(book, feature, entry) if isinstance(entry, Number) else _choice(book, feature, entry)
            for part, one in zip(parts, found, strict=True):
                part.append(one)
    return [total(part).plus(float(bias)) for part, bias in zip(parts, dense.bias, strict=True)]


def _weighted(inputs: list[Affine], weights: Floats) -> Affine:
    return total([one.times(weight) for one, weight in zip(inputs, weights.tolist(), strict=True) if weight])


def _choice(book: CellBook, feature: int, entry: Choice) -> list[Affine]:
    """Return what a feature that is only told by its cells adds to every sum."""
    cells = book.of(feature, entry.lookup)
    return [cells.chosen(column) for column in entry.table[cells.cells].T]


def _number(book: CellBook, feature: int, entry: Number) -> list[Affine]:
    """Return what a number adds to every sum."""
    variable = book.variables.of(feature)
    if isinstance(variable, Chosen):
        codes = variable.values(feature)
        values = np.where(np.isnan(codes), entry.missing, _formula(entry.affine, codes))
        inner = Affine.chosen(variable.selectors, values)
    else:
        missing = book.variables.missing(feature)
        inner = _clipped(book.program, variable.value, entry.affine)
        if not missing.fixed:  # then the number is 0
            inner = total([inner, missing.times(entry.missing - float(_formula(entry.affine, np.zeros(1))[0]))])
    if len(entry.weights) > MOST_WIDTH and len(inner.columns) > 2:
        inner = _named(book.program, inner)
    return [inner.times(weight) for weight in entry.weights.tolist()]


def _named(program: Program, part: Affine) -> Affine:
    """Return an expression as one column of its own."""
    same = program.add_column(part.low, part.high)
    program.require([difference(part, same)], 0.0, 0.0)
    return same


def _formula(formula: Formula, codes: Floats) -> Floats:
    return np.clip(formula.slope * codes + formula.offset, formula.low, formula.high)


def _clipped(program: Program, value: Affine, formula: Formula) -> Affine:
    """Return the formula of a real number; where it is cut off, binaries say on which side."""
    line = value.times(formula.slope).plus(formula.offset)
    if line.low < formula.low:  # the larger of the line and the end
        line = rectified(program, line.plus(-formula.low)).plus(formula.low)
    if line.high > formula.high:
        line = rectified(program, line.times(-1.0).plus(formula.high)).times(-1.0).plus(formula.high)
    return line


def rectified(program: Program, line: Affine) -> Affine:
    """Return the larger of a line and 0: one binary, and none where the bounds settle which it is."""
    if line.high <= 0:
        return Affine.of(0.0)
    if line.low >= 0:
        return line
    value, active = program.add_column(0.0, line.high), program.add_binary()
    over = difference(value, line)
    off = active.times(line.low).plus(-line.low)  # -low if not active
    on = active.times(line.high)
    program.require([over, difference(over, off), difference(value, on)], [0.0, -np.inf, -np.inf], [np.inf, 0.0, 0.0])
    return value


Flags = NDArray[np.bool_]
MOST_LEAVES: Final = 50_000
FEW_LEAVES: Final = 5_000  # of which the rows may hold all leaves that end before


@dataclass(frozen=True, eq=False)
class LeafTests:
    """What leaves ask of one feature.

    Attributes:
        cells: the cells that it may be in; missing: whether one of them is that of missing values.
        limits: what the leaves take.
    """

    cells: CellColumns
    missing: bool
    limits: LeafLimits

    @property
    def ends(self) -> tuple[Columns, Columns]:
        """(n,), (n,) the first and the last of the cells, by position, that each leaf takes of known values."""
        first = np.searchsorted(self.cells.cells, self.limits.low)
        return first, np.searchsorted(self.cells.cells, self.limits.high, side="right") - 1

    @property
    def ordered(self) -> bool:
        """Whether every leaf takes cells that follow one another."""
        return self.limits.taken is None and not self.missing

    @property
    def taken(self) -> Flags:
        """(n, c) which of the cells each leaf takes."""
        cells, limits = self.cells.cells, self.limits
        if limits.taken is not None:
            return limits.taken[:, cells]
        inside = (limits.low[:, None] <= cells) & (cells <= limits.high[:, None])
        if self.missing:
            inside[:, -1] = limits.missing
        return inside

    @property
    def reached(self) -> Flags:
        """(n,) whether each leaf takes any of the cells."""
        first, last = self.ends
        found: Flags = first <= last if self.ordered else np.logical_or.reduce(self.taken, axis=1)
        return found


def embed_leaves(book: CellBook, leaves: Leaves) -> list[Affine]:
    """Return the sums of trees.

    Raises:
        NotLinearError: they have so many leaves that setting up the program would take seconds.
    """
    if len(leaves.tree) > MOST_LEAVES:
        raise NotLinearError(f"trees with more than {MOST_LEAVES:,} leaves")
    program, asked = book.program, []
    reached = np.ones(len(leaves.tree), dtype=np.bool_)
    for feature, (lookup, limits) in enumerate(zip(leaves.lookups, leaves.limits, strict=True)):
        if len(limits.leaf):
            cells = book.of(feature, lookup)
            own_cell = lookup.missing == lookup.size - 1 and bool(cells.cells[-1] == lookup.missing)
            asked.append(LeafTests(cells, own_cell, limits))
            reached[limits.leaf[~asked[-1].reached]] = False
    columns = np.full(len(leaves.tree), -1)
    columns[reached] = program.add_columns(np.zeros(int(reached.sum())), np.ones(int(reached.sum())))
    _one_per_tree(program, leaves.tree[reached], columns[reached])
    for one in asked:
        kept = reached[one.limits.leaf]
        where = Where(leaves.tree[one.limits.leaf][kept], columns[one.limits.leaf][kept])
        if one.ordered:
            first, last = one.ends
            _add_ends(program, one.cells, where, (first[kept], last[kept]))
        else:
            _add_sets(program, one.cells, where, one.taken[kept])
    return _sums(leaves, reached, columns[reached])


@dataclass(frozen=True, eq=False)
class Where:
    """The trees (n,) of some leaves, ascending, and their columns (n,)."""

    tree: Columns
    columns: Columns


def _one_per_tree(program: Program, tree: Columns, columns: Columns) -> None:
    _, row = np.unique(tree, return_inverse=True)
    ones = np.ones(int(row.max(initial=-1)) + 1)
    program.add_rows(ones, ones, Entries(row, columns, np.ones(len(columns))))


def _add_ends(program: Program, cells: CellColumns, where: Where, ends: tuple[Columns, Columns]) -> None:
    """Add what leaves ask of a feature by the first and the last cell (n,), (n,) that each takes."""
    first, last = ends
    if not len(cells.prefix):
        return
    upper, lower = last < len(cells.prefix), first > 0
    most = _together(where, last, upper)
    program.add_rows(*_at_most(most, cells.prefix[most.at], 0.0, -1.0))
    least = _together(where, -first, lower)
    program.add_rows(*_at_most(least, cells.prefix[-least.at - 1], 1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Together:
    """Rows of leaves.

    Attributes:
        at: (r,) the end that the leaves of each row share, or do not exceed.
        row, column: (e,) leaves by row.
    """

    at: Columns
    row: Columns
    column: Columns


def _together(where: Where, end: Columns, some: Flags) -> Together:
    """Return a row per tree and end (n,) of `some` leaves (n,), with those of the tree that end there or before.

    Where there are many leaves, only those that end there.
    """
    tree, end, columns = where.tree[some], end[some], where.columns[some]
    order = np.lexsort((end, tree))
    tree, end, columns = tree[order], end[order], columns[order]
    last = np.flatnonzero((np.diff(tree, append=-1) != 0) | (np.diff(end, append=0) != 0))
    last = last if len(tree) else last[:0]
    start = np.append(0, last[:-1] + 1)[: len(last)]
    if len(where.tree) <= FEW_LEAVES:
        start = np.searchsorted(tree, tree[last])
    sizes = last + 1 - start
    row = np.repeat(np.arange(len(last)), sizes)
    within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Together(end[last], row, columns[np.repeat(start, sizes) + within])


def _at_most(rows: Together, beside: Columns, most: float, sign: float) -> tuple[Floats, Floats, Entries]:
    """Return rows of leaves, with a column beside them, that are at most a number."""
    count = len(rows.at)
    entries = Entries(
        np.concatenate([rows.row, np.arange(count)]),
        np.concatenate([rows.column, beside]),
        np.concatenate([np.ones(len(rows.row)), np.full(count, sign)]),
    )
    return np.full(count, -np.inf), np.full(count, most), entries


def _add_sets(program: Program, cells: CellColumns, where: Where, taken: Flags) -> None:
    """Add what leaves ask of a feature by the cells (n, c) that each takes: those of a set need one of its cells."""
    some = np.flatnonzero(~np.logical_and.reduce(taken, axis=1))
    if not len(some):
        return
    taken, tree, columns = taken[some], where.tree[some], where.columns[some]
    sets, kind = np.unique(taken, axis=0, return_inverse=True)
    kind = kind.ravel()
    allowed = [cells.among(members) for members in sets]
    starts = np.flatnonzero(np.diff(tree, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(tree)], strict=True):
        here = kind[start:stop]
        distinct = np.unique(here)
        outside = np.logical_or.reduce(
            sets[here][:, None] & ~sets[distinct], axis=2
        )  # whether a leaf takes a cell that a set lacks
        parts = []
        for at, number in enumerate(distinct.tolist()):
            chosen = columns[start:stop][~outside[:, at]]
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
