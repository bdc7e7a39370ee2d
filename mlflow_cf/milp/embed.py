"""Structures as linear constraints of a mixed-integer program.

Linear models and ReLU networks get bounds on every neuron, by interval arithmetic over the values that features may
have. In every tree exactly one leaf is reached. For each tree, feature and threshold there is one constraint: leaves
that end at the threshold or before it require that the feature is at most there. That is at least as tight as one
constraint per split, and leaf columns need not be integer once the columns of cells are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.milp.cells import CellBook, CellColumns
from mlflow_cf.milp.program import Affine, Columns, Entries, NotLinearError, Program, difference, total
from mlflow_cf.milp.variables import Chosen, Variables
from mlflow_cf.structures.capabilities import parts_of
from mlflow_cf.structures.layers.columns import ClippedLine as Formula
from mlflow_cf.structures.layers.columns import NotOpenedError
from mlflow_cf.structures.parts import Choice, Dense, LeafLimits, Leaves, Number, Part
from mlflow_cf.structures.structure import Structure


def embed(program: Program, variables: Variables, structure: Structure) -> list[Affine]:
    """Return the raw scores of a structure as expressions, in order.

    Args:
        program, variables: to which it is added.
        structure: over all features.

    Raises:
        NotLinearError: linear constraints cannot express it.
    """
    parts = _parts(structure)
    book = CellBook(program, variables)
    sums: list[Affine] = []
    for part in parts:
        sums += embed_leaves(book, part) if isinstance(part, Leaves) else embed_dense(book, part)
    return sums


def check_linear(structure: Structure) -> None:
    """Refuse a structure that linear constraints cannot express.

    Raises:
        NotLinearError: the message says what stands in the way.
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
    """Return the outputs of the last layer as expressions.

    Raises:
        NotLinearError: another activation than relu between layers.
    """
    check_activation(dense)
    sums = _first_layer(book, dense)
    for weights, bias in zip(dense.weights, dense.biases, strict=True):
        hidden = [rectified(book.program, one) for one in sums]
        sums = [_weighted(hidden, weights[:, k]).plus(float(bias[k])) for k in range(len(bias))]
    return sums


def check_activation(dense: Dense) -> None:
    """Refuse another activation than relu between layers.

    Raises:
        NotLinearError: the message says which.
    """
    if dense.weights and dense.activation != "relu":
        raise NotLinearError(f"a network with {dense.activation} between its layers")


def _first_layer(book: CellBook, dense: Dense) -> list[Affine]:
    """Return the outputs of the first layer, before the activation."""
    parts: list[list[Affine]] = [[] for _ in dense.bias]
    for feature, entries in enumerate(dense.entries):
        for entry in entries:
            found = (
                _number_terms(book, feature, entry) if isinstance(entry, Number) else _cell_terms(book, feature, entry)
            )
            for part, one in zip(parts, found, strict=True):
                part.append(one)
    return [total(part).plus(float(bias)) for part, bias in zip(parts, dense.bias, strict=True)]


def _weighted(inputs: list[Affine], weights: Floats) -> Affine:
    return total([one.times(weight) for one, weight in zip(inputs, weights.tolist(), strict=True) if weight])


def _cell_terms(book: CellBook, feature: int, entry: Choice) -> list[Affine]:
    """Return what a feature adds to every output of the first layer where only its cell matters."""
    cells = book.of(feature, entry.lookup)
    return [cells.chosen(column) for column in entry.table[cells.cells].T]


def _number_terms(book: CellBook, feature: int, entry: Number) -> list[Affine]:
    """Return what a number adds to every output of the first layer."""
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
        inner = _as_column(book.program, inner)
    return [inner.times(weight) for weight in entry.weights.tolist()]


def _as_column(program: Program, part: Affine) -> Affine:
    """Return a new column that equals an expression."""
    same = program.add_column(part.low, part.high)
    program.require([difference(part, same)], 0.0, 0.0)
    return same


def _formula(formula: Formula, codes: Floats) -> Floats:
    return np.clip(formula.slope * codes + formula.offset, formula.low, formula.high)


def _clipped(program: Program, value: Affine, formula: Formula) -> Affine:
    """Return a clipped line of a real number; a binary column for each end at which it may be clipped."""
    line = value.times(formula.slope).plus(formula.offset)
    if line.low < formula.low:  # the larger of the line and the end
        line = rectified(program, line.plus(-formula.low)).plus(formula.low)
    if line.high > formula.high:
        line = rectified(program, line.times(-1.0).plus(formula.high)).times(-1.0).plus(formula.high)
    return line


def rectified(program: Program, line: Affine) -> Affine:
    """Return the larger of an expression and 0, by one binary column; by none where the bounds settle which it is."""
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
    """The conditions that leaves set on one feature.

    Attributes:
        cells: the cells that it may be in; missing: whether one of them is that of missing values.
        limits: which cells each leaf accepts.
    """

    cells: CellColumns
    missing: bool
    limits: LeafLimits

    @property
    def ends(self) -> tuple[Columns, Columns]:
        """(n,), (n,) the first and the last of the cells, by position, that each leaf accepts of known values."""
        first = np.searchsorted(self.cells.cells, self.limits.low)
        return first, np.searchsorted(self.cells.cells, self.limits.high, side="right") - 1

    @property
    def ordered(self) -> bool:
        """Whether every leaf accepts an interval of cells."""
        return self.limits.taken is None and not self.missing

    @property
    def taken(self) -> Flags:
        """(n, c) which of the cells each leaf accepts."""
        cells, limits = self.cells.cells, self.limits
        if limits.taken is not None:
            return limits.taken[:, cells]
        inside = (limits.low[:, None] <= cells) & (cells <= limits.high[:, None])
        if self.missing:
            inside[:, -1] = limits.missing
        return inside

    @property
    def reached(self) -> Flags:
        """(n,) whether each leaf accepts any of the cells."""
        first, last = self.ends
        found: Flags = first <= last if self.ordered else np.logical_or.reduce(self.taken, axis=1)
        return found


