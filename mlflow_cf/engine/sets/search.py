"""The search among sets of changed features: what is nearest of trees, where few changes suffice; see the kernels.

It finds all candidates within a limit that may meet the target, but those with a change that no tree can tell.
The limit grows in steps, so that a search that is cut short has proved a bound.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.engine import thresholds
from mlflow_cf.engine.sets.columns import column_of, leaves_within, moves_of
from mlflow_cf.engine.sets.kernels import BEGINNING, DONE, FULL, GOING, look
from mlflow_cf.engine.sets.state import FOUND, PART, WORK, Aim, room_for
from mlflow_cf.engine.sets.state import Search as State
from mlflow_cf.features import Floats
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable, Within
from mlflow_cf.rounding import loose
from mlflow_cf.structures.capabilities import SupportsLeaves, boxes_of
from mlflow_cf.structures.parts import Leaves
from mlflow_cf.structures.structure import Encoded, Structure

MOST_CHANGED: Final = 12  # features; more of them are looked at in other ways
STEPS: Final = (0.25, 0.5, 0.75, 1.0)  # of the limit beyond what the least changes cost
ASCENT: Final = 5  # steps of shares beside every set
AT_ONCE: Final = 2**20  # leaves between two looks at the clock: some 10 ms
LEAVES_PER_ROW: Final = 2**9  # that take as long as the evaluation of a row
ROOM: Final = (4_096, 64, 20_000)  # boxes that wait; leaves of boxes, for every leaf; candidates


class SetSearch:
    """Looks for candidates whose changes cost no more than a limit; belongs to one thread.

    Attributes:
        limit: on costs, perhaps lowered to those of a row that certainly meets the target.
        low: no row costs less that may meet the target and is not among the candidates.
        most: how many features may change within the limit.
        places: (cells,) the actions that stand for cells, among all; owner: (d,) the group of every feature.
    """

    def __init__(self, state: State, places: Codes, owner: Codes, limit: float) -> None:
        """Set up; nothing is looked for yet."""
        self._state, self.places, self.owner, self.limit = state, places, owner, limit
        self.low = min(float(np.sort(state.moves.least)[: state.aim.least].sum()), limit)
        self._found: list[Codes] = []
        self.most = state.aim.most

    def run(self, budget: Budget) -> bool:
        """Search up to the limit; return False if the budget, or the room for what waits, does not last for that."""
        lowest = self.low
        for step in STEPS:
            reach = lowest + step * (self.limit - lowest) if step < 1.0 else self.limit
            if not self._run_to(reach, budget):
                return False
            if self.limit <= reach:
                break
        return True

    def _run_to(self, reach: float, budget: Budget) -> bool:
        """Search up to a limit on costs."""
        progress, done = self._state.progress, 0
        progress.limit[0] = loose(reach)
        progress.counts[:] = 0
        progress.counts[PART], status = BEGINNING, GOING
        while status == GOING and not budget.spent:
            status = look(self._state, AT_ONCE)
            if status == FULL and self._dropped():
                status = GOING
            budget.take(min((int(progress.counts[WORK]) - done) // LEAVES_PER_ROW + 1, budget.left))
            done = int(progress.counts[WORK])
        self._found.append(progress.found[: progress.counts[FOUND]].copy())
        if progress.limit[0] < loose(reach):
            self.limit = min(self.limit, float(progress.limit[0]))
        if status == DONE:
            self.low = min(reach, self.limit)
        return status == DONE

    def _dropped(self) -> bool:
        """Drop candidates that are beyond the limit by now; return whether there is much room again."""
        progress, cost = self._state.progress, np.append(self._state.moves.cost, 0.0)
        count = int(progress.counts[FOUND])
        some = progress.found[:count]
        near = some[cost[some[:, 1::2]].sum(axis=1) <= progress.limit[0]]
        progress.found[: len(near)] = near
        progress.counts[FOUND] = len(near)
        return len(near) < count // 2

    def candidates(self, actions: ActionTable) -> Codes:
        """Return the candidates (m, G) found, which take some of the `actions`."""
        found = np.concatenate(self._found)
        codes = np.repeat(actions.own_code[None], len(found), axis=0)
        for feature, place in zip(found[:, ::2].T, found[:, 1::2].T, strict=True):
            rows = np.flatnonzero(feature >= 0)
            codes[rows, self.owner[feature[rows]]] = actions.code[self.places[place[rows]]]
        return np.unique(codes, axis=0)


def search_sets(
    problem: Problem, actions: ActionTable, boxes: object, tolerance: float, within: Within
) -> SetSearch | None:
    """Return the search for candidates that take some of the `actions`; None where the model is not made of trees.

    None, too, where many features may change within the limit, several scores decide, or rules tell of several groups.
    """
    score = None if problem.scorer is None else problem.scorer.decision_score(tolerance + thresholds.SWEPT)
    plain = problem.plain_limits and not problem.joint_rules and not problem.bound_distance.c
    single = len(problem.groups) == len(problem.space) and not (actions.own < 0).any()
    if score is None or not plain or not single or not isinstance(boxes, SupportsLeaves):
        return None
    cost = actions.cost.copy()
    cost[actions.own] = np.inf
    if _changes_within(np.minimum.reduceat(cost, actions.start[:-1]), within) > MOST_CHANGED:
        return None
    return set_search(actions, boxes.leaves(), score, within)


def _changes_within(least: Floats, within: Within) -> int:
    """Return how many features may change that cost at least that much (d,)."""
    return min(int((np.sort(least).cumsum() <= loose(within.limit)).sum()), within.most)


def set_search(
    actions: ActionTable, known: tuple[Leaves, list[Encoded]], score: DecisionScore, within: Within
) -> SetSearch | None:
    """Return the search among `known` leaves of trees, with the cells of every feature; None: they are too many.

    Every group is one feature, whose own action is among the `actions`, and the distance is the sum of their costs.
    """
    leaves, cells = known
    columns = [
        column_of(actions, group, some, limits, lookup.size - 1)
        for group, some, limits, lookup in zip(
            actions.owner.tolist(), cells, leaves.limits, leaves.lookups, strict=True
        )
    ]
    moves, gain = moves_of(columns), leaves.value @ score.weights
    most = _changes_within(moves.least, within)
    if most < within.least or not np.isfinite(within.limit):
        return None
    asked = leaves_within(columns, leaves.tree.astype(np.intp), gain, most, within.limit)
    if asked is None:
        return None
    base, cheapest = float(leaves.base @ score.weights), float(moves.least.min())
    aim = Aim(score.may - base, score.sure - base, within.least, most, cheapest, ASCENT)
    boxes, pool, found = ROOM
    state = room_for(moves, asked, aim, (boxes, pool * max(len(asked.tree), 1), found))
    return SetSearch(state, np.concatenate([column.places for column in columns]), actions.owner, within.limit)


def try_sets(structure: Structure, Z: Floats) -> None:
    """Look among changes of the first of coded rows (m, d) to values of the others.

    It warms up the kernel, so that no later row waits until it is compiled.
    """
    encoded = [structure.encode(column, codes) for column, codes in enumerate(Z.T)]
    boxes = boxes_of(structure, encoded)
    if not isinstance(boxes, SupportsLeaves):
        return
    rows, groups = Z.shape
    start, own = rows * np.arange(groups + 1), np.zeros(groups, dtype=np.intp)
    cost = np.tile(np.arange(float(rows)), groups)
    actions = ActionTable(cost, cost, start, own, np.arange(groups), lambda: encoded)
    score = DecisionScore(np.ones(structure.outputs), 0.0, 0.0)
    search = set_search(actions, boxes.leaves(), score, Within(0.0, float(rows), 2))
    if search is not None:
        search.run(Budget(1))
