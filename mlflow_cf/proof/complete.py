"""Answers that a search has missed: with other changed sets first, then other values of the same ones.

Also certificates of explainers that rank answers by cost, from the bound of the least cost that they prove themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from mlflow_cf.engine.best_first import BestFirst
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.explainers import Candidates
from mlflow_cf.proof.certify import Certification, certify, nearest_of_sets
from mlflow_cf.proof.neighbours import beside_them
from mlflow_cf.proof.verify import Inquiry, RowTask, VerifiedAnswers
from mlflow_cf.search.seeds import codes_of
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Proof

MOST: Final = 10_000, 100_000  # evaluations for each of both: a quarter of a second, and where that is too few


def complete(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Look for answers that are missing beside verified ones, as far as the budget goes; nothing is claimed of them.

    Args:
        task: the row, with an opened model.
        verified: verified answers, at least one and fewer than are wanted.
        tolerance: how far the structure's scores may be from the model's.
    """
    if task.problem.scorer is None or not task.engine.exact:
        return verified
    for most in MOST:
        part = task.budget.part(most)
        found: VerifiedAnswers = yield from certify(replace(task, budget=part), verified, tolerance)
        task.budget.take(part.used)
        if len(found.rows) >= len(verified.rows):
            verified = replace(found, proofs=(), bounds=(), note=None)
        if found.note or verified.exhausted or len(verified.rows) >= task.problem.count or task.budget.spent:
            break
        verified = yield from filled(task, verified, tolerance, most)
        if len(verified.rows) >= task.problem.count or task.budget.spent:
            break
    return verified


def nearest_ones(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Put the nearest answers that a search may have missed in the place of verified ones, as far as the budget goes.

    The nearest k answers only have changed sets whose own nearest answer is among the k nearest of distinct sets.
    """
    if task.problem.scorer is None or not task.engine.exact:
        return (yield from beside_them(task, verified))
    found = yield from nearest_of_sets(task, verified, tolerance)
    found = replace(found, proofs=(), bounds=(), exhausted=False)
    return found if task.engine.problem is task.problem else (yield from beside_them(task, found))


def filled(task: RowTask, verified: VerifiedAnswers, tolerance: float, most: int) -> Inquiry:
    """Add answers that change the same features to other values, by `most` evaluations."""
    problem = task.engine.problem
    codes = codes_of(problem, verified.rows)
    if len(codes) < len(verified.rows):
        return verified
    part = task.budget.part(most)
    outcomes = [verified.outcome.take(slice(at, at + 1)) for at in range(len(verified.rows))]
    inner = replace(task, budget=part)
    needed = np.ones(len(verified.rows), dtype=np.bool_)
    run = Certification(inner, verified, needed, True, list(verified.rows), list(codes), outcomes)
    search = BestFirst(task.engine, part, np.inf, tolerance, codes != problem.own)
    agreed = yield from run.extend(search)
    task.budget.take(part.used)
    return replace(run.result(search), proofs=(), bounds=(), exhausted=False) if agreed else verified


NEARLY: Final = 1e-3  # of a cost: how much cheaper a plan may be than one that is called the cheapest


def certify_by_cost(
    task: RowTask, verified: VerifiedAnswers, candidates: Candidates, tolerance: float
) -> VerifiedAnswers:
    """Return answers with the explainer's proofs about their costs; `optimal` is up to 1e-3 of the cost.

    Args:
        task: the row, with the budget that is left.
        verified: verified answers.
        candidates: what they come from.
        tolerance: how far the structure's scores may be from the model's.
    """
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
