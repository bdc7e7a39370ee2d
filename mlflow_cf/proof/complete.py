"""Answers that a search has missed: with other changed sets first, then other values of the same ones.

Also further answers one change away from verified ones, where the nearest are wanted and no exact search finds them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from mlflow_cf.engine.best_first import BestFirst
from mlflow_cf.features import Floats
from mlflow_cf.problem import Group, Problem
from mlflow_cf.proof.certify import Certification, certify, nearest_of_sets
from mlflow_cf.proof.verify import Inquiry, RowTask, VerifiedAnswers, verify_rows
from mlflow_cf.search.snapping import codes_of

MOST: Final = 10_000, 100_000  # evaluations for each of both: a quarter of a second, and where that is too few


def complete(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Look for answers that are missing beside verified ones, as far as the budget goes; nothing is claimed of them.

    Of an opened model, at least one is verified, and fewer than are wanted.
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
