"""The problems of the suites: they cover what they promise, are the same every time, and are worth solving."""

import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from mlflow_cf import Constraints
from mlflow_cf.testing import FEW, GOALS, KINDS, SCENARIOS, Scenario
from mlflow_cf.testing.checker import plain_rows, table_of
from mlflow_cf.testing.models import fitted, values_of
from mlflow_cf.testing.trial import covering, first_of_each_kind, rows_of
from mlflow_cf.testing.worlds import DEMANDS, odd_row, overrides, table

VALUES = ("observed", "grid", "continuous")
SCALES = ("range", "mad", "percentile")
PARTS = (KINDS, GOALS, DEMANDS, VALUES, SCALES)


def test_every_two_choices_meet_where_they_can():
    met = set().union(*(case.pairs() for case in SCENARIOS))
    wanted = {(i, a, j, b) for i, j in combinations(range(5), 2) for a in PARTS[i] for b in PARTS[j]}
    assert wanted - met == {(0, "pyfunc", 1, "sure")}  # labels have no probability
    assert met <= wanted
    assert len(SCENARIOS) == len(set(SCENARIOS)) < 80 < len(KINDS) * len(GOALS) * len(DEMANDS) * len(VALUES)


def test_every_choice_is_made_in_few():
    everything = {(i, a) for i, choices in enumerate(PARTS) for a in choices}
    assert set().union(*(case.choices() for case in FEW)) == everything
    assert len(FEW) <= len(DEMANDS) + 1


def test_cases_are_the_same_every_time():
    assert covering(Scenario.pairs) == SCENARIOS
    assert covering(Scenario.choices) == FEW
    assert {case.kind for case in first_of_each_kind(FEW)} == set(KINDS)
    assert {case.kind for case in first_of_each_kind(SCENARIOS)} == set(KINDS)


@pytest.mark.parametrize("plain", [False, True])
def test_tables_have_every_kind_of_column(plain):
    rows = table(1, plain=plain)
    assert_frame_equal(rows, table(1, plain=plain))
    assert rows.isna().any().sum() == 4
    kinds = {str(dtype) for dtype in rows.dtypes}
    assert {"int64", "float64", "float32", "bool", "Int64"} <= kinds
    assert ("category" in kinds) == plain
    odd = odd_row(rows)
    assert odd.dtypes.tolist() == rows.dtypes.tolist()
    assert odd.isna().to_numpy().sum() == 3


@pytest.mark.parametrize("plain", [False, True])
def test_plain_rows_are_tables_again(plain):
    rows = pd.concat([table(1, plain=plain), odd_row(table(1, plain=plain))], ignore_index=True)
    assert_frame_equal(table_of(plain_rows(rows), rows), rows)
    assert {type(value) for row in plain_rows(rows) for value in row.values()} <= {int, float, str, bool, type(None)}


@pytest.mark.parametrize("name", DEMANDS)
def test_no_demand_is_empty_and_some_rows_meet_it(name):
    """Every kind of constraint rejects some changes of background rows, and accepts others."""
    rows = table(1)
    demands = DEMANDS[name]
    Constraints.read(demands.policy_for(rows))
    Constraints.read(demands.request)
    checker, unbound = demands.checker(rows, "observed"), DEMANDS["none"].checker(rows, "observed")
    plain = plain_rows(rows)
    changed = [*((column,) for column in rows.columns), ("age", "job", "income")]
    pairs = [(old, {**old, **{n: new[n] for n in names}}) for old, new in pairwise(plain) for names in changed]
    accepted = [checker.accepts(old, new) for old, new in pairs if unbound.accepts(old, new)]
    assert any(accepted)
    assert all(accepted) == (name == "none")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("goal", GOALS)
def test_models_leave_something_to_explain(kind, goal):
    if not KINDS[kind].takes(GOALS[goal]):
        pytest.skip("no such target")
    model = fitted(kind, goal)
    rows = table(2, plain=KINDS[kind].plain)
    met = [GOALS[goal].met(model.labels, reply, reply) for reply in model.replies(rows)]
    assert goal == "other" or 0.05 < np.mean(met) < 0.7
    predicted = model.predict(rows)
    if model.labels:
        assert set(predicted.tolist()) == set(model.labels)
    else:
        assert np.corrcoef(predicted, values_of(rows))[0, 1] > 0.6


def test_rows_to_explain_hold_all_sorts():
    for case in SCENARIOS:
        rows = rows_of(case)
        assert len(rows) == (3 if case.goal == "other" else 4)
        assert rows["grade"].isna().any()


def test_fractions_have_steps_on_the_grid_only():
    assert set(overrides("grid")) == {"grade", "income", "hours"}
    assert set(overrides("observed")) == set(overrides("continuous")) == {"grade"}


@pytest.mark.system
def test_only_the_suites_need_pytest_and_without_it_they_say_what_to_do():
    code = (
        "import sys, mlflow_cf, mlflow_cf.cli; print('pytest' in sys.modules); "
        "sys.modules['pytest'] = None; import mlflow_cf.testing"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "False"
    assert run.returncode == 1
    assert run.stderr.strip().endswith("ModuleNotFoundError: mlflow_cf.testing needs pytest: pip install pytest")
