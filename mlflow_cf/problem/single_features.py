"""Groups of a single feature, packed into one array: one pass binds them all to a row.

Kernels tell which values the rules of a row leave, and what each costs in the distance. The values of all columns are
packed into one array, column after column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints import Domain, Rule
from mlflow_cf.constraints.programs import RuleProgram, keeps
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.kernel import kernel
from mlflow_cf.problem.actions import Codes, Group, GroupActions
from mlflow_cf.problem.distance import BoundDistance, DistanceFormula, Scaled, cost_of, scaled_change
from mlflow_cf.structures.structure import Encoded

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
            if not found[row]:
                break
            if changed[row, column]:
                found[row] = _place(packed, group, Z[row, column]) >= 0


@dataclass(frozen=True, eq=False)
class PlainRules:
    """The rules about one single feature each that a kernel can check (`constraints.programs.is_compiled`).

    Attributes:
        rules: number of a group -> its rules.
    """

    rules: Mapping[int, Sequence[Rule]]
    _programs: dict[tuple[int, ...], OwnProgram] = field(default_factory=dict, init=False, repr=False)

    def of(self, numbers: tuple[int, ...]) -> OwnProgram:
        """Return the program of some groups' rules, made once."""
        if numbers not in self._programs:
            self._programs[numbers] = OwnProgram.of([self.rules.get(number, ()) for number in numbers])
        return self._programs[numbers]


# Columns and their values (t, columns) -> the structure's encoded values, one array per column.
Encode = Callable[[Sequence[int], Floats], list[Encoded]]


@dataclass(frozen=True, eq=False)
class PackedGroups:
    """Single features bound to a row, with the structure's encoded values of their domains.

    Attributes:
        groups: the groups; packed: their actions.
        encoded: (v, ...) all values of all domains, domain after domain, or None.
        first: (G,) where every group's domain starts in `encoded`.
    """

    groups: tuple[Group, ...]
    packed: BoundColumns
    encoded: Encoded | None
    first: Codes

    def encoded_actions(self, own: Encoded) -> list[Encoded]:
        """Return the encoded values (t, ...) of every group's actions; `own` (G, ...): those of the row itself."""
        if self.encoded is None:
            return []
        packed = self.packed
        found = self.encoded.take(packed.ids + self.first.repeat(np.diff(packed.start)), axis=0)
        found[packed.own + packed.start[:-1]] = own
        return [found[start:stop] for start, stop in pairwise(packed.start.tolist())]

    def encoded_row(self, encode: Encode) -> Encoded | None:
        """Return the encoded values (G, ...) of the query row's own values; None where their domains have none.

        Args:
            encode: for values that no domain has.
        """
        if self.encoded is None:
            return None
        packed, own = self.packed, self.packed.own + self.packed.start[:-1]
        ids = packed.ids[own]
        found: Encoded = self.encoded.take(ids + self.first, axis=0)
        for number in np.flatnonzero(ids < 0).tolist():
            (mine,) = encode(self.groups[number].columns, packed.values[own[[number]], None])
            found[number] = mine[0]
        return found


@dataclass(frozen=True, eq=False)
class SingleFeatures:
    """Single features, before any row is known.

    Attributes:
        numbers: their numbers among all groups.
        bound_distance: the distance; formula: the same for kernels.
        packed: the values of their domains.
    """

    numbers: tuple[int, ...]
    bound_distance: BoundDistance
    formula: DistanceFormula
    packed: PackedColumns

    @classmethod
    def of(cls, numbers: Sequence[int], domains: Sequence[Domain], distance: BoundDistance) -> SingleFeatures:
        """Pack the domains of some groups, given by their numbers among all `domains`."""
        some = [domains[number] for number in numbers]
        column = np.array([domain.columns[0] for domain in some], dtype=np.intp)
        sizes = [len(domain.actions) for domain in some]
        values = np.concatenate([np.empty(0), *(domain.actions[:, 0] for domain in some)])
        weights = np.concatenate([np.empty(0), *(domain.weights for domain in some)])
        positions = distance.positions(column.repeat(sizes), values)
        scaled = Scaled(distance.scale[column], distance.unknown_from[column], distance.least)
        packed = PackedColumns(
            np.cumsum([0, *sizes]), column, values, weights, positions, scaled, distance.weights[column]
        )
        return cls(tuple(numbers), distance, distance.formula, packed)

    def bind(self, plain: PlainRules, others: Mapping[int, Sequence[Rule]], x0: Floats) -> BoundColumns:
        """Return their actions for a row (d,): the values that the rules allow, and the row's own.

        Args:
            plain: the rules that the kernel checks; others: number of a group -> further rules.
            x0: the row.
        """
        packed = self.packed
        own_at = self.bound_distance.positions(packed.column, x0[packed.column])
        own_rules = plain.of(self.numbers)
        room = np.empty(len(own_rules.program.does))
        row = QueryRow(x0, own_at, *self._refused(others, x0), x0.copy(), room)
        bound = BoundColumns.room(len(self.numbers), len(packed.values))
        bind_columns(packed, own_rules, row, self.formula, bound)
        return bound.cut()

    def ids(self, x0: Floats) -> Codes:
        """Return the positions (n,) of a row's values (d,) among all packed values; -1 where they are not there."""
        ids = np.empty(len(self.numbers), dtype=np.intp)
        find_ids(self.packed, x0, ids)
        return ids

    def find_members(self, Z: Floats, changed: Bools, found: Bools) -> None:
        """Set `found` (m,) to False for rows of Z (m, d) with a `changed` value (m, d) that its group does not have."""
        find_members(self.packed, np.ascontiguousarray(Z), np.ascontiguousarray(changed), found)

    def _refused(self, others: Mapping[int, Sequence[Rule]], x0: Floats) -> tuple[Bools, Bools]:
        """Return which values (t,) and own values (n,) are refused by rules that the kernel does not check."""
        mine = [(at, rule) for at, number in enumerate(self.numbers) for rule in others.get(number, ())]
        if not mine:
            return _NONE, _NONE
        refused, own = np.zeros(len(self.packed.values), np.bool_), np.zeros(len(self.numbers), np.bool_)
        for at, rule in mine:
            start, stop = self.packed.start[at : at + 2]
            refused[start:stop] |= ~_holds(rule, self.packed.values[start:stop], x0)
            own[at] |= not rule.holds(x0[None], x0)[0]
        return refused, own


_NONE: Final = np.empty(0, dtype=np.bool_)


def _holds(rule: Rule, values: Floats, x0: Floats) -> Bools:
    """Return (t,) whether a rule holds for values (t,) of the only column that it reads."""
    return rule.holds(np.broadcast_to(values[:, None], (len(values), len(x0))), x0)
