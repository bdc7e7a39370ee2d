"""Rules bound to a row: those about one group alone, those over several groups, and those that must fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

import numpy as np

from mlflow_cf.constraints import ChangeLimit, Domain, Rule
from mlflow_cf.constraints.programs import Checks, is_compiled
from mlflow_cf.constraints.rules import Bools, applies, ground
from mlflow_cf.features import Floats
from mlflow_cf.problem.single_features import PlainRules


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
        grounded = (ground(rule, x0) for rule in self._of_no_group)
        never = tuple(rule for rule in grounded if rule is not None)
        own = OwnRules(self._plain, self._others, partial(self._own, x0))
        return Grounded(own, Linking(self._linking, self._checks, x0), never)

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
    def _others(self) -> dict[int, list[Rule]]:
        """Number of a group -> the rules about it alone that no kernel can check, limits on changes among them."""
        others = {number: list(rules) for number, rules in self._limited.items()}
        for rule, groups in self._spoken_of:
            if len(groups) == 1 and not self._is_known(rule, groups):
                others.setdefault(groups[0], []).append(rule)
        return others

    @cached_property
    def _linking(self) -> list[Linked]:
        return [Linked.of(rule, groups) for rule, groups in self._spoken_of if len(groups) > 1]

    @cached_property
    def _checks(self) -> Checks:
        return Checks.of(linked.rule for linked in self._linking)

    @cached_property
    def _of_no_group(self) -> list[Rule]:
        return [rule for rule, groups in self._spoken_of if not groups]

    @cached_property
    def _plain(self) -> PlainRules:
        rules: dict[int, list[Rule]] = {}
        for rule, groups in self._spoken_of:
            if self._is_known(rule, groups):
                rules.setdefault(groups[0], []).append(rule)
        return PlainRules(rules)
