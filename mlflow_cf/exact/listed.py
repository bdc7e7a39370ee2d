"""The candidates of a box one by one: all of them together, as a product of what each group may take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.needless import Needless
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Rater
from mlflow_cf.search.choices import Choices, Within

WORTH = 8  # a row of a product takes so many times less than a row by itself
MOST_ADDED = 2  # times as many rows of a product, to see which changes are needless


@dataclass(frozen=True, eq=False)
class Listed:
    """All candidates of a box, in C order of the groups.

    Attributes:
        choices: those of all boxes.
        places: per group, which of the choices the box allows.
    """

    choices: Choices
    places: tuple[Codes, ...]

    @classmethod
    def of(cls, choices: Choices, box: Bools) -> Listed:
        """Return the candidates of a box (choices,)."""
        parts = np.split(np.flatnonzero(box), np.cumsum(np.add.reduceat(box, choices.start[:-1], dtype=np.intp))[:-1])
        return cls(choices, tuple(parts))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many choices each group has."""
        return tuple(map(len, self.places))

    @cached_property
    def changes(self) -> Codes:
        """How many groups each candidate changes."""
        total = np.zeros((1,) * len(self.sizes), dtype=np.intp)
        for group, places in enumerate(self.places):
            total = total + self._along(places != self.choices.own[group], group)
        return np.broadcast_to(total, self.sizes)

    def near(self, within: Within) -> Bools:
        """Return which candidates are near enough and change neither too few groups nor too many."""
        distance: Floats = np.zeros((1,) * len(self.sizes))
        for group, places in enumerate(self.places):  # in the order in which all distances are added up
            cost = self._along(self.choices.cost[places], group)
            distance = distance + cost if group else cost
        if within.c:
            peaks = [self._along(self.choices.peak[places], group) for group, places in enumerate(self.places)]
            top = peaks[0]
            for peak in peaks[1:]:
                top = np.maximum(top, peak)
            distance = distance + within.c * top
        changes = self.changes
        near: Bools = (distance <= within.limit) & (changes >= within.least) & (changes <= within.most)
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
        here: list[slice | Codes] = [slice(start, None) for start in added]
        some, several = near & may[tuple(here)], self.changes > 1
        for group in np.flatnonzero(free).tolist():
            at = np.flatnonzero(whole.places[group] == own[group])
            if len(at):
                back = sure[(*here[:group], at, *here[group + 1 :])]
                some &= ~(back & self._along(self.places[group] != own[group], group) & several)
        checked = free & [own[group] in places for group, places in enumerate(whole.places)]
        return self.codes(some), sure[tuple(here)][some], checked

    def _with_own(self, free: Bools) -> tuple[Listed, list[int]]:
        """Return all candidates and the row's own choice of some `free` groups that all change; for these, 1."""
        places, size, most = list(self.places), prod(self.sizes), MOST_ADDED * prod(self.sizes)
        added = [0] * len(places)
        for group in sorted(np.flatnonzero(free).tolist(), key=lambda group: -self.sizes[group]):
            more = size + size // self.sizes[group]
            if self.choices.own[group] not in places[group] and more <= most:
                places[group] = np.append(self.choices.own[group], places[group])
                added[group], size = 1, more
        return Listed(self.choices, tuple(places)), added

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
        return may.reshape(self.sizes), sure.reshape(self.sizes)

    def codes(self, some: Bools) -> Codes:
        """Return the codes (m, G) of some candidates."""
        at = np.nonzero(some)
        return np.stack([self.choices.code[places[here]] for places, here in zip(self.places, at, strict=True)], axis=1)

    def _along(self, values: NDArray[Any], group: int) -> NDArray[Any]:
        """Return what is said of a group's choices (t,), in the shape of all candidates."""
        return values.reshape([-1 if other == group else 1 for other in range(len(self.sizes))])
