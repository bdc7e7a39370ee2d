"""Kernels that bind single features to a row: which values its rules leave, and what each costs in the distance.

The values of all columns are packed into one array, column after column, so that one pass binds them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints import Rule
from mlflow_cf.constraints.programs import RuleProgram, keeps
from mlflow_cf.kernel import kernel
from mlflow_cf.problem.group import GroupActions
from mlflow_cf.problem.scaled import DistanceFormula, Scaled, cost_of, scaled_change

Array = NDArray[Any]
NOWHERE: Final = -1


class OwnProgram(NamedTuple):
    """The rules about one group each, as one program, group after group.

    Attributes:
        start: (n + 1,) where the rules of every group start in the program.
        program: all of them.
    """

    start: Array
    program: RuleProgram

    @classmethod
    def of(cls, groups: Sequence[Sequence[Rule]]) -> OwnProgram:
        """Return the plain rules of groups together."""
        return cls(np.cumsum([0, *map(len, groups)]), RuleProgram.of([rule for some in groups for rule in some]))


class PackedColumns(NamedTuple):
    """The values of single features packed into one array: feature after feature, each ascending.

    Attributes:
        start: (n + 1,) where every group starts; column: (n,) its column.
        values, weights: (t,) as in `Domain`; positions: (t,) the values as `BoundDistance.positions` maps them.
        scaled: how changes are measured; weight: (n,) weight of each column in the distance.
    """

    start: Array
    column: Array
    values: Array
    weights: Array
    positions: Array
    scaled: Scaled
    weight: Array


class QueryRow(NamedTuple):
    """The row to explain, with room to work in.

    Attributes:
        x0: (d,) its codes; own_at: (n,) its own values as `BoundDistance.positions` maps them.
        refused: (t,) which values rules outside of the program refuse; own_refused: (n,) which of its own; both empty
            without such rules.
        candidate: (d,) a copy of the row, to put values in; stack: working memory of the rules' programs.
    """

    x0: Array
    own_at: Array
    refused: Array
    own_refused: Array
    candidate: Array
    stack: Array


class BoundColumns(NamedTuple):
    """The actions of groups, as in `GroupActions`, group after group.

    Attributes:
        start: (n + 1,) where every group starts; own: (n,) the code of the row's own value in it.
        allowed: (n,) whether the rules accept the row's own value.
        values, weights, cost, peak, ids: (t + n,) of all.
    """

    start: Array
    own: Array
    allowed: Array
    values: Array
    weights: Array
    cost: Array
    peak: Array
    ids: Array

    @classmethod
    def room(cls, groups: int, values: int) -> BoundColumns:
        """Return arrays for so many groups with so many values."""
        size = groups + values
        counts, table = np.empty((2, groups + 1), dtype=np.intp), np.empty((4, size))
        allowed, ids = np.empty(groups, dtype=np.bool_), np.empty(size, dtype=np.intp)
        return cls(counts[0], counts[1, :groups], allowed, table[0], table[1], table[2], table[3], ids)

    @classmethod
    def of(cls, groups: Sequence[GroupActions], allowed: Array) -> BoundColumns:
        """Return the actions of groups end to end, as values the first of each."""
        start = np.cumsum([0, *(len(bound.values) for bound in groups)], dtype=np.intp)
        own = np.array([bound.own for bound in groups], dtype=np.intp)
        values, weights, cost, peak = (
            np.concatenate(arrays)
            for arrays in zip(*((b.values[:, 0], b.weights, b.cost, b.peak) for b in groups), strict=True)
        )
        ids = np.full(len(values), NOWHERE)
        return cls(start, own, allowed, values, weights, cost, peak, ids)

    def cut(self) -> BoundColumns:
        """Return the same without unused memory."""
        size = int(self.start[-1])
        values, weights, cost, peak, ids = (
            array[:size] for array in (self.values, self.weights, self.cost, self.peak, self.ids)
        )
        return BoundColumns(self.start, self.own, self.allowed, values, weights, cost, peak, ids)

    def actions(self, at: int) -> GroupActions:
        """Return the actions of one of the groups."""
        part = slice(self.start[at], self.start[at + 1])
        own, values = int(self.own[at]), self.values[part, None]
        return GroupActions(values, self.weights[part], own, self.cost[part], self.peak[part], self.ids[part])


@numba.njit(inline="always")
def _put_own(at: Any, group: Any, own: Any, out: BoundColumns) -> None:
    """Write the row's own value of a group, which costs nothing."""
    out.values[at], out.weights[at], out.cost[at], out.peak[at], out.ids[at] = own, 0.0, 0.0, 0.0, -1
    out.own[group] = at - out.start[group]


@kernel
def bind_columns(
    packed: PackedColumns, own_rules: OwnProgram, row: QueryRow, formula: DistanceFormula, out: BoundColumns
) -> None:
    """Write what the rules leave of all groups for a row."""
    at, program = 0, own_rules.program
    for group in range(packed.column.size):
        first, last = own_rules.start[group], own_rules.start[group + 1]
        column = packed.column[group]
        own, weight = row.x0[column], packed.weight[group]
        waits, known = True, -1
        out.start[group] = at
        for place in range(packed.start[group], packed.start[group + 1]):
            value = packed.values[place]
            if waits and value >= own:  # a missing one comes last
                _put_own(at, group, own, out)
                waits = False
                at += 1
            if value == own:
                known = place - packed.start[group]
                continue
            if row.refused.size and row.refused[place]:
                continue
            if first < last:
                row.candidate[column] = value
                if not keeps(program, first, last, row.candidate, row.x0, row.stack):
                    continue
            change = (
                scaled_change(value, own, packed.positions[place], row.own_at[group], packed.scaled, group) * weight
            )
            out.values[at], out.weights[at], out.ids[at] = value, packed.weights[place], place - packed.start[group]
            out.cost[at] = cost_of(change, weight, formula)
            out.peak[at] = change / formula.top_weight
            at += 1
        if waits:
            _put_own(at, group, own, out)
            at += 1
        out.ids[out.start[group] + out.own[group]] = known
        row.candidate[column] = own
        own_refused = row.own_refused.size and row.own_refused[group]
        out.allowed[group] = not own_refused and keeps(program, first, last, row.candidate, row.x0, row.stack)
    out.start[packed.column.size] = at


@numba.njit(inline="always")
def _place(packed: PackedColumns, group: Any, value: Any) -> Any:
    """Return the position of a value among all packed values, found in its group; -1 where it is not there."""
    low, stop = packed.start[group], packed.start[group + 1]
    high = stop
    while low < high:
        middle = (low + high) // 2
        if packed.values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and packed.values[low] == value else -1


@kernel
def find_ids(packed: PackedColumns, x0: Array, ids: Array) -> None:
    """Write the positions `ids` (n,) of a row's values (d,) among all packed values; -1 where they are not there."""
    for group in range(packed.column.size):
        ids[group] = _place(packed, group, x0[packed.column[group]])


@kernel
def find_members(packed: PackedColumns, Z: Array, changed: Array, found: Array) -> None:
    """Set `found` (m,) to False for rows of Z (m, d) with a `changed` value (m, d) that its group does not have."""
    for row in range(found.size):
        for group in range(packed.column.size):
            column = packed.column[group]
            if changed[row, column]:
                found[row] &= _place(packed, group, Z[row, column]) >= 0
