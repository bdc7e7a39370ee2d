"""Answers as they are by themselves, whatever rows stand beside them.

Libraries that multiply matrices round a row otherwise in a table of another size. So the numbers of an answer come from
one way of asking: the row alone. A model of trees says the same in any table. Of another one that is opened, the
structure says what it says alone, within the tolerance that was checked; all others are asked once more, row by row.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.best_first import DOUBT
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.raw_scores import rate_sums
from mlflow_cf.model.judge import Asked, OneByOne, Outcome
from mlflow_cf.problem import Problem
from mlflow_cf.proof.verify import RowTask, VerifiedAnswers, joined_outcomes
from mlflow_cf.structures.capabilities import is_steady
from mlflow_cf.structures.links import Encoded, linked


def by_themselves(
    case: RowTask, proved: VerifiedAnswers, tolerance: float
) -> Generator[Asked, Outcome, VerifiedAnswers]:
    """Return answers with what the model says of each alone; those it refuses then are left out, and noted in `case`.

    Args:
        case: the row that is explained.
        proved: its answers, as they were judged together with other rows.
        tolerance: how far a structure's scores may be from the model's.
    """
    rater = case.problem.rater or (case.problem.partial if case.steady else None)
    if not len(proved.rows) or (rater is not None and is_steady(rater.structure)):
        return proved
    if rater is not None:
        sums = [rater.structure.sums(_tokens(case.problem, rater, row)) for row in proved.rows]
        if all(_certain(rater, alone, tolerance) for alone in sums):
            return proved if is_steady(rater.own) else _with(proved, [_said(rater, alone) for alone in sums])
    if case.budget.take(len(proved.rows)) < len(proved.rows):
        return proved
    outcome = yield OneByOne(proved.rows, lambda: case.budget.late)
    said = len(outcome.codes)
    if said < len(proved.rows):  # the clock ran out: the others stay as they were judged together
        rest = proved.outcome.take(np.arange(said, len(proved.rows)))
        outcome = joined_outcomes([outcome, rest]) if said else rest
    accepted = case.meets(outcome)
    case.refused.update(row.tobytes() for row in proved.rows[~accepted])
    return _some(proved, outcome, np.flatnonzero(accepted))


def _tokens(problem: Problem, rater: Scorer, row: Floats) -> list[Encoded]:
    """Return the tokens (1, ...) of a row (d,), one array per column: those that are not the own row's are made."""
    if rater is not problem.rater:
        return rater.tokens(range(len(row)), row[None])
    tokens = problem.own_tokens.copy()
    for column in np.flatnonzero(row != problem.x0).tolist():
        (tokens[column],) = rater.tokens([column], row[None, [column]])
    return tokens


def _certain(rater: Scorer, sums: Floats, tolerance: float) -> bool:
    """Whether a row with sums (1, k) meets the targets by more than rounding can undo."""
    favourable, _, margin = rate_sums(sums, rater.targets)
    return bool(favourable[0] and margin[0] >= DOUBT * tolerance)


def _said(rater: Scorer, sums: Floats) -> Floats:
    """Return the model's scores (1, classes) of a row with sums (1, k), of which its own come first."""
    return linked(sums[:, : rater.own.outputs], rater.own.link)


def _with(proved: VerifiedAnswers, scores: Sequence[Floats]) -> VerifiedAnswers:
    """Return answers with scores (1, classes) of each, or values; their labels are known."""
    together, codes = np.concatenate(scores), proved.outcome.codes
    regression = codes[0] < 0
    outcome = Outcome(codes, None, together[:, 0]) if regression else Outcome(codes, together)
    return replace(proved, outcome=replace(outcome, further=proved.outcome.further))


def _some(proved: VerifiedAnswers, outcome: Outcome, kept: NDArray[np.intp]) -> VerifiedAnswers:
    """Return some of the answers with what is said of them now."""
    return replace(
        proved,
        rows=proved.rows[kept],
        outcome=outcome.take(kept),
        proofs=tuple(proved.proofs[at] for at in kept if proved.proofs),
        bounds=tuple(proved.bounds[at] for at in kept if proved.bounds),
        origin=proved.origin[kept] if len(proved.origin) else proved.origin,
        minimal=proved.minimal[kept] if len(proved.minimal) else proved.minimal,
    )
