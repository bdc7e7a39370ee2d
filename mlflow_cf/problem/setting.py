"""What a policy and a request leave of the data, before any row is known; binding a row makes a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mlflow_cf.constraints import (
    Constraints,
    Domain,
    Rule,
    Values,
    build_domains,
    check_tightens,
    compile_rules,
    repair_order,
)
from mlflow_cf.constraints.rules import Bools, ground, recode
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.problem.binding import Domains, same
from mlflow_cf.problem.distance import BoundDistance, Distance
from mlflow_cf.problem.problem import Codes, Problem
from mlflow_cf.problem.rater import Rater
from mlflow_cf.problem.rating import Rating
from mlflow_cf.structures.structure import Structure, Tokens


@dataclass(frozen=True, eq=False)
class Setting:
    """Features, rules, domains and distance that all rows of a request share.

    Attributes:
        space: the features.
        constraints: the policy's constraints; those of requests live in `rules` and `max_changes`.
        values: which values may be proposed.
        background: (n, d) coded background rows.
        rules: all rules, of the policy and of the request.
        tables: the admissible tuples of every group, and what depends on them alone.
        order: the groups in the order in which rules are repaired.
        bound_distance: the distance.
        max_changes: most groups that may differ, or None.
        sealed: the policy's own setting where a request joins groups; joined groups count as one change here only.
    """

    space: FeatureSpace
    constraints: Constraints
    values: Values
    background: Floats
    rules: tuple[Rule, ...]
    tables: Domains
    order: tuple[int, ...]
    bound_distance: BoundDistance
    max_changes: int | None
    sealed: Setting | None = None

    @classmethod
    def build(
        cls, space: FeatureSpace, background: Floats, constraints: Constraints, distance: Distance, values: Values
    ) -> Setting:
        """Check a policy against the features and prepare it.

        Raises:
            InputError: constraints or distance that do not fit the features.
        """
        rules = compile_rules(constraints, space)
        domains = build_domains(space, background, constraints, values)
        order = repair_order(rules, [domain.columns for domain in domains], space.names)
        bound_distance = BoundDistance.bind(distance, space)
        tables = Domains(domains, bound_distance)
        most = constraints.max_changes
        return cls(space, constraints, values, background, rules, tables, order, bound_distance, most)

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The admissible tuples of every group."""
        return self.tables.all

    def opened_by(self, structure: Structure | None) -> Setting:
        """Return the setting with a structure's tokens of all domains."""
        return replace(self, tables=replace(self.tables, structure=structure))

    def tightened(self, request: Constraints) -> Setting:
        """Return the setting with a request's constraints on top.

        Raises:
            InputError: they do not fit the features, or would loosen the policy.
        """
        if not request.model_fields_set:
            return self
        rules = compile_rules(request, self.space)
        check_tightens(self.constraints, request, self.space)
        tables, sealed = self.tables, None
        if request.groups:
            sealed = self
            joined = self.constraints.model_copy(
                update={"groups": tuple(dict.fromkeys([*self.constraints.groups, *request.groups]))}
            )
            compile_rules(joined.model_copy(update={"max_changes": None}), self.space)  # overlapping groups
            tables = replace(tables, all=build_domains(self.space, self.background, joined, self.values))
        limits = [n for n in (self.max_changes, request.max_changes) if n is not None]
        # a reason that names constraints of both must tell which is whose
        rules = (*(replace(rule, path=f"policy.{rule.path}") for rule in self.rules), *rules)
        order = repair_order(rules, [domain.columns for domain in tables.all], self.space.names)
        return replace(
            self, rules=rules, tables=tables, order=order, max_changes=min(limits, default=None), sealed=sealed
        )

    def bind(
        self,
        x0: Floats,
        *,
        space: FeatureSpace,
        count: int,
        rate: Callable[[Floats], Rating],
        rate_background: Callable[[], Rating],
        rater: Rater | None = None,
    ) -> Problem:
        """Bind one row (d,), coded by `space` (this setting's space, or one that covers the row's unseen levels)."""
        setting = self.covering(space)
        own: dict[int, list[Rule]] = {}
        linking: list[Rule] = []
        never: list[Rule] = []
        for rule, groups in zip(setting.rules, self._spoken_of, strict=True):
            grounded = ground(rule, x0)
            if grounded is None:
                continue
            if len(groups) == 1:
                own.setdefault(groups[0], []).append(grounded)
            else:
                (linking if groups else never).append(grounded)
        return Problem(
            space=space,
            x0=x0,
            groups=self.tables.bind(own, x0),
            order=self.order,
            linking=tuple(linking),
            never=tuple(never),
            bound_distance=self.bound_distance,
            max_changes=self.max_changes,
            count=count,
            rate=rate,
            background=self.background,
            rate_background=rate_background,
            check=lambda Z: setting.accepts(Z, x0),
            rater=rater,
            domain_tokens=self._tokens_for(rater),
        )

    @cached_property
    def _spoken_of(self) -> list[list[int]]:
        """For every rule, the groups that it speaks of; grounding does not change them."""
        owner = {column: number for number, domain in enumerate(self.domains) for column in domain.columns}
        return [sorted({owner[column] for column in rule.columns("x_cf")}) for rule in self.rules]

    def _tokens_for(self, rater: Rater | None) -> Mapping[int, Tokens]:
        known = rater is not None and rater.structure is self.tables.structure
        return self.tables.tokens if known else {}

    def covering(self, space: FeatureSpace) -> Setting:
        """Return the setting whose rules know the unseen levels that `space` covers."""
        if space is self.space:
            return self
        rules = tuple(recode(rule, space.features) for rule in self.rules)
        return replace(self, rules=rules, sealed=None if self.sealed is None else self.sealed.covering(space))

    def accepts(self, Z: Floats, x0: Floats) -> Bools:
        """Return (m,) whether rows Z (m, d) meet every rule, `max_changes` and `values` as counterfactuals of x0 (d,).

        Works on whole rows from the rules as compiled, so that it also catches mistakes of what a search relied on.
        """
        accepted: Bools = np.ones(len(Z), dtype=np.bool_)
        for rule in self.rules:
            accepted &= rule.holds(Z, x0)
        changes: Codes = np.zeros(len(Z), dtype=np.intp)
        differs = ~same(Z, x0)
        touched = set(np.flatnonzero(differs.any(axis=0)).tolist())
        for domain in self.domains:
            if touched.intersection(domain.columns):
                columns = list(domain.columns)
                changed = differs[:, columns].any(axis=1)
                changes += changed
                accepted[changed] &= _admissible(domain, Z[changed][:, columns], x0[columns])
        if self.max_changes is not None:
            accepted &= changes <= self.max_changes
        if self.sealed is not None:
            accepted &= self.sealed.accepts(Z, x0)
        accepted &= changes > 0
        return accepted


def _admissible(domain: Domain, values: Floats, own: Floats) -> Bools:
    """Whether tuples (m, k) may be proposed: in the domain, and missing only where the query row is missing."""
    return domain.contains(values) & ~(np.isnan(values) & ~np.isnan(own)).any(axis=1)
