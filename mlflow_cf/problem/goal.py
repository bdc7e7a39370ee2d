"""How sums of a structure stand towards a target, compiled: the answers of `BoundTarget.rate`, thousands at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.problem.rating import BoundTarget
from mlflow_cf.structures.structure import Link

LINKS: tuple[Link, ...] = ("identity", "sigmoid", "softmax")
IDENTITY, SIGMOID, SOFTMAX = range(3)
LABEL, OTHER, INTERVAL = range(3)
Array = NDArray[Any]


class CompiledTarget(NamedTuple):
    """A target in numbers.

    Attributes:
        link: position in `LINKS`; kind: LABEL, OTHER or INTERVAL.
        column: the wanted class, or with OTHER the row's own one.
        least: least probability of the decided label, 0 without.
        low, high, spread: the wanted interval and the unit of a gap to it.
        margins: whether scores are margins, which are squashed.
    """

    link: int
    kind: int
    column: int
    least: float
    low: float
    high: float
    spread: float
    margins: bool


def compiled_target(bound: BoundTarget, link: Link) -> CompiledTarget:
    """Return a bound target in numbers."""
    target = bound.target
    kind = INTERVAL if target.interval else OTHER if target.differs else LABEL
    return CompiledTarget(
        link=LINKS.index(link),
        kind=kind,
        column=bound.own if kind != LABEL else target.column(bound.model),
        least=target.min_probability or 0.0,
        low=-np.inf if target.low is None else float(target.low),
        high=np.inf if target.high is None else float(target.high),
        spread=bound.spread,
        margins=bound.model.score_kind == "margin",
    )


def classes_of(goal: CompiledTarget, outputs: int) -> int:
    """Return how many scores so many sums become."""
    return 2 if goal.link == SIGMOID and outputs == 1 else outputs


@numba.njit(inline="always")
def _expit(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


@numba.njit(cache=True, nogil=True)
def _softmax(values: Array, scores: Array) -> None:
    largest, total = values.max(), 0.0
    for place in range(values.size):
        scores[place] = np.exp(values[place] - largest)
        total += scores[place]
    for place in range(values.size):
        scores[place] /= total


@numba.njit(cache=True, nogil=True)
def _linked(sums: Array, link: int, scores: Array) -> None:
    """Turn sums (k,) into scores, as `structures.linked` does."""
    if link == SIGMOID and sums.size == 1:
        scores[1] = _expit(sums[0])
        scores[0] = 1.0 - scores[1]
    elif link == SIGMOID:
        for place in range(sums.size):
            scores[place] = _expit(sums[place])
        total = scores.sum()
        for place in range(sums.size):
            scores[place] = scores[place] / total if total > 0 else 1.0 / sums.size
    elif link == SOFTMAX:
        _softmax(sums, scores)
    else:
        for place in range(sums.size):
            scores[place] = sums[place]


@numba.njit(cache=True, nogil=True)
def _rate_value(value: float, goal: CompiledTarget) -> tuple[bool, float, float]:
    doubt = min(abs(value - goal.low), abs(value - goal.high)) / max(1.0, abs(value))
    if goal.low <= value <= goal.high:
        return True, 1.0, doubt
    grade = (1.0 - max(goal.low - value, value - goal.high, 0.0) / goal.spread) / 2.0
    return False, max(grade, 0.0) if not np.isnan(grade) else 0.0, doubt


@numba.njit(cache=True, nogil=True)
def rate_one(sums: Array, goal: CompiledTarget, scores: Array) -> tuple[bool, float, float]:
    """Rate sums (k,); `scores` (classes,) is room to work in.

    Returns:
        Whether the target is met, the grade in [0, 1], and how far the scores are from where that would change.
    """
    if goal.kind == INTERVAL:
        return _rate_value(sums[0], goal)
    _linked(sums, goal.link, scores)
    label, second = 0, -np.inf
    for place in range(1, scores.size):
        if scores[place] > scores[label]:
            label, second = place, scores[label]
        else:
            second = max(second, scores[place])
    margin = (scores[label] - second) / max(1.0, abs(scores[label]))
    if goal.margins and scores.size == 2:
        scores[1] = _expit((scores[1] - scores[0]) / 2.0)
        scores[0] = 1.0 - scores[1]
    elif goal.margins:
        _softmax(scores.copy(), scores)
    favourable = (label == goal.column) == (goal.kind == LABEL)
    if goal.least > 0:
        favourable = favourable and scores[label] >= goal.least
        margin = min(margin, abs(scores[label] - goal.least))
    best = -np.inf if scores.size > 1 else 0.0  # of all classes but the goal's column
    for place in range(scores.size):
        if place != goal.column:
            best = max(best, scores[place])
    one = scores[goal.column] if goal.column >= 0 else 0.0
    wanted, rival = (one, best) if goal.kind == LABEL else (best, one)
    if scores.size == 2:
        return favourable, wanted, margin
    return favourable, (1.0 + wanted - rival) / 2.0, margin


@numba.njit(cache=True, nogil=True)
def margins_of(sums: Array, classes: int, goal: CompiledTarget, favourable: Array, margin: Array) -> None:
    """Write whether sums (m, k) meet the target (m,), and how far they are from where that would change (m,)."""
    scores = np.empty(classes)
    for row in range(len(sums)):
        favourable[row], _, margin[row] = rate_one(sums[row], goal, scores)


@numba.njit(cache=True, nogil=True)
def rate_sums(sums: Array, classes: int, goal: CompiledTarget, favourable: Array, grade: Array) -> None:
    """Rate sums (m, k) into `favourable` (m,) and `grade` (m,)."""
    scores = np.empty(classes)
    for row in range(len(sums)):
        favourable[row], grade[row], _ = rate_one(sums[row], goal, scores)


@numba.njit(cache=True, nogil=True)
def _reach_label(low: Array, high: Array, column: int, goal: CompiledTarget) -> Any:
    """Return the most by which one class can lead all others, and by which its probability can exceed the least."""
    if goal.link == SIGMOID and low.size == 1:
        best = _expit(high[0]) if column == 1 else 1.0 - _expit(low[0])
        return min(2.0 * best - 1.0, best - goal.least) if goal.least > 0 else 2.0 * best - 1.0
    lead, own, rest = np.inf, high[column], 0.0
    for other in range(low.size):
        if other == column:
            continue
        rival = low[other]
        if goal.link == SIGMOID:
            lead = min(lead, _expit(own) - _expit(rival))
            rest += _expit(rival)
        else:
            lead = min(lead, own - rival)
            rest += np.exp(rival - own) if goal.link == SOFTMAX else 0.0
    if lead < 0 and goal.link != IDENTITY:  # at least so far behind in probability, for the likeliest has 1 / classes
        lead = (np.expm1(lead) if goal.link == SOFTMAX else lead) / low.size
    if goal.least > 0:
        likely = own
        if goal.link == SIGMOID:
            total = _expit(own) + rest
            likely = _expit(own) / total if total > 0 else 1.0
        elif goal.link == SOFTMAX:
            likely = 1.0 / (1.0 + rest)
        lead = min(lead, likely - goal.least)
    return lead


@numba.njit(cache=True, nogil=True)
def reach(low: Array, high: Array, goal: CompiledTarget, found: Array) -> None:
    """Write into `found` (m,) how far into the target sums between `low` and `high` (m, k) can come; < 0: not at all.

    It is a bound on the lead of a label over the others, where it is negative in probability if that is what is
    compared, and on what its probability exceeds the least one by; of a value, on its distance from the nearer end of
    the interval.
    """
    for box in range(len(low)):
        if goal.kind == INTERVAL:
            found[box] = min(high[box, 0] - goal.low, goal.high - low[box, 0])
        elif goal.kind == LABEL:
            found[box] = _reach_label(low[box], high[box], goal.column, goal)
        else:
            found[box] = -np.inf
            for column in range(2 if goal.link == SIGMOID and low.shape[1] == 1 else low.shape[1]):
                if column != goal.column:
                    found[box] = max(found[box], _reach_label(low[box], high[box], column, goal))
