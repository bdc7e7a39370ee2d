"""Warnings about a policy that is probably not meant so, with the path of the constraint; never errors.

It is cheap enough for every wrapping: whole columns are looked at once, and rows are bound for a sample alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from mlflow_cf.constraints import Constraints
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import Rating
from mlflow_cf.policy import Policy
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.why_not.blame import contradiction, impossible

SAMPLE: Final = 40  # rows that are bound: some 0.3 ms each
MOST_TRIED: Final = 1  # of these, rows for which rules are tried together: a fraction of a second each at most
MOST_OUTSIDE: Final = 0.5  # share of the rows that an immutable feature may leave outside of its range
FINE: Final = 1_000  # steps from the lowest to the highest value; changes of one step move it by less than 0.1 %
TRAITS: Final = re.compile(
    r"(^|[^a-z])(sex|gender|race|ethnic\w*|nationality|native\w*|religion|birth\w*|ancestry|disab\w*)([^a-z]|$)",
    re.IGNORECASE,
)
AGES: Final = re.compile(r"(^|[^a-z])age([^a-z]|$)", re.IGNORECASE)


def lint(policy: Policy, bound_policy: BoundPolicy) -> list[str]:
    """Return what looks like a mistake in a policy that is bound to its background, as ``path: fact; what to do``."""
    constraints = policy.constraints
    return [
        *_ranges(constraints, bound_policy),
        *_directions(constraints),
        *_free(bound_policy),
        *_fine(policy, bound_policy),
        *_infeasible(bound_policy),
    ]


def _ranges(constraints: Constraints, bound_policy: BoundPolicy) -> Iterator[str]:
    """Yield ranges that no row lies within, and those that keep most rows from any answer."""
    for name in constraints.ranges:
        column = bound_policy.space.index[name]
        inside = _within(bound_policy, name, bound_policy.background)
        proposed = next(domain for domain in bound_policy.domains if column in domain.columns)
        rows = np.tile(bound_policy.background[:1], (len(proposed.actions), 1))
        rows[:, list(proposed.columns)] = proposed.actions
        reachable = proposed.interval is not None or bool(_within(bound_policy, name, rows).any())
        path = f"constraints.ranges.{name}"
        if not inside.any():
            more = "" if reachable else ", nor any value that may be proposed"
            yield f"{path}: no background row lies within it{more}; check the bounds and their unit"
        elif name in constraints.immutable and (~inside).mean() > MOST_OUTSIDE:
            share = f"{(~inside).mean():.0%} of the background rows"
            yield f"{path}: excludes {share}, and it is immutable: these have no counterfactual; widen it, or drop one"


def _within(bound_policy: BoundPolicy, name: str, rows: Floats) -> Bools:
    """Return (m,) which rows meet the policy's range of a feature; missing values do."""
    ranges = [rule for rule in bound_policy.rules if rule.origin.key == "ranges" and rule.origin.name == name]
    within: Bools = np.ones(len(rows), dtype=np.bool_)
    for rule in ranges:
        within &= rule.holds(rows, bound_policy.background[0])
    return within


def _directions(constraints: Constraints) -> Iterator[str]:
    """Yield features that may neither grow nor fall."""
    for name in dict.fromkeys(constraints.increasing):
        if name in constraints.decreasing:
            yield f"constraints.increasing.{name}: decreasing as well, so that it never changes; write immutable"


def _free(bound_policy: BoundPolicy) -> Iterator[str]:
    """Yield features whose names sound like unchangeable traits, and that no rule is about."""
    spoken = frozenset().union(*(rule.columns("x_cf") for rule in bound_policy.rules))
    for column, feature in enumerate(bound_policy.space.features):
        if column in spoken or feature.constant:
            continue
        if TRAITS.search(feature.name):
            yield f"constraints.immutable: {feature.name!r} may change, and sounds like a trait; add it if it is one"
        elif AGES.search(feature.name) and feature.numeric:
            yield f"constraints.increasing: {feature.name!r} may fall; add it there, or to immutable"


def _fine(policy: Policy, bound_policy: BoundPolicy) -> Iterator[str]:
    """Yield numbers whose steps are too small to be advice, all together."""
    free = [f for f in bound_policy.space.features if f.name not in policy.constraints.immutable]
    fine = [f.name for f in free if f.numeric and f.step and (f.high - f.low) / f.step > FINE]
    if fine and policy.values == "grid":
        names = ", ".join(fine)
        yield f"features: one step of {names} is less than 0.1 % of its range, too little for advice; use a larger one"


def _infeasible(bound_policy: BoundPolicy) -> Iterator[str]:
    """Yield how many rows of a sample the policy alone leaves without a counterfactual, with the first's reason."""

    def unrated(Z: Floats) -> Rating:
        return Rating(np.zeros(len(Z), dtype=np.bool_), np.zeros(len(Z)))

    space, background = bound_policy.space, bound_policy.background
    rows, reasons = background[:: max(len(background) // SAMPLE, 1)][:SAMPLE], []
    for number, x0 in enumerate(rows):
        problem = bound_policy.bind(x0, space=space, count=1, rate=unrated, rate_background=lambda: unrated(background))
        reason = impossible(problem) or (contradiction(problem) if number < MOST_TRIED else "")
        reasons += [reason] if reason else []
    if reasons:
        share = f"at least {len(reasons)} of {len(rows)} background rows"
        yield f"constraints: {share} can have no counterfactual, whatever the model says: {reasons[0]}"
