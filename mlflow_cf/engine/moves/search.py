"""The search among moves: branch and bound for linear models and networks with one layer; see the kernels.

With listed actions it finds all candidates within a limit that may meet the target. With continuous numbers it finds a
nearest row and a lower bound on the distance of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.engine.moves.bounds import KEPT, OPEN, PRICES, Asked, Hidden, Moves, Nodes, Progress, Room, Search
from mlflow_cf.engine.moves.lines import line_below, step_along
from mlflow_cf.engine.moves.parting import DONE, FULL, advance
from mlflow_cf.features import Floats
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.problem import Budget, Codes, Group, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.problem.points import bounds_only, box
from mlflow_cf.rounding import loose
from mlflow_cf.structures.capabilities import ROUNDED, HiddenLayer, SupportsHidden

AT_ONCE: Final = 2**20  # effects of the nodes parted between two looks at the clock: some 20 ms
FIRST_NODES: Final = 1_024  # room for nodes, doubled as long as it is needed up to
MOST_ROOM: Final = 2**23  # groups of all nodes: 170 MB
MOST_FOUND: Final = 20_000  # candidates
FEWEST: Final = 3  # actions of a group that may be steps in two directions


class Move(NamedTuple):
    """One move of a group; see `Moves`.

    Attributes:
        limits: fixed cost, slope of the cost, least and longest step.
        effect: (width,) what a step of 1 adds to the hidden units.
        steps, costs, ids: (t,) the listed steps, what each costs, and the action that it leads to.
        far: where steps are not listed, by how much a step of 1 changes the number.
    """

    limits: tuple[float, float, float, float]
    effect: Floats
    steps: Floats
    costs: Floats
    ids: Codes
    far: float = 0.0


def levels(ids: Codes, costs: Floats, effects: Floats) -> list[Move]:
    """Return a move for each of some actions (t,) with costs (t,) and effects (t, width)."""
    each = zip(ids[:, None], costs[:, None], effects, strict=True)
    return [Move((float(cost[0]), 0.0, 1.0, 1.0), effect, np.ones(1), cost, own) for own, cost, effect in each]


def _directions(ids: Codes, costs: Floats, effects: Floats) -> list[Move]:
    """Return the moves of actions (t,): up and down where their effects (t, width) lie on one line, else one each."""
    step = np.empty(len(ids))
    longest = step_along(effects, step) if len(ids) >= FEWEST else -1
    if longest < 0:
        return levels(ids, costs, effects)
    order = np.argsort(step)  # equal steps are none of a line: nothing depends on which of them is first
    middle, line, found, limits = int(np.searchsorted(step[order], 0.0)), effects[longest], [], np.empty(2)
    for sign, mine in ((1.0, order[middle:]), (-1.0, order[:middle][::-1])):
        if not len(mine):
            continue
        steps, cost = sign * step[mine], costs[mine]
        if not line_below(steps, cost, limits):
            return levels(ids, costs, effects)
        fixed, slope = limits.tolist()
        found.append(Move((fixed, slope, float(steps[0]), float(steps[-1])), sign * line, steps, cost, ids[mine]))
    return found


def _any_step(problem: Problem, group: Group, effect: Floats) -> list[Move] | None:
    """Return the moves of a number that may take any value between bounds; None where what it costs is no line.

    `effect` (width,) is what one unit of the number adds to the hidden units.
    """
    distance, column, nothing = problem.bound_distance, group.columns[0], np.empty(0)
    own, scale = float(problem.x0[column]), float(distance.scale[column])
    low, high = box(problem, group)
    plain = all(bounds_only(problem, rule, column) for rule in group.rules)
    if not plain or np.isnan(own) or not scale or distance.percentiles is not None or not group.own_allowed:
        return None
    share, found = float(distance.weights[column]) / distance.all_weights, []
    for sign, near, far in ((1.0, low - own, high - own), (-1.0, own - high, own - low)):
        if far > 0 and near <= far:
            limits = distance.a * share, distance.b * share * far / scale, max(near, 0.0) / far, 1.0
            found.append(Move(limits, sign * far * effect, nothing, nothing, nothing.astype(np.intp), sign * far))
    return found


class MoveSearch:
    """Branch and bound among the moves of a row; belongs to one thread.

    Attributes:
        moves, hidden, asked, progress: what the kernel works on.
    """

    def __init__(self, groups: Sequence[Sequence[Move]], hidden: Hidden, asked: Asked, limit: float) -> None:
        """Set up for the moves of all groups; nothing is looked for yet."""
        every, counts = [move for group in groups for move in group], [len(group) for group in groups]
        self._every = every
        limits = np.ascontiguousarray(np.array([move.limits for move in every]).reshape(-1, 4).T)
        self.moves = Moves(
            np.cumsum([0, *counts]),
            np.repeat(np.arange(len(groups)), counts),
            limits[0],
            limits[1],
            limits[2],
            limits[3],
            np.cumsum([0, *(len(move.steps) for move in every)]),
            np.concatenate([np.empty(0), *(move.steps for move in every)]),
            np.concatenate([np.empty(0), *(move.costs for move in every)]),
            np.array([move.effect for move in every]).reshape(-1, len(hidden.own)),
        )
        self.hidden, self.asked = hidden, asked
        self._nodes = _room_for(FIRST_NODES, len(groups))
        room = MOST_FOUND if asked.listed else 1 + max(counts, default=0) + 2
        shape = room, len(groups)
        most = 1.0 + sum(max((_dearest(move) for move in group), default=0.0) for group in groups)
        self._given, self._first = limit, min(limit, most)  # the kernel needs a limit that is finite
        self.progress = Progress(
            np.array([1, 0, 0, 0]), np.array([self._first, np.inf]), np.empty(shape, np.int32),
            np.empty(shape), np.full(len(groups), KEPT, np.int32), np.zeros(len(groups)),
        )  # fmt: skip
        self._open_root()

    def _open_root(self) -> None:
        """Let a node wait in which every group is open; its bound is 0."""
        nodes, counts = self._nodes, self.progress.counts
        nodes.chosen[0], nodes.least[0], nodes.most[0], nodes.bound[0] = OPEN, 0.0, 0.0, 0.0
        nodes.free[: len(nodes.free) - 1] = np.arange(len(nodes.free) - 1, 0, -1)
        nodes.heap[0], counts[0], counts[1] = 0, 1, len(nodes.free) - 1
        nodes.move[0], nodes.at[0] = 0, 0.0

    def run(self, budget: Budget) -> bool:
        """Search until nothing is left; return False if the budget, or the room for nodes, does not last for that."""
        many, width = len(self.moves.group), len(self.hidden.own)
        if not many:
            self.progress.counts[0] = 0
            return True
        units, steps, flags = np.empty((5, width)), np.empty((5, many)), np.empty(many, np.bool_)
        point, high, low, up, down = units
        reach, full, gain, x, kept = steps
        prices, alive = np.empty((2, len(PRICES), width)), np.empty(many, np.int64)
        room = Room(point, high, low, up, down, prices, alive, reach, full, gain, flags, x, kept)
        while not budget.spent:
            before = int(self.progress.counts[3])
            status = advance(
                Search(self.moves, self.hidden, self.asked, self._nodes, self.progress, room), self.at_once
            )
            budget.take(min(int(self.progress.counts[3]) - before, budget.left))
            if status == DONE:
                return True
            if status == FULL and not self._grown():
                return False
        return False

    def _grown(self) -> bool:
        """Make twice the room for nodes; return False if that is too much, or room for candidates is what lacks."""
        nodes, counts, size = self._nodes, self.progress.counts, len(self._nodes.free)
        if 2 * nodes.chosen.size > MOST_ROOM or counts[2] > len(self.progress.chosen) // 2:
            return False
        self._nodes = _room_for(2 * size, nodes.chosen.shape[1])
        for new, old in zip(self._nodes, nodes, strict=True):
            new[:size] = old
        self._nodes.free[counts[1] : counts[1] + size] = np.arange(size, 2 * size)
        counts[1] += size
        return True

    @property
    def at_once(self) -> int:
        """How many nodes are parted between two looks at the clock."""
        return max(1, AT_ONCE // max(self.moves.effect.size, 1))

    @property
    def limit(self) -> float:
        """The limit on costs, perhaps lowered to those of a row that certainly meets the target."""
        now = float(self.progress.limits[0])
        return now if now < self._first else self._given

    @property
    def decided(self) -> bool:
        """Whether no node was left because its only row is within the tolerance of the target."""
        return bool(np.isinf(self.progress.limits[1]))

    @property
    def low(self) -> float:
        """No row that is not found yet costs less; at most the limit, less the gap."""
        waits = self._nodes.bound[self._nodes.heap[0]] if self.progress.counts[0] else np.inf
        return float(min(waits, self.progress.limits[1], self.progress.limits[0] + min(self.asked.slack, 0.0)))

    def candidates(self, actions: ActionTable) -> Codes:
        """Return the candidates (m, G) found, which take some of the `actions`."""
        count = int(self.progress.counts[2])
        chosen, steps = self.progress.chosen[:count], self.progress.step[:count]
        codes = np.repeat(actions.own_code[None], count, axis=0)
        for at, group in np.argwhere(chosen >= 0).tolist():
            move = self._every[chosen[at, group]]
            codes[at, group] = actions.code[move.ids[np.searchsorted(move.steps, steps[at, group])]]
        return codes

    def best(self, problem: Problem) -> Floats | None:
        """Return the row (d,) that lowered the limit last; None: none did."""
        chosen = self.progress.best.tolist()
        if max(chosen, default=KEPT) == KEPT:
            return None
        row = problem.x0.copy()
        for group, number, step in zip(problem.groups, chosen, self.progress.best_step.tolist(), strict=True):
            if number >= 0:
                move = self._every[number]
                if move.far:
                    column = group.columns[0]
                    row[column] = np.clip(row[column] + move.far * step, *box(problem, group))
                else:
                    row[list(group.columns)] = group.actions[move.ids[np.searchsorted(move.steps, step)]]
        stored: Floats = problem.space.encode(problem.space.decode(row[None]))[0]
        return stored


def _dearest(move: Move) -> float:
    """Return what a move costs at most."""
    fixed, slope, _, most = move.limits
    return max(fixed + slope * most, float(move.costs.max(initial=0.0)))


def search_listed(
    problem: Problem, actions: ActionTable, limit: float, tolerance: float, most: int
) -> MoveSearch | None:
    """Return the search for candidates that take some of the `actions` and change at most so many groups.

    None where the model has other units than one rectified layer, and where several scores decide.
    """
    score, structure = _hidden(problem, tolerance)
    if score is None or structure is None or (actions.own < 0).any():
        return None
    layer = structure.hidden(actions.encoded, score.weights)
    if layer is None:
        return None
    added, groups = np.empty_like(layer.added), []
    added[actions.columns] = layer.added
    for start, stop, own in zip(actions.start[:-1], actions.start[1:], actions.own, strict=True):
        ids = np.concatenate([np.arange(start, own), np.arange(own + 1, stop)])
        groups.append(_directions(ids, actions.cost[ids], added[ids] - added[own]))
    hidden = hidden_of(layer, layer.bias + added[actions.own].sum(axis=0), groups, score)
    return MoveSearch(groups, hidden, Asked(loose(0.0), most, True, lowers(problem)), limit)


def search_any(problem: Problem, limit: float, tolerance: float, gap: float) -> MoveSearch | None:
    """Return the search for a nearest row whose numbers may take any value of their intervals.

    A row that is nearer than the best by no more than `gap` is not looked for. None where the model has other units,
    several scores decide, a rule is about several groups, what changes cost is not linear, or the row itself is so near
    the target that the structure cannot tell it from an answer.
    """
    score, structure = _hidden(problem, tolerance)
    if score is None or structure is None or not lowers(problem):
        return None
    own = [structure.encode(column, problem.x0[column : column + 1]) for column in range(len(problem.x0))]
    layer = structure.hidden(own, score.weights)
    if layer is None:
        return None
    slack, groups = layer.slack, []
    for group in problem.groups:
        moves = _moves_of(problem, group, structure)
        if moves is None:
            return None
        slack += max((ROUNDED * float(np.abs(layer.weights) @ np.abs(move.effect)) for move in moves), default=0.0)
        groups.append(moves)
    hidden = hidden_of(replace(layer, slack=slack), layer.bias + layer.added.sum(axis=0), groups, score)
    if hidden.shift + float(hidden.weights @ np.maximum(hidden.own, 0.0)) >= hidden.may:
        return None  # the row itself may meet the target by the structure: it would be its own nearest row
    return MoveSearch(groups, hidden, Asked(-gap, problem.most_changes, False, True), limit)


def lowers(problem: Problem) -> bool:
    """Whether a candidate that certainly meets the target is an answer, and so limits how far others are."""
    return problem.plain_limits and not problem.joint_rules and not problem.bound_distance.c


def hidden_of(layer: HiddenLayer, units: Floats, groups: Sequence[Sequence[Move]], score: DecisionScore) -> Hidden:
    """Return the score of rows whose units are `units` (width,) at the row itself, and what it must reach.

    Units that are not rectified are lifted above 0, whatever moves take away, and the score is lowered by as much.
    """
    shift, slack, own = layer.shift, layer.slack, units
    if not layer.rectified:
        far = [np.abs([move.effect * move.limits[3] for move in moves]).max(axis=0) for moves in groups if moves]
        lift = 1.0 + np.abs(units) + np.sum(far, axis=0)
        own, shift = units + lift, shift - float(layer.weights @ lift)
        slack += 2 * ROUNDED * float(np.abs(layer.weights) @ lift)
    return Hidden(own, layer.weights, shift, score.may - slack, score.sure + slack)


def _hidden(problem: Problem, tolerance: float) -> tuple[DecisionScore | None, SupportsHidden | None]:
    """Return the score that decides, and the structure, where moves of single features can be searched."""
    scorer = problem.scorer
    if scorer is None or len(problem.groups) != len(problem.space):
        return None, None
    structure = scorer.structure
    return scorer.decision_score(tolerance), structure if isinstance(structure, SupportsHidden) else None


def _moves_of(problem: Problem, group: Group, structure: SupportsHidden) -> list[Move] | None:
    """Return the moves of a group of one feature with an interval, or with actions; None: they cannot be told."""
    (column,) = group.columns
    if group.interval is not None and column not in problem.celled:
        effect = structure.slope(column)
        return None if effect is None else _any_step(problem, group, effect)
    if not group.own_allowed:
        return None
    added = structure.effects(column, structure.encode(column, group.actions[:, 0]))
    ids = np.delete(np.arange(len(group.actions)), group.own)
    return _directions(ids, group.cost[ids], added[ids] - added[group.own])


def _room_for(nodes: int, groups: int) -> Nodes:
    chosen, (least, most) = np.empty((nodes, groups), np.int32), np.empty((2, nodes, groups))
    (move, heap, free), (bound, at) = np.empty((3, nodes), np.int64), np.empty((2, nodes))
    return Nodes(chosen, least, most, bound, move, at, heap, free)
