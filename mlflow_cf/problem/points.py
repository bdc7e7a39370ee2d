"""Continuous features reduced to finitely many values: those at which the model or a rule changes its answer."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

import numpy as np

from mlflow_cf.constraints.expressions import Const, Ref
from mlflow_cf.constraints.rules import Atom, Bools, Rule
from mlflow_cf.features import Floats
from mlflow_cf.problem.actions import Group, GroupActions
from mlflow_cf.problem.intervals import MOST_CELLS, Some, bind_cells
from mlflow_cf.problem.problem import Problem
from mlflow_cf.structures.capabilities import ends_of

EVEN_POINTS = 500  # of a number where the model's answer may change anywhere


def with_points(problem: Problem) -> tuple[Problem, bool]:
    """Return the problem with points instead of intervals, and whether the points contain the nearest counterfactual.

    They do for trees, whose answer changes at known thresholds only: of every cell between two thresholds it is enough
    to propose the nearest value that the rules allow, up to one step of the column's type. For all other models, and
    for rules over several groups, the points are evenly spaced and prove nothing.
    """
    intervals = [number for number, group in enumerate(problem.groups) if group.interval is not None]
    if not intervals:
        return problem, True
    linked = {column for rule in problem.linking for column in rule.columns("x_cf")}
    problem = _with_cells(problem, linked)
    points, exact = {}, True
    for number in intervals:
        group = problem.groups[number]
        if group.columns[0] in problem.celled:
            continue
        ends = None if group.columns[0] in linked else _ends(problem, group)
        exact &= ends is not None
        even = np.linspace(*limits(problem, group), EVEN_POINTS)
        points[number] = even if ends is None else _around(problem, group, ends)
    return with_values(problem, points) if points else problem, exact


def _with_cells(problem: Problem, linked: Container[int]) -> Problem:
    """Return the problem with the nearest value of every cell, for numbers that are in no rule over several groups."""
    cells = problem.cells
    if cells is None:
        return problem
    nearest, some, numbers = cells.nearest(problem.x0), [], []
    for number, start, stop in zip(cells.groups, cells.start[:-1].tolist(), cells.start[1:].tolist(), strict=True):
        group, values, places = problem.groups[number], nearest[start:stop], np.arange(stop - start)
        if group.columns[0] in linked:
            continue
        if any(_pins(rule, group.columns[0], problem.x0) for rule in group.rules):
            values, places = values[:0], places[:0]
        elif group.rules:
            constants = rule_ends(problem, group)
            if constants is None:
                continue
            values = _lawful(problem, group, np.append(values, _around(problem, group, constants)))
            places = cells.places(group.columns[0], values)
        some.append(Some(group, values, places))
        numbers.append(number)
    if not some:
        return problem
    groups = list(problem.groups)
    for number, group in zip(numbers, bind_cells(some, problem.x0, problem.bound_distance), strict=True):
        groups[number] = group
    celled = {groups[number].columns[0] for number in numbers}
    encoded = {**problem.encoded_domains, **{column: cells.encoded[column] for column in celled}}
    return replace(problem, groups=tuple(groups), encoded_domains=encoded, celled=frozenset(celled))


def _pins(rule: Rule, column: int, x0: Floats) -> bool:
    """Whether a rule leaves a feature nothing but the row's own value."""
    atom = rule.then
    if rule.when or atom.sign != "==" or atom.tolerance or atom.left != Ref("x_cf", column):
        return False
    alone = not replace(atom, left=Ref("x", column)).columns("x_cf")
    return alone and bool((atom.bound(x0[None], x0) == x0[column]).all())


def _lawful(problem: Problem, group: Group, values: Floats) -> Floats:
    """Return the distinct values (v,), ascending, that a group's rules allow, and the row's own if it is among them."""
    distinct = np.unique(values)
    kept = allowed(problem, group, distinct) | (distinct == problem.x0[group.columns[0]])
    return np.asarray(distinct[kept])


def allowed(problem: Problem, group: Group, values: Floats) -> Bools:
    """Return (v,) which values the rules of a group of one number allow."""
    rows = np.broadcast_to(values[:, None], (len(values), len(problem.x0)))  # they read this column alone
    kept = np.ones(len(values), dtype=np.bool_)
    for rule in group.rules:
        kept &= rule.holds(rows, problem.x0)
    return kept


