"""The objectives of programs: the problem's distance or one of the CE-OCL paper; a price or a limit on changes."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.milp.affine import Affine, difference, total
from mlflow_cf.milp.program import NotLinearError, Program, Square
from mlflow_cf.milp.variables import Chosen, Real, Variables
from mlflow_cf.problem import Problem

Objective = Literal["distance", "l1", "l1_mad", "l2"]


def add_distance(program: Program, variables: Variables) -> None:
    """Minimise the problem's distance.

    Raises:
        NotLinearError: a real number whose changes are shares of the background.
    """
    problem, distance = variables.problem, variables.problem.bound_distance
    peaks: list[Affine] = []
    for group, variable in zip(problem.groups, variables.groups, strict=True):
        if isinstance(variable, Chosen):
            codes = variable.codes
            program.add_cost(Affine.chosen(variable.selectors, group.cost[codes]))
            peaks.append(Affine.chosen(variable.selectors, group.peak[codes]))
            continue
        if distance.percentiles is not None:
            raise NotLinearError("changes in percentiles of numbers that may take any value")
        change, weight = _change(variables, variable), float(distance.weights[variable.column])
        share = weight / float(distance.weights.sum())
        program.add_cost(total([variable.switch.times(distance.a * share), change.times(distance.b * share)]))
        peaks.append(change.times(weight / float(distance.weights.max())))
    if distance.c:
        _add_largest(program, peaks, distance.c)


def _change(variables: Variables, variable: Real) -> Affine:
    """Return the change of a real number divided by its scale."""
    scale = float(variables.problem.bound_distance.scale[variable.column])
    return variable.switch if np.isnan(variable.own) or not scale else variable.size.times(variable.step / scale)


def _add_largest(program: Program, parts: list[Affine], weight: float) -> None:
    high = max(part.high for part in parts)
    largest = program.add_column(0.0, high, cost=weight)
    program.require([difference(largest, part) for part in parts if not part.fixed or part.constant], 0.0, np.inf)


TANGENTS: Final = 40  # of the square of a real number's change, more of them near 0


def add_paper_objective(program: Program, variables: Variables, objective: Objective) -> None:
    """Minimise l1, MAD-scaled l1 or squared l2 over scaled numbers and one-hot levels, as the paper does.

    Squares of real numbers are bounded from below by tangents; a missing value that is filled in costs 1.
    """
    for variable in variables.groups:
        if isinstance(variable, Chosen):
            costs = np.zeros(len(variable.codes))
            for place, column in enumerate(variable.columns):
                costs += _costs(variables.problem, column, variable.actions[:, place], objective)
            program.add_cost(Affine.chosen(variable.selectors, costs))
        elif np.isnan(variable.own) or not (unit := _unit(variables.problem, variable.column, objective)):
            program.add_cost(variable.switch)
        elif objective == "l2":
            _add_square(program, variable, variable.step / unit)
        else:
            program.add_cost(variable.size.times(variable.step / unit))


def costs_of(problem: Problem, objective: Objective, rows: Floats) -> Floats:
    """Return the costs (m,) of rows (m, d) by an objective, without the price of their changes."""
    if objective == "distance":
        return problem.bound_distance.distance(problem.columns, rows, problem.x0)
    parts = [_costs(problem, column, rows[:, column], objective) for column in range(rows.shape[1])]
    costs: Floats = np.sum(parts, axis=0)
    return costs


def _unit(problem: Problem, column: int, objective: Objective) -> float:
    feature = problem.space.features[column]
    return feature.mad if objective == "l1_mad" else feature.high - feature.low


def _costs(problem: Problem, column: int, codes: Floats, objective: Objective) -> Floats:
    """Return what a change of a feature from the row's own code to each of `codes` (t,) costs."""
    feature, own = problem.space.features[column], float(problem.x0[column])
    differs: Bools = (codes != own) & ~(np.isnan(codes) & np.isnan(own))
    if not feature.numeric:
        return np.where(differs, 2.0, 0.0)  # two one-hot columns
    unit = _unit(problem, column, objective)
    if np.isnan(own) or not unit:
        return differs.astype(np.float64)
    size: Floats = np.nan_to_num(np.abs(codes - own) / unit)
    return size**2 if objective == "l2" else size


def _add_square(program: Program, variable: Real, factor: float) -> None:
    """Add the square of ``factor * size`` to the costs, bounded from below by tangents."""
    size = variable.size.times(factor)
    square = program.add_column(0.0, size.high**2, cost=1.0)
    program.squares.append(Square(int(square.columns[0]), variable.up, variable.down, factor))
    points = size.high * np.linspace(0.0, 1.0, TANGENTS) ** 2
    lines = [difference(square, size.times(2.0 * point)) for point in points.tolist()]
    program.require(lines, -(points**2), np.inf)


CountedOn = Literal["features", "columns"]


def add_price(program: Program, variables: Variables, price: float, counted_on: CountedOn) -> None:
    """Let every changed feature cost `price`; on one-hot columns a changed category counts twice."""
    space = variables.problem.space
    for column in range(len(space)):
        twice = counted_on == "columns" and not space.features[column].numeric
        program.add_cost(variables.changed(column).times(price * (2.0 if twice else 1.0)))


def prices_of(problem: Problem, price: float, counted_on: CountedOn, rows: Floats) -> Floats:
    """Return the price (m,) of the changes of rows (m, d); see `add_price`."""
    twice = np.array([counted_on == "columns" and not feature.numeric for feature in problem.space.features])
    changed: Floats = differing(rows, problem.x0).astype(np.float64)
    return changed @ np.where(twice, 2.0 * price, price)


def add_limits(program: Program, variables: Variables) -> None:
    """Let no more groups change than the problem's limits allow, each by its own way of counting."""
    problem = variables.problem
    if problem.most_changes < len(problem.groups):
        program.require([variables.changes(range(len(problem.groups)))], -np.inf, float(problem.most_changes))
    for limit in problem.limits:
        if limit.groups == problem.columns:
            continue
        counts = problem.counts_of(limit)
        parts = [
            Affine.chosen(variable.selectors, count[variable.codes].astype(np.float64))
            if isinstance(variable, Chosen)
            else variable.switch
            for variable, count in zip(variables.groups, counts, strict=True)
        ]
        program.require([total(parts)], -np.inf, float(limit.most))


def require_change(program: Program, variables: Variables) -> None:
    """Let some group change: a row is no counterfactual of itself."""
    groups = range(len(variables.problem.groups))
    program.require([variables.changes(groups)], 1.0, np.inf)
