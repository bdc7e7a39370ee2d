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
    """Return the codes (k, G) of rows Z (m, d); rows with an action that is not among a group's are left out.

    A number is coded by the nearest value of its cell where a problem has one of every cell.
    """
    codes = np.empty((len(Z), len(problem.groups)), dtype=np.intp)
    known: Bools = np.ones(len(Z), dtype=np.bool_)
    changed = problem.changed(Z)
    for number, group in enumerate(problem.groups):
        find = _cell_codes if group.columns[0] in problem.celled else _group_codes
        codes[:, number], found = find(problem, group, Z[:, group.columns])
        codes[~changed[:, number], number] = group.own
        known &= found | ~changed[:, number]
    return codes[known]


def _cell_codes(problem: Problem, group: Group, values: Floats) -> tuple[Codes, Bools]:
    """Return the codes (m,) of numbers (m, 1) by their cells, and which have one."""
    if problem.cells is None or group.ids is None:
        raise ValueError("the numbers of this group have no cells")
    candidates = np.arange(len(group.actions))
    if not group.own_allowed:
        candidates = np.delete(candidates, group.own)
    # where a rule ends inside a cell, several values have it: the nearest stands for it
    candidates = candidates[np.argsort(group.cost[candidates], kind="stable")]
    sought = problem.cells.places(group.columns[0], values[:, 0])
    return _sought(candidates, group.ids[candidates], sought, ~np.isnan(values[:, 0]))


def _group_codes(problem: Problem, group: Group, values: Floats) -> tuple[Codes, Bools]:
    """Return the codes (m,) of actions (m, k) among those of their group's domain, and which have one."""
    del problem
    known, keys = group.domain.keys(values)
    listed, own_keys = group.domain.keys(group.actions)
    listed[group.own] = False
    candidates = np.flatnonzero(listed)
    return _sought(candidates, own_keys[candidates], keys, known)


def _sought(candidates: Codes, keys: Codes, sought: Codes, known: Bools) -> tuple[Codes, Bools]:
    """Return the first candidate (m,) with each of the keys that are sought, and which of the known ones there are."""
    if not len(candidates):
        return np.zeros(len(sought), dtype=np.intp), np.zeros(len(sought), dtype=np.bool_)
    order = np.argsort(keys, kind="stable")
    position = np.searchsorted(keys[order], sought).clip(max=len(order) - 1)
    return candidates[order[position]], known & (keys[order[position]] == sought)