def _ends(problem: Problem, group: Group) -> Floats | None:
    """Return the values at which the model or a rule of the group changes its answer; None if they are unknown."""
    known = None if problem.scorer is None else ends_of(problem.scorer.structure, group.columns[0])
    constants = rule_ends(problem, group)
    if known is None or len(known) > MOST_CELLS or constants is None:
        return None
    return np.concatenate([known[np.isfinite(known)], constants, np.array(group.interval)])


def rule_ends(problem: Problem, group: Group) -> Floats | None:
    """Return the values at which a rule of the group changes its answer; None if they are unknown."""
    (column,) = group.columns
    found = [_constants(problem, atom, column) for rule in group.rules for atom in (*rule.when, rule.then)]
    known = [constants for constants in found if constants is not None]
    return np.concatenate([np.empty(0), *known]) if len(known) == len(found) else None


def _constants(problem: Problem, atom: Atom, column: int) -> Floats | None:
    """Return the values of a feature at which an atom becomes true or false; None where it is no plain comparison."""
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


def with_values(problem: Problem, values: Mapping[int, Floats]) -> Problem:
    """Return the problem with more values (v,) of groups of one number, by the number of the group.

    Only those count that the column's type can hold and the group's rules allow.
    """
    longest = max((len(some) for some in values.values()), default=0)
    rows = np.tile(problem.x0, (longest, 1))
    for number, some in values.items():
        rows[: len(some), problem.groups[number].columns[0]] = some
    held = problem.space.encode(problem.space.decode(rows))  # all in one table: it costs more than what is in it
    groups = list(problem.groups)
    for number, some in values.items():
        (column,) = groups[number].columns
        groups[number] = _with_codes(problem, groups[number], held[: len(some), column])
    return replace(problem, groups=tuple(groups))


def _with_codes(problem: Problem, group: Group, codes: Floats) -> Group:
    """Return a group of one number with more codes (v,), those that its rules allow."""
    (column,) = group.columns
    more = np.setdiff1d(codes[allowed(problem, group, codes)], group.actions[:, 0])
    if not len(more):
        return group
    codes = np.concatenate([group.actions[:, 0], more])
    weights = np.concatenate([group.weights, np.full(len(more), (group.weights.sum() or 1.0) / len(more))])
    order = np.argsort(codes, kind="stable")  # NaN, a missing own value, stays last
    actions = codes[order][:, None]
    part, top = problem.bound_distance.parts(group.columns, actions, problem.x0[[column]])
    own = int(np.flatnonzero(order == group.own)[0])
    return group.taking(GroupActions(actions, weights[order], own, part, top))


def bounds_only(problem: Problem, rule: Rule, column: int) -> bool:
    """Whether a rule about one number only bounds its changed values, so that `limits` says the same."""
    bound = rule.then.bound(problem.x0[None], problem.x0)
    plain = rule.then.sign in (">=", "<=", "==") and not replace(rule.then, left=Ref("x", column)).columns("x_cf")
    return plain and _bounds(problem, rule, column) and bool(np.isfinite(bound).all())


def _bounds(problem: Problem, rule: Rule, column: int) -> bool:
    """Whether a rule compares a number with something as soon as it is changed."""
    own = problem.x0[column]
    always = all(
        atom.sign == "!=" and isinstance(atom.right, Const) and (np.isnan(atom.right.value) or atom.right.value == own)
        for atom in rule.when
    )
    return always and rule.then.left == Ref("x_cf", column)


def limits(problem: Problem, group: Group) -> tuple[float, float]:
    """Return the interval cut to the group's plain bounds, from which to draw; rules still have to be checked."""
    low, high = box(problem, group)
    return (low, high) if low <= high else (low, low)


def box(problem: Problem, group: Group) -> tuple[float, float]:
    """Return bounds of all changed values of a single number; high < low: none is allowed."""
    (column,) = group.columns
    low, high = group.interval or (0.0, 0.0)
    own = problem.x0[None, :]
    for rule in group.rules:
        if not _bounds(problem, rule, column):
            continue
        bound = float(rule.then.bound(own, problem.x0)[0])
        if rule.then.sign in (">=", ">", "=="):
            low = max(low, bound - rule.then.tolerance)
        if rule.then.sign in ("<=", "<", "=="):
            high = min(high, bound + rule.then.tolerance)
    return low, high
