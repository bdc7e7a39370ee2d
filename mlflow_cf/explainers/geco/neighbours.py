"""Exact neighbourhoods: every candidate that differs from a given one in a single group, rated by sweeps.

Tuples of a lone feature that the model cannot tell apart (one cell of a tree) and that no rule over several groups
speaks of differ in distance alone, so only the nearest of them is a neighbour worth looking at. For the same reason no
action farther away than the nearest favourable one of its group is, nor one that is both farther away and no better
graded than another. A compiled loop picks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.thresholds import SWEPT
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.kernel import kernel
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionArrays, ActionTable, Within
from mlflow_cf.search.cascade import Cascade, alone
from mlflow_cf.search.population import Keys

FAR = 1e3  # more than any distance
MOST_JOINT = 20_000  # actions of groups of several features that are tried beside the candidates of one call


def _nearest_swept(problem: Problem, actions: ActionTable) -> ActionTable:
    """Return those of some actions whose groups are swept, nearest first."""
    swept = np.array([len(group.columns) == 1 and group.proposals > 0 for group in problem.groups])
    ids = np.flatnonzero(swept[actions.group])
    alone = actions.cost[ids] + problem.bound_distance.c * actions.peak[ids]
    return actions.take(ids[np.lexsort((alone, actions.group[ids]))])


@dataclass(frozen=True, eq=False)
class RatedNeighbours:
    """Neighbours of some candidates, rated by sweeps.

    Attributes:
        parents: (p, G) the candidates.
        parent: (n,) whose neighbour each is; group, code: (n,) the one action in which it differs.
        verdict: (n,) 1 favourable, 0 not, -1 too close to call.
        shortfall: (n,) what it lacks to be favourable; see `shortfalls`.
        distance: (n,) as far as rounding goes.
    """

    parents: Codes
    parent: Codes
    group: Codes
    code: Codes
    verdict: Floats
    shortfall: Floats
    distance: Floats

    def codes(self, some: Codes) -> Codes:
        """Return some of the neighbours (m, G)."""
        codes = self.parents[self.parent[some]]
        codes[np.arange(len(some)), self.group[some]] = self.code[some]
        return codes

    def best(self, most: int, price: float) -> Codes:
        """Return the positions of the best, about `most`: favourable ones first, then by distance and shortfall.

        No whole rows are made of others, which counts if groups are many. `price` is the distance per shortfall.
        """
        if len(self.distance) <= most:
            return np.arange(len(self.distance))
        order = self.distance + np.where(self.verdict == 0, FAR + price * self.shortfall, 0.0)
        return np.flatnonzero(order <= np.partition(order, most)[most] + 1e-9)


class Neighbours:
    """The neighbourhoods of candidates of one problem; no change of a group beside the same others comes twice."""

    def __init__(self, engine: Engine, scorer: Scorer, cascade: Cascade, keys: Keys) -> None:
        self.problem = problem = engine.problem
        self.scorer, self.cascade, self.keys = scorer, cascade, keys
        linked = frozenset(number for joint in cascade.joint_rules for number in joint.groups)
        self.actions = _nearest_swept(problem, engine.actions)
        self.linked = sorted(linked)
        self.joint = [n for n, group in enumerate(problem.groups) if len(group.columns) > 1 and group.proposals]
        self.known: set[int] = set()
        self.sizes = np.diff(self.actions.start)
        self.sizes[self.joint] = [problem.groups[number].proposals for number in self.joint]
        # what a group adds at least if it changes, and what it adds at least at all
        self.least = np.array([np.delete(group.cost, group.own).min(initial=np.inf) for group in problem.groups])
        self.back = np.where([group.own_allowed for group in problem.groups], 0.0, self.least)

    def of(self, parents: Codes, cutoff: float, budget: Budget) -> tuple[RatedNeighbours, Codes]:
        """Return the rated neighbours of candidates (p, G), those nearer than `cutoff`, and others that are not rated.

        These are the neighbours that had to be repaired, and the actions of groups of several features.
        """
        wanted = self._wanted(parents, cutoff)
        some = wanted.any(axis=1)
        parents, wanted = parents[some], wanted[some]
        lone = wanted.copy()
        lone[:, self.joint] = False
        cells = (lone * self.sizes).sum(axis=1)
        afforded = int((cells.cumsum() <= budget.take(int(cells.sum()))).sum())
        parents, wanted, lone = parents[:afforded], wanted[:afforded], lone[:afforded]
        if not len(parents):
            nothing, none = np.empty(0), np.empty(0, dtype=np.intp)
            return RatedNeighbours(parents, none, none, none, nothing, nothing, nothing), parents
        held = self._held(parents, lone)
        swept = self._swept(parents, lone, held, cutoff)
        others = [
            self._broken(parents, lone, held, cutoff),
            *(self._tuples(parents, wanted, n, cutoff) for n in self.joint),
        ]
        return swept, self.cascade.repair(np.concatenate(others))

    def _wanted(self, parents: Codes, cutoff: float) -> Bools:
        """Return (p, G) which groups of which candidates to change: where that may be within `cutoff`, and is new."""
        problem = self.problem
        changed = parents != problem.own
        parts = problem.actions.cost[parents + problem.actions.start[:-1]]
        low = parts.sum(axis=1)[:, None] - parts + np.where(changed, self.back, self.least)
        wanted: Bools = (low < cutoff) & (self.sizes > 0)
        wanted &= changed | (problem.changes_left(parents) > 0)[:, None]
        new = []
        for context in self.keys.contexts(parents)[wanted].tolist():
            new.append(context not in self.known)
            self.known.add(context)
        wanted[wanted] = new
        return wanted

    def _swept(self, parents: Codes, wanted: Bools, held: Bools, cutoff: float) -> RatedNeighbours:
        problem, actions = self.problem, self.actions
        columns: Bools = wanted[:, problem.owner]
        some = np.any(columns, axis=0).tolist()
        values = [encoded if any_ else None for encoded, any_ in zip(actions.encoded, some, strict=True)]
        rows = [table[parents[:, n]] for table, n in zip(problem.encoded_tables, problem.owner, strict=True)]
        found = self.scorer.structure.sweep(rows, values, columns)
        sums = np.full((len(parents), len(actions.code), self.scorer.structure.outputs), np.nan)
        for column, part in enumerate(found):
            if part is not None:
                group = problem.owner[column]
                sums[:, actions.start[group] : actions.start[group + 1]] = part
        ids, whole = parents + problem.actions.start[:-1], problem.actions
        within = Within(problem.bound_distance.c, cutoff, problem.most_changes)
        parent, at, verdict, shortfall, distance = pick(
            Parents(parents, whole.cost[ids], whole.peak[ids]),
            actions.arrays,
            PickedGroups(wanted, held),
            sums,
            self.scorer,
            within,
        )
        return RatedNeighbours(parents, parent, actions.group[at], actions.code[at], verdict, shortfall, distance)

    def _held(self, parents: Codes, wanted: Bools) -> Bools:
        """Return (p, actions) whether the rules over several groups hold for the neighbours."""
        actions = self.actions
        held: Bools = np.ones((len(parents), len(actions.code)), dtype=np.bool_)
        for number in self.linked:
            members = np.flatnonzero(wanted[:, number])
            own = slice(actions.start[number], actions.start[number + 1])
            children = np.repeat(parents[members], own.stop - own.start, axis=0)
            children[:, number] = np.tile(actions.code[own], len(members))
            good = np.ones(len(children), dtype=np.bool_)
            for joint in self.cascade.joint_rules:
                if number in joint.groups:
                    good &= joint.holds(children)
            held[members, own] = good.reshape(len(members), own.stop - own.start)
        for joint in self.cascade.joint_rules:  # a parent that breaks a rule does so whatever else changes
            broken = ~joint.holds(parents)
            if broken.any():
                held[np.ix_(broken, ~np.isin(actions.group, list(joint.groups)))] = False
        return held

    def _broken(self, parents: Codes, wanted: Bools, held: Bools, cutoff: float) -> Codes:
        """Return the neighbours (m, G) that break a rule over several groups."""
        if not self.linked:
            return parents[:0]
        actions = self.actions
        broken = (
            ~held & wanted[:, actions.group] & (actions.code != parents[:, actions.group]) & (actions.cost < cutoff)
        )
        parent, at = np.nonzero(broken)
        children = parents[parent]
        children[np.arange(len(at)), actions.group[at]] = actions.code[at]
        return children

    def _tuples(self, parents: Codes, wanted: Bools, number: int, cutoff: float) -> Codes:
        """Return the nearest neighbours (m, G) in a group of several features."""
        group = self.problem.groups[number]
        members = parents[wanted[:, number]]
        most = max(1, MOST_JOINT // (max(len(members), 1) * len(self.joint)))
        codes = np.argsort(alone(self.problem, number), kind="stable")
        codes = codes[(group.cost[codes] < cutoff) & (group.own_allowed | (codes != group.own))][:most]
        children = np.repeat(members, len(codes), axis=0)
        children[:, number] = np.tile(codes, len(members))
        others: Codes = children[children[:, number] != np.repeat(members[:, number], len(codes))]
        return others


Array = NDArray[Any]


class Parents(NamedTuple):
    """Candidates (p, G) by code, and what their actions add to the distance."""

    codes: Array
    costs: Array
    peaks: Array


class PickedGroups(NamedTuple):
    """Which groups (p, G) of which candidates to change, and (p, actions) where the rules over several groups hold."""

    groups: Array
    held: Array


class ActionScores(NamedTuple):
    """What every action of every candidate (p, actions) lacks, and a verdict: 1 favourable, 0 not, -1 in doubt."""

    lacks: Array
    verdict: Array


def pick(
    parents: Parents, flat: ActionArrays, wanted: PickedGroups, sums: Array, scorer: Scorer, within: Within
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the neighbours worth keeping: parent, action, favourable or not (-1: in doubt), shortfall, distance.

    The distance may be off by what rounding makes of another order of adding up.

    Args:
        parents: whose neighbours; flat: what their groups may take.
        wanted: which neighbours.
        sums: (p, actions, k) of the neighbours, rated by `scorer`; NaN where nothing is wanted.
        within: only what is nearer counts, and changes no more groups.
    """
    found = np.empty((5, sums.shape[0] * sums.shape[1]))
    count = pick_into(parents, flat, wanted, _rated(sums, scorer), within, found)
    whole: Array = found[:2, :count].astype(np.intp)
    return whole[0], whole[1], found[2, :count], found[3, :count], found[4, :count]


