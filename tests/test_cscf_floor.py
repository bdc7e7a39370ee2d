"""What is proved of plans: no plan of so few steps costs less, and what is called the cheapest is it."""

from dataclasses import replace
from itertools import permutations, product
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf
from mlflow_cf import CSCF
from mlflow_cf.constraints.actions import read_actions, read_relationships
from mlflow_cf.features import FeatureSpace
from mlflow_cf.plans.action_model import ActionModel, Declared
from mlflow_cf.plans.boxes import BoxWalker
from mlflow_cf.plans.walk import Walker
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance

SMALL = CSCF(population=30, offspring=20, mutants=10, generations=5)
_rng = np.random.default_rng(3)
X = pd.DataFrame(_rng.integers(0, 7, (300, 4)), columns=list("abcd"))
Y = ((X["a"] + X["b"] * X["c"] / 3 - X["d"] + _rng.normal(0, 0.6, 300)) > 5).astype(int)
MODELS = {
    "forest": RandomForestClassifier(8, max_depth=4, random_state=0).fit(X, Y),
    "linear": make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y),
    "network": make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=300, random_state=0, tol=1e-2)).fit(X, Y),
}
EFFORTS = [
    "abs(x_cf.{0} - x.{0})",
    "(x_cf.{0} - x.{0}) * (x_cf.{0} - x.{0}) / 4",
    "1 + abs(x_cf.{0} - x.{0}) / 3",
    None,
]
FACTORS = ["1 - x.a / 10", "x.b / 7", "0.5", "1 / (1 + x.c)"]


def plans(rng: Random) -> dict[str, Any]:
    """Return actions on four features, what they cost, what they move and what makes them cheaper."""
    actions: list[dict[str, Any]] = []
    for name in "abcd":
        effort = rng.choice(EFFORTS)
        action = {
            "name": f"move {name}",
            "feature": name,
            "low": -6,
            "high": 6,
            "effort": effort and effort.format(name),
        }
        if rng.random() < 0.3:
            other = rng.choice([one for one in "abcd" if one != name])
            action["effects"] = {other: f"x.{other} + x_cf.{name} - x.{name}"}
        if rng.random() < 0.3:
            action["after"] = [rng.choice([f"x_cf.{name} > x.{name}", f"x_cf.{name} < x.{name} + 4"])]
        if rng.random() < 0.2:
            action["before"] = [f"x.{rng.choice('abcd')} < 6"]
        actions.append(action)
    edges = {tuple(rng.sample("abcd", 2)): rng.choice(FACTORS) for _ in range(rng.randint(0, 3))}
    relationships = [{"from": of, "to": to, "factor": factor} for (of, to), factor in edges.items()]
    return {"actions": actions, "relationships": relationships}


