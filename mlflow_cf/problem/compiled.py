"""What targets mean, in numbers, compiled: the one place that says what meets a target and how near the rest comes.

A candidate has to meet all targets of a table: that of the model and those of further requirements.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.links import Link

LINKS: Final[tuple[Link, ...]] = ("identity", "sigmoid", "softmax")
IDENTITY, SIGMOID, SOFTMAX = range(3)
LABEL, OTHER, INTERVAL = range(3)
Array = NDArray[Any]

# A table of targets, one line each.
#   link: position in `LINKS`; start, stop: which of the sums are this target's; classes: how many scores they become.
#   kind: LABEL, OTHER or INTERVAL; column: the wanted class, or with OTHER the row's own one.
#   least: least probability of the decided label, 0 without.
#   low, high, spread: the wanted interval and the unit of a gap to it.
#   margins: whether scores are margins, which are squashed.
TARGETS: Final = np.dtype(
    [
        *((name, np.int64) for name in ("link", "start", "stop", "classes", "kind", "column")),
        *((name, np.float64) for name in ("least", "low", "high", "spread")),
        ("margins", np.bool_),
    ],
    align=True,
)


@numba.njit(inline="always")
def _expit(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


@inner
def _softmax(values: Array, scores: Array) -> None:
    """Write the shares of `values` into `scores`, which may be the same array."""
    largest, total = values[0], 0.0
    for place in range(1, values.size):
        largest = max(largest, values[place])
    for place in range(values.size):
        scores[place] = np.exp(values[place] - largest)
        total += scores[place]
    for place in range(values.size):
        scores[place] /= total


@numba.njit(inline="always")
def _linked(sums: Array, link: int, scores: Array) -> None:
    """Turn sums (k,) into scores, as `structures.linked` does."""
    if link == SIGMOID and sums.size == 1:
        scores[1] = _expit(sums[0])
        scores[0] = 1.0 - scores[1]
    elif link == SIGMOID:
        for place in range(sums.size):
            scores[place] = _expit(sums[place])
        total = 0.0
        for place in range(sums.size):
            total += scores[place]
        for place in range(sums.size):
            scores[place] = scores[place] / total if total > 0 else 1.0 / sums.size
    elif link == SOFTMAX:
        _softmax(sums, scores)
    else:
        for place in range(sums.size):
            scores[place] = sums[place]


@numba.njit(inline="always")
def _rate_value(value: float, target: Any) -> tuple[bool, float]:
    if target.low <= value <= target.high:
        return True, 1.0
    grade = (1.0 - max(target.low - value, value - target.high, 0.0) / target.spread) / 2.0
    return False, max(grade, 0.0) if not np.isnan(grade) else 0.0


@inner
def _rate_label(label: Any, scores: Array, target: Any) -> tuple[bool, float, float]:
    """Rate the label that was decided; margins among the scores become shares.

    Returns:
        Whether the target is met, the grade in [0, 1], and what speaks for the target: the share of the wanted label,
        or of the likeliest other one.
    """
    if target.margins and scores.size == 2:  # of one margin m there are two columns: -m and m
        scores[1] = _expit((scores[1] - scores[0]) / 2.0)
        scores[0] = 1.0 - scores[1]
    elif target.margins:
        _softmax(scores, scores)
    # a label the model never announced is no answer
    favourable = label >= 0 and (label == target.column) == (target.kind == LABEL)
    if target.least > 0:
        # the probability of the label the model decided for, which need not be the likeliest one
        favourable = favourable and scores[label] >= target.least
    best = -np.inf if scores.size > 1 else 0.0  # of all classes but the target's column
    for place in range(scores.size):
        if place != target.column:
            best = max(best, scores[place])
    one = scores[target.column] if target.column >= 0 else 0.0
    wanted, rival = (one, best) if target.kind == LABEL else (best, one)
    return favourable, wanted if scores.size == 2 else (1.0 + wanted - rival) / 2.0, wanted


@numba.njit(inline="always")
def _rate(sums: Array, target: Any, scores: Array) -> tuple[bool, float, float]:
    """Rate the sums (k,) of one target; see `rate_one`."""
    if target.kind == INTERVAL:
        value = sums[0]
        favourable, grade = _rate_value(value, target)
        return favourable, grade, min(abs(value - target.low), abs(value - target.high)) / max(1.0, abs(value))
    _linked(sums, target.link, scores)
    label, second = np.int64(0), -np.inf
    for place in range(1, scores.size):
        if scores[place] > scores[label]:
            label, second = np.int64(place), scores[label]
        else:
            second = max(second, scores[place])
    margin = (scores[label] - second) / max(1.0, abs(scores[label]))
    favourable, grade, _ = _rate_label(label, scores, target)
    if target.least > 0:
        margin = min(margin, abs(scores[label] - target.least))
    return favourable, grade, margin


@inner
def rate_one(sums: Array, targets: Array, scores: Array) -> tuple[bool, float, float]:
    """Rate sums (k,) of one candidate; `scores` (at least the most classes of a target,) is room to work in.

    Returns:
        Whether all targets are met, the least grade in [0, 1], and how far the scores are from where the first of
        these would change.
    """
    every, least, near, far = True, np.inf, np.inf, -np.inf
    for number in range(targets.size):
        target = targets[number]
        favourable, grade, margin = _rate(sums[target.start : target.stop], target, scores[: target.classes])
        every, least = every and favourable, min(least, grade)
        if favourable:
            near = min(near, margin)
        else:
            far = max(far, margin)
    return every, least, near if every else far


@kernel
def rate_rows(sums: Array, targets: Array, scores: Array, favourable: Array, grade: Array, margin: Array) -> None:
    """Write into arrays (m,) what `rate_sums` returns; `scores` is room as in `rate_one`."""
    for row in range(len(sums)):
        favourable[row], grade[row], margin[row] = rate_one(sums[row], targets, scores)


def rate_sums(sums: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Return whether sums (m, k) meet the targets, their grades, and the margins of that verdict, (m,) each."""
    favourable, grade, margin = np.empty(len(sums), np.bool_), np.empty(len(sums)), np.empty(len(sums))
    rate_rows(sums, targets, np.empty(targets["classes"].max()), favourable, grade, margin)
    return favourable, grade, margin


