"""Answers as they are by themselves, whatever rows stand beside them.

Libraries that multiply matrices round a row otherwise in a table of another size. So the numbers of an answer come from
one way of asking: the row alone. A model of trees says the same in any table. Of another one that is opened, the
structure says what it says alone, within the tolerance that was checked; all others are asked once more, row by row.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.exact.best_first import DOUBT
from mlflow_cf.features import Floats
from mlflow_cf.model.judge import Outcome
from mlflow_cf.problem import Rater
from mlflow_cf.proof.verify import Alone, Asked, Case, Proved, joined_outcomes
from mlflow_cf.structures.structure import score_rows


def by_themselves(case: Case, proved: Proved, tolerance: float) -> Generator[Asked, Outcome, Proved]:
    """Return answers with what the model says of each alone; those it refuses then are left out, and noted in `case`.

    Args:
        case: the row that is explained.
        proved: its answers, as they were judged together with other rows.
        tolerance: how far a structure's scores may be from the model's.
    """
    rater = case.problem.rater
    if not len(proved.rows) or (rater is not None and rater.structure.steady):
        return proved
    if rater is not None and _certain(rater, proved.rows, tolerance):
        if rater.own.steady:
            return proved
        single = [_said(rater, row[None], proved.outcome.codes[[at]]) for at, row in enumerate(proved.rows)]
        return replace(proved, outcome=replace(joined_outcomes(single), further=proved.outcome.further))
    if case.budget.take(len(proved.rows)) < len(proved.rows):
        return proved
    outcome = yield Alone(proved.rows, lambda: case.budget.late)
    said = len(outcome.codes)
    if said < len(proved.rows):  # the clock ran out: the others stay as they were judged together
        rest = proved.outcome.take(np.arange(said, len(proved.rows)))
        outcome = joined_outcomes([outcome, rest]) if said else rest
    accepted = case.meets(outcome)
    case.refused.update(row.tobytes() for row in proved.rows[~accepted])
    return _some(proved, outcome, np.flatnonzero(accepted))


def _certain(rater: Rater, rows: Floats, tolerance: float) -> bool:
    """Whether rows (k, d) meet the targets by more than rounding can undo."""
    favourable, margin = rater.margins(rater.tokens(range(rows.shape[1]), rows))
    return bool((favourable & (margin >= DOUBT * tolerance)).all())


def _said(rater: Rater, row: Floats, codes: NDArray[np.intp]) -> Outcome:
    """Return what the structure says of one row (1, d) whose label is known."""
    scores = score_rows(rater.own, row)
    if codes[0] < 0:  # a regression
        return Outcome(codes, None, scores[:, 0])
    return Outcome(codes, scores)


def _some(proved: Proved, outcome: Outcome, kept: NDArray[np.intp]) -> Proved:
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
