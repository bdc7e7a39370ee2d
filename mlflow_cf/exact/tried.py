"""The choices of which two at a time are looked at, and in which portions."""

from __future__ import annotations

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
        owner = choices.problem.owner.tolist()
        some = [np.flatnonzero(tried[choices.start[n] : choices.start[n + 1]]) for n in owner]
        places = np.concatenate([at + choices.start[number] for at, number in zip(some, owner, strict=True)])
        tokens = [table[at] for table, at in zip(choices.tokens, some, strict=True)]
        return cls(places, np.cumsum([0, *map(len, some)]), choices.cost[places], choices.peak[places], tokens)

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
        first, second = np.triu_indices(len(least), k=1)
        both = least[first] + least[second]
        near = np.flatnonzero(both <= limit)
        near = near[np.argsort(both[near], kind="stable")]
        return Columns(first[near], second[near], both[near])


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
