"""Sparsity: few changes, as a price of each and as limits on their number."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.features import Floats
from mlflow_cf.milp.affine import Affine, total
from mlflow_cf.milp.program import Program
from mlflow_cf.milp.variables import Chosen, Variables
from mlflow_cf.problem import Problem

CountedOn = Literal["features", "columns"]


def add_price(program: Program, variables: Variables, price: float, counted_on: CountedOn) -> None:
    """Let every changed feature cost `price`; on one-hot columns a changed category counts twice."""
    space = variables.problem.space
    for column in range(len(space)):
        twice = counted_on == "columns" and not space.features[column].numeric
        program.add_cost(variables.changed(column).times(price * (2.0 if twice else 1.0)))


def prices_of(problem: Problem, price: float, counted_on: CountedOn, rows: Floats) -> Floats:
    """Return what the changes of rows (m, d) cost; see `add_price`."""
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
