"""Groups of a single feature, packed into one array: one pass binds them all to a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from mlflow_cf.constraints import Domain, Rule
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.problem.group import Codes, Group
from mlflow_cf.problem.packed import (
    BoundColumns,
    OwnProgram,
    PackedColumns,
    QueryRow,
    bind_columns,
    find_ids,
    find_members,
)
from mlflow_cf.problem.scaled import DistanceFormula, Scaled
from mlflow_cf.structures.links import Encoded


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
