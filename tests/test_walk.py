"""Sequences of actions: the compiled walk is the same as step after step."""

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlflow_cf.constraints.actions import read_actions, read_relationships
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.plans.action_model import ActionModel, Declared
from mlflow_cf.plans.boxes import BoxWalker
from mlflow_cf.plans.walk import Walker
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance

NUMBERS = ["a", "b", "c"]
TABLE = pd.DataFrame(
    {name: [0.0, 1.2345678, *range(2, 11)] for name in NUMBERS}
    | {
        "whole": range(11),
        "level": list("pqrpqrpqrpq"),
        "other": list("qrspqrspqrs"),
        "flag": [True, False] * 5 + [True],
        "free": np.arange(11) / 7,
    }
)
SPACE = FeatureSpace.infer(TABLE)
TERMS = [
    "x.a", "x_cf.a", "x.b", "x_cf.b", "x.whole", "x_cf.c", "2", "0.5", "(x.a - x_cf.a)", "abs(x.b - x_cf.b)",
    "floor(x.c / 2)", "min(x.a, x.b, 3)", "max(x_cf.c, x.whole)", "exp(0 - x.a)", "(1 / x.b)", "(x.a * x.c)",
    "exp(x.a * 100)",
]  # fmt: skip
LEVELS = ["x_cf.level == 'p'", "x.level != 'q'", "x_cf.level == x.level",
          "x_cf.other == x.level", "x.other != x_cf.level", "IF x.level == 'p' THEN x_cf.other == 'q'",
          "x.flag == true"]  # fmt: skip
CASES = {"from": "level", "to": "whole", "cases": [["x.level == 'p'", 0.25], ["x.a > 5", 0.5]], "otherwise": 0.75}


def condition(rng: Random) -> str:
    compared = f"{rng.choice(TERMS)} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {rng.choice(TERMS)}"
    return rng.choice([compared, rng.choice(LEVELS)])


def several(rng: Random, most: int) -> list[str]:
    return [condition(rng) for _ in range(rng.randint(0, most))]


def action(rng: Random, name: str, kind: str) -> dict[str, Any]:
    effects = {name: rng.choice(TERMS) for name in rng.sample(["c", "free"], rng.randint(0, 2))}
    effort = rng.choice([None, rng.choice(TERMS), f"abs({rng.choice(TERMS)} - {rng.choice(TERMS)})"])
    before = [text for text in several(rng, 1) if "x_cf" not in text]
    numbers: dict[str, Any] = {"low": -20, "high": 20}
    if kind == "choose":
        numbers = {"levels": ["p", "r"]}
        effects = rng.choice([{}, {"other": "x_cf.level"}, {"other": "'s'"}])
    told = {"name": f"{kind} {name}", "feature": name, "kind": kind, "effects": effects, "effort": effort}
    return {**told, **numbers, "before": before, "after": several(rng, 1)}


def world(rng: Random) -> ActionModel:
    """Return an action model of four actions with whatever effects, efforts, conditions and relationships."""
    pairs = [("a", "change"), ("b", "set"), ("whole", "change"), ("level", "choose")]
    actions = [action(rng, *pair) for pair in pairs]
    edges = {
        (rng.choice(NUMBERS), rng.choice([*NUMBERS, "level"])): rng.choice(TERMS) for _ in range(rng.randint(0, 4))
    }
    told = [{"from": of, "to": to, "factor": text} for (of, to), text in edges.items() if "x_cf" not in text]
    declared = Declared(read_actions(actions), read_relationships([*told, CASES]))
    return ActionModel.bind(declared, SPACE, BoundDistance.bind(Distance(), SPACE))


def start(rng: Random) -> Floats:
    """Return a row, in which numbers and levels may be missing."""
    numbers = [rng.choice([np.nan, *([rng.randint(0, 20) / 2] * 4)]) for _ in range(4)]
    levels = [rng.choice([np.nan, *([rng.randint(0, 2)] * 4)]), rng.randint(0, 3), rng.randint(0, 1)]
    return np.array([*numbers[:3], rng.randint(0, 10), *levels, numbers[3]], dtype=np.float64)


@settings(max_examples=80)
@given(st.integers(0, 2**32))
@pytest.mark.filterwarnings("ignore:.*is not a level")
def test_the_compiled_walk_takes_the_same_steps(seed: int) -> None:
    rng = Random(seed)
    action_model, unit = world(rng), rng.choice([0.0, 1e-4])
    compiled, plain = (Walker(action_model, row, unit) for row in [start(rng)] * 2)
    assert compiled._program is not None
    plain.__dict__["_program"] = None
    order = np.array([[*rng.sample(range(4), 4)[: rng.randint(0, 4)], -1, -1, -1, -1][:4] for _ in range(6)])
    moves = [[rng.choice([0.0, 2.0]) if at == 3 else rng.uniform(-15, 15) for at in row] for row in order.tolist()]
    values = np.array(moves)
    one, other = compiled.walk(order, values), plain.walk(order, values)
    assert one.valid.tolist() == other.valid.tolist()
    assert one.steps.tolist() == other.steps.tolist()
    assert one.often.tolist() == other.often.tolist()
    np.testing.assert_allclose(one.states, other.states, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(one.cost, other.cost, rtol=1e-9, atol=1e-9)
    for number in np.flatnonzero(one.valid).tolist():
        plan = compiled.plan(order[number], values[number])
        assert sum(step.effort * step.discount for step in plan) == pytest.approx(one.cost[number])
        np.testing.assert_allclose(plan[-1].row, one.states[number])


@settings(max_examples=80)
@given(st.integers(0, 2**32))
@pytest.mark.filterwarnings("ignore:.*is not a level")
def test_boxes_hold_whatever_their_values_lead_to(seed: int) -> None:
    rng = Random(seed)
    action_model, x0, unit = world(rng), start(rng), rng.choice([0.0, 1e-4])
    order = rng.sample(range(4), rng.randint(1, 3))
    low = np.array([[0.0 if number == 3 else rng.uniform(-15, 15) for number in order]])
    high = np.array([[2.0 if at == 3 else low[0, n] + rng.choice([0, 0.5, 5, 20]) for n, at in enumerate(order)]])
    reached = BoxWalker(action_model, x0, unit).walk(order, low, high)
    inside = [
        [rng.choice([0.0, 2.0]) if at == 3 else rng.uniform(low[0, n], high[0, n]) for n, at in enumerate(order)]
        for _ in range(10)
    ]
    ends = Walker(action_model, x0, unit).walk(np.tile(order, (12, 1)), np.array([*inside, low[0], high[0]]))
    own, valid = np.isnan(x0) & np.isnan(ends.states), ends.valid
    assert reached.possible[0] or not valid.any()
    assert (ends.cost[valid] >= reached.cost[0] - 1e-9).all()
    assert ((ends.states >= reached.states.low[0]) | own)[valid].all()
    assert ((ends.states <= reached.states.high[0]) | own)[valid].all()
