"""Plans made cheaper: values moved towards the model's boundary, all short sequences of actions tried, steps reordered.

A genetic algorithm may miss short sequences (CSCF section 9, item 8), and what helps comes before what it helps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product
from math import perm
from typing import Final

import numpy as np

from mlflow_cf.explainers.cscf.evaluation import Evaluated, Evaluator
from mlflow_cf.explainers.cscf.possible import Ordered, Possible
from mlflow_cf.features import Floats
from mlflow_cf.plans.kernels import Ints
from mlflow_cf.search.population import row_keys

ROUNDS: Final = 14
TRIES: Final = 24  # of each plan in each round
REACH: Final = 0.15  # how far values go in the first round, as a share of their ranges
SHRINK: Final = 0.55  # of the reach of a plan that no try made cheaper


@dataclass(eq=False)
class Refining:
    """Plans on their way to cheaper ones, and what may become plans; actions and order stay.

    Attributes:
        evaluator: of the row; rng: the only source of chance.
    """

    evaluator: Evaluator
    rng: np.random.Generator

    def run(self, plans: Evaluated, *, any_distance: bool) -> Evaluated:
        """Return plans (m) with cheaper values; where not `any_distance`, none is farther away by Gower's distance."""
        reach = np.full(len(plans), REACH)
        for _ in range(ROUNDS):
            if not len(plans) or self.evaluator.cut:
                break
            better, found = self._round(plans, self._tries(plans, reach), any_distance=any_distance)
            reach[~better] *= SHRINK
            if better.any():
                both = Evaluated.together([plans, *found])
                plans = both.take(np.where(better, len(plans) + better.cumsum() - 1, np.arange(len(plans))))
        return plans

    def _round(self, plans: Evaluated, tries: Ordered, *, any_distance: bool) -> tuple[np.ndarray, list[Evaluated]]:
        """Return (m,) which plans have become cheaper in time, and the cheapest tries of these."""
        better, found, worth = np.zeros(len(plans), dtype=np.bool_), list[Evaluated](), plans.worth
        each = max(1, self.evaluator.at_once // TRIES)
        for start in range(0, len(plans), each):
            if start and self.evaluator.cut:
                break
            some = slice(start, min(start + each, len(plans)))
            tried = self.evaluator.evaluate(tries.take(slice(some.start * TRIES, some.stop * TRIES)))
            cost = tried.worth
            if not any_distance:
                cost[tried.objectives[:, 1] > np.repeat(plans.objectives[some, 1], TRIES)] = np.inf
            cost = cost.reshape(-1, TRIES)
            better[some] = cost.min(axis=1) < worth[some]
            cheapest = cost.argmin(axis=1) + np.arange(0, cost.size, TRIES)
            found.append(tried.take(cheapest[better[some]]))
        return better, found

    def _tries(self, plans: Evaluated, reach: Floats) -> Ordered:
        """Return (m * TRIES) sequences next to the plans."""
        possible, actions = self.evaluator.possible, plans.sequences.actions
        shares = np.repeat(possible.shares(actions, plans.sequences.values), TRIES, axis=0)
        moves = self.rng.standard_normal(shares.shape) * np.repeat(reach, TRIES)[:, None]
        moves *= self.rng.random(shares.shape) < np.where(self.rng.random((len(shares), 1)) < 0.5, 0.5, 1.0)
        actions = np.repeat(actions, TRIES, axis=0)
        values = possible.values(actions, np.clip(shares + moves, 0.0, 1.0))
        return Ordered(actions, np.where(actions >= 0, values, 0.0))


LONGEST: Final = 3
MOST: Final = 600  # sequences
POINTS: Final = (2_048, 12_288, 24_576)  # of all sequences of one, two and three actions together
FEWEST: Final = 5  # values of an action
STARTED: Final = 2  # steps of the sequences that have several
STARTS: Final = 4  # values with which a sequence is refined; those of whole numbers are far apart


def short_plans(evaluator: Evaluator, most: int) -> Evaluated:
    """Return every sequence of at most three actions, with those values of a grid that make it the cheapest plan.

    Where none of them does, it has those with which the model comes nearest to what is wanted. Short ones stand there
    several times, with the next best values. Of longer ones there are none where they would be too many.
    """
    found, total = list[Evaluated](), 0
    for length in range(1, min(most, LONGEST) + 1):
        total += perm(len(evaluator.possible), length)
        if length > 1 and (total > MOST or evaluator.cut):
            break
        found += _of_length(evaluator, length)
    return Evaluated.together(found)


def _of_length(evaluator: Evaluator, length: int) -> list[Evaluated]:
    """Return every sequence of so many actions, with its best values."""
    possible, found = evaluator.possible, list[Evaluated]()
    orders = list(permutations(range(len(possible)), length))
    grids = [(order, _grid(possible, order, POINTS[length - 1] // len(orders))) for order in orders]
    at_once, start = evaluator.at_once, 0
    while start < len(grids) and not (found and evaluator.cut):
        sizes = np.cumsum([len(grid) for _, grid in grids[start:]])
        end = start + max(1, int(np.searchsorted(sizes, at_once, side="right")))
        found.append(_cheapest(evaluator, grids[start:end]))
        start = end
    return found


def _cheapest(evaluator: Evaluator, grids: list[tuple[tuple[int, ...], Floats]]) -> Evaluated:
    actions = np.concatenate([np.tile(order, (len(grid), 1)) for order, grid in grids])
    which = np.repeat(np.arange(len(grids)), [len(grid) for _, grid in grids])
    evaluated = evaluator.evaluate(Ordered(actions, np.concatenate([grid for _, grid in grids])))
    order = np.lexsort((evaluated.worth, which))
    if actions.shape[1] > STARTED:
        _, first = np.unique(which[order], return_index=True)
        return evaluated.take(order[first])
    counts = np.array([evaluator.possible.count(number) for number in range(len(evaluator.possible))])[actions]
    coarse = np.take_along_axis(evaluated.sequences.values, counts.argmin(axis=1)[:, None], axis=1)
    _, first = np.unique(np.column_stack([which, coarse])[order], axis=0, return_index=True)
    best = order[np.sort(first)]  # of every value of the action that has the fewest, sequence after sequence
    _, start, counts = np.unique(which[best], return_index=True, return_counts=True)
    place = np.arange(len(best)) - np.repeat(start, counts)
    return evaluated.take(best[place < STARTS])


def _grid(possible: Possible, order: tuple[int, ...], most: int) -> Floats:
    """Return (m, t) values of these actions, about `most` or fewer: those that have few values leave more to others."""
    sizes = [possible.count(number) for number in order]
    several: list[Floats] = [np.empty(0)] * len(order)
    for done, place in enumerate(np.argsort(sizes).tolist()):
        points = max(int(most ** (1 / (len(order) - done))), FEWEST)
        several[place] = possible.spread(order[place], points)
        most = most // len(several[place])
    return np.array(list(product(*several)))


MOST_BEGUN: Final = 256  # beginnings of a plan that are followed, the cheapest ones: all of up to eight steps
MOST_WALKED: Final = 2**20  # beginnings in all: about a second; plans of eight steps have 16,000 each, of four 250


def reordered(evaluator: Evaluator, plans: Evaluated) -> Evaluated:
    """Return those of the plans that another order of their steps makes cheaper, in their cheapest order.

    Actions keep their values. The genetic algorithm tries orders by chance, and refinement moves values alone: a plan
    that gains before it studies may stay, although study would make the gain cheaper.
    """
    parts, walked = [plans.take(np.arange(0))], 0
    can, lengths = evaluator.possible, plans.lengths
    if not can.action_model.relations.edges and not any(
        action.effects or action.effort is not None or action.before or action.after for action in can.actions
    ):  # what a step costs, does or needs does not depend on the steps before it
        return parts[0]
    for steps in np.unique(lengths[lengths > 1]).tolist():
        some, begun = np.flatnonzero(lengths == steps), min(MOST_BEGUN, 2**steps) * steps
        size = max(1, evaluator.at_once // begun)
        for start in range(0, len(some), size):
            walked += begun * steps * min(size, len(some) - start)
            if evaluator.cut or walked > MOST_WALKED:
                return Evaluated.together(parts)
            parts.append(_cheaper(evaluator, plans.take(some[start : start + size])))
    return Evaluated.together(parts)


def _cheaper(evaluator: Evaluator, plans: Evaluated) -> Evaluated:
    """Return those of plans with equally many steps that become cheaper; none once the budget has ended."""
    steps = int(plans.lengths[0])
    owner, orders = np.arange(len(plans)), np.empty((len(plans), 0), dtype=np.intp)
    for _ in range(steps):
        if evaluator.cut:
            return plans.take(np.arange(0))
        owner, orders = _continued(evaluator, plans.sequences, owner, orders)
    tried = evaluator.evaluate(_in_order(plans.sequences, owner, orders))
    first = np.lexsort((tried.worth, owner))
    first = first[np.unique(owner[first], return_index=True)[1]]
    return tried.take(first[tried.worth[first] < plans.worth[owner[first]]])


def _continued(evaluator: Evaluator, sequences: Ordered, owner: Ints, orders: Ints) -> tuple[Ints, Ints]:
    """Return beginnings of plans with one step more.

    Those of a plan that did the same steps and are in the same state go on alike: the cheapest of them is followed.

    Args:
        evaluator: of the row; sequences: the steps of the plans.
        owner: (m,) whose each beginning is; orders: (m, t) the places of its steps.
    """
    steps = int((sequences.actions[0] >= 0).sum())
    owner, place = np.repeat(owner, steps), np.tile(np.arange(steps), len(owner))
    orders = np.column_stack([np.repeat(orders, steps, axis=0), place])
    fresh = (orders[:, :-1] != place[:, None]).all(axis=1)
    owner, orders = owner[fresh], orders[fresh]
    begun = _in_order(sequences, owner, orders)
    ends = evaluator.walker.walk(begun.actions, begun.values)
    done = np.flatnonzero(ends.valid)
    owner, orders, cost = owner[done], orders[done], ends.cost[done]
    used = np.zeros((len(done), steps))
    np.put_along_axis(used, orders, 1.0, axis=1)
    keys = row_keys(np.column_stack([owner, used, ends.states[done] + 0.0]))
    order = np.lexsort((cost, keys))
    kept = np.sort(order[np.unique(keys[order], return_index=True)[1]])
    owner, orders, cost = owner[kept], orders[kept], cost[kept]
    order = np.lexsort((cost, owner))
    rank = np.arange(len(order)) - np.searchsorted(owner[order], owner[order])
    few = np.sort(order[rank < MOST_BEGUN])
    return owner[few], orders[few]


def _in_order(sequences: Ordered, owner: Ints, orders: Ints) -> Ordered:
    """Return (m) sequences that do some steps of others, at the places `orders` (m, t), and then nothing."""
    shape = (len(owner), sequences.actions.shape[1])
    actions, values = np.full(shape, -1, dtype=np.int64), np.zeros(shape)
    actions[:, : orders.shape[1]] = np.take_along_axis(sequences.actions[owner], orders, axis=1)
    values[:, : orders.shape[1]] = np.take_along_axis(sequences.values[owner], orders, axis=1)
    return Ordered(actions, values)
