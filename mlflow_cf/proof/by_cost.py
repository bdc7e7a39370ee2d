"""Answers in an explainer's own order: which come first, and what is proved of their costs.

The bound of the least cost is the explainer's, who alone knows what its plans cost.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final

import moocore
import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.explainers import Candidates
from mlflow_cf.explainers.explainer import CheaperPlan, LeastCost
from mlflow_cf.features import Floats
from mlflow_cf.model.judge import Asked, Outcome
from mlflow_cf.plans.plan import Plan
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.proof.verify import (
    RowTask,
    VerifiedAnswers,
    by_themselves,
    joined_outcomes,
    kinds_of,
    select,
    verify_rows,
)
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
) -> Generator[Asked, Outcome, tuple[Candidates, VerifiedAnswers]]:
    """Return answers with the explainer's proofs about their costs, or that there is none; `optimal` up to 1e-3 of it.

    Cheaper plans that the proof finds are verified; the last one accepted is the first answer, and a candidate.
    """
    if candidates.least_cost is None or candidates.costs is None or candidates.plans is None:
        return candidates, replace(verified, note=Uncertified("ranked"))
    if task.problem.scorer is None:
        return candidates, replace(verified, note=task.obstacle)
    known: Plan = ()
    cost = np.inf
    if len(verified.rows):
        cheapest = int(verified.origin[candidates.costs[verified.origin].argmin()])
        known, cost = candidates.plans[cheapest], float(candidates.costs[cheapest])
    proof = candidates.least_cost(known, cost, task.budget, SCORE_TOLERANCES * tolerance)
    best: tuple[CheaperPlan, VerifiedAnswers] | None = None
    said: bool | None = None  # what a generator that starts is sent, too
    while True:
        try:
            offered = proof.send(said)
        except StopIteration as end:
            least: LeastCost = end.value
            break
        found = yield from _verified_end(task, offered)
        said = None if found is None else len(found.rows) > 0
        best = (offered, found) if found is not None and said else best
    if best is not None:
        candidates, verified = _with_cheaper(task, candidates, verified, *best)
    return candidates, _with_proofs(verified, candidates, least)


def _verified_end(task: RowTask, offered: CheaperPlan) -> Generator[Asked, Outcome, VerifiedAnswers | None]:
    """Return the verified end of a plan, nothing if it is refused; None: the judge cannot be asked about all of it."""
    steps = np.array([step.row for step in offered.plan])
    if task.budget.left < 2 or not task.problem.space.decode_exactly(steps)[1].all():  # in a table, and alone
        return None
    found = yield from verify_rows(task, steps[-1:], polish=False)
    return (yield from by_themselves(task, found))


def _with_cheaper(
    task: RowTask, candidates: Candidates, verified: VerifiedAnswers, offered: CheaperPlan, found: VerifiedAnswers
) -> tuple[Candidates, VerifiedAnswers]:
    """Return candidates and answers with a plan that is cheaper than all of them, as the first."""
    if candidates.plans is None or candidates.costs is None:
        return candidates, verified
    plans, costs = (offered.plan, *candidates.plans), np.append(offered.cost, candidates.costs)
    more = replace(candidates, rows=np.concatenate([found.rows, candidates.rows]), plans=plans, costs=costs)
    origin = np.append(0, verified.origin + 1)
    rows = np.concatenate([found.rows, verified.rows])
    some = replace(more, rows=rows, plans=tuple(plans[at] for at in origin.tolist()), costs=costs[origin])
    order, kinds = lined_up(task.problem, some, keeps_order=True)
    kept = order[select(task.problem, rows[order], np.arange(len(rows)), kinds)]
    outcome = joined_outcomes([found.outcome, verified.outcome]).take(kept)
    return more, VerifiedAnswers(rows[kept], outcome, origin=origin[kept])


def _with_proofs(verified: VerifiedAnswers, candidates: Candidates, least: LeastCost) -> VerifiedAnswers:
    """Return answers with what is proved of their costs."""
    if least.bound is None or candidates.costs is None:
        return replace(verified, note=least.note)
    if not len(verified.rows):
        return replace(verified, note=least.note, exhausted=np.isinf(least.bound) and least.note is None)
    costs = candidates.costs[verified.origin]
    cheapest = int(costs.argmin())
    proofs: list[Proof] = ["bounded"] * len(costs)
    if costs[cheapest] * (1.0 - NEARLY) <= least.bound:
        proofs[cheapest] = "optimal"
    bounds = tuple(min(float(cost), least.bound) for cost in costs)
    return replace(verified, proofs=tuple(proofs), bounds=bounds, note=least.note)
