"""Causal equations for small random problems, and what they ask for, written out in plain Python."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from hypothesis import strategies as st
from worlds import GRADES, JOBS

ORDER = ("member", "job", "grade", "age", "income", "rooms")  # a parent stands before its children
LEVELS = {"job": JOBS, "grade": GRADES}
halves = st.integers(-4, 4).map(lambda number: number / 2)


@st.composite
def equations(draw: Any, child: str, *, learned: bool) -> dict[str, Any]:
    """Draw what one number follows."""
    earlier = ORDER[: ORDER.index(child)]
    parents = draw(st.lists(st.sampled_from(earlier), unique=True, min_size=1, max_size=2))
    if learned and draw(st.booleans()):
        return {"child": child, "parents": parents, "model": draw(st.sampled_from(["linear", "tree"]))}
    coefficients = {
        name: {level: draw(halves) for level in LEVELS[name]} if name in LEVELS else draw(halves) for name in parents
    }
    return {"child": child, "parents": parents, "coefficients": coefficients, "intercept": 1.5}


@st.composite
def causal_lists(draw: Any, *, learned: bool = True) -> list[dict[str, Any]]:
    """Draw the equations of a policy."""
    children = draw(st.lists(st.sampled_from(ORDER[3:]), unique=True, min_size=1, max_size=2))
    return [draw(equations(child, learned=learned)) for child in children]


def follows(equation: Mapping[str, Any], frame: pd.DataFrame, row: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether `found` keeps a given equation as a counterfactual of `row`; numbers take the values of `frame`."""
    child, parents = equation["child"], equation["parents"]
    moves = any(row[name] != found[name] for name in parents)
    if row[child] is None or not moves:
        return bool(row[child] == found[child])
    if found[child] is None:
        return False
    wanted = row[child]
    for name in parents:
        wanted += _added(equation, frame, name, found[name]) - _added(equation, frame, name, row[name])
    seen = sorted(set(frame[child].dropna().tolist()))
    below = [found[child] - value for value in seen if value < found[child]]
    above = [value - found[child] for value in seen if value > found[child]]
    gaps = (min(below or above), min(above or below))
    return bool(found[child] - gaps[0] / 2 - 1e-9 <= wanted <= found[child] + gaps[1] / 2 + 1e-9)


def _added(equation: Mapping[str, Any], frame: pd.DataFrame, name: str, value: Any) -> float:
    coefficient = equation["coefficients"][name]
    if value is None:
        value = _usual(frame[name], name)
    if isinstance(coefficient, dict):
        return float(coefficient.get(value, 0.0))
    return float(coefficient * value)


def _usual(column: pd.Series, name: str) -> Any:
    """Return what counts for a missing value: the median, or the most frequent level; of equals the first."""
    if name == "grade":
        ranks = sorted(GRADES.index(value) for value in column.dropna())
        middle = (ranks[(len(ranks) - 1) // 2] + ranks[len(ranks) // 2]) / 2
        return GRADES[math.floor(middle)]
    if name == "job":
        counts = column.astype(str)[column.notna()].value_counts()
        return min(level for level in JOBS if counts.get(level, 0) == counts.max())
    return float(column.dropna().astype(float).median())
