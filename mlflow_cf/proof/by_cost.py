"""Certificates of explainers that rank answers by what they cost: what they themselves can prove of the cheapest."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mlflow_cf.exact.best_first import DOUBT
from mlflow_cf.explainers import Candidates
from mlflow_cf.proof.verify import Case, Proved
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Proof

NEARLY: Final = 1e-3  # of a cost: how much cheaper a plan may be than one that is called the cheapest


def certify_by_cost(case: Case, proved: Proved, candidates: Candidates, tolerance: float) -> Proved:
    """Return answers with what the explainer proves of their costs; `optimal` is up to 1e-3 of the cost.

    Args:
        case: the row, with the budget that is left.
        proved: verified answers.
        candidates: what they come from.
        tolerance: how far the structure's scores may be from the model's.
    """
    if candidates.least_cost is None or candidates.costs is None:
        return replace(proved, note=Uncertified("ranked"))
    if not len(proved.rows):
        return proved
    if case.problem.rater is None:
        return replace(proved, note=case.obstacle)
    costs = candidates.costs[proved.origin]
    cheapest = int(costs.argmin())
    least = candidates.least_cost(int(proved.origin[cheapest]), case.budget, DOUBT * tolerance)
    if least.bound is None:
        return replace(proved, note=least.note)
    proofs: list[Proof] = ["bounded"] * len(costs)
    if costs[cheapest] * (1.0 - NEARLY) <= least.bound:
        proofs[cheapest] = "optimal"
    bounds = tuple(min(float(cost), least.bound) for cost in costs)
    return replace(proved, proofs=tuple(proofs), bounds=bounds, note=least.note)
