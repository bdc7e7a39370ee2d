"""The numbers worth trying of continuous features: where the model or a rule changes its answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlflow_cf.constraints.expressions import Ref
from mlflow_cf.constraints.rules import Atom
from mlflow_cf.features import Floats
from mlflow_cf.problem import Group, Problem
from mlflow_cf.search.sampling import CONTINUOUS_DRAWS, limits, with_values

MOST_POINTS = 30_000


def with_points(problem: Problem) -> tuple[Problem, bool]:
    """Return the problem with points instead of intervals, and whether none of the numbers between them is nearer.

    That is so for trees, whose answer changes at known values: on both sides of each of them stands a point, and at
    the ends of what rules allow. "Nearer" is meant up to one step of the column's type. For all other models, and for
    rules that link several groups, the points are evenly spaced and prove nothing.
    """
    if all(group.interval is None for group in problem.groups):
        return problem, True
    linked = {column for rule in problem.linking for column in rule.columns("x_cf")}
    points, exact = {}, True
    for number, group in enumerate(problem.groups):
        if group.interval is None:
            continue
        ends = None if group.columns[0] in linked else _ends(problem, group)
        exact &= ends is not None
        even = np.linspace(*limits(problem, group), CONTINUOUS_DRAWS)
        points[number] = even if ends is None else _around(problem, group, ends)
    return with_values(problem, points), exact


def _ends(problem: Problem, group: Group) -> Floats | None:
    """Return the values at which the model or a rule of the group changes its answer; None if that cannot be told."""
    (column,) = group.columns
    known = None if problem.rater is None else problem.rater.structure.ends(column)
    constants = [_constants(problem, atom, column) for rule in group.rules for atom in (*rule.when, rule.then)]
    if known is None or len(known) > MOST_POINTS or any(constant is None for constant in constants):
        return None
    numbers = [constant for constant in constants if constant is not None]
    return np.concatenate([known[np.isfinite(known)], *numbers, np.array(group.interval)])


def _constants(problem: Problem, atom: Atom, column: int) -> Floats | None:
    """Return the values of a feature at which an atom changes its truth; None if that is not plain to see."""
    feature, own = Ref("x_cf", column), problem.x0[None, :]
    if column not in atom.columns("x_cf"):
        return np.empty(0)
    if atom.left != feature:
        return None
    if atom.sign == "in":
        return np.array(atom.members, dtype=np.float64)
    mentioned = replace(atom, left=Ref("x", column)).columns("x_cf")
    if mentioned:
        return None
    bound = atom.bound(own, problem.x0)
    return np.append(bound - atom.tolerance, bound + atom.tolerance) if atom.tolerance else bound


def _around(problem: Problem, group: Group, ends: Floats) -> Floats:
    """Return the values (n,) of the column's type at, just below and just above each of `ends`."""
    stored = problem.space.features[group.columns[0]].stored
    low, high = group.interval or (0.0, 0.0)
    at = np.unique(ends[np.isfinite(ends)]).astype(stored if stored.kind == "f" else np.float64)
    with np.errstate(over="ignore"):
        below, above = (np.nextafter(at, at.dtype.type(side)) for side in (-np.inf, np.inf))
    points = np.unique(np.concatenate([below, at, above]).astype(np.float64))
    return points[(points >= low) & (points <= high)]