def _rated(sums: Array, scorer: Scorer) -> ActionScores:
    """Rate all sums (p, actions, k), also those of no action that is wanted: to select these takes longer."""
    flat = sums.reshape(-1, sums.shape[2])
    may, sure = scorer.decisions(flat, SWEPT)
    verdict = np.where(may & ~sure, -1, may).astype(np.int8)
    return ActionScores(scorer.lacks(flat).reshape(sums.shape[:2]), verdict.reshape(sums.shape[:2]))


@kernel
def pick_into(
    parents: Parents, flat: ActionArrays, wanted: PickedGroups, rated: ActionScores, within: Within, found: Array
) -> int:
    """Write what `pick` returns into the lines of `found`, and return how many there are."""
    code, cost, peak, start, own = flat.code, flat.cost, flat.peak, flat.start, flat.own_code
    c, cutoff, most, count = within.c, within.limit, within.most, 0
    for parent in range(len(parents.codes)):
        mine, costs, peaks = parents.codes[parent], parents.costs[parent], parents.peaks[parent]
        base, changes = 0.0, 0
        for group in range(own.size):
            base += costs[group]
            changes += mine[group] != own[group]
        for group in range(own.size):
            if not wanted.groups[parent, group]:
                continue
            highest = 0.0
            if c > 0:
                for other in range(own.size):
                    highest = max(highest, peaks[other] if other != group else 0.0)
            others, rest, best = changes - (mine[group] != own[group]), base - costs[group], np.inf
            for at in range(start[group], start[group + 1]):
                far = rest + cost[at] + c * max(highest, peak[at])
                if far >= cutoff:
                    break
                changed = others + (code[at] != own[group])
                if not wanted.held[parent, at] or code[at] == mine[group] or not 0 < changed <= most:
                    continue
                lacks = rated.lacks[parent, at]
                verdict = rated.verdict[parent, at]
                lacks = max(lacks, 0.0) if lacks == lacks else np.inf  # noqa: PLR0124  NaN
                if verdict != 0 or lacks < best:
                    found[0, count], found[1, count], found[2, count] = parent, at, verdict
                    found[3, count], found[4, count] = lacks, far
                    best, count = min(lacks, best), count + 1
                if verdict > 0:
                    break
    return count
