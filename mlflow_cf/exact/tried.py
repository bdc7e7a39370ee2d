"""The choices of which two at a time are looked at, and in which portions."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.first_of_sets import FirstOfSets
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes
from mlflow_cf.search.choices import Choices
from mlflow_cf.structures.links import Tokens


class Tried(NamedTuple):
    """The choices tried, column after column.

    Attributes:
        places: (t,) which of all choices they are; start: (d + 1,) where those of each column start.
        cost, peak: (t,) what each adds to the distance.
        tokens: per column, their tokens.
    """

    places: Codes
    start: Codes
    cost: Floats
    peak: Floats
    tokens: list[Tokens]

    @classmethod
    def of(cls, choices: Choices, tried: Bools) -> Tried:
        """Return the choices that are `tried` (choices,)."""
        columns, owner = choices.columns, choices.problem.owner
        some = tried[columns]
        ends = np.diff(choices.start)[owner].cumsum()
        start = np.append(0, some.cumsum()[ends - 1])
        parts = zip(choices.tokens, pairwise([0, *ends.tolist()]), strict=True)
        places = columns[some]
        tokens = [table[some[first:stop]] for table, (first, stop) in parts]
        return cls(places, start, choices.cost[places], choices.peak[places], tokens)

    @property
    def counts(self) -> Codes:
        """(d,) how many there are of every column."""
        return np.diff(self.start)

    def pairs(self, limit: float) -> Columns:
        """Return the pairs of columns of which two choices may be within the limit, the nearest first."""
        filled = np.flatnonzero(self.counts)
        least = np.full(len(self.counts), np.inf)
        if len(filled):
            least[filled] = np.minimum.reduceat(self.cost, self.start[filled])
        both = least[:, None] + least
        first, second = np.nonzero(np.triu(both <= limit, k=1))
        order = np.argsort(both[first, second], kind="stable")
        first, second = first[order], second[order]
        return Columns(first, second, both[first, second])


class Columns(NamedTuple):
    """Pairs of columns: the `first` (p,) and the `second` ones (p,), and what two changes of them cost at `least`."""

    first: Codes
    second: Codes
    least: Floats


class Asked(NamedTuple):
    """Which pairs of choices are looked at.

    Attributes:
        tried: the choices; limit: how far two may be.
        doubt: by how much sums may be off.
        sets: the nearest candidates by what they change, where several answers are wanted.
    """

    tried: Tried
    limit: float
    doubt: float
    sets: FirstOfSets | None


def portions(sizes: Codes, most: int, first: int) -> list[Codes]:
    """Return the positions of tables of such sizes in portions of about so many cells, so many of them `first`."""
    total = sizes.cumsum()
    whole = np.searchsorted(total, np.arange(most, total[-1] if len(total) else 0, most))
    ends = sorted({*whole.tolist(), first})
    return [part for part in np.split(np.arange(len(sizes)), ends) if len(part)]
