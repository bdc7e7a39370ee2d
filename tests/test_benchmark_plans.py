"""The benchmark of plans: its actions told once more against the package's own, its grid against brute force, a run."""

from dataclasses import replace
from functools import partial
from itertools import permutations, product

import mlflow
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.constraints.actions import read_actions, read_relationships
from mlflow_cf.explainers.cscf import CSCF, SCF
from mlflow_cf.features import FeatureSpace
from mlflow_cf.plans.action_model import ActionModel, Declared
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance

# MLflow selects columns of type object when it logs a table.
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes are included")

LEVELS = {
    "adult": {"workclass": ["Private", "Gov"], "occupation": ["Sales", "Tech-support", "Armed-Forces"]},
    "german": {
        "other_parties": ["none", "guarantor", "co applicant"],
        "job": ["skilled", "unskilled resident", "unemp/unskilled non res"],
        "foreign_worker": ["yes", "no"],
    },
}
NUMBERS = {
    "adult": {
        "age": (17, 90),
        "education_num": (1, 16),
        "capital_gain": (0, 99_999),
        "capital_loss": (0, 4_356),
        "hours_per_week": (1, 99),
    },
    "german": {"duration": (4, 72), "credit_amount": (250, 18_424), "age": (19, 75)},
}


def generated(name, rows=200, **narrower):
    """Rows with the columns that the actions of a data set are about."""
    rng = np.random.default_rng(0)
    numbers = {**NUMBERS[name], **narrower}
    table = {column: rng.integers(low, high, rows, endpoint=True) for column, (low, high) in numbers.items()}
    table |= {column: [low, high, *table[column][2:]] for column, (low, high) in numbers.items()}
    return pd.DataFrame(table | {column: rng.choice(levels, rows) for column, levels in LEVELS[name].items()})


@pytest.fixture(scope="module", params=["adult", "german"])
def told_twice(benchmark, request):
    """Rows, and what can be done with them: by the package, and told once more."""
    name, table = request.param, generated(request.param)
    policy = benchmark.plans.policy(name)
    space = FeatureSpace.infer(table)
    declared = Declared(read_actions(policy["actions"]), read_relationships(policy.get("relationships", ())))
    action_model = ActionModel.bind(declared, space, BoundDistance.bind(Distance(), space))
    action_model = replace(action_model, least_change=dict.fromkeys(NUMBERS[name], benchmark.plans_actions.LEAST))
    return name, table, action_model, benchmark.plans_actions.Model.of(name, table, discounts=True)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**20))
def test_the_actions_told_once_more_are_those_of_the_policy(benchmark, told_twice, seed):
    """Follow random sequences from a random row."""
    rng = np.random.default_rng(seed)
    name, table, action_model, model = told_twice
    table, space = table.copy(), action_model.space
    assert list(model.doings) == [action.name for action in action_model.actions]
    at = int(rng.integers(len(table)))
    if name == "adult":
        table.loc[at, rng.choice(["capital_gain", "capital_loss"])] = 0
    (x,) = benchmark.plans_grid.rows_of(table.iloc[[at]])
    state = space.encode(table.iloc[[at]])
    for number in rng.permutation(len(action_model.actions)).tolist():
        action = action_model.actions[number]
        if action.choices is not None:
            value = float(action.choices[0])
        else:
            value = float(rng.choice([rng.uniform(action.low, action.high), rng.uniform(-9, 9), rng.integers(-9, 9)]))
        ours = action_model.step(number, state, action.outcome(state, np.array([value])))
        told = model.step(action.name, x, value)
        assert bool(told.valid) == bool(ours.valid[0])
        if not ours.valid[0]:
            continue
        assert {key: float(part) if key in NUMBERS[name] else part for key, part in told.state.items()} == {
            key: float(part) if key in NUMBERS[name] else part
            for key, part in space.decode(ours.states).to_dict("records")[0].items()
        }
        assert float(told.effort) == pytest.approx(float(np.round(ours.effort[0], 4)), abs=1e-12)
        assert float(told.discount) == pytest.approx(float(ours.discount[0]), abs=1e-12)
        x, state = told.state, ours.states


@pytest.fixture(scope="module")
def small(benchmark):
    """A network over few whole numbers, and rows that it rejects."""
    table = generated("german", duration=(4, 12), credit_amount=(990, 1_030), age=(19, 24))
    noise = np.random.default_rng(1).normal(size=len(table))
    good = table["credit_amount"] - 1_010 + 3 * (table["duration"] - 8) - 2 * (table["age"] - 21) + 3 * noise < -5
    pipeline = benchmark.models.fitted("mlp_deep", table, (good | (table["job"] == "skilled")).astype(int), 0)
    rejected = table[pipeline.predict(table) == 0].head(4).reset_index(drop=True)
    return table, pipeline, rejected


def test_the_network_is_read_rightly(benchmark, small):
    table, pipeline, _ = small
    network = benchmark.plans_grid.Network.of(pipeline)
    margins = [network.margin(row)[0] for row in benchmark.plans_grid.rows_of(table.head(20))]
    p = pipeline.predict_proba(table.head(20))[:, 1]
    assert margins == pytest.approx(np.log(p / (1 - p)).tolist(), abs=1e-6)