@inner
def _behind(sums: Array, column: int, target: Any) -> Any:
    """Return how much one class lacks to lead all others, and to have the least probability, in units of the sums."""
    odds = np.log(target.least) - np.log1p(-min(target.least, 1.0 - 1e-9)) if target.least > 0 else -np.inf
    if target.link == SIGMOID and sums.size == 1:
        return max(odds, 0.0) - (sums[0] if column == 1 else -sums[0])
    rival, rest, own = -np.inf, 0.0, sums[column]
    for other in range(sums.size):
        if other != column:
            rival = max(rival, sums[other])
    if target.least > 0 and target.link == IDENTITY:
        return max(rival, target.least) - own
    if target.least > 0:  # of one against the rest, as if the shares were those of a softmax
        for other in range(sums.size):
            rest += np.exp(sums[other] - rival) if other != column else 0.0
        return max(rival, rival + np.log(rest) + odds) - own
    return rival - own


@inner
def shortfall_of(sums: Array, targets: Array) -> float:
    """Return how far sums (k,) of one candidate are from meeting all targets, 0 where they do; inf if that is unknown.

    It is what to add to the sums, those of an interval in units of its spread, and tells candidates apart whose grades
    are all next to 0. It only guides a search: what meets a target is for `rate_one` to say.
    """
    total = 0.0
    for number in range(targets.size):
        target = targets[number]
        mine, least = sums[target.start : target.stop], np.inf
        if target.kind == INTERVAL:
            least = max(target.low - mine[0], mine[0] - target.high) / target.spread
        elif target.kind == LABEL:
            least = _behind(mine, target.column, target)
        else:
            for column in range(target.classes):
                if column != target.column:
                    least = min(least, _behind(mine, column, target))
        total += max(least, 0.0)
    return total if total == total else np.inf  # noqa: PLR0124  NaN


