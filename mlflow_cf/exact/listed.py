"""The candidates of a box one by one: all of them together, as a product of what each group may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.needless import Needless
from mlflow_cf.problem import Codes, Rater
from mlflow_cf.search.choices import Choices, Within

WORTH = 8  # a row of a product takes so many times less than a row by itself
MOST_ADDED = 2  # times as many rows of a product, to see which changes are needless


@dataclass(frozen=True, eq=False)
class Listed:
    """All candidates of a box, in C order of the groups that have a choice.

    Attributes:
        choices: those of all boxes.
        places: per group, which of the choices the box allows.
        axes: the groups that have an axis in arrays over all candidates; the others have one choice.
    """

    choices: Choices
    places: tuple[Codes, ...]
    axes: tuple[int, ...]

    @classmethod
    def of(cls, choices: Choices, box: Bools) -> Listed:
        """Return the candidates of a box (choices,)."""
        ends = np.cumsum(np.add.reduceat(box, choices.start[:-1], dtype=np.intp))
        return cls.at(choices, np.split(np.flatnonzero(box), ends[:-1]))

    @classmethod
    def at(cls, choices: Choices, places: Sequence[Codes]) -> Listed:
        """Return the candidates that take one of the choices at `places` (t,) of every group."""
        several = [group for group, some in enumerate(places) if len(some) > 1]
        return cls(choices, tuple(places), tuple(several or [0]))  # arrays over all have an axis at least

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of arrays over all candidates."""
        return tuple(len(self.places[group]) for group in self.axes)

    @cached_property
    def changes(self) -> Codes:
        """How many groups each candidate changes."""
        own, fixed = self.choices.own, set(range(len(self.places))) - set(self.axes)
        total = np.full(self.shape, sum(self.places[group][0] != own[group] for group in fixed), dtype=np.intp)
        for group in self.axes:
            total += self.along(self.places[group] != own[group], group)
        return total

    def near(self, within: Within) -> Bools:
        """Return which candidates are near enough and change neither too few groups nor too many."""
        distance, top = np.zeros(self.shape), np.zeros(self.shape)
        for group, places in enumerate(self.places):  # in the order in which all distances are added up
            if len(places) > 1 or self.choices.cost[places[0]]:
                distance += self.along(self.choices.cost[places], group)
            if within.c:
                np.maximum(top, self.along(self.choices.peak[places], group), out=top)
        if within.c:
            distance += within.c * top
        near: Bools = (distance <= within.limit) & (self.changes >= within.least) & (self.changes <= within.most)
        return near

    def worth(self, near: Bools, needless: Needless) -> tuple[Codes, Bools, Bools] | None:
        """Return what may be answers of the candidates that are `near`, by a product of all candidates.

        Returns:
            The codes (m, G) of those that may meet the target, but those with a change that is certainly needless;
            which of them certainly meet it; and the groups (G,) whose changes were looked at for that.
            None where the model gains nothing by a product.
        """
        rater, free, own = needless.problem.rater, needless.free, self.choices.own
        if rater is None or near.sum() * WORTH < near.size:
            return None
        whole, added = self._with_own(free)
        rated = whole.rated(rater, needless.doubt)
        if rated is None:
            return None
        may, sure = rated
        mine = replace(self, axes=whole.axes)
        here: list[slice | Codes] = [slice(int(group in added), None) for group in whole.axes]
        some, several = near.reshape(mine.shape) & may[tuple(here)], mine.changes > 1
        checked = free & [own[group] in places for group, places in enumerate(whole.places)]
        for axis, group in enumerate(whole.axes):
            if checked[group]:
                at = np.flatnonzero(whole.places[group] == own[group])
                back = sure[(*here[:axis], at, *here[axis + 1 :])]
                some &= ~(back & mine.along(self.places[group] != own[group], group) & several)
        return mine.codes(some), sure[tuple(here)][some], checked

    def _with_own(self, free: Bools) -> tuple[Listed, set[int]]:
        """Return all candidates beside the row's own choice of some of the `free` groups that all change, and which."""
        places, size, most = list(self.places), prod(self.shape), MOST_ADDED * prod(self.shape)
        added = set()
        for group in sorted(np.flatnonzero(free).tolist(), key=lambda group: -len(self.places[group])):
            more = size + size // len(self.places[group])
            if self.choices.own[group] not in places[group] and more <= most:
                places[group] = np.append(self.choices.own[group], places[group])
                added.add(group)
                size = more
        return Listed.at(self.choices, places), added

    def rated(self, rater: Rater, doubt: float) -> tuple[Bools, Bools] | None:
        """Return which candidates may meet the target, and which certainly do; None where the model gains nothing."""
        problem = self.choices.problem
        tokens = [
            self.choices.tokens[column][self.places[number] - self.choices.start[number]]
            for column, number in enumerate(problem.owner.tolist())
        ]
        sums = rater.structure.product(tokens, problem.owner)
        if sums is None:
            return None
        may, sure = rater.verdicts(sums, doubt)
        return may.reshape(self.shape), sure.reshape(self.shape)

    def codes(self, some: Bools) -> Codes:
        """Return the codes (m, G) of some candidates."""
        first = np.array([places[0] for places in self.places])
        at = np.nonzero(some)
        codes: Codes = np.repeat(self.choices.code[first][None], len(at[0]), axis=0)
        for group, here in zip(self.axes, at, strict=True):
            codes[:, group] = self.choices.code[self.places[group][here]]
        return codes

    def along(self, values: NDArray[Any], group: int) -> NDArray[Any]:
        """Return what is said of a group's choices (t,), in a shape that fits all candidates."""
        return values.reshape([-1 if other == group else 1 for other in self.axes])