def embed_leaves(book: CellBook, leaves: Leaves) -> list[Affine]:
    """Return the raw scores of trees as expressions.

    Raises:
        NotLinearError: they have so many leaves that setting up the program would take seconds.
    """
    if len(leaves.tree) > MOST_LEAVES:
        raise NotLinearError(f"trees with more than {MOST_LEAVES:,} leaves")
    program, tests = book.program, []
    reached = np.ones(len(leaves.tree), dtype=np.bool_)
    for feature, (lookup, limits) in enumerate(zip(leaves.lookups, leaves.limits, strict=True)):
        if len(limits.leaf):
            cells = book.of(feature, lookup)
            own_cell = lookup.missing == lookup.size - 1 and bool(cells.cells[-1] == lookup.missing)
            tests.append(LeafTests(cells, own_cell, limits))
            reached[limits.leaf[~tests[-1].reached]] = False
    columns = np.full(len(leaves.tree), -1)
    columns[reached] = program.add_columns(np.zeros(int(reached.sum())), np.ones(int(reached.sum())))
    _one_per_tree(program, leaves.tree[reached], columns[reached])
    for one in tests:
        kept = reached[one.limits.leaf]
        where = LeafColumns(leaves.tree[one.limits.leaf][kept], columns[one.limits.leaf][kept])
        if one.ordered:
            first, last = one.ends
            _add_ends(program, one.cells, where, (first[kept], last[kept]))
        else:
            _add_sets(program, one.cells, where, one.taken[kept])
    return _raw_scores(leaves, reached, columns[reached])


@dataclass(frozen=True, eq=False)
class LeafColumns:
    """The columns (n,) of some leaves, and their trees (n,), ascending."""

    tree: Columns
    columns: Columns


def _one_per_tree(program: Program, tree: Columns, columns: Columns) -> None:
    _, row = np.unique(tree, return_inverse=True)
    ones = np.ones(int(row.max(initial=-1)) + 1)
    program.add_rows(ones, ones, Entries(row, columns, np.ones(len(columns))))


def _add_ends(program: Program, cells: CellColumns, where: LeafColumns, ends: tuple[Columns, Columns]) -> None:
    """Add the conditions of leaves on a feature; each leaf accepts the cells from the first to the last, (n,), (n,)."""
    first, last = ends
    if not len(cells.prefix):
        return
    upper, lower = last < len(cells.prefix), first > 0
    most = _leaf_constraints(where, last, upper)
    program.add_rows(*_at_most(most, cells.prefix[most.at], 0.0, -1.0))
    least = _leaf_constraints(where, -first, lower)
    program.add_rows(*_at_most(least, cells.prefix[-least.at - 1], 1.0, 1.0))


@dataclass(frozen=True, eq=False)
class LeafConstraints:
    """Constraints, each of them on the leaves of one tree that end at a cell or before it.

    Attributes:
        at: (r,) the cell of each constraint.
        row, column: (e,) the constraint and the column of each leaf in them.
    """

    at: Columns
    row: Columns
    column: Columns


def _leaf_constraints(where: LeafColumns, end: Columns, some: Flags) -> LeafConstraints:
    """Return a constraint per tree and end (n,) of `some` leaves (n,): on those of the tree that end there or before.

    Where there are many leaves, on those that end there alone.
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
    return LeafConstraints(end[last], row, columns[np.repeat(start, sizes) + within])


def _at_most(rows: LeafConstraints, beside: Columns, most: float, sign: float) -> tuple[Floats, Floats, Entries]:
    """Return constraints that the sum of leaves, plus `sign` times a column each, is at most `most`."""
    count = len(rows.at)
    entries = Entries(
        np.concatenate([rows.row, np.arange(count)]),
        np.concatenate([rows.column, beside]),
        np.concatenate([np.ones(len(rows.row)), np.full(count, sign)]),
    )
    return np.full(count, -np.inf), np.full(count, most), entries


def _add_sets(program: Program, cells: CellColumns, where: LeafColumns, taken: Flags) -> None:
    """Add the conditions of leaves on a feature by the sets of cells (n, c) that they accept."""
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
        )  # whether a leaf accepts a cell that a set lacks
        parts = []
        for at, number in enumerate(distinct.tolist()):
            chosen = columns[start:stop][~outside[:, at]]
            leaves = Affine(chosen, np.ones(len(chosen)), 0.0, 0.0, 1.0)
            parts.append(difference(leaves, allowed[number]))
        program.require(parts, -np.inf, 0.0)


def _raw_scores(leaves: Leaves, reached: Flags, columns: Columns) -> list[Affine]:
    """Return the raw scores over the leaves that can be reached, one of which per tree is 1."""
    value, tree = leaves.value[reached], leaves.tree[reached]
    starts = np.flatnonzero(np.diff(tree, prepend=-1))
    if not len(starts):
        return [Affine.of(float(base)) for base in leaves.base]
    low = leaves.base + np.minimum.reduceat(value, starts).sum(axis=0)
    high = leaves.base + np.maximum.reduceat(value, starts).sum(axis=0)
    return [
        _raw_score(columns, value[:, k], float(leaves.base[k]), (float(low[k]), float(high[k])))
        for k in range(len(low))
    ]


def _raw_score(columns: Columns, value: Floats, base: float, ends: tuple[float, float]) -> Affine:
    some = value != 0
    return Affine(columns[some], value[some], base, *ends)
