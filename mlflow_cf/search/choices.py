"""The tuples of all groups that a search looks at, laid out end to end for kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Group, Problem
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

    def taken(self, places: Codes) -> Codes:
        """Return the candidates (m, G) that take the choices at `places` (m, n), each of another group."""
        codes = np.repeat(self.problem.own[None], len(places), axis=0)
        for at in places.T:
            codes[np.arange(len(places)), self.group[at]] = self.code[at]
        return codes

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


def lawful(problem: Problem) -> Codes:
    """Return the places of the tuples that the rules allow among those of all groups, ascending."""
    own = problem.own + problem.start
    return np.delete(np.arange(len(problem.costs)), own[[not group.own_allowed for group in problem.groups]])


def telling(problem: Problem) -> Codes:
    """Return the places of the tuples worth looking at among those of all groups, ascending.

    Of the tuples of a lone feature in one cell of the model the nearest stands for all, unless rules over several
    groups speak of the feature: whatever accepts another one accepts the nearest too.
    """
    places, own = lawful(problem), problem.own + problem.start
    if problem.rater is None:
        return places
    kept = np.zeros(len(problem.costs), dtype=np.bool_)
    kept[places] = True
    cells, ascending = np.zeros(len(kept), dtype=np.int64), np.zeros(len(problem.groups), dtype=np.bool_)
    for number, group in enumerate(problem.groups):
        known = problem.token_tables[group.columns[0]]
        if number in problem.linked or len(group.columns) > 1 or known.ndim > 1 or len(group.tuples) < 3:
            continue
        start = problem.start[number]
        part = slice(start, start + len(group.tuples))
        if known.dtype.kind == "i" and _in_order(problem, group):
            cells[part], ascending[number] = known, True
        elif len(set(known.tolist())) < len(known):
            kept[part] &= _unbeaten(group, known, problem.bound_distance.c)
    kept &= ~(ascending[problem.group_of] & _beaten(cells, problem.group_of, own, kept[own]))
    return np.flatnonzero(kept)


def _in_order(problem: Problem, group: Group) -> bool:
    """Whether the tuples of a lone feature cost more the farther they are from the row's own in their order."""
    distance, (column,) = problem.bound_distance, group.columns
    ranked = distance.scale[column] > 0 and problem.x0[column] < distance.unknown_from[column]
    return bool(ranked and distance.b > 0 and distance.percentiles is None)


def _beaten(cells: Codes, groups: Codes, own: Codes, own_allowed: Bools) -> Bools:
    """Return which tuples (t,), ascending within groups, have one in their cell that is nearer to the own one."""
    place, own = np.arange(len(cells)), own[groups]
    side = np.sign(place - own)
    side[own[own_allowed[groups]]] = 2  # nearer than both sides
    together = (groups[1:] == groups[:-1]) & (cells[1:] == cells[:-1])
    beaten = np.zeros(len(cells), dtype=np.bool_)
    beaten[:-1] |= together & (side[:-1] == -1) & ((side[1:] == -1) | (side[1:] == 2))
    beaten[1:] |= together & (side[1:] == 1) & ((side[:-1] == 1) | (side[:-1] == 2))
    return beaten


def _unbeaten(group: Group, cells: Tokens, c: float) -> Bools:
    """Return which tuples (t,) may be in the least key of a box among those of their cell (t,).

    That is the nearest one. Of those that add as much to the sum, a smaller code may also win, where another group has
    the largest change; but never against the row's own tuple, which is no change.
    """
    allowed = np.flatnonzero(group.own_allowed | (np.arange(len(cells)) != group.own))
    top = group.peak[allowed] if c else np.zeros(len(allowed))
    nearest = allowed[np.lexsort((allowed, allowed != group.own, top, group.cost[allowed]))]
    _, first, cell = np.unique(cells[nearest], return_index=True, return_inverse=True)
    kept = np.zeros(len(nearest), dtype=np.bool_)
    kept[first] = True
    if c > 0:
        rank = np.where(nearest == group.own, -1, nearest)
        least = rank[first]
        equal = group.cost[nearest] == group.cost[nearest[first]][cell]
        for at in np.flatnonzero(equal & (rank < least[cell])).tolist():
            kept[at] |= rank[at] < least[cell[at]]
            least[cell[at]] = min(least[cell[at]], rank[at])
    unbeaten = np.zeros(len(cells), dtype=np.bool_)
    unbeaten[nearest[kept]] = True
    return unbeaten
