"""Answers judged alone, so that their numbers do not depend on the other rows of a call.

Libraries that multiply matrices round a row differently in tables of different sizes. So the numbers of an answer are
those of the row alone. Models of trees predict the same in any table. Other opened models need no further call: their
structure gives the scores of the row alone, within the checked tolerance. All others are asked again, row by row.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.raw_scores import rate_sums
from mlflow_cf.model.judge import Asked, AskedAlone, Outcome
from mlflow_cf.problem import Problem
from mlflow_cf.proof.verify import RowTask, VerifiedAnswers, joined_outcomes
from mlflow_cf.structures.capabilities import is_steady
from mlflow_cf.structures.links import Encoded, linked


def by_themselves(
    task: RowTask, verified: VerifiedAnswers, tolerance: float
) -> Generator[Asked, Outcome, VerifiedAnswers]:
    """Return answers with the predictions of each alone; those refused alone are left out, and noted in `task`.

    Args:
        task: the row that is explained.
        verified: its answers, judged together with other rows.
        tolerance: how far a structure's scores may be from the model's.
    """
    scorer = task.problem.scorer or (task.problem.partial if task.steady else None)
    if not len(verified.rows) or (scorer is not None and is_steady(scorer.structure)):
        return verified
    if scorer is not None:
        sums = [scorer.structure.sums(_encoded_values(task.problem, scorer, row)) for row in verified.rows]
        if all(_certain(scorer, alone, tolerance) for alone in sums):
            return verified if is_steady(scorer.own) else _with(verified, [_said(scorer, alone) for alone in sums])
    if task.budget.take(len(verified.rows)) < len(verified.rows):
        return verified
    outcome = yield AskedAlone(verified.rows, lambda: task.budget.late)
    said = len(outcome.codes)
    if said < len(verified.rows):  # the clock ran out: the others stay as they were judged together
        rest = verified.outcome.take(np.arange(said, len(verified.rows)))
        outcome = joined_outcomes([outcome, rest]) if said else rest
    accepted = task.meets(outcome)
    task.refused.update(row.tobytes() for row in verified.rows[~accepted])
    return _some(verified, outcome, np.flatnonzero(accepted))


def _encoded_values(problem: Problem, scorer: Scorer, row: Floats) -> list[Encoded]:
    """Return the encoded values (1, ...) of a row (d,), one array per column; only changed values are encoded."""
    if scorer is not problem.scorer:
        return scorer.encoded(range(len(row)), row[None])
    encoded = problem.encoded_row.copy()
    for column in np.flatnonzero(row != problem.x0).tolist():
        (encoded[column],) = scorer.encoded([column], row[None, [column]])
    return encoded


def _certain(scorer: Scorer, sums: Floats, tolerance: float) -> bool:
    """Whether a row with raw scores (1, k) meets the targets by more than rounding can change."""
    favourable, _, margin = rate_sums(sums, scorer.targets)
    return bool(favourable[0] and margin[0] >= SCORE_TOLERANCES * tolerance)


def _said(scorer: Scorer, sums: Floats) -> Floats:
    """Return the model's scores (1, classes) of a row with raw scores (1, k), the model's own columns first."""
    return linked(sums[:, : scorer.own.outputs], scorer.own.link)


def _with(verified: VerifiedAnswers, scores: Sequence[Floats]) -> VerifiedAnswers:
    """Return answers with scores (1, classes) of each, or values; their labels are known."""
    together, codes = np.concatenate(scores), verified.outcome.codes
    regression = codes[0] < 0
    outcome = Outcome(codes, None, together[:, 0]) if regression else Outcome(codes, together)
    return replace(verified, outcome=replace(outcome, further=verified.outcome.further))


def _some(verified: VerifiedAnswers, outcome: Outcome, kept: NDArray[np.intp]) -> VerifiedAnswers:
    """Return the answers at positions `kept`, with their new outcomes."""
    return replace(
        verified,
        rows=verified.rows[kept],
        outcome=outcome.take(kept),
        proofs=tuple(verified.proofs[at] for at in kept if verified.proofs),
        bounds=tuple(verified.bounds[at] for at in kept if verified.bounds),
        origin=verified.origin[kept] if len(verified.origin) else verified.origin,
        minimal=verified.minimal[kept] if len(verified.minimal) else verified.minimal,
    )