@kernel
def shortfalls(sums: Array, targets: Array, found: Array) -> None:
    """Write `shortfall_of` sums (m, k) into `found` (m,)."""
    for row in range(len(sums)):
        found[row] = shortfall_of(sums[row], targets)


@kernel
def rate_labels(labels: Array, scores: Array, targets: Array, favourable: Array, grade: Array, wanted: Array) -> None:
    """Rate decided labels (m,), by position among the classes, with their scores (m, classes) against one target.

    Written are `favourable`, `grade` and `wanted` (m,), what speaks for the target. The scores are overwritten.
    """
    for row in range(len(labels)):
        favourable[row], grade[row], wanted[row] = _rate_label(labels[row], scores[row], targets[0])


@kernel
def rate_values(values: Array, targets: Array, favourable: Array, grade: Array) -> None:
    """Rate values (m,) of a regression against one target into `favourable` (m,) and `grade` (m,)."""
    for row in range(len(values)):
        favourable[row], grade[row] = _rate_value(values[row], targets[0])


@inner
def _reach_label(low: Array, high: Array, column: int, target: Any) -> Any:
    """Return the most by which one class can lead all others, and by which its probability can exceed the least."""
    if target.link == SIGMOID and low.size == 1:
        best = _expit(high[0]) if column == 1 else 1.0 - _expit(low[0])
        return min(2.0 * best - 1.0, best - target.least) if target.least > 0 else 2.0 * best - 1.0
    lead, own, rest = np.inf, high[column], 0.0
    for other in range(low.size):
        if other == column:
            continue
        rival = low[other]
        if target.link == SIGMOID:
            lead = min(lead, _expit(own) - _expit(rival))
            rest += _expit(rival)
        else:
            lead = min(lead, own - rival)
            rest += np.exp(rival - own) if target.link == SOFTMAX else 0.0
    if lead < 0 and target.link != IDENTITY:  # at least so far behind in probability, for the likeliest has 1 / classes
        lead = (np.expm1(lead) if target.link == SOFTMAX else lead) / low.size
    if target.least > 0:
        likely = own
        if target.link == SIGMOID:
            total = _expit(own) + rest
            likely = _expit(own) / total if total > 0 else 1.0
        elif target.link == SOFTMAX:
            likely = 1.0 / (1.0 + rest)
        lead = min(lead, likely - target.least)
    return lead


@numba.njit(inline="always")
def _reach(low: Array, high: Array, target: Any) -> Any:
    if target.kind == INTERVAL:
        return min(high[0] - target.low, target.high - low[0])
    if target.kind == LABEL:
        return _reach_label(low, high, target.column, target)
    found = -np.inf
    for column in range(target.classes):
        if column != target.column:
            found = max(found, _reach_label(low, high, column, target))
    return found


@kernel
def reach(low: Array, high: Array, targets: Array, doubt: float, found: Array) -> None:
    """Write into `found` (m,) how far into all targets sums between `low` and `high` (m, k) can come; < 0: not at all.

    It is a bound on the lead of a label over the others, where it is negative in probability if that is what is
    compared, and on what its probability exceeds the least one by; of a value, on its distance from the nearer end of
    the interval. Sums that may be off by `doubt`, in units of max(1, |sum|), reach so much further.
    """
    for box in range(len(low)):
        found[box] = np.inf
        for number in range(targets.size):
            target = targets[number]
            least, most = low[box, target.start : target.stop], high[box, target.start : target.stop]
            largest = 1.0
            for place in range(least.size):
                largest = max(largest, abs(least[place]), abs(most[place]))
            found[box] = min(found[box], _reach(least, most, target) + doubt * largest)
