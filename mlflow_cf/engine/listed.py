"""The candidates of a node, listed and scored: as a product grid of actions, or only those that are near enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.kernel import kernel
from mlflow_cf.problem import Codes
from mlflow_cf.problem.actions import ActionTable, Within
from mlflow_cf.rounding import loose


@dataclass(frozen=True, eq=False)
class Rows:
    """All candidates that take one of some actions of every group, numbered in C order.

    Attributes:
        actions: those of all boxes.
        places: per group, some of them (t,), their codes ascending.
    """

    actions: ActionTable
    places: tuple[Codes, ...]

    @classmethod
    def of(cls, actions: ActionTable, places: Sequence[Codes]) -> Rows:
        """Return the candidates that take one of the actions at `places` of every group, in any order."""
        return cls(actions, tuple(some[np.argsort(actions.code[some])] for some in places))

    @cached_property
    def size(self) -> int:
        """How many candidates there are."""
        return prod(map(len, self.places))

    @cached_property
    def stride(self) -> list[int]:
        """Per group, how far apart the numbers are of candidates that take one action and the next."""
        sizes = list(map(len, self.places))
        return [prod(sizes[group + 1 :]) for group in range(len(sizes))]

    @cached_property
    def by_cost(self) -> list[Codes]:
        """Per group, the same places, nearest first."""
        return [np.sort(places) for places in self.places]

    def at(self, group: int, places: Codes) -> Codes:
        """Return what actions of a group, at `places` (t,) among all, add to the numbers of candidates."""
        if len(self.places[group]) == 1:
            return np.zeros(len(places), dtype=np.intp)
        code = self.actions.code
        return np.asarray(np.searchsorted(code[self.places[group]], code[places]) * self.stride[group])

    def codes(self, numbers: Codes) -> Codes:
        """Return the codes (m, G) of candidates."""
        codes = np.empty((len(numbers), len(self.places)), dtype=np.intp)
        for group, (places, stride) in enumerate(zip(self.places, self.stride, strict=True)):
            codes[:, group] = self.actions.code[places[numbers // stride % len(places)]]
        return codes

    def told(self, scorer: Scorer, tolerance: float) -> Told | None:
        """Return what all of them are rated by, if scores may be off by `tolerance`; None if nothing is gained."""
        lead = scorer.decision_score(tolerance)
        sums = self.sums(scorer, None if lead is None else lead.weights[:, None])
        if sums is None:
            return None
        if lead is not None:
            return Told(sums[:, 0], lead.may, lead.sure)
        may, sure = scorer.decisions(sums, tolerance)
        return Told(may.astype(np.float64) + sure, 1.0, 2.0)

    def sums(self, scorer: Scorer, weights: Floats | None = None) -> Floats | None:
        """Return the sums (size, k) of all, rounded otherwise than those of single rows; None if nothing is gained.

        With `weights` (k, j), the weighted ones (size, j).
        """
        if scorer.products is None:
            return None
        actions, owner = self.actions, self.actions.owner
        places = [self.places[number] - actions.start[number] for number in owner.tolist()]
        encoded = [actions.encoded[column][some] for column, some in enumerate(places)]
        return scorer.products.product(encoded, owner, weights)


@dataclass(frozen=True, eq=False)
class ListedCandidates:
    """Candidates that may be answers.

    Attributes:
        codes: (m, G) of each.
        certain: (m,) whether it certainly meets the target.
        checked: (G,) the groups of which no candidate has a change that is certainly redundant.
    """

    codes: Codes
    certain: Bools
    checked: Bools


@dataclass(frozen=True, eq=False)
class Listed:
    """All candidates of a box.

    Attributes:
        actions: those of all boxes.
        places: per group, which of the actions the box allows, nearest first.
        rows: these candidates, among others that put changes back.
        checked: (G,) the groups whose changes are put back there.
    """

    actions: ActionTable
    places: tuple[Codes, ...]
    rows: Rows
    checked: Bools

    @classmethod
    def of(cls, actions: ActionTable, box: Bools, back: Bools) -> Listed:
        """Return the candidates of a box (actions,), beside which the changes of some groups (G,) may be put `back`."""
        ends = np.cumsum(np.add.reduceat(box, actions.start[:-1], dtype=np.intp))
        places = tuple(np.split(np.flatnonzero(box), ends[:-1]))
        more = _with_own(actions, places, back)
        checked = back & [own in some for own, some in zip(actions.own, more, strict=True)]
        return cls(actions, places, Rows.of(actions, more), checked)

    @property
    def size(self) -> int:
        """How many candidates the box has."""
        return prod(map(len, self.places))

    def near(self, within: Within) -> Codes:
        """Return the codes (m, G) of the candidates that are near enough and have as many changes as they may."""
        return self.rows.codes(near_numbers(self._axes(self.places, np.zeros(len(self.places), np.bool_)), within))

    def rated(
        self, within: Within, scorer: Scorer, tolerance: float, few: Scorer | None = None
    ) -> ListedCandidates | None:
        """Return which of the candidates that are near may be answers, but for those with a redundant change.

        Scores may be off by `tolerance`. What `few` of the models refuse is not asked of all; see `Scorer.hardest`.
        None where candidates are rated as fast by themselves.
        """
        rows, checked = self.rows, self.checked
        enough = -(-(rows.size + thresholds.SET_UP) // thresholds.LISTED_PER_ROW)
        if len(near_numbers(self._axes(rows.by_cost, checked), within._replace(least=0), most=enough)) < enough:
            return None
        if few is not None and not checked.any():
            told = rows.told(few, tolerance + thresholds.SWEPT)
            found = None if told is None else near_numbers(self._axes(self.places, checked), within, told)
            if found is not None and len(found) <= enough:
                return self._alone(rows.codes(found), scorer, tolerance)
        told = rows.told(scorer, tolerance + thresholds.SWEPT)
        if told is None:
            return None
        found = near_numbers(self._axes(self.places, checked), within, told)
        return ListedCandidates(rows.codes(found), told.lead[found] >= told.sure, checked)

    def rated_alone(self, within: Within, scorer: Scorer, tolerance: float) -> ListedCandidates:
        """Return which of the candidates that are near may be answers, rated by themselves."""
        return self._alone(self.near(within), scorer, tolerance)

    def _alone(self, codes: Codes, scorer: Scorer, tolerance: float) -> ListedCandidates:
        """Return which of candidates (m, G) may be answers."""
        may, sure = scorer.decisions(scorer.structure.sums(self.actions.encoded_candidates(codes)), tolerance)
        return ListedCandidates(codes[may], sure[may], np.zeros(len(self.places), dtype=np.bool_))

    def _axes(self, places: Sequence[Codes], checked: Bools) -> Axes:
        rows, own = self.rows, self.actions.own
        steps = [rows.at(group, some) for group, some in enumerate(places)]
        undone = np.full(len(places), -1)
        for group in np.flatnonzero(checked).tolist():
            undone[group] = rows.at(group, own[group : group + 1])[0]
        return axes_of(self.actions, places, steps, undone)


def gains(actions: ActionTable, scorer: Scorer) -> bool:
    """Whether candidates of these actions are rated faster together."""
    own = Rows(actions, tuple(actions.start[:-1, None]))
    return own.sums(scorer) is not None


def _with_own(actions: ActionTable, places: Sequence[Codes], back: Bools) -> list[Codes]:
    """Return actions per group, beside which the row's own one of some groups to put `back` that all change stands."""
    more, size = list(places), prod(map(len, places))
    most = max(thresholds.MOST_ADDED * size, thresholds.SET_UP)
    for group in sorted(np.flatnonzero(back).tolist(), key=lambda group: -len(places[group])):
        added = size + size // len(places[group])
        if actions.own[group] not in places[group] and added <= most:
            more[group] = np.append(actions.own[group], places[group])
            size = added
    return more


