"""Groups bound to a row: which tuples the rules leave of every domain, and what each of them costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlflow_cf.constraints import Domain, Rule
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.problem.cells import Cells
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.problem.group import Codes, Group, Tuples
from mlflow_cf.structures.links import Tokens
from mlflow_cf.structures.structure import Structure

Rules = Mapping[int, Sequence[Rule]]
SHORT = 500  # values up to which a domain is cheaper beside others than by itself


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of all groups; short ones of one column lie end to end, so that one pass binds them all to a row.

    Attributes:
        space: the features.
        all: the domain of every group.
        bound_distance: the distance.
        structure: whose tokens of all tuples are kept, or None.
    """

    space: FeatureSpace
    all: tuple[Domain, ...]
    bound_distance: BoundDistance
    structure: Structure | None = None

    @cached_property
    def tokens(self) -> dict[int, Tokens]:
        """For every column, the structure's tokens of its domain's tuples."""
        if self.structure is None:
            return {}
        return {
            column: self.structure.encode(column, domain.tuples[:, part])
            for domain in self.all
            for part, column in enumerate(domain.columns)
        }

    @cached_property
    def cells(self) -> Cells | None:
        """The cells of all continuous numbers that the structure only compares."""
        if self.structure is None or all(domain.interval is None for domain in self.all):
            return None
        return Cells.of(self.structure, self.all, self.space)

    def bind(self, rules: Rules, x0: Floats) -> tuple[Group, ...]:
        """Return the groups of a row (d,); `rules` are the grounded ones that speak of one group alone, by its number.

        A proposed tuple is not the row's own, and is missing nowhere where the row is not.
        """
        groups = dict(self._short_groups(rules, x0)) if self._short else {}
        for number, domain in enumerate(self.all):
            if number not in groups:
                bind = self._long_group if len(domain.columns) == 1 else self._joint_group
                groups[number] = bind(domain, rules.get(number, ()), x0)
        return tuple(groups[number] for number in range(len(self.all)))

    @cached_property
    def _short(self) -> list[int]:
        """The numbers of the groups of one column and few values."""
        return [n for n, domain in enumerate(self.all) if len(domain.columns) == 1 and len(domain.tuples) <= SHORT]

    @cached_property
    def _columns(self) -> Codes:
        """The column of every short group."""
        return np.array([self.all[number].columns[0] for number in self._short], dtype=np.intp)

    @cached_property
    def _ends(self) -> Codes:
        """Where the values of each short group end; the last one is the place of the row's own."""
        return np.cumsum([len(self.all[number].tuples) + 1 for number in self._short])

    @cached_property
    def _values(self) -> Floats:
        """The values (t,) of the short groups, one group after the other, and NaN for the rows' own."""
        return np.concatenate([np.append(self.all[number].tuples[:, 0], np.nan) for number in self._short])

    @cached_property
    def _places(self) -> Codes:
        """Where each of the values stands in its domain; the row's own nowhere yet."""
        return np.concatenate([np.append(np.arange(len(self.all[number].tuples)), -1) for number in self._short])

    @cached_property
    def _weights(self) -> Floats:
        return np.concatenate([np.append(self.all[number].weights, 0.0) for number in self._short])

    @cached_property
    def _positions(self) -> Floats:
        """Where the values stand on the line along which changes are measured."""
        return self.bound_distance.positions(self._columns[self._group], self._values)

    @cached_property
    def _long_positions(self) -> dict[int, Floats]:
        """The same for the values of every long group of one column."""
        long = [domain for domain in self.all if len(domain.columns) == 1 and len(domain.tuples) > SHORT]
        columns = ((np.array(domain.columns), domain.tuples[:, 0]) for domain in long)
        return {int(column[0]): self.bound_distance.positions(column, values) for column, values in columns}

    @cached_property
    def _group(self) -> Codes:
        """Which of the short groups each of the values belongs to."""
        return np.arange(len(self._short)).repeat(np.diff(self._ends, prepend=0))

    def _short_groups(self, rules: Rules, x0: Floats) -> list[tuple[int, Group]]:
        """Return the short groups with their numbers."""
        own, group = x0[self._columns], self._group
        equal = self._values == own[group]
        kept: Bools = ~equal & ~np.isnan(self._values)
        values = self._values.copy()
        values[self._ends - 1] = own
        allowed = self._apply(rules, x0, values, kept)
        part, top = self.bound_distance.contributions(
            self._columns[group], values, own[group], self._short_positions(own)
        )
        before = kept & (np.isnan(own)[group] | (values < own[group]))
        counts = np.bincount(group[kept], minlength=len(own)) + 1
        starts = counts.cumsum() - counts
        places = np.bincount(group[before], minlength=len(own))  # of the own values in their groups
        table = np.zeros((4, int(counts.sum())))
        others = np.ones(table.shape[1], dtype=np.bool_)
        others[starts + places] = False
        table[:, others] = np.stack((values, self._weights, part, top))[:, kept]
        table[0, starts + places] = own
        domain_places = np.full(table.shape[1], -1)
        domain_places[others] = self._places[kept]
        domain_places[(starts + places)[group[equal]]] = self._places[equal]
        bounds = zip(self._short, starts.tolist(), counts.tolist(), places.tolist(), allowed, strict=True)
        groups = []
        for number, start, count, place, own_allowed in bounds:
            codes, weights, parts, tops = table[:, start : start + count]
            domain, own_rules = self.all[number], tuple(rules.get(number, ()))
            bound = Tuples(codes[:, None], weights, place, parts, tops, domain_places[start : start + count])
            groups.append((number, _group(domain, own_rules, bound, own_allowed=own_allowed)))
        return groups

    def _short_positions(self, own: Floats) -> tuple[Floats, Floats] | None:
        """Return the positions of the values (t,) of the short groups, and of the own one beside each of them."""
        if self.bound_distance.percentiles is None:
            return None  # those are the values
        positions, own_positions = self._positions.copy(), self.bound_distance.positions(self._columns, own)
        positions[self._ends - 1] = own_positions
        return positions, own_positions[self._group]

    def _apply(self, rules: Rules, x0: Floats, values: Floats, kept: Bools) -> list[bool]:
        """Unmark the values (t,) that the rules of their group reject; return which groups' own values are allowed."""
        allowed = [True] * len(self._short)
        rows = np.broadcast_to(values[:, None], (len(values), len(x0)))  # the rules of a group read its column alone
        start = 0
        for position, (number, end) in enumerate(zip(self._short, self._ends.tolist(), strict=True)):
            for rule in rules.get(number, ()):
                held = rule.holds(rows[start:end], x0)
                kept[start:end] &= held
                allowed[position] &= bool(held[-1])
            start = end
        return allowed

    def _long_group(self, domain: Domain, rules: Sequence[Rule], x0: Floats) -> Group:
        own_allowed = all(rule.holds(x0[None], x0)[0] for rule in rules)
        return Group(
            domain.columns, own_allowed, tuple(rules), domain, bind=lambda: self._long_tuples(domain, rules, x0)
        )

    def _long_tuples(self, domain: Domain, rules: Sequence[Rule], x0: Floats) -> Tuples:
        values, own, kept = domain.tuples[:, 0], x0[domain.columns[0]], np.ones(len(domain.tuples), dtype=np.bool_)
        if rules:
            rows = np.broadcast_to(values[:, None], (len(values), len(x0)))
            kept = np.logical_and.reduce([rule.holds(rows, x0) for rule in rules])
        start = int(np.searchsorted(values, own))  # a missing own value comes last
        known = start < len(values) and values[start] == own
        before, after = np.flatnonzero(kept[:start]), np.flatnonzero(kept[start + known :]) + start + known
        places = np.concatenate([before, [start if known else -1], after])
        codes, weights = values[places], domain.weights[places]
        codes[len(before)], weights[len(before)] = own, 0.0
        column = np.array(domain.columns)
        own_position = self.bound_distance.positions(column, np.array([own]))
        positions = self._long_positions[domain.columns[0]][places]
        positions[len(before)] = own_position[0]
        part, top = self.bound_distance.contributions(column, codes, np.array([own]), (positions, own_position))
        return Tuples(codes[:, None], weights, len(before), part, top, places)

    def _joint_group(self, domain: Domain, rules: Sequence[Rule], x0: Floats) -> Group:
        columns = list(domain.columns)
        own = x0[columns]
        equal = same(domain.tuples, own).all(axis=1)
        kept = ~(np.isnan(domain.tuples) & ~np.isnan(own)).any(axis=1) & ~equal
        own_allowed = True
        if rules:
            rows = np.tile(x0, (len(domain.tuples) + 1, 1))
            rows[:-1, columns] = domain.tuples
            held = np.logical_and.reduce([rule.holds(rows, x0) for rule in rules])
            kept &= held[:-1]
            own_allowed = bool(held[-1])
        code = _place(domain.tuples[kept], own)
        places = np.insert(np.flatnonzero(kept), code, np.flatnonzero(equal)[0] if equal.any() else -1)
        tuples = np.insert(domain.tuples[kept], code, own, axis=0)  # there may be no other
        weights = np.insert(domain.weights[kept], code, 0.0)
        part, top = self.bound_distance.parts(domain.columns, tuples, own)
        bound = Tuples(tuples, weights, code, part, top, places)
        return _group(domain, tuple(rules), bound, own_allowed=own_allowed)


def _group(domain: Domain, rules: tuple[Rule, ...], bound: Tuples, *, own_allowed: bool) -> Group:
    return Group(domain.columns, own_allowed, rules, domain, bind=lambda: bound)


def same(values: Floats, own: Floats) -> Bools:
    """Return where values equal the row's own; two missing values do."""
    equal: Bools = (values == own) | (np.isnan(values) & np.isnan(own))
    return equal


def _place(tuples: Floats, own: Floats) -> int:
    """Return where `own` belongs among ascending `tuples`, missing parts last."""
    before = np.zeros(len(tuples), dtype=np.bool_)
    tied = np.ones(len(tuples), dtype=np.bool_)
    for column, value in enumerate(np.where(np.isnan(own), np.inf, own)):
        values = np.where(np.isnan(tuples[:, column]), np.inf, tuples[:, column])
        before |= tied & (values < value)
        tied &= values == value
    return int(before.sum())


def admissible(domain: Domain, values: Floats, own: Floats) -> Bools:
    """Return (m,) whether tuples (m, k) may be proposed beside one own tuple (k,) or one each (m, k).

    They are of the domain, and missing only where the own one is missing.
    """
    return domain.contains(values) & ~(np.isnan(values) & ~np.isnan(own)).any(axis=1)
