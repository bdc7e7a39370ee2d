"""The tuples of all groups that a search looks at, laid out end to end for kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.structures.links import Tokens


class Flat(NamedTuple):
    """Choices for kernels.

    Attributes:
        code, cost, peak: (choices,) and start: (G + 1,) as in `Choices`.
        own: (G,) the choice of the row's own tuple, -1 where there is none; own_code: (G,) the code of that tuple.
    """

    code: Codes
    cost: Floats
    peak: Floats
    start: Codes
    own: Codes
    own_code: Codes


class Within(NamedTuple):
    """Which candidates count, for kernels: those nearer than `limit` that change at most, and at least, so many groups.

    The distance is the sum of the costs and `c` times the largest peak.
    """

    c: float
    limit: float
    most: int
    least: int = 1


@dataclass(frozen=True, eq=False)
class Choices:
    """Some tuples of every group, group after group, in the order in which a search tries them.

    Attributes:
        problem: whose tuples they are.
        group, code: (choices,) group and tuple of each.
        cost, peak: (choices,) what each adds to the distance, as in `Group`.
        start: (G + 1,) where each group's choices start.
    """

    problem: Problem
    group: Codes
    code: Codes
    cost: Floats
    peak: Floats
    start: Codes

    @classmethod
    def of_places(cls, problem: Problem, places: Codes) -> Choices:
        """Return the tuples at `places` (choices,) among those of all groups, group after group."""
        group = problem.group_of[places]
        start = np.searchsorted(group, np.arange(len(problem.groups) + 1))
        return cls(problem, group, places - problem.start[group], problem.costs[places], problem.peaks[places], start)

    @cached_property
    def flat(self) -> Flat:
        """The same for kernels."""
        return Flat(self.code, self.cost, self.peak, self.start, self.own, self.problem.own)

    @cached_property
    def own(self) -> Codes:
        """(G,) the choice of the row's own tuple, -1 where there is none."""
        own = np.full(len(self.problem.groups), -1)
        mine = np.flatnonzero(self.code == self.problem.own[self.group])
        own[self.group[mine]] = mine
        return own

    @cached_property
    def tokens(self) -> list[Tokens]:
        """Per column, the structure's tokens of its group's choices; empty without structure."""
        if self.problem.rater is None:
            return []
        tables = zip(self.problem.token_tables, self.problem.owner.tolist(), strict=True)
        return [table[self.code[self.start[number] : self.start[number + 1]]] for table, number in tables]

    @cached_property
    def columns(self) -> Codes:
        """For the choices of every column, column after column, their place among all choices."""
        return np.concatenate([np.arange(self.start[n], self.start[n + 1]) for n in self.problem.owner])
