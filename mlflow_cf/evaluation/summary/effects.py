"""What the moves of single rows, and pairs of them, do to the number that decides, by an opened model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.evaluation.summary.bits import flags_of
from mlflow_cf.evaluation.summary.family import WholeFamily
from mlflow_cf.evaluation.summary.marking import Effects, Layout
from mlflow_cf.evaluation.summary.rectified import Units, add_joint
from mlflow_cf.evaluation.summary.refused import RefusedRows
from mlflow_cf.features import Floats
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.problem import Codes
from mlflow_cf.structures.capabilities import HiddenLayer, SupportsHidden, SupportsPairs
from mlflow_cf.structures.structure import Encoded, Structure

MOST_PAIRED: Final = 2**24  # numbers in the joint effects of one row
Joint = tuple[NDArray[np.int32], Codes, Codes, Codes, Floats]  # classes, side, counts, table and added of `Effects`


def layer_of(structure: Structure, background: Floats) -> HiddenLayer | None:
    """Return a layer of rectified units, or the raw scores of a linear model; None: it is neither.

    Its weights are all one; what it says of the values of the first of background rows (n, d) is true of no other.
    """
    if not isinstance(structure, SupportsHidden):
        return None
    values = [structure.encode(column, own[:1]) for column, own in enumerate(background.T)]
    return structure.hidden(values, np.ones(structure.outputs))


def tells_pairs(structure: Structure, background: Floats) -> bool:
    """Return whether joint effects of two changes are known: of trees, linear models, one layer of rectified units."""
    return isinstance(structure, SupportsPairs) or layer_of(structure, background) is not None


def units_of(structure: Structure | None, background: Floats) -> int:
    """Return how many rectified units have to be added up for every pair of changes; 1 where no unit has."""
    layer = None if structure is None else layer_of(structure, background)
    return len(layer.weights) if layer is not None and layer.rectified else 1


@dataclass(frozen=True, eq=False)
class RowEffects:
    """What the moves of single rows do to the raw scores.

    Attributes:
        structure: the opened model; layout: of the changes.
        values: per column, the encoded values that its moves go to.
        rows: per column, the encoded values (n, ...) of all rows; those of rows that cannot be read mean nothing.
        moved: (n, s) which rows each move changes.
        joint: returns the joint effects of all pairs of moves of a row, given the weights of the raw scores.
    """

    structure: Structure
    layout: Layout
    values: list[Encoded]
    rows: list[Encoded]
    moved: Bools
    joint: Callable[[int, Floats], Joint | None]

    @classmethod
    def of(cls, rows: RefusedRows, family: WholeFamily, structure: Structure) -> RowEffects:
        """Encode all rows that a structure can read, and all values that the moves of a family go to."""
        values = [structure.encode(column, np.empty(0)) for column in range(len(rows.space))]
        whose = [np.empty(0, dtype=np.intp)]
        for at, column in enumerate(family.columns):
            moves = family.moves[family.start[at] : family.start[at + 1]]
            encoded = structure.encode(column, np.array([move.code for move in moves]))
            values[column], place = np.unique(encoded, axis=0, return_inverse=True)
            whose.append(place.ravel())
        pairs = np.array(family.pairs, dtype=np.intp).reshape(-1, 2).T
        layout = Layout(family.start, pairs[0].copy(), pairs[1].copy(), family.place, np.concatenate(whose))
        X, background = rows.X.copy(), rows.bound_policy.background
        X[rows.unread] = background[0]  # whose levels can be read; what is said of these rows is not used
        own = [structure.encode(column, codes) for column, codes in enumerate(X.T)]
        moved = np.ascontiguousarray(flags_of(family.lawful.moved, len(rows)).T)
        columns = np.array(family.columns, dtype=np.intp)
        layer = layer_of(structure, background)
        joint: Callable[[int, Floats], Joint | None]
        if isinstance(structure, SupportsPairs):
            joint = OfTables(structure, own, values, columns[pairs]).of
        elif isinstance(structure, SupportsHidden) and layer is not None and layer.rectified:
            some = [structure.encode(column, codes[:1]) for column, codes in enumerate(background.T)]
            joint = OfUnits.of_rows(
                structure, (own, values), columns, layout, (layer, partial(structure.hidden, some))
            ).of
        else:
            joint = OfNone(values, columns[pairs]).of
        return cls(structure, layout, values, own, moved, joint)

    def of_rows(self, at: Codes, decided: Sequence[DecisionScore]) -> list[Effects | None]:
        """Return the effects of all moves on the number that decides, for rows `at` (m,); None: they are not known."""
        if not len(at) or not self.moved.shape[1]:
            return []
        own = [encoded[at] for encoded in self.rows]
        wanted = [some if len(some) else None for some in self.values]
        swept = [sums for sums in self.structure.sweep(own, wanted) if sums is not None]
        sums, starts = self.structure.sums(own), self.layout.start
        found: list[Effects | None] = []
        for place, (row, decision) in enumerate(zip(at.tolist(), decided, strict=True)):
            score = np.empty(len(self.layout.value))
            for column, some in enumerate(swept):
                mine = slice(starts[column], starts[column + 1])
                score[mine] = (some[place] @ decision.weights)[self.layout.value[mine]]
            joint, base = self.joint(row, decision.weights), float(sums[place] @ decision.weights)
            known = joint is not None and np.isfinite(base)
            found.append(Effects(self.moved[row], score, base, *joint) if known and joint else None)
        return found


@dataclass(frozen=True, eq=False)
class OfTables:
    """Joint effects that a structure tabulates by itself: trees.

    Attributes:
        structure: the structure.
        rows, values: encoded, per column.
        columns: (2, p) the columns of every pair.
    """

    structure: SupportsPairs
    rows: list[Encoded]
    values: list[Encoded]
    columns: Codes

    def of(self, row: int, weights: Floats) -> Joint | None:
        """Return the joint effects of all pairs of moves of a row on its raw scores times `weights` (k,)."""
        own = [encoded[row : row + 1] for encoded in self.rows]
        found = self.structure.pairs(own).tables(self.values, self.columns[0], self.columns[1], MOST_PAIRED)
        if found is None:
            return None
        tables = found.tables
        return tables.classes, tables.side, tables.counts, tables.place, tables.added @ weights


@dataclass(frozen=True, eq=False)
class OfNone:
    """No joint effects: the single effects on a linear model add up.

    Attributes:
        values: encoded, per column.
        columns: (2, p) the columns of every pair.
    """

    values: list[Encoded]
    columns: Codes

    def of(self, row: int, weights: Floats) -> Joint:
        """Return zeros, one for each pair of columns."""
        del row, weights
        return self._zeros

    @cached_property
    def _zeros(self) -> Joint:
        pairs, side = self.columns.shape[1], sides(self.values, self.columns)
        ones = np.ones(2 * pairs, dtype=np.intp)
        return np.zeros(side[-1], dtype=np.int32), side[:-1], ones, np.arange(pairs + 1), np.zeros(pairs)


def sides(values: Sequence[Encoded], columns: Codes) -> Codes:
    """Return (2 p + 1,) where the values of each column of each pair of columns (2, p) start."""
    sizes = [len(values[column]) for column in columns.T.ravel().tolist()]
    return np.cumsum([0, *sizes]).astype(np.intp)


@dataclass(frozen=True, eq=False)
class OfUnits:
    """Joint effects on a network with one layer of rectified units.

    Attributes:
        whole: (n, width) the units of the rows before they are rectified; own: (n, c, width) what columns add to them.
        units: with weights of one; outer: returns the weights of the units, given those of the raw scores.
        classes, side, counts: as in `Effects`.
    """

    whole: Floats
    own: Floats
    units: Units
    outer: Callable[[Floats], Floats]
    classes: NDArray[np.int32]
    side: Codes
    counts: Codes

    @classmethod
    def of_rows(
        cls,
        structure: SupportsHidden,
        encoded: tuple[list[Encoded], list[Encoded]],
        columns: Codes,
        layout: Layout,
        layer: tuple[HiddenLayer, Callable[[Floats], HiddenLayer | None]],
    ) -> OfUnits:
        """Add up what the encoded values of rows add to the units, and those that the moves of columns (c,) go to.

        Args:
            structure: the network; encoded: the rows and the values, per column.
            columns, layout: of the moves.
            layer: the units, and what returns them with their weights, given those of the raw scores.
        """
        (rows, values), (known, weighted) = encoded, layer
        whole = known.bias + np.sum([structure.effects(at, own) for at, own in enumerate(rows)], axis=0)
        own = np.stack([structure.effects(at, rows[at]) for at in columns.tolist()], axis=1)
        added = [structure.effects(at, values[at]) for at in columns.tolist()]
        start = np.cumsum([0, *map(len, added)])
        sizes = np.diff(start)
        table = np.cumsum([0, *(sizes[layout.first] * sizes[layout.second]).tolist()])
        pairs = np.stack([layout.first, layout.second])

        def outer(weights: Floats) -> Floats:
            found = weighted(weights)
            return known.weights if found is None else found.weights

        units = Units(known.weights, np.concatenate(added).T.copy(), start, layout.first, layout.second, table)
        side = sides(values, columns[pairs])
        counts = sizes[pairs.T.ravel()]
        classes = np.concatenate([np.empty(0), *map(np.arange, counts.tolist())]).astype(np.int32)
        return cls(whole, own, units, outer, classes, side[:-1], counts)

    def of(self, row: int, weights: Floats) -> Joint:
        """Return the joint effects of all pairs of moves of a row on its raw scores times `weights` (k,)."""
        key = weights.tobytes()
        if key not in self._units:
            self._units[key] = self.units._replace(weights=self.outer(weights))
        units, values = self._units[key], int(self.units.start[-1])
        room = np.empty((2, max(values, self.whole.shape[1])))
        found = np.empty(int(units.table[-1]))
        add_joint(units, self.whole[row], self.own[row], room, np.empty(values), found)
        return self.classes, self.side, self.counts, units.table, found

    @cached_property
    def _units(self) -> dict[bytes, Units]:
        """The units, by the weights of the raw scores: the target may differ by the label of a row."""
        return {}
