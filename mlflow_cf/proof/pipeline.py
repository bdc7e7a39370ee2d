"""Search, then prove: from rows to verified answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlflow_cf.explainers import Candidates, Explainer
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import Judge
from mlflow_cf.proof.certify import certify
from mlflow_cf.proof.verify import Case, Inquiry, Proved, prove, run_proofs
from mlflow_cf.why_not.blame import contradiction, impossible
from mlflow_cf.words.result import Status

NOTHING = "no admissible row is predicted as wanted (proved)"


@dataclass(frozen=True, eq=False)
class Answer:
    """What the pipeline says about one row.

    Attributes:
        status, reason: as in an explanation.
        proved: verified counterfactuals, or None.
        diagnostics: statistics of the search.
    """

    status: Status
    reason: str
    proved: Proved | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)


def search(case: Case, explainer: Explainer, seed: int) -> Answer | Candidates:
    """Search candidates for one row, or say at once why there are none."""
    reason = impossible(case.problem)
    if reason:
        return Answer("infeasible", reason)
    # one generator per row: an answer does not depend on the rows next to it
    candidates = explainer.search(case.problem, case.budget, np.random.default_rng(seed))
    case.budget.release()
    return candidates


def prove_all(
    judge: Judge, space: FeatureSpace, found: Sequence[tuple[Case, Candidates]], *, polish: bool, certified: bool
) -> list[Answer | Exception]:
    """Prove the candidates of many rows side by side; an exception stands for the row it ended.

    With `certified`, answers are also proved to be the nearest, as far as the budget goes.
    """
    proofs = [
        _proof(judge, case, candidates, len(found) - place, (polish, certified or candidates.certify))
        for place, (case, candidates) in enumerate(found)
    ]
    results = run_proofs(judge, space, proofs)
    return [
        result if isinstance(result, Exception) else _answer(case, candidates, result)
        for (case, candidates), result in zip(found, results, strict=True)
    ]


def _proof(judge: Judge, case: Case, candidates: Candidates, rows_left: int, wanted: tuple[bool, bool]) -> Inquiry:
    """Verify, polish if wanted, and certify if wanted."""
    proved = yield from prove(case, candidates.rows, polish=wanted[0])
    if not wanted[1]:
        return proved
    case.budget.share(rows_left)
    return (yield from certify(case, proved, judge.model.tolerance))


def _answer(case: Case, candidates: Candidates, proved: Proved) -> Answer:
    budget = case.budget
    diagnostics = {**candidates.diagnostics, "cut": budget.cut}
    if len(proved.rows):
        return Answer("found", proved.note, proved, diagnostics)
    if proved.exhausted:
        return Answer("infeasible", NOTHING, None, diagnostics)
    if budget.cut:
        limit = "time limit" if budget.cut == "clock" else "evaluation limit"
        reason = f"stopped by the {limit} after {budget.used:,} evaluations"
        return Answer("budget", reason, None, diagnostics)
    reason = contradiction(case.problem)
    if reason:
        return Answer("infeasible", reason, None, diagnostics)
    return Answer("not_found", f"no counterfactual among {budget.used:,} rows tried", None, diagnostics)
