"""pymoo's NSGA2 over sequences of actions, each followed by itself in Python: what a generation costs that way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import Problem as Pymoo
from pymoo.optimize import minimize

from mlflow_cf.explainers import Candidates
from mlflow_cf.explainers.cscf.possible import Possible, possible
from mlflow_cf.features import Floats
from mlflow_cf.plans.bound_actions import BoundAction
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance, Budget, Problem

POPULATION = 500
GENERATIONS = 3
FAR = 1e6  # objectives of what cannot be done


class Sequences(Pymoo):  # type: ignore[misc]
    """Order keys and value keys to be chosen, as in CSCF section 4; objectives and constraints as there."""

    def __init__(self, problem: Problem, can: Possible) -> None:
        """Set up for one row."""
        self.row, self.can = problem, can
        self.gower = BoundDistance.bind(Distance(0.0, 1.0, 0.0), problem.space)
        super().__init__(n_var=2 * len(can), n_obj=2 + len(can.columns), n_ieq_constr=1, xl=0.0, xu=1.0)

    def _evaluate(self, genes: Floats, out: dict[str, Any], *_: Any, **__: Any) -> None:
        """Follow one sequence after the other; the ends are scored together."""
        objectives, wrong, ends = zip(*(self._followed(one) for one in genes), strict=True)
        states = np.array(ends)
        bad = np.array(wrong) | ~self.row.check(states) | ~self.row.rate(states).favourable
        out["F"], out["G"] = np.array(objectives), bad[:, None].astype(np.float64)

    def _followed(self, genes: Floats) -> tuple[Floats, bool, Floats]:
        """Return the objectives of one sequence, whether something is wrong with it, and where it ends."""
        count, action_model = len(self.can), self.can.action_model
        state, cost, often = self.row.x0[None], 0.0, np.zeros(len(self.row.x0))
        order = [number for number in np.argsort(genes[:count], kind="stable").tolist() if genes[number] <= 0.5]
        for number in order:
            action, value = (
                action_model.actions[number],
                np.array([_value(action_model.actions[number], genes[count + number])]),
            )
            done = action_model.step(number, state, action.outcome(state, value))
            if not done.valid[0]:
                return np.full(self.n_obj, FAR), True, state[0]
            cost += float(np.round(done.effort[0], 4) * done.discount[0])
            often += action_model.changed(done.states, state)[0]
            state = done.states
        columns = np.arange(len(self.row.x0))
        gower = np.round(self.gower.changes(columns, state, self.row.x0).mean(), 2)
        return np.array([cost, gower, *often[self.can.columns]]), not order, state[0]


def _value(action: BoundAction, share: float) -> float:
    """Return the value that a key stands for."""
    if action.choices is None:
        return float(action.low + share * (action.high - action.low))
    return float(action.choices[min(int(share * len(action.choices)), len(action.choices) - 1)])


@dataclass(frozen=True)
class Rival:
    """An explainer that lets NSGA2 run for a few generations, and tells the CPU seconds of one."""

    name: ClassVar[str] = "nsga2"
    polish: ClassVar[bool] = False

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Return nothing but the seconds."""
        del budget
        asked = Sequences(problem, possible(problem, {}, discounts=True))
        seed = int(rng.integers(2**31))
        start = time.process_time()
        minimize(asked, NSGA2(pop_size=POPULATION), ("n_gen", GENERATIONS), seed=seed)
        told = {"generation_cpu": (time.process_time() - start) / GENERATIONS}
        return Candidates(problem.x0[None][:0], told)
