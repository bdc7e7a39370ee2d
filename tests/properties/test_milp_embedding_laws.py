"""Structures as rows of a program say what the structures themselves say."""

import numpy as np
import pytest
from exact_worlds import TASKS, _sums, drawn
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import dear
from milp_worlds import continuous, linear_world, some_row

from mlflow_cf.milp.embed import embed
from mlflow_cf.milp.program import Affine, Program
from mlflow_cf.milp.solve import Effort, solve
from mlflow_cf.milp.variables import Chosen, Real, Variables, domains_of

MODELS = ("forest", "linear", "network")
worlds = drawn(MODELS) | continuous(MODELS, tuple(sorted(TASKS)))


def fixed_to(program: Program, variables: Variables, row: np.ndarray) -> None:
    """Fix all variables to what a row has."""
    for variable in variables.groups:
        if isinstance(variable, Chosen):
            own = row[list(variable.columns)]
            same = (variable.actions == own) | (np.isnan(variable.actions) & np.isnan(own))
            program.require([variable.where(same.all(axis=1))], 1.0, 1.0)
        elif np.isnan(row[variable.column]):
            program.require([variable.switch], 0.0, 0.0)
        else:
            kept = row[variable.column] == variable.own
            program.require([variable.switch], float(not kept), float(not kept))
            program.require([variable.value], row[variable.column], row[variable.column])


def program_of(world, row):
    problem = world.row_task().problem
    domains = domains_of(problem)
    assume(domains is not None and all(rule.holds(row[None], world.x0)[0] for g in problem.groups for rule in g.rules))
    program = Program()
    variables = Variables.add(program, problem, domains)
    fixed_to(program, variables, row)
    return program, variables


@dear(2)
@given(worlds.filter(lambda world: world.open).map(linear_world), st.integers(0, 100))
def test_sums_of_fixed_inputs_are_those_of_the_structure(world, seed):
    row = some_row(world, np.random.default_rng(seed))
    expected = _sums(world.structure, row[None])[0]
    for at in range(len(expected)):
        for sign in (1.0, -1.0):
            program, variables = program_of(world, row)
            sums = embed(program, variables, world.structure)
            program.costs.append(sums[at].times(sign))
            solved = solve(program, Effort())
            if solved.status == "infeasible":  # outside of the box, or next to an end of a cell
                assert any(isinstance(variable, Real) for variable in variables.groups)
                continue
            assert solved.status == "optimal"
            assert sums[at].value(solved.values) == pytest.approx(expected[at], abs=1e-5)
            assert sums[at].low - 1e-9 <= expected[at] <= sums[at].high + 1e-9
            np.testing.assert_allclose(variables.row(solved.values), row, atol=1e-6)


def test_a_program_without_columns_is_decided_by_its_rows():
    program = Program()
    program.require([Affine.of(1.0)], 0.0, 2.0)
    assert solve(program, Effort()).status == "optimal"
    program.require([Affine.of(3.0)], 0.0, 2.0)
    assert solve(program, Effort()).status == "infeasible"
