"""The candidates of a box one by one: all of them together, as a product of what each group may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.few_changes import SWEPT
from mlflow_cf.exact.near import Axes, Told, axes_of, near_numbers
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Rater
from mlflow_cf.search.choices import Choices, Within

WORTH = 2**8  # a row of a product takes so many times less than a row by itself
SET_UP = 2**14  # rows of a product take as long as what comes before them
MOST_ADDED = 4  # times as many rows of a product, to see which changes are needless


@dataclass(frozen=True, eq=False)
class Rows:
    """All candidates that take one of some choices of every group, numbered in C order.

    Attributes:
        choices: those of all boxes.
        places: per group, some of them (t,), their codes ascending.
    """

    choices: Choices
    places: tuple[Codes, ...]

    @classmethod
    def of(cls, choices: Choices, places: Sequence[Codes]) -> Rows:
        """Return the candidates that take one of the choices at `places` of every group, in any order."""
        return cls(choices, tuple(some[np.argsort(choices.code[some])] for some in places))

    @cached_property
    def size(self) -> int:
        """How many candidates there are."""
        return prod(map(len, self.places))

    @cached_property
    def stride(self) -> list[int]:
        """Per group, how far apart the numbers are of candidates that take one choice and the next."""
        sizes = list(map(len, self.places))
        return [prod(sizes[group + 1 :]) for group in range(len(sizes))]

    @cached_property
    def by_cost(self) -> list[Codes]:
        """Per group, the same places, nearest first."""
        return [np.sort(places) for places in self.places]

    def at(self, group: int, places: Codes) -> Codes:
        """Return what choices of a group, at `places` (t,) among all, add to the numbers of candidates."""
        if len(self.places[group]) == 1:
            return np.zeros(len(places), dtype=np.intp)
        code = self.choices.code
        return np.asarray(np.searchsorted(code[self.places[group]], code[places]) * self.stride[group])

    def codes(self, numbers: Codes) -> Codes:
        """Return the codes (m, G) of candidates."""
        codes = np.empty((len(numbers), len(self.places)), dtype=np.intp)
        for group, (places, stride) in enumerate(zip(self.places, self.stride, strict=True)):
            codes[:, group] = self.choices.code[places[numbers // stride % len(places)]]
        return codes

    def told(self, rater: Rater, doubt: float) -> Told | None:
        """Return what all of them are rated by, if scores may be off by `doubt`; None if nothing is gained."""
        lead = rater.lead(doubt)
        sums = self.sums(rater, None if lead is None else lead.weights[:, None])
        if sums is None:
            return None
        if lead is not None:
            return Told(sums[:, 0], lead.may, lead.sure)
        may, sure = rater.verdicts(sums, doubt)
        return Told(may.astype(np.float64) + sure, 1.0, 2.0)

    def sums(self, rater: Rater, weights: Floats | None = None) -> Floats | None:
        """Return the sums (size, k) of all, rounded otherwise than those of single rows; None if nothing is gained.

        With `weights` (k, j), the weighted ones (size, j).
        """
        choices, owner = self.choices, self.choices.problem.owner
        places = [self.places[number] - choices.start[number] for number in owner.tolist()]
        tokens = [choices.tokens[column][some] for column, some in enumerate(places)]
        return rater.structure.product(tokens, owner, weights)


@dataclass(frozen=True, eq=False)
class Rated:
    """Candidates that may be answers.

    Attributes:
        codes: (m, G) of each.
        certain: (m,) whether it certainly meets the target.
        checked: (G,) the groups of which no candidate has a change that is certainly needless.
    """

    codes: Codes
    certain: Bools
    checked: Bools


@dataclass(frozen=True, eq=False)
class Listed:
    """All candidates of a box.

    Attributes:
        choices: those of all boxes.
        places: per group, which of the choices the box allows, nearest first.
        rows: these candidates, among others that put changes back.
        checked: (G,) the groups whose changes are put back there.
    """

    choices: Choices
    places: tuple[Codes, ...]
    rows: Rows
    checked: Bools

    @classmethod
    def of(cls, choices: Choices, box: Bools, back: Bools) -> Listed:
        """Return the candidates of a box (choices,), beside which the changes of some groups (G,) may be put `back`."""
        ends = np.cumsum(np.add.reduceat(box, choices.start[:-1], dtype=np.intp))
        places = tuple(np.split(np.flatnonzero(box), ends[:-1]))
        more = _with_own(choices, places, back)
        checked = back & [own in some for own, some in zip(choices.own, more, strict=True)]
        return cls(choices, places, Rows.of(choices, more), checked)

    @property
    def size(self) -> int:
        """How many candidates the box has."""
        return prod(map(len, self.places))

    def near(self, within: Within) -> Codes:
        """Return the codes (m, G) of the candidates that are near enough and have as many changes as they may."""
        return self.rows.codes(near_numbers(self._axes(self.places, np.zeros(len(self.places), np.bool_)), within))

    def rated(self, within: Within, rater: Rater, doubt: float) -> Rated | None:
        """Return which of the candidates that are near may be answers, but for those with a needless change.

        Scores may be off by `doubt`. None where candidates are rated as fast by themselves.
        """
        rows, checked = self.rows, self.checked
        enough = -(-(rows.size + SET_UP) // WORTH)
        if len(near_numbers(self._axes(rows.by_cost, checked), within._replace(least=0), most=enough)) < enough:
            return None
        told = rows.told(rater, doubt + SWEPT)
        if told is None:
            return None
        found = near_numbers(self._axes(self.places, checked), within, told)
        return Rated(rows.codes(found), told.lead[found] >= told.sure, checked)

    def rated_alone(self, within: Within, rater: Rater, doubt: float) -> Rated:
        """Return which of the candidates that are near may be answers, rated by themselves."""
        codes = self.near(within)
        may, sure = rater.verdicts(rater.structure.sums(self.choices.problem.tokens(codes)), doubt)
        return Rated(codes[may], sure[may], np.zeros(len(self.places), dtype=np.bool_))

    def _axes(self, places: Sequence[Codes], checked: Bools) -> Axes:
        rows, own = self.rows, self.choices.own
        steps = [rows.at(group, some) for group, some in enumerate(places)]
        undone = np.full(len(places), -1)
        for group in np.flatnonzero(checked).tolist():
            undone[group] = rows.at(group, own[group : group + 1])[0]
        return axes_of(self.choices, places, steps, undone)


def gains(choices: Choices, rater: Rater) -> bool:
    """Whether candidates of these choices are rated faster together."""
    own = Rows(choices, tuple(choices.start[:-1, None]))
    return own.sums(rater) is not None


def _with_own(choices: Choices, places: Sequence[Codes], back: Bools) -> list[Codes]:
    """Return choices per group, beside which the row's own one of some groups to put `back` that all change stands."""
    more, size = list(places), prod(map(len, places))
    most = max(MOST_ADDED * size, SET_UP)
    for group in sorted(np.flatnonzero(back).tolist(), key=lambda group: -len(places[group])):
        added = size + size // len(places[group])
        if choices.own[group] not in places[group] and added <= most:
            more[group] = np.append(choices.own[group], places[group])
            size = added
    return more
