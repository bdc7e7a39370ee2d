"""Groups and rules bound to a row: which actions the rules leave of every domain, and what each of them costs.

Rules speak of one group alone or of several groups, or they must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

import numpy as np

from mlflow_cf.constraints import ChangeLimit, Domain, Rule
from mlflow_cf.constraints.programs import Checks, is_compiled
from mlflow_cf.constraints.rules import Bools, applies, ground
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.problem.actions import Group, GroupActions
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.problem.intervals import Cells
from mlflow_cf.problem.single_features import PackedGroups, PlainRules, SingleFeatures
from mlflow_cf.structures.structure import Encoded, Structure

SHORT = 50_000  # values in all of the domains that are bound together, before they are looked at: 2 MB a row


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of all groups; those of single features are packed into arrays, so that one pass binds them all.

    Attributes:
        space: the features.
        all: the domain of every group.
        bound_distance: the distance.
        structure: the opened model, whose encoded values of all actions are kept; None without.
    """

    space: FeatureSpace
    all: tuple[Domain, ...]
    bound_distance: BoundDistance
    structure: Structure | None = None

    @cached_property
    def encoded(self) -> dict[int, Encoded]:
        """For every column, the structure's encoded values of its domain's actions."""
        if self.structure is None:
            return {}
        return {
            column: self.structure.encode(column, domain.actions[:, part])
            for domain in self.all
            for part, column in enumerate(domain.columns)
        }

    def encoded_row(self, x0: Floats) -> list[Encoded]:
        """Return the encoded values (1, ...) of a row (d,), one array per column; none without structure."""
        encoded, structure = self._encoded_end_to_end, self.structure
        if structure is None:
            return []
        if encoded is None or len(self.short.numbers) < len(self.all):
            return [structure.encode(column, x0[[column]]) for column in range(len(x0))]
        ids = self.short.ids(x0)  # one group a column, in their order
        known = list(encoded.take(ids, axis=0)[:, None])
        for column in np.flatnonzero(ids < 0).tolist():
            known[column] = structure.encode(column, x0[[column]])
        return known

    @cached_property
    def _encoded_end_to_end(self) -> Encoded | None:
        """The encoded values of all single features, group after group; None where they do not fit into one array."""
        encoded = [self.encoded[domain.columns[0]] for domain in self.all if self.encoded]
        alike = len({(some.dtype, some.shape[1:]) for some in encoded}) == 1 and any(map(len, encoded))
        return np.concatenate(encoded) if alike else None

    @cached_property
    def cells(self) -> Cells | None:
        """The cells of all continuous numbers that the structure only compares with thresholds; see `intervals`."""
        if self.structure is None or all(domain.interval is None for domain in self.all):
            return None
        return Cells.of(self.structure, self.all, self.space)

    def bind(self, rules: OwnRules, x0: Floats) -> tuple[tuple[Group, ...], PackedGroups | None]:
        """Return the groups of a row (d,), and the same packed if all are single features with few values.

        No action proposes a missing value where the row has one.
        """
        groups: dict[int, Group] = {}
        short = self.short.bind(rules.plain, rules.others, x0)
        for at, (number, allowed) in enumerate(zip(self.short.numbers, short.allowed.tolist(), strict=True)):
            groups[number] = self._group(number, rules, partial(short.actions, at), own_allowed=allowed)
        if len(groups) == len(self.all):
            every = tuple(groups.values())
            return every, PackedGroups(every, short, self._encoded_end_to_end, self.short.packed.start[:-1])
        groups |= self._long_groups(rules, x0) if self._long else {}
        for number, domain in enumerate(self.all):
            if len(domain.columns) > 1:
                groups[number] = self._joint_group(number, rules, x0)
        return tuple(groups[number] for number in range(len(self.all))), None

    def _long_groups(self, rules: OwnRules, x0: Floats) -> dict[int, Group]:
        """Return the single features with many values, which are bound when they are first read."""
        groups, allowed = {}, self._long_own.bind(rules.plain, {}, x0).allowed.tolist()
        for number, simply in zip(self._long, allowed, strict=True):
            own_allowed = simply and all(rule.holds(x0[None], x0)[0] for rule in rules.others.get(number, ()))
            bind = partial(self._long_tuples, number, rules, x0)
            groups[number] = self._group(number, rules, bind, own_allowed=own_allowed)
        return groups

    def _group(self, number: int, rules: OwnRules, bind: Callable[[], GroupActions], *, own_allowed: bool) -> Group:
        domain = self.all[number]
        return Group(domain.columns, own_allowed, domain, partial(rules.all, number), bind)

    @cached_property
    def short_numbers(self) -> frozenset[int]:
        """The numbers of the groups in `short`."""
        return frozenset(self.short.numbers)

    @cached_property
    def short(self) -> SingleFeatures:
        """The single features with the fewest values, up to `SHORT` in all; none takes any number of an interval."""
        sizes = {n: len(d.actions) for n, d in enumerate(self.all) if len(d.columns) == 1 and d.interval is None}
        order = sorted(sizes, key=lambda number: sizes[number])
        few = int((np.cumsum([sizes[number] for number in order]) <= SHORT).sum())
        return SingleFeatures.of(sorted(order[:few]), self.all, self.bound_distance)

    @cached_property
    def _long(self) -> dict[int, SingleFeatures]:
        """All other single features, each by itself: often only the cells of their interval are read."""
        single = [number for number, domain in enumerate(self.all) if len(domain.columns) == 1]
        others = [number for number in single if number not in self.short_numbers]
        return {number: SingleFeatures.of([number], self.all, self.bound_distance) for number in others}

    @cached_property
    def _long_own(self) -> SingleFeatures:
        """The same packed together without values: enough to check the row's own ones."""
        nothing = [replace(domain, actions=domain.actions[:0], weights=domain.weights[:0]) for domain in self.all]
        return SingleFeatures.of(list(self._long), nothing, self.bound_distance)

    def _long_tuples(self, number: int, rules: OwnRules, x0: Floats) -> GroupActions:
        return self._long[number].bind(rules.plain, rules.others, x0).actions(0)

    def _joint_group(self, number: int, own_rules: OwnRules, x0: Floats) -> Group:
        domain, rules = self.all[number], own_rules.others.get(number, ())
        columns = list(domain.columns)
        own = x0[columns]
        equal = same(domain.actions, own).all(axis=1)
        kept = ~(np.isnan(domain.actions) & ~np.isnan(own)).any(axis=1) & ~equal
        own_allowed = True
        if rules:
            rows = np.tile(x0, (len(domain.actions) + 1, 1))
            rows[:-1, columns] = domain.actions
            held = np.logical_and.reduce([rule.holds(rows, x0) for rule in rules])
            kept &= held[:-1]
            own_allowed = bool(held[-1])
        code = _place(domain.actions[kept], own)
        ids = np.insert(np.flatnonzero(kept), code, np.flatnonzero(equal)[0] if equal.any() else -1)
        actions = np.insert(domain.actions[kept], code, own, axis=0)  # there may be no other
        weights = np.insert(domain.weights[kept], code, 0.0)
        part, top = self.bound_distance.parts(domain.columns, actions, own)
        bound = GroupActions(actions, weights, code, part, top, ids)
        return self._group(number, own_rules, lambda: bound, own_allowed=own_allowed)


