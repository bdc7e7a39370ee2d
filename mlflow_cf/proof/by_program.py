"""Certificates by mixed-integer programs: for numbers that take any value, where the exact search has even points only.

The lower bound of the distance is computed with targets loosened by the tolerance, so that it holds for all rows the
judge may accept; answers are searched with targets tightened by more than it. So `optimal` means: up to the tolerance.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Final

import numpy as np

from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.features import Floats
from mlflow_cf.milp.minimise import Minimum, lower_bound, minimise
from mlflow_cf.milp.model import SLACK, Model
from mlflow_cf.milp.program import NotLinearError
from mlflow_cf.milp.rules import bending
from mlflow_cf.model.judge import Asked, Outcome
from mlflow_cf.proof.select import nearest_first, select
from mlflow_cf.proof.verify import Inquiry, RowTask, VerifiedAnswers, joined_outcomes
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Proof

NEARLY: Final = 1e-5  # of a distance: how much nearer a row may be than an answer that is called the nearest
INSIDE: Final = 10  # tolerances of margin that answers must have, ten times more after every refusal by the judge
TRIES: Final = 4
SEED: Final = 0  # of the solver: certificates do not depend on a request's seed


def certify_by_program(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Prove that verified answers are nearly the nearest, or find some that are; all but the first are `bounded`.

    Args:
        task: the row, with the budget that is left.
        verified: verified answers, nearest first among distinct changed sets.
        tolerance: how far the structure's scores may be from the model's.
    """
    try:
        answers = yield from _with_nearer(task, verified, tolerance)
        cutoff = float(task.distance(answers.rows).min(initial=np.inf))
        low = lower_bound(Model(task.problem, margin=-SCORE_TOLERANCES * tolerance, cutoff=cutoff), task.budget, SEED)
    except NotLinearError as error:
        return replace(verified, note=Uncertified("not_exact", str(error)))
    return _by_bound(task, answers, low)


def _with_nearer(
    task: RowTask, verified: VerifiedAnswers, tolerance: float
) -> Generator[Asked, Outcome, VerifiedAnswers]:
    """Return the answers with the nearest row by a program among them, if the judge accepts it."""
    cutoff = float(task.distance(verified.rows).min(initial=np.inf))
    for attempt in range(TRIES):
        margin = INSIDE ** (attempt + 1) * tolerance
        found = minimise(Model(task.problem, margin=margin, cutoff=cutoff), (), task.budget, SEED)
        if found.row is None or task.budget.take(1) < 1:
            break
        said = yield found.row[None]
        if task.accepts(found.row[None], said)[0]:
            return _joined(task, verified, found.row, said)
    return verified


def _joined(task: RowTask, verified: VerifiedAnswers, row: Floats, outcome: Outcome) -> VerifiedAnswers:
    """Return verified answers with one more row, the best of distinct changed sets first."""
    rows = np.concatenate([row[None], verified.rows])
    outcomes = joined_outcomes([outcome, verified.outcome])
    order = nearest_first(task.problem, rows, task.distance(rows), polished=True)
    chosen = select(task.problem, rows, order)
    return VerifiedAnswers(rows[chosen], outcomes.take(chosen))


def _by_bound(task: RowTask, answers: VerifiedAnswers, low: Minimum) -> VerifiedAnswers:
    """Return answers with what the bound says of each."""
    if low.status == "infeasible":  # if there is an answer, structure and judge disagree
        known = replace(answers, note=Uncertified("disagree"))
        return known if len(answers.rows) else replace(answers, exhausted=True)
    if low.status == "failed":
        return replace(answers, note=Uncertified("not_exact"))
    return bounded(task, answers, max(low.bound - SLACK, 0.0))


def bounded(task: RowTask, answers: VerifiedAnswers, bound: float) -> VerifiedAnswers:
    """Return answers with proofs from a lower `bound` of the distance; a bound of infinity proves nothing."""
    distance = task.distance(answers.rows)
    if np.isinf(bound):
        return answers
    proofs: list[Proof] = ["bounded"] * len(distance)
    if len(distance) and distance[0] <= bound + NEARLY:
        proofs[0] = "optimal"
    elif len(distance) and not task.budget.cut and (what := bending(task.problem)):
        answers = replace(answers, note=Uncertified("bends", what))
    return replace(answers, proofs=tuple(proofs), bounds=tuple(np.minimum(bound, distance).tolist()))
