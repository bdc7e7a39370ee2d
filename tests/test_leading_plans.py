"""Which of several plans come first: nobody shall miss a cheap one of few steps."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf import CSCF
from mlflow_cf.explainers import PlannedStep
from mlflow_cf.proof.by_cost import leading_plans

FACTS = st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 3))  # cost, steps, changed features


@given(st.lists(FACTS, max_size=12).map(sorted))
def test_lots_are_those_of_the_definition(facts: list[tuple[int, int, int]]) -> None:
    rows = np.array([[1.0] * changed + [0.0] * (3 - changed) for _, _, changed in facts]).reshape(-1, 3)
    plans = [(PlannedStep("a", 1.0, 1.0, row),) * steps for row, (_, steps, _) in zip(rows, facts, strict=True)]
    costs = np.array([cost for cost, _, _ in facts], dtype=float)
    shorter, front, cheapest = leading_plans(np.zeros(3), rows, plans, costs)
    for at, (cost, steps, changed) in enumerate(facts):
        assert shorter[at] == all(other > steps for _, other, _ in facts[:at])
        beats = [c <= cost and s <= steps and f <= changed for c, s, f in facts]
        other = [(c, s, f) != (cost, steps, changed) for c, s, f in facts]
        assert front[at] <= (not any(np.array(beats) & other))
        assert front[at] >= (not any(np.array(beats) & other) and facts.index(facts[at]) == at)
        assert cheapest[at] == all(other != steps for _, other, _ in facts[:at])


def test_a_short_plan_is_told_beside_a_cheaper_long_one_that_changes_the_same() -> None:
    """Half of the way twice costs half as much; both plans change `a` to about 10, and the long one alone was told."""
    table = pd.DataFrame({"a": np.linspace(0.5, 20.0, 40), "b": np.linspace(0.1, 1.3, 40)})
    half = {"feature": "a", "low": 0, "high": 20, "effort": "(x_cf.a - x.a) * (x_cf.a - x.a) / 100"}
    actions = [{"name": "one half", **half}, {"name": "other half", **half}]
    explained = mlflow_cf.wrap(
        lambda X: (X["a"] > 10).astype(int).to_numpy(), table, target=1, output="label", values="continuous",
        constraints={"actions": actions},
    )  # fmt: skip
    small = CSCF(population=30, offspring=20, mutants=10, generations=6)
    for count in (2, 5):
        (answer,) = explained.explain(table[:1], explainer=small, count=count, seed=0)
        lengths = [len(found.plan) for found in answer.counterfactuals]
        assert lengths[:2] == [2, 1]
        costs = answer.diagnostics["costs"]
        assert costs[0] < 0.5
        assert costs[1] < 0.95