def cheapest(told: dict[str, Any], model: Any, x0: np.ndarray[Any, Any], most: int) -> float:
    """Return what the cheapest plan costs, by trying all sequences of all whole changes."""
    space = FeatureSpace.infer(X)
    declared = Declared(read_actions(told["actions"]), read_relationships(told["relationships"]))
    walker = Walker(ActionModel.bind(declared, space, BoundDistance.bind(Distance(), space)), x0, 1e-4)
    best = np.inf
    for length in range(1, most + 1):
        moves = np.array(list(product(range(-6, 7), repeat=length)), dtype=np.float64)
        for order in permutations(range(4), length):
            ends = walker.walk(np.tile(order, (len(moves), 1)), moves)
            lawful = ends.valid & (ends.states >= 0).all(axis=1) & (ends.states <= 6).all(axis=1)
            lawful &= (ends.states != x0).any(axis=1)
            left = np.flatnonzero(lawful & (ends.cost < best))
            if len(left):
                met = model.predict(pd.DataFrame(ends.states[left], columns=X.columns)) == 1
                best = float(ends.cost[left][met].min(initial=best))
    return best


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from(sorted(MODELS)), st.integers(1, 3))
def test_what_is_proved_is_true(seed: int, name: str, most: int) -> None:
    rng = Random(seed)
    told, model = plans(rng), MODELS[name]
    row = X[model.predict(X) == 0].iloc[[rng.randint(0, 50)]]
    explained = mlflow_cf.wrap(model, X, target=1, constraints=told, values="continuous", explainer=SMALL)
    explainer = CSCF(population=30, offspring=20, mutants=10, generations=5, max_steps=most)
    (found,) = explained.explain(row, explainer=explainer, certify=True, seed=0)
    best = cheapest(told, model, row.to_numpy(dtype=np.float64)[0], most)
    if not found.counterfactuals:
        assert found.status == "infeasible"
        assert best == np.inf
        return
    first = found.counterfactuals[0]
    cost = sum(step.effort * step.discount for step in first.plan)
    assert cost >= best - 1e-9
    assert first.bound is not None
    assert first.bound <= best + 1e-9
    assert first.proof == ("optimal" if cost * 0.999 <= first.bound else "bounded")
    assert cost <= best * 1.01 + 1e-9


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(sorted(MODELS)), st.integers(1, 3))
def test_whatever_the_search_missed_the_proof_answers_with_the_cheapest_plan(seed: int, name: str, count: int) -> None:
    rng = Random(seed)
    told, model = plans(rng), MODELS[name]
    row = X[model.predict(X) == 0].iloc[[rng.randint(0, 50)]]
    explained = mlflow_cf.wrap(model, X, target=1, constraints=told, values="continuous", explainer=SMALL)
    limits: dict[str, Any] = {"seed": 0, "count": count, "explainer": replace(SMALL, max_steps=2)}
    (searched,) = explained.explain(row, **limits)
    (found,) = explained.explain(row, certify=True, **limits)
    assert len(found.counterfactuals) >= min(len(searched.counterfactuals), 1)
    if not found.counterfactuals:
        return
    costs = [sum(step.effort * step.discount for step in one.plan) for one in found.counterfactuals]
    assert found.counterfactuals[0].proof == "optimal"
    assert min(costs) == costs[0] <= cheapest(told, model, row.to_numpy(dtype=np.float64)[0], 2) * 1.001 + 1e-9
    assert len(costs) >= len(searched.counterfactuals)
    for one in found.counterfactuals:
        last = one.plan[-1].row
        assert {name: last[name] for name in X} == {name: one.row[name] for name in X}
        assert model.predict(pd.DataFrame([last])[list(X)])[0] == 1


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-4, 0.1]))
def test_boxes_of_values_cost_no_more_than_any_plan_in_them(seed: int, unit: float) -> None:
    rng, some = Random(seed), np.random.default_rng(seed)
    told, space = plans(rng), FeatureSpace.infer(X)
    declared = Declared(read_actions(told["actions"]), read_relationships(told["relationships"]))
    model = ActionModel.bind(declared, space, BoundDistance.bind(Distance(), space))
    x0, order = some.integers(0, 7, 4).astype(np.float64), rng.sample(range(4), rng.randint(1, 3))
    values = some.integers(-6, 7, (200, len(order))).astype(np.float64)
    wide = some.integers(0, 3, (2, *values.shape)) * some.integers(0, 2, (200, 1))  # half of the boxes are points
    ends = Walker(model, x0, unit).walk(np.tile(order, (200, 1)), values)
    reached = BoxWalker(model, x0, unit).walk(order, values - wide[0], values + wide[1])
    assert reached.possible[ends.valid].all()
    assert (reached.cost[ends.valid] <= ends.cost[ends.valid] + 1e-12).all()
    assert (reached.states.low[ends.valid] <= ends.states[ends.valid]).all()
    assert (ends.states[ends.valid] <= reached.states.high[ends.valid]).all()


def test_without_limits_it_says_what_was_compared() -> None:
    explained = mlflow_cf.wrap(
        MODELS["linear"], X, target=1, constraints=plans(Random(0)), values="continuous", explainer=SMALL
    )
    row = X[MODELS["linear"].predict(X) == 0].iloc[[0]]
    (found,) = explained.explain(row, certify=True, seed=0)
    assert found.counterfactuals[0].proof == "optimal"
    assert found.reason == "certified among plans of up to 3 steps"


def test_unopened_models_and_functions_are_not_certified() -> None:
    told = plans(Random(0))
    row = X[MODELS["linear"].predict(X) == 0].iloc[[0]]
    explained = mlflow_cf.wrap(
        MODELS["linear"].predict, X, target=1, constraints=told, values="continuous", explainer=SMALL, output="label"
    )
    (found,) = explained.explain(row, certify=True, seed=0)
    assert found.counterfactuals[0].proof == "none"
    assert "could not be opened" in found.reason
    told["actions"][0]["effort"] = lambda before, after: abs(after["a"] - before["a"])
    explained = mlflow_cf.wrap(MODELS["linear"], X, target=1, constraints=told, values="continuous", explainer=SMALL)
    (found,) = explained.explain(row, certify=True, seed=0)
    assert found.counterfactuals[0].proof == "none"
    assert "of what Python functions compute, nothing can be proved" in found.reason


@pytest.mark.parametrize("evaluations", [2_000, 20_000])
def test_a_budget_that_ends_leaves_a_bound(evaluations: int) -> None:
    told = plans(Random(1))
    row = X[MODELS["network"].predict(X) == 0].iloc[[0]]
    explained = mlflow_cf.wrap(MODELS["network"], X, target=1, constraints=told, values="continuous", explainer=SMALL)
    (found,) = explained.explain(row, certify=True, seed=0, max_evaluations=evaluations)
    assert found.evaluations <= evaluations
    for one in found.counterfactuals:
        cost = sum(step.effort * step.discount for step in one.plan)
        assert one.proof in ("optimal", "bounded", "none")
        assert one.bound is None or one.bound <= cost