Array = NDArray[Any]


class Axes(NamedTuple):
    """The groups that tell candidates apart, or that add to their distance or their changes, in the groups' order.

    Attributes:
        first: (n + 1,) where the actions of each start, nearest first.
        cost, peak: (actions,) what each adds to the distance; moved: (actions,) 1 if it is a change.
        step: (actions,) what each adds to the number of a candidate.
        undone: (n,) what the row's own action of each group adds, -1 where none is to be put back.
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
    """What the actions of the groups before each (n,) add up to, and which action of the group `comes` next."""

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
        action = stack.comes[at] - 1
        undone = number - axes.step[action] + axes.undone[at]
        if axes.moved[action] and axes.undone[at] >= 0 and told.lead[undone] >= told.sure:
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
        action = stack.comes[at]
        distance = stack.distance[at] + axes.cost[action] if action < axes.first[at + 1] else np.nan
        if not distance + axes.rest[at + 1] <= loose:  # there is no action left, or all that are left are farther
            at -= 1
            continue
        stack.comes[at] += 1
        top = max(stack.top[at], axes.peak[action])
        changes = stack.changes[at] + axes.moved[action]
        number = stack.number[at] + axes.step[action]
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


def axes_of(actions: ActionTable, places: Sequence[Codes], steps: Sequence[Codes], undone: Codes) -> Axes:
    """Return the candidates that take an action at `places` of every group.

    Args:
        actions: those of all groups, nearest first.
        places: per group, some of its actions (t,), nearest first.
        steps: per group, what these actions add to the number of a candidate.
        undone: (G,) see `Axes`.
    """
    cost, own = actions.cost, actions.own
    telling = [n for n, here in enumerate(places) if len(here) > 1 or here[0] != own[n] or cost[here[0]] > 0] or [0]
    all_places = np.concatenate([places[number] for number in telling])
    least = np.array([cost[places[number][0]] for number in telling])
    return Axes(
        first=np.cumsum([0, *(len(places[number]) for number in telling)]),
        cost=cost[all_places],
        peak=actions.peak[all_places],
        moved=(all_places != own[actions.group[all_places]]).astype(np.int64),
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
