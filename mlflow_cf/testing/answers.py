"""What must be true of every answer, asked of the model itself and of the independent checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from mlflow_cf.explainers.explainer import keeps_order
from mlflow_cf.testing.checker import Row, plain_rows
from mlflow_cf.testing.handed_over import searches_of
from mlflow_cf.testing.trial import COUNT, EVALUATIONS, Trial
from mlflow_cf.words.reasons import NOT_CERTIFIED


def check_agreement(trial: Trial) -> None:
    """Every counterfactual meets the target when the model is asked again, without the package."""
    found = list(trial.found())
    for (position, _, answer), reply in zip(found, trial.ask([answer.row for *_, answer in found]), strict=True):
        assert trial.met(position, reply), (answer, reply)
        assert _same_prediction(trial, answer.prediction, reply.prediction), (answer, reply)


def check_constraints(trial: Trial) -> None:
    """Every counterfactual is feasible for a checker that shares no code with the package."""
    for _, query, answer in trial.found():
        assert trial.checker.faults(query, answer.row) == []


def check_account(trial: Trial) -> None:
    """Changes, their number, the distance and the text are those of the row."""
    for _, query, answer in trial.found():
        changes = {change.feature: (change.old, change.new) for change in answer.changes}
        assert changes == {name: (query[name], new) for name, new in answer.row.items() if query[name] != new}
        assert answer.n_changed == len(changes)
        assert answer.distance == pytest.approx(trial.ruler.distance(query, answer.row), abs=1e-9)
        assert all(name in answer.text for name in changes)


def check_order(trial: Trial) -> None:
    """No two rows are equal; the best of every set of changed groups come first; there are not too many.

    The best are the nearest, unless the explainer keeps its own order.
    """
    for query, answer in zip(trial.queries, trial.answers, strict=True):
        rows = [found.row for found in answer.counterfactuals]
        assert len(rows) <= COUNT
        assert len({tuple(row.items()) for row in rows}) == len(rows)
        sets = [tuple(trial.checker.changed_groups(query, row)) for row in rows]
        others = len(set(sets))
        assert len(set(sets[:others])) == others
        if keeps_order(trial.explainer):
            continue
        distances = [found.distance for found in answer.counterfactuals]
        assert distances == sorted(distances[:others]) + sorted(distances[others:])


def check_needless(trial: Trial) -> None:
    """No changed group of an answer can be put back, unless the budget ended before that was sure.

    What would break the explainer's own promise must stay.
    """
    for position, query, answer in trial.found():
        if trial.answers[position].evaluations >= EVALUATIONS:
            continue
        simpler = [row for row in trial.simpler(query, answer.row) if trial.checker.accepts(query, row)]
        assert _as_promised(trial, position, _meeting(trial, position, simpler)) == [], answer.row


def check_statuses(trial: Trial) -> None:
    """The status says what happened, and every row without a counterfactual says why."""
    for position, (answer, reply) in enumerate(zip(trial.answers, trial.replies, strict=True)):
        assert _same_prediction(trial, answer.prediction, reply.prediction)
        if trial.met(position, reply):
            assert (answer.status, answer.reason, answer.evaluations) == ("already", "", 0)
            assert answer.counterfactuals == ()
            continue
        assert answer.status in ("found", "not_found", "infeasible", "budget")
        assert bool(answer.counterfactuals) == (answer.status == "found")
        if answer.status == "found":
            assert (
                not answer.reason
                or answer.reason.startswith(NOT_CERTIFIED)
                or " counterfactuals asked for: " in answer.reason
            )
        else:
            assert answer.reason
        if answer.status == "infeasible":
            assert _background_answers(trial, position) == []


def _background_answers(trial: Trial, position: int) -> list[Row]:
    """Return the background rows that are counterfactuals: one disproves that there is none."""
    query = trial.queries[position]
    feasible = [row for row in plain_rows(trial.background) if trial.checker.accepts(query, row)]
    return _meeting(trial, position, feasible)


def _as_promised(trial: Trial, position: int, rows: list[Row]) -> list[Row]:
    """Return the rows that keep what the explainer promises of its answers to the row at this position."""
    for place, _, problem, candidates in searches_of(trial) if rows else ():
        if place == position and candidates.promise is not None:
            coded = problem.space.encode(pd.DataFrame(rows).astype(trial.rows.dtypes))
            return [row for row, kept in zip(rows, candidates.promise(coded), strict=True) if kept]
    return rows


def _meeting(trial: Trial, position: int, rows: Sequence[Row]) -> list[Row]:
    return [row for row, reply in zip(rows, trial.ask(rows), strict=True) if trial.met(position, reply)]


def _same_prediction(trial: Trial, replied: Any, asked: Any) -> bool:
    """Whether two predictions are one; values may differ in the last bits of the library's own type."""
    return bool(replied == asked) if trial.model.labels else replied == pytest.approx(asked, rel=1e-6, abs=1e-6)
