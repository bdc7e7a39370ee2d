"""The actions of all groups that a search looks at, laid out end to end for kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.kernel import kernel
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.structures.links import Encoded

Array = NDArray[Any]


class ActionArrays(NamedTuple):
    """Choices for kernels.

    Attributes:
        code, cost, peak: (choices,) and start: (G + 1,) as in `ActionTable`.
        own: (G,) the choice of the row's own action, -1 where there is none; own_code: (G,) the code of that action.
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
class ActionTable:
    """Some actions of every group, group after group, in the order in which a search tries them.

    Attributes:
        problem: whose actions they are.
        group, code: (choices,) group and action of each.
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
    def of_ids(cls, problem: Problem, ids: Codes) -> ActionTable:
        """Return the actions at `ids` (choices,) among those of all groups, group after group."""
        if len(ids) == len(problem.costs) and (ids == np.arange(len(ids))).all():  # all of them, as they come
            start = np.append(problem.start, len(ids))
            code = ids - problem.start[problem.group_of]
            return cls(problem, problem.group_of, code, problem.costs, problem.peaks, start)
        group = problem.group_of[ids]
        start = np.searchsorted(group, np.arange(len(problem.groups) + 1))
        return cls(problem, group, ids - problem.start[group], problem.costs[ids], problem.peaks[ids], start)

    def taken(self, ids: Codes) -> Codes:
        """Return the candidates (m, G) that take the choices at `ids` (m, n), each of another group."""
        codes = np.repeat(self.problem.own[None], len(ids), axis=0)
        for at in ids.T:
            codes[np.arange(len(ids)), self.group[at]] = self.code[at]
        return codes

    @cached_property
    def flat(self) -> ActionArrays:
        """The same for kernels."""
        return ActionArrays(self.code, self.cost, self.peak, self.start, self.own, self.problem.own)

    @cached_property
    def own(self) -> Codes:
        """(G,) the choice of the row's own action, -1 where there is none."""
        own = np.full(len(self.problem.groups), -1)
        mine = np.flatnonzero(self.code == self.problem.own[self.group])
        own[self.group[mine]] = mine
        return own

    @cached_property
    def tokens(self) -> list[Encoded]:
        """Per column, the structure's tokens of its group's choices; empty without structure."""
        if self.problem.scorer is None:
            return []
        if self.group is self.problem.group_of:  # all of them, as they come
            return self.problem.token_tables
        tables = zip(self.problem.token_tables, self.problem.owner.tolist(), strict=True)
        return [table[self.code[self.start[number] : self.start[number + 1]]] for table, number in tables]

    @cached_property
    def columns(self) -> Codes:
        """For the choices of every column, column after column, their place among all choices."""
        return np.concatenate([np.arange(self.start[n], self.start[n + 1]) for n in self.problem.owner])


def lawful(problem: Problem) -> Codes:
    """Return the places of the actions that the rules allow among those of all groups, ascending."""
    return np.flatnonzero(_allowed(problem))


def _allowed(problem: Problem) -> Bools:
    """Return which of the actions of all groups the rules allow."""
    allowed: Bools = np.ones(len(problem.costs), dtype=np.bool_)
    allowed[problem.own + problem.start] = problem.own_allowed
    return allowed


def telling(problem: Problem) -> Codes:
    """Return the places of the actions worth looking at among those of all groups, ascending.

    Of the actions of a single feature in one cell of the model the nearest stands for all, unless rules over several
    groups speak of the feature: whatever accepts another one accepts the nearest too.
    """
    kept = _allowed(problem)
    if problem.scorer is None:
        return np.flatnonzero(kept)
    cells, ascending = np.zeros(len(kept), dtype=np.int64), np.zeros(len(problem.groups), dtype=np.bool_)
    tables, linked, start, in_order = problem.token_tables, problem.linked, problem.start.tolist(), _in_order(problem)
    for number, columns in enumerate(problem.columns):
        known = tables[columns[0]]
        if number in linked or len(columns) > 1 or known.ndim > 1 or len(known) < 3:
            continue
        part = slice(start[number], start[number] + len(known))
        if known.dtype.kind == "i" and in_order[columns[0]]:
            cells[part], ascending[number] = known, True
        elif len(set(known.tolist())) < len(known):
            kept[part] &= _unbeaten(problem.groups[number], known, problem.bound_distance.c)
    drop_beaten(cells, problem.start, problem.own, ascending, kept)
    return np.flatnonzero(kept)


def _in_order(problem: Problem) -> list[bool]:
    """Return of every column whether its values cost more the farther they are from the row's own in their order."""
    distance = problem.bound_distance
    if not distance.b or distance.percentiles is not None:
        return [False] * len(problem.space)
    ranked: list[bool] = ((distance.scale > 0) & (problem.x0 < distance.unknown_from)).tolist()
    return ranked


@kernel
def drop_beaten(cells: Array, start: Array, own: Array, ascending: Array, kept: Array) -> None:
    """Unmark those `kept` (t,) of groups in ascending order that have one in their cell which is nearer to the own one.

    The own one is nearer than all others, if it is kept.
    """
    for group in range(own.size):
        if not ascending[group]:
            continue
        first, last = start[group], (start[group + 1] if group + 1 < own.size else cells.size) - 1
        middle = first + own[group]
        stays = kept[middle]
        for at in range(first, middle):
            if cells[at] == cells[at + 1] and (at + 1 < middle or stays):
                kept[at] = False
        for at in range(last, middle, -1):
            if cells[at] == cells[at - 1] and (at - 1 > middle or stays):
                kept[at] = False


def _unbeaten(group: Group, cells: Encoded, c: float) -> Bools:
    """Return which actions (t,) may be in the least key of a box among those of their cell (t,).

    That is the nearest one. Of those that add as much to the sum, a smaller code may also win, where another group has
    the largest change; but never against the row's own action, which is no change.
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
