"""Validity: the raw scores of embedded structures meet the targets by a margin, or miss them by a tolerance at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import numpy as np
from scipy.special import expit

from mlflow_cf.goal.targets import SumTarget
from mlflow_cf.milp.program import Affine, NotLinearError, Program, difference
from mlflow_cf.problem import Problem
from mlflow_cf.words.statements import say

SAFE: Final = 1e-12  # shares nearer to 0 or 1 have no finite odds
MOST_WANTED: Final = 100  # combinations of classes that are tried one after the other


ClassTarget = tuple[SumTarget, int | None]  # a target and the class that meets it; None for an interval


def ways(problem: Problem) -> list[tuple[ClassTarget, ...]]:
    """Return all ways of meeting a problem's targets: one class of each.

    Raises:
        NotLinearError: there are too many, or some of several models are enough.
    """
    targets = () if problem.scorer is None else problem.scorer.targets
    if any(target.votes is not None for target in targets):
        raise NotLinearError(say("votes"))
    columns = [[None] if target.kind == "interval" else target.columns for target in targets]
    if np.prod([len(several) for several in columns]) > MOST_WANTED:
        raise NotLinearError(say("many_ways", most=MOST_WANTED))
    return [tuple(zip(targets, way, strict=True)) for way in product(*columns)]


def add_validity(program: Program, sums: list[Affine], wanted: Sequence[ClassTarget], margin: float) -> None:
    """Add the constraints that the raw scores of all structures meet the targets by a margin on the scale of scores.

    A margin below 0 is the tolerance within which the judge may still accept.

    Raises:
        NotLinearError: a least probability of a model whose probabilities are not linear in its raw scores.
    """
    for target, column in wanted:
        part = sums[target.start : target.stop]
        if column is None:
            slack = margin * _unit(part[:1])
            low, high = target.low + slack, target.high - slack
            if low > high:  # an interval narrower than two margins
                low = high = (target.low + target.high) / 2
            program.require([part[0]], low, high)
            continue
        for line, least in _class_bounds(part, target, column, margin):
            program.require([line], least, np.inf)


def _class_bounds(sums: list[Affine], target: SumTarget, column: int, margin: float) -> Iterator[tuple[Affine, float]]:
    """Yield expressions, and lower bounds by which one class is predicted and has its least probability."""
    if target.link == "sigmoid" and len(sums) == 1:
        line = sums[0] if column == 1 else sums[0].times(-1.0)
        yield line, max(_log_odds(0.5, margin), _log_odds(target.least, margin) if target.least > 0 else -np.inf)
        return
    if target.link == "share":
        line, shift = (sums[0], 0.0) if column == 1 else (sums[0].times(-1.0), -1.0)
        by = margin if margin >= 0 else 2.0 * margin * _unit(sums)
        yield line, max((1.0 + by) / 2.0, target.least + margin if target.least > 0 else -np.inf) + shift
        return
    for other in sums[:column] + sums[column + 1 :]:
        yield difference(sums[column], other), _least_difference(sums, target, margin)
    if target.least <= 0:
        return
    if target.link == "identity":
        yield sums[column], target.least + margin
    elif target.link == "softmax" and len(sums) == 2:
        yield difference(sums[column], sums[1 - column]), _log_odds(target.least, margin)
    else:
        raise NotLinearError(say("several_classes"))


def _log_odds(share: float, margin: float) -> float:
    """Return the log odds of a probability; a margin is added to these, a tolerance to the probability."""
    lowered = min(max(share + min(margin, 0.0), SAFE), 1.0 - SAFE)
    return float(np.log(lowered) - np.log1p(-lowered)) + max(margin, 0.0)


def _least_difference(sums: list[Affine], target: SumTarget, margin: float) -> float:
    """Return by how much the raw score of the wanted class must exceed another one."""
    if margin >= 0:
        return margin
    if target.link == "identity":
        return 2.0 * margin * _unit(sums)
    if target.link == "softmax":  # whoever leads has a share of 1 / classes or more
        return float(np.log1p(max(2.0 * margin * len(sums), SAFE - 1.0)))
    steepness = float(expit(_unit(sums)) * expit(-_unit(sums)))  # no share of one against the rest changes less
    return 2.0 * margin * len(sums) / max(steepness, SAFE)


def _unit(sums: list[Affine]) -> float:
    """Return the largest absolute value of raw scores, 1 or more: the unit of their tolerance."""
    return max(1.0, *(max(abs(one.low), abs(one.high)) for one in sums))
