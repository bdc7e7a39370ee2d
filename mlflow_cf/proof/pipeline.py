"""Search, then prove: from rows to verified answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from mlflow_cf.explainers import Candidates, Search
from mlflow_cf.explainers.explainer import Plan
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import Judge
from mlflow_cf.problem import Problem
from mlflow_cf.proof.alone import by_themselves
from mlflow_cf.proof.certify import certify
from mlflow_cf.proof.inquiry import run_proofs
from mlflow_cf.proof.verify import Case, Inquiry, Proved, prove
from mlflow_cf.why_not.blame import contradiction, impossible
from mlflow_cf.words.reasons import NOTHING_WANTED, Uncertified, none_among, stopped
from mlflow_cf.words.result import Status

# An exact search went through everything, one look at every group shows it, or some rules leave no combination.
Evidence = Literal["exhausted", "evident", "contradiction"]


@dataclass(frozen=True, eq=False)
class Answer:
    """What the pipeline says about one row.

    Attributes:
        status, reason: as in an explanation.
        proved: verified counterfactuals, or None.
        plans: the plan of each, if they have plans.
        diagnostics: statistics of the search.
        evidence: how it is known that nothing exists, if it is.
    """

    status: Status
    reason: str
    proved: Proved | None = None
    plans: tuple[Plan, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict)
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Proving:
    """What is done with candidates beside verifying them.

    Attributes:
        polish: whether needless changes are undone.
        certified: whether answers are proved to be the nearest, as far as the budget goes.
        keeps_order: whether answers stay in their explainer's own order.
    """

    polish: bool
    certified: bool
    keeps_order: bool = False


def search(case: Case, search_with: Search, seed: int) -> Answer | Candidates:
    """Search candidates for one row, or say at once why there are none."""
    reason = impossible(case.problem)
    if reason:
        return Answer("infeasible", reason, evidence="evident")
    # one generator per row: an answer does not depend on the rows next to it
    candidates = search_with(case.problem, case.budget, np.random.default_rng(seed))
    _check_plans(case.problem, candidates)
    case.budget.release()
    return candidates


def _check_plans(problem: Problem, candidates: Candidates) -> None:
    """Refuse plans over rows that are none: a reply could not show them."""
    rows = [step.row for plan in candidates.plans or () for step in plan]
    if rows and not problem.space.decode_exactly(np.array(rows))[1].all():
        raise ValueError("a step of a plan leads to what is no row")


def prove_all(
    judge: Judge, space: FeatureSpace, found: Sequence[tuple[Case, Candidates]], proving: Proving
) -> list[Answer | Exception]:
    """Prove the candidates of many rows side by side; an exception stands for the row it ended."""
    proofs = [
        _proof(judge, case, candidates, len(found) - place, proving) for place, (case, candidates) in enumerate(found)
    ]
    results = run_proofs(judge, space, proofs)
    return [
        result if isinstance(result, Exception) else _answer(case, candidates, result)
        for (case, candidates), result in zip(found, results, strict=True)
    ]


def _proof(judge: Judge, case: Case, candidates: Candidates, rows_left: int, proving: Proving) -> Inquiry:
    """Verify, polish and certify as wanted, until the judge also accepts each answer alone."""
    while True:
        proved = yield from _together(judge, case, candidates, rows_left, proving)
        refused = len(case.refused)
        alone = yield from by_themselves(case, proved, judge.model.tolerance)
        if len(case.refused) == refused or case.budget.spent:
            return alone


def _together(judge: Judge, case: Case, candidates: Candidates, rows_left: int, proving: Proving) -> Inquiry:
    """Verify, polish if wanted, and certify if wanted; the judge is asked about many rows together."""
    order = candidates.order if proving.keeps_order else np.arange(len(candidates.rows))
    polish = proving.polish and candidates.plans is None
    proved = yield from prove(case, candidates.rows[order], polish=polish, keeps_order=proving.keeps_order)
    proved = replace(proved, origin=order[proved.origin])
    if not (proving.certified or candidates.certify):
        return proved
    if proving.keeps_order:
        return replace(proved, note=Uncertified("ranked"))
    case.budget.share(rows_left)
    return (yield from certify(case, proved, judge.model.tolerance))


def _answer(case: Case, candidates: Candidates, proved: Proved) -> Answer:
    budget = case.budget
    diagnostics = {**candidates.diagnostics, "cut": budget.cut}
    if len(proved.rows):
        origin = proved.origin.tolist()
        if candidates.costs is not None:
            diagnostics["costs"] = candidates.costs[origin].tolist()
        plans = () if candidates.plans is None else tuple(candidates.plans[position] for position in origin)
        return Answer("found", proved.note.reason if proved.note else "", proved, plans, diagnostics)
    if proved.exhausted:
        return Answer("infeasible", NOTHING_WANTED, diagnostics=diagnostics, evidence="exhausted")
    if budget.cut:
        return Answer("budget", stopped(budget.cut, budget.used), diagnostics=diagnostics)
    reason = contradiction(case.problem)
    if reason:
        return Answer("infeasible", reason, diagnostics=diagnostics, evidence="contradiction")
    return Answer("not_found", none_among(budget.used), diagnostics=diagnostics)
