"""Validity: the raw scores of embedded structures meet the targets by a margin, or miss them by a tolerance at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from scipy.special import expit

from mlflow_cf.goal.targets import SumTarget
from mlflow_cf.milp.program import Affine, NotLinearError, Program, difference

SAFE: Final = 1e-12  # shares nearer to 0 or 1 have no finite odds
MOST_WANTED: Final = 100  # combinations of classes that are tried one after the other


@dataclass(frozen=True)
class ClassTarget:
    """A target and the class that meets it; None for an interval."""

    target: SumTarget
    column: int | None


def alternatives(targets: Sequence[SumTarget]) -> list[tuple[ClassTarget, ...]]:
    """Return all ways of meeting targets: one class of each.

    Raises:
        NotLinearError: there are too many.
    """
    ways = [[None] if target.kind == "interval" else list(target.columns) for target in targets]
    if np.prod([len(columns) for columns in ways]) > MOST_WANTED:
        raise NotLinearError(f"more than {MOST_WANTED} ways of meeting the targets")
    pairs = product(*ways)
    return [tuple(ClassTarget(*pair) for pair in zip(targets, columns, strict=True)) for columns in pairs]


def add_validity(program: Program, sums: Sequence[Affine], wanted: Sequence[ClassTarget], margin: float) -> None:
    """Add the constraints that targets are met.

    Args:
        program: to which they are added.
        sums: the raw scores of all structures.
        wanted: the targets, with the class that meets each.
        margin: by how much on the scale of the scores; below 0 the tolerance within which the judge may still accept.

    Raises:
        NotLinearError: a least probability of a model whose probabilities are not linear in its raw scores.
    """
    for one in wanted:
        part = sums[one.target.start : one.target.stop]
        if one.column is None:
            _add_interval(program, part[0], one.target, margin)
        else:
            for line, low in _class_bounds(part, one.target, one.column, margin):
                program.require([line], low, np.inf)


def _add_interval(program: Program, value: Affine, target: SumTarget, margin: float) -> None:
    slack = margin * _unit([value])
    low, high = target.low + slack, target.high - slack
    if low > high:  # an interval narrower than two margins
        low = high = (target.low + target.high) / 2
    program.require([value], low, high)


def _class_bounds(
    sums: Sequence[Affine], target: SumTarget, column: int, margin: float
) -> Iterator[tuple[Affine, float]]:
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
    others = [at for at in range(len(sums)) if at != column]
    for other in others:
        yield difference(sums[column], sums[other]), _least_difference(sums, target, margin)
    if target.least > 0:
        yield from _probability_bound(sums, target, column, margin)


def _log_odds(share: float, margin: float) -> float:
    """Return the log odds of a probability; a margin is added to these, a tolerance to the probability."""
    lowered = min(max(share + min(margin, 0.0), SAFE), 1.0 - SAFE)
    return float(np.log(lowered) - np.log1p(-lowered)) + max(margin, 0.0)


def _least_difference(sums: Sequence[Affine], target: SumTarget, margin: float) -> float:
    """Return by how much the raw score of the wanted class must exceed another one."""
    if margin >= 0:
        return margin
    if target.link == "identity":
        return 2.0 * margin * _unit(sums)
    if target.link == "softmax":  # whoever leads has a share of 1 / classes or more
        return float(np.log1p(max(2.0 * margin * len(sums), SAFE - 1.0)))
    steepness = float(expit(_unit(sums)) * expit(-_unit(sums)))  # no share of one against the rest changes less
    return 2.0 * margin * len(sums) / max(steepness, SAFE)


def _unit(sums: Sequence[Affine]) -> float:
    """Return the largest absolute value of raw scores, 1 or more: the unit of their tolerance."""
    return max(1.0, *(max(abs(one.low), abs(one.high)) for one in sums))


def _probability_bound(
    sums: Sequence[Affine], target: SumTarget, column: int, margin: float
) -> Iterator[tuple[Affine, float]]:
    """Yield an expression, and its lower bound by which a class has its least probability."""
    if target.link == "identity":
        yield sums[column], target.least + margin
    elif target.link == "softmax" and len(sums) == 2:
        yield difference(sums[column], sums[1 - column]), _log_odds(target.least, margin)
    else:
        raise NotLinearError("a least probability among several classes of a model that is no tree")
