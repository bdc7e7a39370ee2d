"""Values of plans moved towards the model's boundary, so that no plan is needlessly expensive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.explainers.cscf.evaluation import Evaluated, Evaluator
from mlflow_cf.explainers.cscf.genes import Ordered
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
            tried = self.evaluator.evaluate(self._tries(plans, reach))
            better, cheapest = self._better(plans, tried, any_distance=any_distance)
            reach[~better] *= SHRINK
            if better.any():
                both = Evaluated.together([plans, tried])
                plans = both.take(np.where(better, len(plans) + cheapest, np.arange(len(plans))))
        return plans

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