def same(values: Floats, own: Floats) -> Bools:
    """Return where values equal the row's own; two missing values do."""
    equal: Bools = (values == own) | (np.isnan(values) & np.isnan(own))
    return equal


def _place(actions: Floats, own: Floats) -> int:
    """Return where `own` belongs among ascending `actions`, missing parts last."""
    before = np.zeros(len(actions), dtype=np.bool_)
    tied = np.ones(len(actions), dtype=np.bool_)
    for column, value in enumerate(np.where(np.isnan(own), np.inf, own)):
        values = np.where(np.isnan(actions[:, column]), np.inf, actions[:, column])
        before |= tied & (values < value)
        tied &= values == value
    return int(before.sum())


def admissible(domain: Domain, values: Floats, own: Floats) -> Bools:
    """Return (m,) whether actions (m, k) may be proposed beside one own action (k,) or one each (m, k).

    They are of the domain, and missing only where the own one is missing.
    """
    return domain.contains(values) & ~(np.isnan(values) & ~np.isnan(own)).any(axis=1)


@dataclass(frozen=True, eq=False)
class OwnRules:
    """The rules about one group alone, by its number.

    Attributes:
        plain: those about single features that a kernel can check.
        others: all others.
        all: number of a group -> all its rules, with the row's values filled in.
    """

    plain: PlainRules
    others: Mapping[int, Sequence[Rule]]
    all: Callable[[int], tuple[Rule, ...]]


@dataclass(frozen=True, eq=False)
class Linked:
    """A rule over several groups.

    Attributes:
        rule: the rule; groups: those that it is about.
        given: its conditions on the query row alone.
    """

    rule: Rule
    groups: Sequence[int]
    given: Checks

    @classmethod
    def of(cls, rule: Rule, groups: Sequence[int]) -> Linked:
        """Return a rule over some groups."""
        alone = [atom for atom in rule.when if not atom.columns("x_cf")]
        return cls(rule, groups, Checks.of(replace(rule, when=(), then=atom) for atom in alone))

    def applies(self, x0: Floats) -> bool:
        """Whether it may fail for some counterfactual of a row (d,)."""
        held = np.ones(1, dtype=np.bool_)
        self.given.refuse(x0[None], x0, held)
        return bool(held[0]) and (bool(self.rule.then.columns("x_cf")) or applies(self.rule, x0))


