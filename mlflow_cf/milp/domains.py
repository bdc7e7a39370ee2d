"""What a program may choose of every group: tuples that are near enough to count, or the box of a real number."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.milp.variables import Box
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.problem.points import box

MOST_SELECTORS: Final = 300  # of a number; one of more values is treated as real first
ROUNDING: Final = 1e-9  # of distances that are added up in another order


def domains_of(problem: Problem, cutoff: float = np.inf, near: Floats | None = None) -> list[Codes | Box] | None:
    """Return what every group may be; None if nothing is left of one.

    Args:
        problem: the problem.
        cutoff: a distance; tuples that no row within it has are left out.
        near: (d,) a row next to which numbers of many values stay, unless they keep their own; None: they are real.
    """
    boxes = [_continuous(problem, group) for group in problem.groups]
    domains: list[Codes | Box] = []
    for group, codes, interval in zip(problem.groups, _within(problem, boxes, cutoff), boxes, strict=True):
        if interval is not None:
            domains.append(interval)
        elif not is_wide(problem, group, codes):
            domains.append(codes)
        elif near is None:
            values = group.tuples[codes[codes != group.own], 0]
            domains.append(Box(float(values.min()), float(values.max())))
        else:
            domains.append(_next_to(group, codes, float(near[group.columns[0]])))
    return domains if all(isinstance(domain, Box) or len(domain) for domain in domains) else None


def is_wide(problem: Problem, group: Group, codes: Codes) -> bool:
    """Whether a group is a number of too many values to choose from one by one."""
    measured = problem.space.features[group.columns[0]].numeric and problem.bound_distance.percentiles is None
    return len(group.columns) == 1 and len(codes) > MOST_SELECTORS and measured


def _continuous(problem: Problem, group: Group) -> Box | None:
    """Return the box of a number that may take any value in it; None of any other, and where it is empty."""
    if group.interval is None or group.columns[0] in problem.celled:
        return None
    low, high = box(problem, group)
    own = problem.x0[group.columns[0]]
    return Box(low, high) if low <= high and not low == high == own else None


def _within(problem: Problem, boxes: list[Box | None], cutoff: float) -> list[Codes]:
    """Return the admissible tuples of every group that some row within the cutoff may have."""
    every = [_allowed(group) for group in problem.groups]
    parts = list(zip(problem.groups, every, boxes, strict=True))
    free = [interval is not None or not len(codes) for _, codes, interval in parts]
    least = [0.0 if skip else group.cost[codes].min() for skip, (group, codes, _) in zip(free, parts, strict=True)]
    peaks = [0.0 if skip else group.peak[codes].min() for skip, (group, codes, _) in zip(free, parts, strict=True)]
    most, c, kept = cutoff * (1 + ROUNDING) + ROUNDING, problem.bound_distance.c, []
    for number, (group, codes, _) in enumerate(parts):
        cost = sum(least) - least[number] + group.cost[codes]
        if c:
            cost = cost + c * np.maximum(max([*peaks[:number], *peaks[number + 1 :]], default=0.0), group.peak[codes])
        kept.append(codes[cost <= most])
    return kept


def _allowed(group: Group) -> Codes:
    codes = np.arange(len(group.tuples))
    return codes if group.own_allowed else codes[codes != group.own]


def _next_to(group: Group, codes: Codes, value: float) -> Codes:
    """Return the tuples of a number that are nearest to a value, and the own one."""
    apart = np.abs(np.where(codes == group.own, value, group.tuples[codes, 0]) - value)
    return np.sort(codes[np.argsort(apart, kind="stable")[:MOST_SELECTORS]])