def brute_force(benchmark, small, x0):
    """The cost of the cheapest plan of at most two steps, all values looked at one by one."""
    table, pipeline, _ = small
    model = benchmark.plans_actions.Model.of("german", table, discounts=True)
    ends, costs = [], []
    for names in (some for length in (1, 2) for some in permutations(model.doings, length)):
        open_ = [range(-40, 41) if model.doings[name].outcome is None else [0] for name in names]
        if len([1 for some in open_ if len(some) > 1]) > 1:
            open_ = [range(-9, 10)] * 2  # the cheapest plan is a short one
        for values in product(*open_):
            state, cost = x0, 0.0
            for name, value in zip(names, values, strict=True):
                done = model.step(name, state, value)
                state, cost = done.state, cost + float(done.cost) if done.valid else np.inf
            if cost < np.inf and model.within(x0, state):
                ends.append(state)
                costs.append(cost)
    accepted = pipeline.predict(pd.DataFrame(ends).astype(table.dtypes.to_dict())) == 1
    return min(np.array(costs)[accepted], default=np.inf)


def test_the_grid_finds_what_brute_force_finds(benchmark, small, monkeypatch):
    table, pipeline, rejected = small
    model = benchmark.plans_actions.Model.of("german", table, discounts=True)
    network = benchmark.plans_grid.Network.of(pipeline)
    found = []
    for x0 in benchmark.plans_grid.rows_of(rejected.head(2)):
        grid = benchmark.plans_grid.Grid(model, network, x0)
        whole = grid.cheapest()
        assert whole.cost <= brute_force(benchmark, small, x0) + 1e-12
        assert grid.follow(whole.steps).cost == whole.cost
        with monkeypatch.context() as patch:
            patch.setattr(benchmark.plans_grid, "POINTS", 5)
            rough = grid.cheapest()
        assert rough.cost == pytest.approx(whole.cost, rel=0.01)
        found.append(whole.cost)
    assert np.isfinite(found).all()


def test_a_wrong_plan_is_named(benchmark):
    table = generated("adult")
    model = benchmark.plans_actions.Model.of("adult", table, discounts=True)
    x0 = {"age": 30.0, "education_num": 9.0, "capital_gain": 0.0, "capital_loss": 0.0, "hours_per_week": 40.0}
    x0 |= {"workclass": "Private", "occupation": "Sales"}
    first = {**x0, "education_num": 11.0, "age": 34.0}
    good = mlflow_cf.Step(1, "add education", 2.0, 0.7, first)
    second = mlflow_cf.Step(2, "change capital gain", 0.5, (1 - 0.5 * 11 / 16 + 1) / 2, {**first, "capital_gain": 5e3})

    def wrong(*steps):
        return benchmark.plans.wrong_step(model, x0, steps)

    assert wrong(good, second) == ""
    assert wrong() == "the plan ends where it must not, or has no step"
    assert wrong(replace(good, row={**first, "age": 35.0}), second) == "step 1, add education, leads elsewhere"
    assert wrong(replace(good, discount=1.0)) == "step 1, add education, has another effort or discount"
    assert wrong(replace(good, row=x0)) == "step 1, add education, cannot be done"
    assert wrong(replace(good, action="study")) == "study is no action"


def line(benchmark, **columns):
    told = {"front": 4, "answers": 1, "wall": 0.5, "cpu": 0.5, "cost": 1.0, "capped": 1.0, "grid": 1.0}
    rows = pd.DataFrame({key: [value] * 4 for key, value in {**told, "effort": 1.0, "grid_effort": 1.0}.items()})
    return benchmark.plans.Line(rows.assign(**columns), (3, 0), 1.0, [])


def test_promises_of_plans(benchmark):
    plans = benchmark.plans
    cscf = line(benchmark, capped=[1.0, 1.005, 1.02, np.inf], grid=[1.0, 1.0, 1.0, np.inf], answers=[1, 1, 1, 0])
    scf = replace(line(benchmark), orders=(2, 2))
    (one,) = found = [plans.Measured("german", 0.8, {"cscf": cscf, "scf": scf}, 400.0, 4.0)]
    told = {(name, gate.what): (gate.found, gate.kept) for name, gate in plans.gates(found)}
    assert told["german / cscf", plans.EVERY] == (1.0, True)
    assert told["german / cscf", "rows as cheap as the grid"] == (pytest.approx(2 / 3), False)
    assert told["german / cscf", "size of the front, median"] == (4.0, True)
    assert told["german / cscf", "CPU of a generation, NSGA2 / cscf"] == (100.0, True)
    assert told["german / cscf", "study before gain"] == (1.0, True)
    assert told["german / scf", "share of the rarer order"] == (0.5, True)
    assert plans.costlier(found) == "german / cscf, row 2: 1.0200, grid 1.0000"
    text = plans.table([one])
    assert "0.972" in text
    assert "as cheap in 2 steps" in text


def test_the_part_plans_is_logged(benchmark, monkeypatch, data_file, capsys):
    monkeypatch.setenv("MLFLOW_CF_DATA", str(data_file("cscf_german_instances.csv").parent))
    monkeypatch.setattr(benchmark.plans, "DATA_SETS", ("german",))
    monkeypatch.setattr(benchmark.plans, "COUNT", 3)
    monkeypatch.setattr(benchmark.plans, "RIVAL_ROWS", 1)
    monkeypatch.setattr(benchmark.plans_grid, "POINTS", 41)
    monkeypatch.setattr(benchmark.rival_nsga2, "POPULATION", 20)
    few = {"population": 50, "generations": 3, "max_steps": 2}
    monkeypatch.setattr(benchmark.plans, "EXPLAINERS", (partial(CSCF, **few), partial(SCF, **few)))
    chosen = benchmark.bench.options().parse_args(["--parts", "plans", "--rows", "1"])
    with mlflow.start_run() as run:
        assert benchmark.bench.PARTS["plans"](chosen) == []
    text = capsys.readouterr().out
    assert "CSCF and SCF beside a grid of all plans of two steps" in text
    assert "promises about speed and distance were kept." in text
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged["plans german cscf/found"] == 1
    assert logged["plans german/nsga2_ms"] > 0