@dataclass(frozen=True, eq=False)
class Linking:
    """The rules over several groups, for one row.

    Attributes:
        every: all of them; checks: the same, checked together.
        x0: (d,) the row.
    """

    every: Sequence[Linked]
    checks: Checks
    x0: Floats

    @cached_property
    def groups(self) -> frozenset[int]:
        """The groups that are in a rule which may fail for this row."""
        return frozenset(chain.from_iterable(linked.groups for linked in self._applying))

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """Those that may fail for this row, grounded."""
        grounded = (ground(linked.rule, self.x0) for linked in self._applying)
        return tuple(rule for rule in grounded if rule is not None)

    def holds(self, Z: Floats) -> Bools:
        """Return (m,) whether counterfactuals Z (m, d) meet all of them."""
        held = np.ones(len(Z), dtype=np.bool_)
        self.checks.refuse(Z, self.x0, held)
        return held

    @cached_property
    def _applying(self) -> list[Linked]:
        return [linked for linked in self.every if linked.applies(self.x0)]


@dataclass(frozen=True, eq=False)
class Grounded:
    """The rules for one row: about one group alone, over several groups, and those that no candidate can meet."""

    own: OwnRules
    linking: Linking
    never: tuple[Rule, ...]


@dataclass(frozen=True, eq=False)
class Grounding:
    """Rules and limits sorted by the groups that they are about, before any row is known.

    Attributes:
        rules: all of them; limits: how many groups may change.
        domains: of all groups.
    """

    rules: tuple[Rule, ...]
    limits: tuple[ChangeLimit, ...]
    domains: tuple[Domain, ...]

    def of(self, x0: Floats) -> Grounded:
        """Return the rules for one row (d,)."""
        never = tuple(found for rule in self.of_no_group if (found := ground(rule, x0)) is not None)
        own = OwnRules(self.plain, self.others, partial(self._own, x0))
        return Grounded(own, Linking(self.linking_rules, self._checks, x0), never)

    def _own(self, x0: Floats, number: int) -> tuple[Rule, ...]:
        """Return the rules about a group alone, with the row's values filled in."""
        grounded = (ground(rule, x0) for rule, groups in self._spoken_of if groups == [number])
        return (*self._limited.get(number, ()), *(rule for rule in grounded if rule is not None))

    @cached_property
    def owner(self) -> dict[int, int]:
        """The group of every column."""
        return {column: number for number, domain in enumerate(self.domains) for column in domain.columns}

    @cached_property
    def _spoken_of(self) -> list[tuple[Rule, list[int]]]:
        """Every rule with the groups that it is about, which are the same for all rows."""
        return [(rule, sorted({self.owner[column] for column in rule.columns("x_cf")})) for rule in self.rules]

    @cached_property
    def _limited(self) -> dict[int, list[Rule]]:
        """The groups one action of which can exceed a limit on changes, with these limits as rules."""
        found = {
            number: [rule for limit in self.limits if (rule := limit.within(domain.columns))]
            for number, domain in enumerate(self.domains)
        }
        return {number: rules for number, rules in found.items() if rules}

    def _is_known(self, rule: Rule, groups: Sequence[int]) -> bool:
        """Whether a kernel can check a rule: it is about a single feature, and plain."""
        return len(groups) == 1 and len(self.domains[groups[0]].columns) == 1 and is_compiled(rule)

    @cached_property
    def others(self) -> dict[int, list[Rule]]:
        """Number of a group -> the rules about it alone that no kernel can check, limits on changes among them."""
        others = {number: list(rules) for number, rules in self._limited.items()}
        for rule, groups in self._spoken_of:
            if len(groups) == 1 and not self._is_known(rule, groups):
                others.setdefault(groups[0], []).append(rule)
        return others

    @cached_property
    def linking_rules(self) -> list[Linked]:
        """The rules over several groups."""
        return [Linked.of(rule, groups) for rule, groups in self._spoken_of if len(groups) > 1]

    @cached_property
    def _checks(self) -> Checks:
        return Checks.of(linked.rule for linked in self.linking_rules)

    @cached_property
    def of_no_group(self) -> list[Rule]:
        """The rules about no group: those that conditions on the row alone forbid every candidate."""
        return [rule for rule, groups in self._spoken_of if not groups]

    @cached_property
    def plain(self) -> PlainRules:
        """The rules about one single feature each that a kernel can check."""
        rules: dict[int, list[Rule]] = {}
        for rule, groups in self._spoken_of:
            if self._is_known(rule, groups):
                rules.setdefault(groups[0], []).append(rule)
        return PlainRules(rules)
