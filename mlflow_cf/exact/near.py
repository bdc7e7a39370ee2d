"""The candidates of a box that are near enough, enumerated without looking at the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.exact.boxes import loose
from mlflow_cf.kernel import kernel
from mlflow_cf.problem import Codes
from mlflow_cf.search.choices import Choices, Within

Array = NDArray[Any]


class Axes(NamedTuple):
    """The groups that tell candidates apart, or that add to their distance or their changes, in the groups' order.

    Attributes:
        first: (n + 1,) where the choices of each start, nearest first.
        cost, peak: (choices,) what each adds to the distance; moved: (choices,) 1 if it is a change.
        step: (choices,) what each adds to the number of a candidate.
        undone: (n,) what the row's own choice of each group adds, -1 where none is to be put back.
        rest: (n + 1,) what the groups from each on cost at least.
    """

    first: Array
    cost: Array
    peak: Array
    moved: Array
    step: Array
    undone: Array
    rest: Array


class Told(NamedTuple):
    """What candidates are rated by: one number each, where the target is met from some end on.

    Attributes:
        lead: (candidates,) the number, by theirs; none: they are not rated.
        may, sure: from where on the target may be met, and certainly is.
    """

    lead: Array
    may: float
    sure: float


NOTHING = Told(np.empty(0), 0.0, 0.0)


class Stack(NamedTuple):
    """What the choices of the groups before each (n,) add up to, and which choice of the group `comes` next."""

    comes: Array
    distance: Array
    top: Array
    changes: Array
    number: Array


@numba.njit(inline="always")
def _counts(distance: Any, top: Any, changes: Any, within: Within) -> Any:
    """Whether a candidate is near enough and has neither too few changes nor too many."""
    far = distance + within.c * top if within.c else distance
    return far <= within.limit and within.least <= changes <= within.most


@numba.njit(inline="always")
def _needed(axes: Axes, stack: Stack, told: Told, number: Any, changes: Any) -> Any:
    """Whether a candidate may meet the target, and does not certainly meet it without one of its changes."""
    if not told.lead[number] >= told.may:
        return False
    for at in range(stack.comes.size if changes > 1 else 0):
        choice = stack.comes[at] - 1
        undone = number - axes.step[choice] + axes.undone[at]
        if axes.moved[choice] and axes.undone[at] >= 0 and told.lead[undone] >= told.sure:
            return False
    return True


@kernel
def enumerate_near(axes: Axes, within: Within, loose: float, stack: Stack, told: Told, numbers: Array) -> int:
    """Write the numbers of the candidates that count, and return how many do; none is farther than `loose`.

    Where they are rated, only those are written that may meet the target and need all changes. It ends when there is
    no more room for `numbers`.
    """
    last, count, at = axes.first.size - 2, 0, 0
    stack.comes[0], stack.distance[0], stack.top[0], stack.changes[0], stack.number[0] = 0, 0.0, 0.0, 0, 0
    while at >= 0 and count < numbers.size:
        choice = stack.comes[at]
        distance = stack.distance[at] + axes.cost[choice] if choice < axes.first[at + 1] else np.nan
        if not distance + axes.rest[at + 1] <= loose:  # there is no choice left, or all that are left are farther
            at -= 1
            continue
        stack.comes[at] += 1
        top = max(stack.top[at], axes.peak[choice])
        changes = stack.changes[at] + axes.moved[choice]
        number = stack.number[at] + axes.step[choice]
        if at == last:
            if _counts(distance, top, changes, within) and (
                told.lead.size == 0 or _needed(axes, stack, told, number, changes)
            ):
                numbers[count] = number
                count += 1
        elif changes <= within.most:
            at += 1
            stack.comes[at], stack.distance[at], stack.top[at] = axes.first[at], distance, top
            stack.changes[at], stack.number[at] = changes, number
    return count


def axes_of(choices: Choices, places: Sequence[Codes], steps: Sequence[Codes], undone: Codes) -> Axes:
    """Return the candidates that take a choice at `places` of every group.

    Args:
        choices: those of all groups, nearest first.
        places: per group, some of its choices (t,), nearest first.
        steps: per group, what these choices add to the number of a candidate.
        undone: (G,) see `Axes`.
    """
    cost, own = choices.cost, choices.own
    telling = [n for n, here in enumerate(places) if len(here) > 1 or here[0] != own[n] or cost[here[0]] > 0] or [0]
    all_places = np.concatenate([places[number] for number in telling])
    least = np.array([cost[places[number][0]] for number in telling])
    return Axes(
        first=np.cumsum([0, *(len(places[number]) for number in telling)]),
        cost=cost[all_places],
        peak=choices.peak[all_places],
        moved=(all_places != own[choices.group[all_places]]).astype(np.int64),
        step=np.concatenate([steps[number] for number in telling]),
        undone=undone[telling],
        rest=np.append(least[::-1].cumsum()[::-1], 0.0),
    )


def near_numbers(axes: Axes, within: Within, told: Told = NOTHING, most: int | None = None) -> Codes:
    """Return the numbers (m,) of the candidates that count, if they are rated those that may be answers; at most some.

    Args:
        axes: the candidates; within: which of them count.
        told: what is known of all.
        most: how many are wanted.
    """
    count, size = len(axes.undone), int(np.prod(np.diff(axes.first)))
    stack = Stack(*(np.empty(count, dtype) for dtype in (np.int64, np.float64, np.float64, np.int64, np.int64)))
    numbers = np.empty(size if most is None else min(size, most), dtype=np.int64)
    return numbers[: enumerate_near(axes, within, loose(within.limit), stack, told, numbers)]
