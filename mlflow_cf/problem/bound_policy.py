"""A policy and a request's constraints bound to features and background; with a row it becomes a `Problem`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, TypeVar

import numpy as np

from mlflow_cf.causal.equation import causal_rules
from mlflow_cf.causal.function import StructuralFunction, structural_functions
from mlflow_cf.causal.opened import Arrays
from mlflow_cf.constraints import (
    ChangeLimit,
    Combinations,
    Constraints,
    Domain,
    JoinedGroup,
    Origin,
    Pause,
    Rule,
    Values,
    build_domains,
    change_limit,
    check_groups,
    compile_rules,
    joined_groups,
    no_pause,
    parted,
    repair_order,
)
from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.programs import Checks
from mlflow_cf.constraints.rules import Bools, recode
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal.scorer import Scorer
from mlflow_cf.goal.targets import Rating
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.policy.distance import Distance
from mlflow_cf.policy.privacy import Privacy
from mlflow_cf.policy.tighten import check_sealed, check_tightens
from mlflow_cf.problem.binding import Domains, Grounding, admissible
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.problem.problem import Problem
from mlflow_cf.problem.steps import StepRules
from mlflow_cf.structures.structure import Structure

MOST_COVERING: Final = 4  # of the spaces of requests whose rows have levels that the background lacks
MOST_RELAXED: Final = 64  # policies without some constraints that stay beside each; they share its tables


@dataclass(frozen=True, eq=False)
class BoundPolicy:
    """Features, rules, domains and distance that all rows of a request share.

    Attributes:
        space: the features.
        constraints: the policy's constraints; those of requests live in `rules`, `joined` and `limits`.
        values: which values may be proposed.
        background: (n, d) coded background rows; combinations: which values they have together.
        rules: all rules, of the policy and of the request.
        tables: the admissible actions of every group, and what depends on them alone.
        order: the groups in the order in which rules are repaired.
        bound_distance: the distance.
        joined: the groups that constraints name.
        limits: how many groups may change, of the policy and of the request.
        functions: those of the policy's causal equations.
        action_model: the actions that the policy declares for plans, and a request leaves; None without.
        reveal: whether messages about a request's constraints may name values of the background.
        k_anonymous: actions of a group that so many background rows or fewer share are not proposed.
    """

    space: FeatureSpace
    constraints: Constraints
    values: Values
    background: Floats
    combinations: Combinations
    rules: tuple[Rule, ...]
    tables: Domains
    order: tuple[int, ...]
    bound_distance: BoundDistance
    joined: tuple[JoinedGroup, ...]
    limits: tuple[ChangeLimit, ...]
    functions: tuple[StructuralFunction, ...] = ()
    action_model: ActionModel | None = None
    reveal: bool = True
    k_anonymous: int = 0

    @classmethod
    def build(
        cls,
        space: FeatureSpace,
        background: Floats,
        constraints: Constraints,
        distance: Distance,
        values: Values,
        learned: Sequence[Arrays] = (),
    ) -> BoundPolicy:
        """Check a policy against the features and prepare it; causal functions are learned but those `learned` before.

        Raises:
            InputError: constraints or distance that do not fit the features.
        """
        rules = compile_rules(constraints, space)
        functions = structural_functions(constraints, space, background, learned)
        combinations = Combinations(background, space.joint)
        domains = build_domains(space, combinations, constraints, values)
        groups = tuple(domain.columns for domain in domains)
        rules = (*rules, *causal_rules(functions, space, domains, "policy"))
        bound_distance = BoundDistance.bind(distance, space)
        return cls(
            space=space,
            constraints=constraints,
            values=values,
            background=background,
            combinations=combinations,
            rules=rules,
            tables=Domains(space, domains, bound_distance),
            order=repair_order(rules, groups, space.names),
            bound_distance=bound_distance,
            joined=joined_groups(constraints, space, "policy"),
            limits=change_limit(constraints, groups, "policy"),
            functions=functions,
            action_model=ActionModel.of(constraints, space, bound_distance),
        )

    @property
    def learned(self) -> tuple[Arrays, ...]:
        """The arrays of learned causal functions, in the order of the equations."""
        return tuple(function.arrays for function in self.functions if function.arrays)

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The admissible actions of every group."""
        return self.tables.all

    def opened_by(self, structure: Structure | None) -> BoundPolicy:
        """Return the bound policy with a structure's encoded values of all domains."""
        return replace(self, tables=replace(self.tables, structure=structure))

    def for_requests(self, privacy: Privacy) -> BoundPolicy:
        """Return the bound policy as requests see it: without values in messages, and rare actions of groups."""
        if privacy.reveals:
            return self
        hidden = replace(self, reveal=False, k_anonymous=privacy.k_anonymous)
        kept = tuple(domain.shared(hidden.k_anonymous) for domain in self.domains)
        if all(one is other for one, other in zip(kept, self.domains, strict=True)):
            return hidden  # with the same tables, and whatever they remember
        return replace(hidden, tables=replace(self.tables, all=kept))

    def tightened(self, request: Constraints, pause: Pause = no_pause) -> BoundPolicy:
        """Return the bound policy with a request's constraints on top.

        Args:
            request: the constraints.
            pause: called between the parts of the work; whatever it raises ends it.

        Raises:
            InputError: they do not fit the features, or would loosen the policy.
        """
        if not request.model_fields_set:
            return self
        if not self.reveal:
            check_sealed(self.constraints, request)  # first, so that nobody tries which levels a sealed feature has
        rules = compile_rules(request, self.space, "request", pause, reveal=self.reveal)
        check_tightens(self.constraints, request, self.space)
        tables, joined = self.tables, self.joined
        if request.groups:
            merged = self.constraints.model_copy(
                update={"groups": tuple(dict.fromkeys([*self.constraints.groups, *request.groups]))}
            )
            check_groups(merged, self.space)  # overlapping ones
            domains = build_domains(self.space, self.combinations, merged, self.values, self.domains, pause)
            tables = replace(tables, all=tuple(domain.shared(self.k_anonymous) for domain in domains))
            known = {group.columns for group in joined}
            added = joined_groups(request, self.space, "request")
            joined = (*map(_beside, joined), *(group for group in added if group.columns not in known))
        groups = tuple(domain.columns for domain in tables.all)
        functions = structural_functions(request, self.space, self.background)
        causal = causal_rules(functions, self.space, tables.all, "request")
        rules = (*map(_beside, self.rules), *rules, *causal)
        return replace(
            self,
            rules=rules,
            tables=tables,
            order=repair_order(rules, groups, self.space.names),
            joined=joined,
            limits=(*map(_beside, self.limits), *change_limit(request, groups, "request")),
            action_model=self.action_model and self.action_model.narrowed(request.actions, pause, reveal=self.reveal),
        )

    def without(self, left_out: frozenset[Origin]) -> BoundPolicy:
        """Return the policy without some constraints; the features of a group that is left out stand by themselves."""
        joined = tuple(group for group in self.joined if group.origin not in left_out)
        relaxed = self._without_rules(left_out)
        if len(joined) == len(self.joined):
            return relaxed
        parts = {column for group in self.joined if group.origin in left_out for column in group.columns}
        domains = parted(self.domains, parts, self.space, self.constraints, self.values)
        order = tuple(range(len(domains)))
        with suppress(InputError):  # rules inside of a group may define its features by each other
            order = repair_order(relaxed.rules, tuple(domain.columns for domain in domains), self.space.names)
        return replace(
            relaxed,
            limits=tuple(limit.parted(parts) for limit in relaxed.limits),
            joined=joined,
            tables=replace(self.tables, all=domains),
            order=order,
        )

    @cached_property
    def _without_rules(self) -> Callable[[frozenset[Origin]], BoundPolicy]:
        """Returns the policy without some rules and limits; the last few are kept: many rows leave out the same."""

        def relaxed(left_out: frozenset[Origin]) -> BoundPolicy:
            rules = tuple(rule for rule in self.rules if rule.origin not in left_out)
            return replace(self, rules=rules, limits=tuple(one for one in self.limits if one.origin not in left_out))

        return lru_cache(MOST_RELAXED)(relaxed)

    @property
    def joining(self) -> dict[Origin, Domain]:
        """The domain of every group of several features that can change, by the constraint that joins them."""
        several = [domain for domain in self.domains if len(domain.columns) > 1]
        pairs = ((group, domain) for group in self.joined for domain in several)
        return {group.origin: domain for group, domain in pairs if set(domain.columns) <= set(group.columns)}

    def bind(
        self,
        x0: Floats,
        *,
        space: FeatureSpace,
        count: int,
        rate: Callable[[Floats], Rating],
        rate_background: Callable[[], Rating],
        scorer: Scorer | None = None,
    ) -> Problem:
        """Bind one row (d,), coded by `space` (the policy's, or one that covers the row's unseen levels)."""
        bound_policy = self.covering(space)
        grounded = bound_policy.grounding.of(x0)
        known = scorer is not None and scorer.structure is self.tables.structure
        groups, packed_groups = self.tables.bind(grounded.own, x0)
        return Problem(
            space=space,
            x0=x0,
            groups=groups,
            order=self.order,
            joint=grounded.linking,
            never=grounded.never,
            bound_distance=self.bound_distance,
            limits=self.limits,
            count=count,
            rate=rate,
            background=self.background,
            rate_background=rate_background,
            check=lambda Z: bound_policy.accepts(Z, x0),
            scorer=scorer,
            bound_together=packed_groups,
            steps=StepRules(bound_policy.all_rules, bound_policy.domains, bound_policy.accepts),
            encoded_domains=self.tables.encoded if known else {},
            cells=self.tables.cells if known else None,
            action_model=bound_policy.action_model.covering(space) if bound_policy.action_model else None,
        )

    @cached_property
    def grounding(self) -> Grounding:
        """All rules and limits sorted by the groups that they are about."""
        return Grounding(self.rules, self.limits, self.domains)

    @cached_property
    def all_rules(self) -> tuple[Rule, ...]:
        """All rules, those of `limits` among them."""
        return (*self.rules, *(limit.rule for limit in self.limits))

    @cached_property
    def checks(self) -> Checks:
        """All rules, in the order of `all_rules`, as they are checked together."""
        return Checks.of(self.all_rules)

    def covering(self, space: FeatureSpace) -> BoundPolicy:
        """Return the bound policy whose rules can compare the unseen levels that `space` covers."""
        return self if space is self.space else self._covering(space)

    @cached_property
    def _covering(self) -> Callable[[FeatureSpace], BoundPolicy]:
        """Returns the policy for other spaces; the last few are kept: all rows of a table have the same."""

        def covering(space: FeatureSpace) -> BoundPolicy:
            return replace(self, rules=tuple(recode(rule, space.features) for rule in self.rules))

        return lru_cache(MOST_COVERING)(covering)

    def accepts(self, Z: Floats, x0: Floats) -> Bools:
        """Return (m,) whether rows Z (m, d) meet every rule and `values` as counterfactuals of x0 (d,) or (m, d).

        Works on whole rows from the rules as compiled, so that it also catches mistakes of what a search relied on.
        """
        differs = differing(Z, x0)
        accepted: Bools = np.any(differs, axis=1)
        if self.all_rules:
            self.checks.refuse(Z, x0, accepted)
        self.tables.short.find_members(Z, differs, accepted)
        if len(self.tables.short.numbers) == len(self.tables.all):
            return accepted
        touched = {self.grounding.owner[column] for column in np.flatnonzero(differs.any(axis=0)).tolist()}
        for domain in (self.domains[number] for number in touched - self.tables.short_numbers):
            columns = list(domain.columns)
            changed = np.flatnonzero(accepted & differs[:, columns].any(axis=1))
            if len(changed):
                own = x0[columns] if x0.ndim == 1 else x0[changed[:, None], columns]
                accepted[changed] = admissible(domain, Z[changed[:, None], columns], own)
        return accepted


Demand = TypeVar("Demand", Rule, JoinedGroup, ChangeLimit)


def _beside(demand: Demand) -> Demand:
    """Return what the policy demands as it is told beside a request: a reason that names both says whose is whose."""
    return replace(demand, origin=replace(demand.origin, beside_request=True))
