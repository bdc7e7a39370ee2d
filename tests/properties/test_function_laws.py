"""Structural functions as rows of a program say what the functions themselves say."""

import numpy as np
import pytest
from causal_worlds import equations
from exact_worlds import drawn
from hypothesis import given
from hypothesis import strategies as st
from milp_worlds import continuous, some_row
from properties.test_milp_embedding_laws import program_of

from mlflow_cf.causal.forms import CausalFormula, bends
from mlflow_cf.causal.function import structural_functions
from mlflow_cf.constraints import Constraints
from mlflow_cf.milp.program import NotLinearError
from mlflow_cf.milp.rules import value_of
from mlflow_cf.milp.solve import Effort, solve
from mlflow_cf.milp.variables import Real

worlds = (drawn(("linear",)) | continuous(("linear",), ("two",))).filter(lambda world: world.open)


@given(worlds, equations("rooms", learned=False), st.integers(0, 100))
def test_functions_of_fixed_parents_are_what_they_say(world, equation, seed):
    row = some_row(world, np.random.default_rng(seed))
    (function,) = structural_functions(Constraints.read({"causal": [equation]}), world.space, world.x0[None])
    expected = function.values(row[None])[0]
    for sign in (1.0, -1.0):
        program, variables = program_of(world, row)
        real = any(isinstance(variables.of(parent), Real) for parent in function.parents)
        try:
            value, exact = value_of(program, variables, function)
        except NotLinearError:
            assert real or len(function.parents) > 1  # no table has the values of several groups
            assert isinstance(function.structure, CausalFormula)
            assert list(bends(function.structure.expression))
            continue
        if not exact:
            assert real
            continue
        program.costs.append(value.times(sign))
        solved = solve(program, Effort())
        if solved.status == "infeasible":  # undefined, outside of a box, or next to an end of a cell
            assert np.isnan(expected) or any(isinstance(variable, Real) for variable in variables.groups)
            continue
        assert solved.status == "optimal"
        assert value.value(solved.values) == pytest.approx(expected, abs=1e-5)
        assert value.low - 1e-9 <= expected <= value.high + 1e-9
