"""A lower bound on the cost of plans of few steps: best first over sequences of actions and boxes of their values.

A box is given up if a step cannot be done in it, if the structure's bounds show that no row in it meets the target, or
if it costs at least as much as the best known plan. Others are halved; cheaper plans that lie in them are offered, and
those that are accepted become the best known one.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations, product
from operator import itemgetter
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.cscf.evaluation import Evaluator
from mlflow_cf.explainers.explainer import CheaperPlan, LeastCost, LeastCostProof
from mlflow_cf.features import Floats
from mlflow_cf.goal.scorer import Scorer
from mlflow_cf.plans.bound_actions import BoundAction
from mlflow_cf.plans.boxes import BoxWalker, UnboundedError
from mlflow_cf.plans.kernels import Ints
from mlflow_cf.plans.plan import Plan
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.structures.capabilities import ends_of, parts_of
from mlflow_cf.structures.layers.columns import NotOpenedError
from mlflow_cf.structures.parts import Dense, Number
from mlflow_cf.structures.structure import Encoded, Structure
from mlflow_cf.words.reasons import Uncertified


@dataclass(frozen=True, eq=False)
class Reachable:
    """The bounds of a structure on boxes around one row.

    Attributes:
        problem: the row; scorer: of the opened model.
        doubt: how far its sums may be from the model's, in units of max(1, |sum|).
    """

    problem: Problem
    scorer: Scorer
    doubt: float
    _values: dict[int, Floats] = field(default_factory=dict)
    _structures: dict[tuple[int, ...], Structure] = field(default_factory=dict)

    def bounded(self, columns: Sequence[int]) -> bool:
        """Return whether bounds over intervals of these columns hold: numbers are cut into cells, or enter linearly."""
        uncut = [column for column in columns if column in self._cuts and self._cuts[column] is None]
        if not uncut:
            return True
        try:
            parts = parts_of(self.scorer.structure)
        except NotOpenedError:
            return False
        if len(parts) != 1 or not isinstance(parts[0], Dense):
            return False
        return all(isinstance(entry, Number) for column in uncut for entry in parts[0].entries[column])

    def may_be_wanted(self, columns: Sequence[int], low: Floats, high: Floats) -> Bools:
        """Return (m,) in which boxes (m, d) a row may meet target and domains; only `columns` are not the row's own."""
        low, high = low.copy(), high.copy()
        for column in columns:
            low[:, column], high[:, column] = self._within(column, low[:, column], high[:, column])
        possible: Bools = np.all(low[:, columns] <= high[:, columns], axis=1)
        structure = self._structures.get(tuple(columns))
        if structure is None:
            row = [encoded[0] for encoded in self.problem.encoded_row]
            structure = self._structures[tuple(columns)] = self.scorer.structure.restrict(row, columns)
        for at in np.flatnonzero(possible).tolist():
            allowed = [self._encoded_values(column, low[at, column], high[at, column]) for column in columns]
            ends = structure.bounds(allowed)
            cannot = self.scorer.upper_bound(ends[0][None], ends[1][None], self.doubt) < 0  # not where it is no number
            possible[at] = not cannot[0]
        return possible

    def met(self, states: Floats) -> tuple[Bools, Bools]:
        """Return (m,) which states (m, d) may meet the target, and which certainly do."""
        sums = self.scorer.structure.sums(self.scorer.encoded(range(states.shape[1]), states))
        return self.scorer.decisions(sums, self.doubt)

    def _within(self, column: int, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return the ends (m,) of what an answer may have between these ends; in the wrong order if that is nothing."""
        group, own = self.problem.groups[self.problem.owner[column]], self.problem.x0[column]
        if group.interval is not None:
            least, most = np.nanmin([group.interval[0], own]), np.nanmax([group.interval[1], own])
            return np.maximum(low, least), np.minimum(high, most)
        values = self._values.get(column)
        if values is None:
            values = np.unique(group.actions[:, group.columns.index(column)])
            values = self._values[column] = values[~np.isnan(values)]  # the row's own among them
        first = np.append(values, np.inf)[np.searchsorted(values, low)]
        last = np.append(-np.inf, values)[np.searchsorted(values, high, side="right")]
        return first, last

    def _encoded_values(self, column: int, low: float, high: float) -> Encoded:
        """Return the encoded values of all values between two ends, or of as few as bound them."""
        if column not in self._cuts:
            values = np.arange(np.ceil(low), np.floor(high) + 1)
        elif (ends := self._cuts[column]) is None:
            values = np.array([low, high])
        else:
            values = np.append(ends[np.searchsorted(ends, low) : np.searchsorted(ends, high)], high)
        return self.scorer.structure.encode(column, values)

    @cached_property
    def _cuts(self) -> dict[int, Floats | None]:
        """Where the model cuts each number into cells; None where it does not."""
        features = self.problem.space.features
        return {n: ends_of(self.scorer.structure, n) for n, feature in enumerate(features) if feature.numeric}


LONGEST: Final = 3  # steps of the plans that are looked at
AT_ONCE: Final = 64  # boxes of one sequence
NARROWEST: Final = 1e-9  # of a range: boxes are halved no further
MOST_VALUES: Final = 100_000  # of a number on a grid
LOOKED_INTO: Final = 16  # of these, the cheapest: are there plans at their corners?
NEARLY: Final = 0.9e-3  # of a cost: boxes that might be so much cheaper are left out; see `proof.by_cost`


def least_cost(
    evaluator: Evaluator, longest: int, known: Plan, cost: float, budget: Budget, doubt: float
) -> LeastCostProof:
    """Prove what plans of few steps cost at least, and offer cheaper ones than the known.

    Args:
        evaluator: of the row, which was opened.
        longest: most steps that plans may have.
        known: the cheapest plan that is known, no step if none is; cost: what it costs, inf.
        budget: what it may cost; a box counts as a row.
        doubt: how far the structure's sums may be from the model's, in units of max(1, |sum|).
    """
    scorer, steps = evaluator.problem.scorer, min(longest, LONGEST)
    if scorer is None:
        return LeastCost(None, Uncertified("unopened"))
    if len(known) > steps:
        return LeastCost(None, Uncertified("steps", str(steps)))
    reachable = Reachable(evaluator.problem, scorer, doubt)
    if not reachable.bounded(evaluator.possible.columns.tolist()):
        return LeastCost(None, Uncertified("not_exact"))
    try:
        bound = yield from Floor(evaluator, reachable, cost, budget).least(steps)
    except UnboundedError:
        return LeastCost(None, Uncertified("functions"))
    return LeastCost(bound, Uncertified("longer", str(steps)) if longest > steps else None)


@dataclass(eq=False)
class Floor:
    """The boxes that may hold a cheaper plan than what is known, by what they cost at least.

    Attributes:
        evaluator: of the row; reachable: what the structure says of boxes.
        known: what the best known plan costs; budget: of boxes.
    """

    evaluator: Evaluator
    reachable: Reachable
    known: float
    budget: Budget
    _waiting: dict[tuple[int, ...], list[tuple[float, int, Floats, Floats]]] = field(default_factory=dict)
    _settled: float = np.inf  # the least cost of boxes that are halved no further

    def __post_init__(self) -> None:
        self._possible = self.evaluator.possible
        self._enough = self.known * (1.0 - NEARLY)
        self._walker = BoxWalker(self._possible.action_model, self.evaluator.problem.x0, self.evaluator.walker.unit)
        self._count = 0
        self._agreed = True  # whether all plans that the structure was sure of were accepted

    def least(self, most: int) -> Generator[CheaperPlan, bool | None, float]:
        """Return what plans of at most so many steps cost at least, as far as the budget allows to tell.

        It is no more than what is known, less what makes no difference.
        """
        for length in range(1, most + 1):
            for order in permutations(range(len(self._possible)), length):
                if self.budget.late:
                    return 0.0
                low, high = self._ends[list(order)].T
                self._add(order, low[None], high[None])
        while True:
            order, least = min(
                ((order, boxes[0][0]) for order, boxes in self._waiting.items()),
                key=itemgetter(1),
                default=((), np.inf),
            )
            if least >= self._enough or not (yield from self._halve(order)):
                return max(min(least, self._settled, self._enough), 0.0)

    @cached_property
    def _ends(self) -> Floats:
        """(n, 2) the least and the largest value of every action, or the places of those it chooses among."""
        ends = np.column_stack([self._possible.low, self._possible.low + self._possible.width])
        for number, choices in enumerate(self._choices):
            if choices is not None:
                ends[number] = 0.0, len(choices) - 1.0
        return ends

    @cached_property
    def _choices(self) -> list[Floats | None]:
        """What every action chooses among; a number on a grid has few values, too."""
        return [
            action.choices if action.choices is not None else self._steps(action) for action in self._possible.actions
        ]

    def _steps(self, action: BoundAction) -> Floats | None:
        action_model, own = self._possible.action_model, self.evaluator.problem.x0[[action.column]]
        feature = action_model.space.features[action.column]
        step = feature.step
        if step is None or not (action_model.snapped(action.column, own) == own).all():
            return None
        anchor = 0.0 if action.kind == "change" else feature.low
        first, last = (np.round((end - anchor) / step) for end in (action.low, action.high))
        return anchor + step * np.arange(first, last + 1) if last - first < MOST_VALUES else None

    def _halve(self, order: tuple[int, ...]) -> Generator[CheaperPlan, bool | None, bool]:
        """Halve the cheapest boxes of a sequence; return whether the budget allowed it."""
        waiting = self._waiting[order]
        taken = [heapq.heappop(waiting) for _ in range(min(AT_ONCE, len(waiting)))]
        if not waiting:
            del self._waiting[order]
        granted = self.budget.take(2 * len(taken))
        if granted < 2 * len(taken):
            self._waiting[order] = sorted([*taken, *waiting])
            return False
        low, high = (np.array([box[side] for box in taken]) for side in (2, 3))
        yield from self._look_into(order, low[:LOOKED_INTO], high[:LOOKED_INTO])
        widths = (high - low) / np.maximum(np.diff(self._ends[list(order)].T, axis=0), 1e-300)
        narrow = widths.max(axis=1) <= NARROWEST
        yield from self._settle(order, low[narrow], high[narrow], np.array([box[0] for box in taken])[narrow])
        if not narrow.all():
            low, high, widest = low[~narrow], high[~narrow], widths[~narrow].argmax(axis=1)
            at = np.arange(len(low)), widest
            middle = (low[at] + high[at]) / 2
            chosen = np.array([self._choices[number] is not None for number in order])[widest]
            first_high, second_low = high.copy(), low.copy()
            first_high[at] = np.where(chosen, np.floor(middle), middle)
            second_low[at] = np.where(chosen, np.floor(middle) + 1, middle)
            self._add(order, np.concatenate([low, second_low]), np.concatenate([first_high, high]))
        return True

    def _settle(
        self, order: tuple[int, ...], low: Floats, high: Floats, cost: Floats
    ) -> Generator[CheaperPlan, bool | None, None]:
        """Note what boxes (m, t) cost at least that are halved no further, unless all they have is what is no plan."""
        if not len(low):
            return
        if any(self._choices[number] is None for number in order):
            self._settled = min([self._settled, *cost.tolist()])
            return
        values, _ = self._values(order, low, high)  # a box is a single sequence of values
        states, costs, at = self._cheaper(order, values)
        may = np.flatnonzero(self.reachable.met(states)[0])
        for one in may[np.argsort(costs[may], kind="stable")].tolist():
            if costs[one] >= self._enough or (yield from self._offered(order, values[at[one]], costs[one])) is None:
                self._settled = min(self._settled, float(costs[one]))

    def _look_into(
        self, order: tuple[int, ...], low: Floats, high: Floats
    ) -> Generator[CheaperPlan, bool | None, None]:
        """Offer the cheapest plan among the corners and middles of boxes (m, t), where the structure is sure of one."""
        if not self._agreed:
            return
        shares = np.array([*product((0.0, 1.0), repeat=len(order)), [0.5] * len(order)])
        points = (low[:, None] + shares * (high - low)[:, None]).reshape(-1, len(order))
        chosen = [self._choices[number] is not None for number in order]
        points[:, chosen] = np.floor(points[:, chosen])
        values, _ = self._values(order, points, points)
        states, costs, at = self._cheaper(order, values)
        _, first = np.unique(states, axis=0, return_index=True)
        first = first[: self.budget.take(len(first))]
        sure = first[self.reachable.met(states[first])[1]]
        if len(sure):
            cheapest = int(sure[costs[sure].argmin()])
            accepted = yield from self._offered(order, values[at[cheapest]], costs[cheapest])
            self._agreed = accepted is True

    def _cheaper(self, order: tuple[int, ...], values: Floats) -> tuple[Floats, Floats, Ints]:
        """Return ends, costs and positions of those sequences of values (m, t) that are lawful and cheap enough."""
        ends = self.evaluator.walker.walk(np.tile(order, (len(values), 1)), values)
        at = np.flatnonzero(ends.valid & (ends.cost < self._enough))
        at = at[self.evaluator.problem.check(ends.states[at])]
        return ends.states[at], ends.cost[at], at

    def _offered(
        self, order: tuple[int, ...], values: Floats, cost: float
    ) -> Generator[CheaperPlan, bool | None, bool | None]:
        """Offer a plan; if it is accepted, others have to be cheaper than this one."""
        plan = self.evaluator.walker.plan(np.array(order), values)
        accepted = yield CheaperPlan(plan, float(cost))
        if accepted:
            self.known = float(cost)
            self._enough = self.known * (1.0 - NEARLY)
        return accepted

    def _add(self, order: tuple[int, ...], low: Floats, high: Floats) -> None:
        """Keep those boxes (m, t) that may hold a cheaper plan."""
        reached = self._walker.walk(order, *self._values(order, low, high))
        kept = np.flatnonzero(reached.possible & (reached.cost < self._enough))
        columns = sorted({column for number in order for column in self._possible.actions[number].columns})
        kept = kept[self.reachable.may_be_wanted(columns, reached.states.low[kept], reached.states.high[kept])]
        boxes = self._waiting.setdefault(order, [])
        for at in kept.tolist():
            self._count += 1
            heapq.heappush(boxes, (float(reached.cost[at]), self._count, low[at], high[at]))
        if not boxes:
            del self._waiting[order]

    def _values(self, order: tuple[int, ...], low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return the values at the ends of boxes; of those to choose from, the least and the largest."""
        low, high = low.copy(), high.copy()
        for place, number in enumerate(order):
            choices = self._choices[number]
            if choices is None:
                continue
            parts = [choices[int(a) : int(b) + 1] for a, b in zip(low[:, place], high[:, place], strict=True)]
            low[:, place] = [part.min() for part in parts]
            high[:, place] = [part.max() for part in parts]
        return low, high
