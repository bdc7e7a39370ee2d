"""Background rows as a start for searches that found nothing from the row itself."""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.problem.binding import same


def nearest_favourable_rows(problem: Problem) -> Floats:
    """Return distinct background rows (m, d) that are predicted favourable and meet every constraint, nearest first."""
    rows = _admissible_favourable_rows(problem)
    distance = problem.bound_distance.distance(problem.columns, rows, problem.x0)
    nearest = rows[np.argsort(distance, kind="stable")]
    _, first = np.unique(np.where(np.isnan(nearest), np.inf, nearest), axis=0, return_index=True)
    return np.asarray(nearest[np.sort(first)])


def _admissible_favourable_rows(problem: Problem) -> Floats:
    constant = [column for column, feature in enumerate(problem.space.features) if feature.constant]
    if same(problem.background[0, constant], problem.x0[constant]).all():
        rows = problem.background[problem.rate_background().favourable]
        return np.asarray(rows[problem.check(rows)])
    rows = problem.background.copy()
    rows[:, constant] = problem.x0[constant]  # a row keeps them, and so no prediction of the background is known here
    rows = rows[problem.check(rows)]
    return np.asarray(rows[problem.rate(rows).favourable])


def codes_of(problem: Problem, Z: Floats) -> Codes:
    """Return the codes (k, G) of rows Z (m, d); rows with a tuple that is not among a group's are left out."""
    codes = np.empty((len(Z), len(problem.groups)), dtype=np.intp)
    known: Bools = np.ones(len(Z), dtype=np.bool_)
    changed = problem.changed(Z)
    for number, group in enumerate(problem.groups):
        codes[:, number], found = _group_codes(group, Z[:, group.columns])
        codes[~changed[:, number], number] = group.own
        known &= found | ~changed[:, number]
    return codes[known]


def _group_codes(group: Group, values: Floats) -> tuple[Codes, Bools]:
    known, keys = group.domain.keys(values)
    listed, own_keys = group.domain.keys(group.tuples)
    listed[group.own] = False
    candidates = np.flatnonzero(listed)
    if not len(candidates):
        return np.zeros(len(values), dtype=np.intp), np.zeros(len(values), dtype=np.bool_)
    order = candidates[np.argsort(own_keys[candidates], kind="stable")]
    position = np.searchsorted(own_keys[order], keys).clip(max=len(order) - 1)
    return order[position], known & (own_keys[order[position]] == keys)
