"""Further answers one change away from verified ones, where the nearest are wanted and no exact search finds them."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.problem import Group, Problem
from mlflow_cf.proof.verify import Inquiry, RowTask, VerifiedAnswers, verify_rows

FEW: Final = 4  # other actions of levels that are tried, the nearest to the row to explain
ROUNDING: Final = 1e-9  # of a least difference


def beside_them(task: RowTask, verified: VerifiedAnswers) -> Inquiry:
    """Put nearer answers that are one change away from verified ones in the place of farther ones, again and again.

    Where the nearest answer meets the target by a wide margin, the next one often differs in a single change, by just
    the least difference that answers must have.
    """
    for _ in range(task.problem.count):
        rows = np.concatenate([verified.rows, beside(task.problem, verified.rows)])
        rows = rows[task.problem.check(rows)]
        distance = task.distance(rows)
        if len(verified.rows) == task.problem.count:
            rows, distance = rows[near := distance <= task.distance(verified.rows).max()], distance[near]
        if len(rows) <= len(verified.rows) or task.budget.spent:
            break
        found = yield from verify_rows(task, rows[np.argsort(distance, kind="stable")], polish=True)
        if len(found.rows) < len(verified.rows) or found.rows.tobytes() == verified.rows.tobytes():
            break
        verified = found
    return verified


def beside(problem: Problem, rows: Floats) -> Floats:
    """Return rows (m, d) that differ from one of `rows` (k, d) in one of its changed groups, as little as answers may.

    Numbers move to the nearest values on both sides that are the least difference away.
    """
    changed, found = problem.changed(rows), [rows[:0]]
    for row, flags in zip(rows, changed, strict=True):
        for number in np.flatnonzero(flags).tolist():
            group = problem.groups[number]
            others = _others(problem, group, row[list(group.columns)])
            copies = np.tile(row, (len(others), 1))
            copies[:, group.columns] = others
            found.append(copies)
    return np.unique(np.concatenate(found), axis=0)


def _others(problem: Problem, group: Group, own: Floats) -> Floats:
    """Return the actions (t, columns) nearest to those of a row that differ from it."""
    feature = problem.space.features[group.columns[0]]
    if len(group.columns) > 1 or not feature.numeric:
        order = np.argsort(group.cost, kind="stable")
        others: Floats = group.actions[order]
        return np.asarray(others[(others != own).any(axis=1)][:FEW])
    least = problem.variety.min_difference * (feature.high - feature.low)
    if group.interval is not None:
        ends = own[0] + np.array([-1.0, 1.0]) * max(least * (1 + ROUNDING), ROUNDING * (feature.high - feature.low))
        return np.asarray(ends[(ends >= group.interval[0]) & (ends <= group.interval[1])][:, None])
    values = group.actions[:, 0]
    values = np.sort(values[np.isfinite(values) & (values != own[0]) & ~(np.abs(values - own[0]) < least)])
    at = int(np.searchsorted(values, own[0]))
    return values[max(at - 1, 0) : at + 1, None]
