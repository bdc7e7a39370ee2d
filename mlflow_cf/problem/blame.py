"""Why no counterfactual can exist: the rules that leave nothing, named as few as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod

import numpy as np

from mlflow_cf.constraints.rules import Rule
from mlflow_cf.features import Floats
from mlflow_cf.problem.problem import Group, Problem

MOST_ROWS = 200_000  # combinations tried to prove that linked rules contradict each other


def impossible(problem: Problem) -> str:
    """Return why no admissible row exists if one look at every group shows it, else ""."""
    for rule in problem.never:
        return f"{rule.path} cannot hold for this row ({rule.text})"
    for group in problem.groups:
        if not group.own_allowed and not group.proposals and group.interval is None:
            names = " and ".join(problem.space.names[column] for column in group.columns)
            return f"{names} must change, but {_named(_blocking(problem, group))} leave no value for it"
    must = [group for group in problem.groups if not group.own_allowed]
    if problem.max_changes is not None and len(must) > problem.max_changes:
        rules = [rule for group in must for rule in group.rules]
        return f"{len(must)} groups must change, more than max_changes allows: {_named(rules)}"
    if not any(group.proposals or group.interval for group in problem.groups):
        return f"no feature may change: {_named(rule for group in problem.groups for rule in group.rules)}"
    return ""


def contradiction(problem: Problem) -> str:
    """Return which rules over several groups contradict each other for this row, else "".

    Tries single rules, then pairs, over all combinations of the groups they speak of, where these are few enough.
    """
    if any(group.interval for group in problem.groups):
        return ""  # the tuples are samples then, and prove nothing
    for size in (1, 2):
        for rules in combinations(problem.links, size):
            groups = _involved(problem, rules)
            if _never_together(problem, rules, groups):
                return f"{_named([*rules, *(rule for group in groups for rule in group.rules)])} contradict each other"
    return ""


def _involved(problem: Problem, rules: Sequence[Rule]) -> list[Group]:
    columns = frozenset().union(*(rule.columns("x_cf") for rule in rules))
    return [group for group in problem.groups if columns & set(group.columns)]


def _never_together(problem: Problem, rules: Sequence[Rule], groups: Sequence[Group]) -> bool:
    """Whether no combination of the groups' tuples meets all the rules; False if there are too many to tell."""
    allowed = [np.flatnonzero((np.arange(len(g.tuples)) != g.own) | g.own_allowed) for g in groups]
    count = prod(len(codes) for codes in allowed)
    if count > MOST_ROWS:
        return False
    rows = np.tile(problem.x0, (count, 1))
    for group, codes in zip(groups, np.meshgrid(*allowed, indexing="ij"), strict=True):
        rows[:, group.columns] = group.tuples[codes.ravel()]
    holds = np.ones(count, dtype=np.bool_)
    for rule in rules:
        holds &= rule.holds(rows, problem.x0)
    return not holds.any()


def _blocking(problem: Problem, group: Group) -> Sequence[Rule]:
    """Return the fewest rules of a group that together reject its whole domain: one, two, or all of them."""
    rows = _domain_rows(problem, group)
    held = {rule: rule.holds(rows, problem.x0) for rule in group.rules}
    for size in (1, 2):
        for rules in combinations(group.rules, size):
            if not np.logical_and.reduce([held[rule] for rule in rules]).any():
                return rules
    return group.rules


def _domain_rows(problem: Problem, group: Group) -> Floats:
    """Return the row with every tuple of the group's domain, its own first; none that proposes a missing part."""
    columns = list(group.columns)
    own = problem.x0[columns]
    proposed = ~(np.isnan(group.domain.tuples) & ~np.isnan(own)).any(axis=1)
    tuples = np.vstack([own, group.domain.tuples[proposed]])
    rows = np.tile(problem.x0, (len(tuples), 1))
    rows[:, columns] = tuples
    return rows


def _named(rules: Iterable[Rule]) -> str:
    paths = list(dict.fromkeys(rule.path for rule in rules))
    if not paths:
        return "the background's values"
    shown = paths[:8] + ([f"{len(paths) - 8} more"] if len(paths) > 8 else [])
    return " and ".join(shown)
