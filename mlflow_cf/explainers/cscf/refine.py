"""Plans made cheaper: values moved towards the model's boundary, and all short sequences of actions tried.

A genetic algorithm may miss short sequences (CSCF section 9, item 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product
from math import perm
from typing import Final

import numpy as np

from mlflow_cf.explainers.cscf.evaluation import Evaluated, Evaluator
from mlflow_cf.explainers.cscf.genes import Ordered
from mlflow_cf.explainers.cscf.possible import Possible
from mlflow_cf.features import Floats

ROUNDS: Final = 14
TRIES: Final = 24  # of each plan in each round
SHRINK: Final = 0.55  # of the reach of a plan that no try made cheaper


@dataclass(eq=False)
class Refining:
    """Plans on their way to cheaper ones, and what may become plans; actions and order stay.

    Attributes:
        evaluator: of the row; rng: the only source of chance.
        reach: how far values go in the first round, as a share of their ranges.
    """

    evaluator: Evaluator
    rng: np.random.Generator
    reach: float = 0.15

    def run(self, plans: Evaluated, *, any_distance: bool) -> Evaluated:
        """Return plans (m) with cheaper values; where not `any_distance`, none is farther away by Gower's distance."""
        reach = np.full(len(plans), self.reach)
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
        better, found = np.zeros(len(plans), dtype=np.bool_), list[Evaluated]()
        each = max(1, self.evaluator.at_once // TRIES)
        for start in range(0, len(plans), each):
            if start and self.evaluator.cut:
                break
            some = np.arange(start, min(start + each, len(plans)))
            tried = self.evaluator.evaluate(tries.take(np.arange(some[0] * TRIES, (some[-1] + 1) * TRIES)))
            better[some], cheapest = self._better(plans.take(some), tried, any_distance=any_distance)
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

    def _better(self, plans: Evaluated, tried: Evaluated, *, any_distance: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return (m,) which plans have become cheaper, and the position of the try that is cheapest."""
        cost = tried.worth
        if not any_distance:
            farther = tried.objectives[:, 1] > np.repeat(plans.objectives[:, 1], TRIES)
            cost[farther] = np.inf
        cost = cost.reshape(len(plans), TRIES)
        cheapest = cost.argmin(axis=1)
        rows = np.arange(len(plans))
        return cost[rows, cheapest] < plans.worth, rows * TRIES + cheapest


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
    possible, found = evaluator.possible, list[Evaluated]()
    length, total = 1, 0
    while length <= min(most, LONGEST) and (length == 1 or not evaluator.cut):
        total += perm(len(possible), length)
        if length > 1 and total > MOST:
            break
        found += _of_length(evaluator, length)
        length += 1
    return Evaluated.together(found)


def _of_length(evaluator: Evaluator, length: int) -> list[Evaluated]:
    """Return every sequence of so many actions, with its best values."""
    possible, found = evaluator.possible, list[Evaluated]()
    orders = list(permutations(range(len(possible)), length))
    grids = [(order, _grid(possible, order, POINTS[length - 1] // len(orders))) for order in orders]
    at_once, start = evaluator.at_once, 0
    while start < len(grids) and not (found and evaluator.cut):
        size, end = 0, start
        while end < len(grids) and (end == start or size + len(grids[end][1]) <= at_once):
            size += len(grids[end][1])
            end += 1
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
    coarse = _coarse(evaluator.possible, evaluated.sequences)
    _, first = np.unique(np.column_stack([which, coarse])[order], axis=0, return_index=True)
    best = order[np.sort(first)]  # of every value of the action that has the fewest, sequence after sequence
    _, start, counts = np.unique(which[best], return_index=True, return_counts=True)
    place = np.arange(len(best)) - np.repeat(start, counts)
    return evaluated.take(best[place < STARTS])


def _coarse(possible: Possible, sequences: Ordered) -> Floats:
    """Return the value (m,) of that action of each sequence which has the fewest values."""
    counts = np.array([possible.count(number) for number in range(len(possible))])[sequences.actions]
    return np.take_along_axis(sequences.values, counts.argmin(axis=1)[:, None], axis=1)[:, 0]


def _grid(possible: Possible, order: tuple[int, ...], most: int) -> Floats:
    """Return (m, t) values of these actions, about `most` or fewer: those that have few values leave more to others."""
    sizes = [possible.count(number) for number in order]
    several: list[Floats] = [np.empty(0)] * len(order)
    for done, place in enumerate(np.argsort(sizes).tolist()):
        points = max(int(most ** (1 / (len(order) - done))), FEWEST)
        several[place] = possible.spread(order[place], points)
        most = most // len(several[place])
    return np.array(list(product(*several)))
