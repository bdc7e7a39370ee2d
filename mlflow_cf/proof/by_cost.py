"""Answers in an explainer's own order: which come first, and what is proved of their costs.

The bound of the least cost is the explainer's, who alone knows what its plans cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import moocore
import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.explainers import Candidates
from mlflow_cf.features import Floats
from mlflow_cf.plans.plan import Plan
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.proof.verify import RowTask, VerifiedAnswers, kinds_of
from mlflow_cf.search.population import near_copies
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Proof


def lined_up(problem: Problem, candidates: Candidates, *, keeps_order: bool) -> tuple[Codes, list[bytes] | None]:
    """Return the order of candidates, and their kinds if these are not their changed sets (plans, near-copies)."""
    order = candidates.order if keeps_order else np.arange(len(candidates.rows))
    rows = candidates.rows[order]
    if problem.variety.near:
        return order, _likenesses(problem, rows)
    if candidates.plans is None or candidates.action_model is None or candidates.costs is None or candidates.as_listed:
        return order, None
    plans = [candidates.plans[at] for at in order.tolist()]
    lots = leading_plans(problem.x0, rows, plans, candidates.costs[order])
    place = np.lexsort([~lot for lot in lots[::-1]])
    kinds, known = kinds_of(problem, rows), set[bytes]()
    leads = np.any(lots, axis=0)
    for at in place.tolist():
        if leads[at] and kinds[at] in known:
            kinds[at] += str(at).encode()
        known.add(kinds[at])
    return order[place], [kinds[at] for at in place.tolist()]


def leading_plans(x0: Floats, rows: Floats, plans: Sequence[Plan], costs: Floats) -> tuple[Bools, Bools, Bools]:
    """Return three masks (m,) of plans: those of the first come first, then those of the second and of the third.

    First those that are cheaper than every plan of no more steps; then those that no other one beats in cost, number
    of steps and number of changed features; then the cheapest of every number of steps. Otherwise a cheap plan of few
    steps hides behind one of more steps that changes the same features.

    Args:
        x0: (d,) where they start.
        rows: (m, d) where they end.
        plans: the plans, the cheapest first.
        costs: (m,) what they cost.
    """
    steps = np.array([len(plan) for plan in plans], dtype=np.intp)
    changed = differing(rows, x0).sum(axis=1)
    cheapest = np.zeros(len(plans), dtype=np.bool_)
    cheapest[np.unique(steps, return_index=True)[1]] = True
    shorter = steps < np.minimum.accumulate(np.append(np.inf, steps))[:-1]
    front = moocore.is_nondominated(np.column_stack([costs, steps, changed])) if len(plans) else cheapest
    return shorter, front, cheapest


def _likenesses(problem: Problem, rows: Floats) -> list[bytes]:
    """Return for each of rows (m, d) the key of the first row that it is a near-copy of, perhaps itself."""
    firsts: list[int] = []
    found: list[bytes] = []
    for at, row in enumerate(rows):
        copies = np.flatnonzero(near_copies(problem, rows[firsts], row))
        if not len(copies):
            firsts.append(at)
        found.append(str(firsts[copies[0]] if len(copies) else at).encode())
    return found


NEARLY: Final = 1e-3  # of a cost: how much cheaper a plan may be than one that is called the cheapest


def certify_by_cost(
    task: RowTask, verified: VerifiedAnswers, candidates: Candidates, tolerance: float
) -> VerifiedAnswers:
    """Return answers with the explainer's proofs about their costs; `optimal` is up to 1e-3 of the cost."""
    if candidates.least_cost is None or candidates.costs is None:
        return replace(verified, note=Uncertified("ranked"))
    if not len(verified.rows):
        return verified
    if task.problem.scorer is None:
        return replace(verified, note=task.obstacle)
    costs = candidates.costs[verified.origin]
    cheapest = int(costs.argmin())
    least = candidates.least_cost(int(verified.origin[cheapest]), task.budget, SCORE_TOLERANCES * tolerance)
    if least.bound is None:
        return replace(verified, note=least.note)
    proofs: list[Proof] = ["bounded"] * len(costs)
    if costs[cheapest] * (1.0 - NEARLY) <= least.bound:
        proofs[cheapest] = "optimal"
    bounds = tuple(min(float(cost), least.bound) for cost in costs)
    return replace(verified, proofs=tuple(proofs), bounds=bounds, note=least.note)
