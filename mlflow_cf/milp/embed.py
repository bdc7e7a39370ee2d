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

from mlflow_cf.milp.cells import CellBook, CellColumns
from mlflow_cf.milp.program import Affine, Columns, Entries, NotLinearError, Program, difference, total
from mlflow_cf.milp.variables import Chosen, Variables
from mlflow_cf.structures.capabilities import parts_of
from mlflow_cf.structures.layers.columns import ClippedLine, NotOpenedError
from mlflow_cf.structures.parts import Choice, Dense, LeafLimits, Leaves, Number, Part
from mlflow_cf.structures.structure import Structure
from mlflow_cf.structures.trees.cells import Lookup
from mlflow_cf.words.statements import say


def embed(program: Program, variables: Variables, structure: Structure) -> list[Affine]:
    """Return the raw scores of a structure over all features as expressions, in order.

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
        raise NotLinearError(error.what) from error


MOST_WIDTH: Final = 1  # of a first layer whose inputs need no columns of their own


def embed_dense(book: CellBook, dense: Dense) -> list[Affine]:
    """Return the outputs of the last layer as expressions.

    Raises:
        NotLinearError: another activation than relu between layers.
    """
    check_activation(dense)
    parts: list[list[Affine]] = [[] for _ in dense.bias]
    for feature, entries in enumerate(dense.entries):
        for entry in entries:
            for part, term in zip(parts, _terms(book, feature, entry), strict=True):
                part.append(term)
    sums = [total(part).plus(float(bias)) for part, bias in zip(parts, dense.bias, strict=True)]
    for weights, biases in zip(dense.weights, dense.biases, strict=True):
        hidden = [rectified(book.program, one) for one in sums]
        sums = []
        for column, bias in zip(weights.T.tolist(), biases.tolist(), strict=True):
            terms = [one.times(weight) for one, weight in zip(hidden, column, strict=True) if weight]
            sums.append(total(terms).plus(bias))
    return sums


def check_activation(dense: Dense) -> None:
    """Refuse another activation than relu between layers.

    Raises:
        NotLinearError: the message says which.
    """
    if dense.weights and dense.activation != "relu":
        raise NotLinearError(say("activation", activation=dense.activation))


def _terms(book: CellBook, feature: int, entry: Number | Choice) -> list[Affine]:
    """Return what a feature adds to every output of the first layer."""
    if isinstance(entry, Choice):
        cells = book.of(feature, entry.lookup)
        return [Affine.chosen(cells.columns, column) for column in entry.table[cells.cells].T]
    program, variable, line = book.program, book.variables.of(feature), entry.affine
    if isinstance(variable, Chosen):
        codes = variable.values(feature)
        known = np.clip(line.slope * codes + line.offset, line.low, line.high)
        inner = Affine.chosen(variable.selectors, np.where(np.isnan(codes), entry.missing, known))
    else:
        missing = book.variables.missing(feature)
        inner = _clipped(program, variable.value, line)
        if not missing.fixed:  # then the number is 0
            inner = total([inner, missing.times(entry.missing - float(np.clip(line.offset, line.low, line.high)))])
    if len(entry.weights) > MOST_WIDTH and len(inner.columns) > 2:
        column = program.add_column(inner.low, inner.high)
        program.require([difference(inner, column)], 0.0, 0.0)
        inner = column
    return [inner.times(weight) for weight in entry.weights.tolist()]


def _clipped(program: Program, value: Affine, formula: ClippedLine) -> Affine:
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
    """The conditions that some leaves set on one feature.

    Attributes:
        cells: the cells that it may be in; leaf: (n,) the leaves.
        first, last: (n,), (n,) the positions of the cells between which each leaf accepts known values.
        taken: (n, c) which of the cells each leaf accepts; None: those from the first to the last.
    """

    cells: CellColumns
    leaf: Columns
    first: Columns
    last: Columns
    taken: Flags | None

    @classmethod
    def of(cls, cells: CellColumns, lookup: Lookup, limits: LeafLimits) -> LeafTests:
        """Return the conditions over the cells that the feature may be in."""
        places, taken = cells.cells, None
        if limits.taken is not None:
            taken = limits.taken[:, places]
        elif lookup.missing == lookup.size - 1 and places[-1] == lookup.missing:  # missing values have a cell
            taken = (limits.low[:, None] <= places) & (places <= limits.high[:, None])
            taken[:, -1] = limits.missing
        first, stop = np.searchsorted(places, limits.low), np.searchsorted(places, limits.high, side="right")
        return cls(cells, limits.leaf, first, stop - 1, taken)

    @property
    def reached(self) -> Flags:
        """(n,) whether each leaf accepts any of the cells."""
        found: Flags = self.first <= self.last if self.taken is None else np.logical_or.reduce(self.taken, axis=1)
        return found


def embed_leaves(book: CellBook, leaves: Leaves) -> list[Affine]:
    """Return the raw scores of trees as expressions.

    Raises:
        NotLinearError: they have so many leaves that setting up the program would take seconds.
    """
    if len(leaves.tree) > MOST_LEAVES:
        raise NotLinearError(say("many_leaves", most=MOST_LEAVES))
    program, tests = book.program, []
    reached = np.ones(len(leaves.tree), dtype=np.bool_)
    for feature, (lookup, limits) in enumerate(zip(leaves.lookups, leaves.limits, strict=True)):
        if len(limits.leaf):
            tests.append(LeafTests.of(book.of(feature, lookup), lookup, limits))
            reached[limits.leaf[~tests[-1].reached]] = False
    columns = np.full(len(leaves.tree), -1)
    columns[reached] = program.add_columns(int(reached.sum()))
    _, row = np.unique(leaves.tree[reached], return_inverse=True)
    program.add_rows(int(row.max(initial=-1)) + 1, 1.0, 1.0, Entries(row, columns[reached], 1.0))  # one leaf per tree
    for one in tests:
        kept = reached[one.leaf]
        where = leaves.tree[one.leaf[kept]], columns[one.leaf[kept]]
        if one.taken is None:
            _add_ends(program, one.cells.prefix, where, (one.first[kept], one.last[kept]))
        else:
            _add_sets(program, one.cells, where, one.taken[kept])
    return _raw_scores(leaves, reached, columns[reached])


TreesAndColumns = tuple[Columns, Columns]  # (n,), (n,) of some leaves, by tree


def _add_ends(program: Program, prefix: Columns, where: TreesAndColumns, ends: tuple[Columns, Columns]) -> None:
    """Add the conditions of leaves on a feature; each leaf accepts the cells from the first to the last, (n,), (n,)."""
    first, last = ends
    at, leaves = _ending(where, last, last < len(prefix))
    program.add_rows(len(at), -np.inf, 0.0, leaves, Entries(np.arange(len(at)), prefix[at], -1.0))
    at, leaves = _ending(where, -first, first > 0)
    program.add_rows(len(at), -np.inf, 1.0, leaves, Entries(np.arange(len(at)), prefix[-at - 1], 1.0))


def _ending(where: TreesAndColumns, end: Columns, some: Flags) -> tuple[Columns, Entries]:
    """Return the ends (r,), one per tree and end (n,) of `some` leaves, and rows of all its leaves up to that end.

    Where there are many leaves, rows of those that end there alone.
    """
    tree, columns, end = where[0][some], where[1][some], end[some]
    order = np.lexsort((end, tree))
    tree, end, columns = tree[order], end[order], columns[order]
    last = np.flatnonzero((np.diff(tree, append=-1) != 0) | (np.diff(end, append=0) != 0))
    start = np.append(0, last[:-1] + 1)[: len(last)]
    if len(some) <= FEW_LEAVES:
        start = np.searchsorted(tree, tree[last])
    sizes = last + 1 - start
    row = np.repeat(np.arange(len(last)), sizes)
    within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return end[last], Entries(row, columns[np.repeat(start, sizes) + within], 1.0)


def _add_sets(program: Program, cells: CellColumns, where: TreesAndColumns, taken: Flags) -> None:
    """Add the conditions of leaves on a feature by the sets of cells (n, c) that they accept."""
    some = ~np.logical_and.reduce(taken, axis=1)
    if not some.any():
        return
    taken, tree, columns = taken[some], where[0][some], where[1][some]
    sets, kind = np.unique(taken, axis=0, return_inverse=True)
    kind = kind.ravel()
    allowed = [cells.among(members) for members in sets]
    starts = np.flatnonzero(np.diff(tree, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(tree)], strict=True):
        here = kind[start:stop]
        distinct = np.unique(here)
        # whether a leaf accepts a cell that a set lacks
        outside = np.logical_or.reduce(sets[here][:, None] & ~sets[distinct], axis=2)
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
    sums = []
    for k, base in enumerate(leaves.base.tolist()):
        some = value[:, k] != 0
        sums.append(Affine(columns[some], value[some, k], base, float(low[k]), float(high[k])))
    return sums
