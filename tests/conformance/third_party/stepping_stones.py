"""An explainer that another package brings: it learns where favourable rows are, and plans steps that lead there."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, StrictInt

from mlflow_cf import InputError
from mlflow_cf.explainers import Candidates, Facts, Learned, PlannedStep, Search
from mlflow_cf.problem import Budget, Problem

MOST = 50  # answers


@dataclass(frozen=True)
class SteppingStones:
    """Plans towards favourable rows of the background: what tells them apart changes first; the cheapest plan wins.

    A step costs what it adds to the distance, and a tenth less for every step before it.

    Attributes:
        stones: how many favourable rows to head for.
    """

    stones: int = 12

    name: ClassVar[str] = "stepping_stones"
    polish: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = True
    by_request: ClassVar[Mapping[str, Any]] = {"stones": Annotated[StrictInt, Field(ge=1, le=40)]}

    def check(self, _facts: Facts, count: int) -> None:
        if count > MOST:
            raise InputError("count", f"{count} is more than {MOST}", "ask for less")

    def learn(self, facts: Facts) -> Learned:
        favourable = facts.target.rate(facts.outcome).favourable
        rows = facts.background[favourable]
        order = np.random.default_rng(facts.seed).permutation(len(rows))[: self.stones]
        weight = [_difference(column[favourable], column[~favourable]) for column in facts.background.T]
        return Learned({"stones": rows[order], "weight": np.array(weight)}, {"favourable": int(favourable.sum())})

    def bound(self, learned: Learned) -> Search:
        return partial(_search, learned.arrays["stones"], learned.arrays["weight"])


def _difference(ours: np.ndarray, others: np.ndarray) -> float:
    """Return how much more often the commonest value of some is theirs."""
    if not len(ours) or not len(others):
        return 0.0
    values, counts = np.unique(ours, return_counts=True)
    return float(counts.max() / len(ours) - (others == values[counts.argmax()]).mean())


def _search(
    stones: np.ndarray, weight: np.ndarray, problem: Problem, budget: Budget, rng: np.random.Generator
) -> Candidates:
    found: dict[bytes, tuple[float, tuple[PlannedStep, ...]]] = {}
    for stone in stones:
        for cost, plan in _plans(problem, stone, weight):
            row = plan[-1].row.tobytes()
            if row not in found or cost < found[row][0]:
                found[row] = cost, plan
    if not found:
        return Candidates(np.empty((0, len(problem.space))))
    costs, plans = zip(*found.values(), strict=True)
    rows = np.array([plan[-1].row for plan in plans])
    kept = np.flatnonzero(problem.check(rows))
    kept = kept[: budget.take(len(kept))]
    if len(kept):
        kept = kept[problem.rate(rows[kept]).favourable]
    return Candidates(rows[kept], plans=tuple(plans[number] for number in kept), costs=np.array(costs)[kept])


def _plans(problem: Problem, stone: np.ndarray, weight: np.ndarray):
    """Yield the cost and the steps of every beginning of the way to a stone."""
    row, cost, plan = problem.x0, 0.0, ()
    differs = problem.changed(stone[None, :])[0]
    groups = sorted(np.flatnonzero(differs), key=lambda number: -weight[list(problem.groups[number].columns)].max())
    for number in groups:
        columns = list(problem.groups[number].columns)
        after = row.copy()
        after[columns] = stone[columns]
        effort = float(problem.bound_distance.distance(problem.columns, after[None], row)[0])
        discount = max(1 - 0.1 * len(plan), 0.0)
        names = " and ".join(problem.space.names[column] for column in columns)
        row, cost, plan = (
            after,
            cost + effort * discount,
            (*plan, PlannedStep(f"change {names}", effort, discount, after)),
        )
        yield cost, plan
