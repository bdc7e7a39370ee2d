"""Small worlds of actions, followed in plain Python: what a plan does and costs, told by its texts alone."""

import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from random import Random
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

State = dict[str, Any]
NAMES = "abcd"
LEVELS = range(4)
TABLE = pd.DataFrame(list(product(LEVELS, repeat=4)), columns=list(NAMES))
KNOWN = {"abs": abs, "min": min, "max": max, "floor": math.floor, "exp": math.exp, "__builtins__": {}}
EFFORTS = ("abs(x_cf.{0} - x.{0})", "1 + abs(x_cf.{0} - x.{0}) / 3", "exp(x.{0} / 4)", "2")
FACTORS = ("1 - x.{0} / 4", "x.{0} / 3", "0.5", "x.{1} - 1", "1 - x.{1} / 5")  # of what helps, and what is helped


@cache
def _code(text: str) -> CodeType:
    return compile(text, text, "eval")


def value(source: Any, before: State, after: State) -> Any:
    """Return what a text or a function says of a step."""
    if callable(source):
        return source(before, after)
    states = {"x": SimpleNamespace(**before), "x_cf": SimpleNamespace(**after)}
    return eval(_code(source), dict(KNOWN), states)  # noqa: S307  texts of these tests


def _discount(told: Mapping[str, Any], before: State, after: State) -> float:
    means = []
    for name in after:
        edges = [edge for edge in told.get("relationships", ()) if edge["to"] == name]
        if edges and after[name] != before[name]:
            shares = [min(max(value(edge["factor"], before, after), 0.0), 1.0) for edge in edges]
            means.append(sum(shares) / len(shares))
    return sum(means) / len(means) if means else 1.0


def stepped(told: Mapping[str, Any], action: Mapping[str, Any], before: State, tweak: Any) -> Any:
    """Return the state after a step, its effort to 4 decimals, and its discount; None where it cannot be done."""
    name, after = action["feature"], dict(before)
    if not all(value(text, before, before) for text in action.get("before", ())):
        return None
    after[name] = before[name] + tweak if action.get("kind", "change") == "change" else tweak
    for other, effect in action.get("effects", {}).items():
        after[other] = value(effect, before, after)
    if after == before or not all(value(text, before, after) for text in action.get("after", ())):
        return None
    return after, round(value(action["effort"], before, after), 4), _discount(told, before, after)


def sequences(told: Mapping[str, Any], row: State, most: int) -> Iterator[tuple[int, float, State]]:
    """Yield the number of steps, the cost and the end of every sequence of different actions with levels to choose."""

    def further(state: State, cost: float, left: list[Any], length: int) -> Iterator[tuple[int, float, State]]:
        if length == most:
            return
        for at, action in enumerate(left):
            for tweak in action["levels"]:
                done = stepped(told, action, state, tweak)
                if done is not None:
                    after, effort, discount = done
                    yield length + 1, cost + effort * discount, after
                    yield from further(after, cost + effort * discount, left[:at] + left[at + 1 :], length + 1)

    yield from further(row, 0.0, list(told["actions"]), 0)


def check_plan(told: Mapping[str, Any], row: State, plan: Any, cost: float) -> State:
    """Follow a plan by its texts alone, and return where it ends."""
    actions, state, total = {action["name"]: action for action in told["actions"]}, row, 0.0
    for step in plan:
        action = actions.pop(step.action)  # each once
        name = action["feature"]
        tweak = step.row[name] - state[name] if action.get("kind", "change") == "change" else step.row[name]
        if "levels" in action:
            assert tweak in action["levels"]
        else:
            assert action["low"] - 1e-9 <= tweak <= action["high"] + 1e-9
        state, effort, discount = stepped(told, action, state, tweak)
        assert state == step.row
        assert math.isclose(step.effort, effort, abs_tol=1e-4)
        assert math.isclose(step.discount, discount, abs_tol=1e-9)
        total += step.effort * step.discount
    assert math.isclose(total, cost, abs_tol=1e-9)
    return state


def random_told(rng: Random, count: int) -> dict[str, Any]:
    """Return actions that choose a value of each of some features, with effects, conditions and discounts."""
    actions: list[dict[str, Any]] = []
    for name in NAMES[:count]:
        effort: Any = rng.choice(EFFORTS).format(name)
        if rng.random() < 0.1:
            effort = lambda x, x_cf, name=name: 0.5 + abs(x_cf[name] - x[name]) / 7  # noqa: E731
        levels = rng.sample(LEVELS, rng.randint(1, 4))
        action = {"name": f"set {name}", "feature": name, "kind": "choose", "levels": levels, "effort": effort}
        other = rng.choice([one for one in NAMES[:count] if one != name])
        if rng.random() < 0.4:
            action["effects"] = {other: rng.choice([f"x.{other} + 1", f"x.{other} + x_cf.{name} - x.{name}", "2"])}
        if rng.random() < 0.3:
            action["before"] = [f"x.{other} > 0"]
        if rng.random() < 0.3:
            action["after"] = [rng.choice([f"x_cf.{name} > x.{name}", f"x_cf.{other} < 3"])]
        actions.append(action)
    pairs = {tuple(rng.sample(NAMES[:count], 2)) for _ in range(rng.randint(1, 5))}
    edges = [{"from": of, "to": to, "factor": rng.choice(FACTORS).format(of, to)} for of, to in sorted(pairs)]
    return {"actions": actions, "relationships": edges}


def accepting(weights: np.ndarray[Any, Any], least: float) -> Any:
    """Return a model that says 1 where the weighted sum of a row is large."""

    def accepts(X: pd.DataFrame) -> np.ndarray[Any, Any]:
        return (X[list(NAMES)].to_numpy() @ weights >= least).astype(int)

    return accepts
