"""Causal equations for small random problems, and what they ask for, written out in plain Python."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
from hypothesis import strategies as st
from worlds import GRADES, JOBS

ORDER = ("member", "job", "grade", "age", "income", "rooms")  # a parent stands before its children
LEVELS = {"job": JOBS, "grade": GRADES}
NUMBERS = ("age", "income", "rooms", "member")
halves = st.integers(-4, 4).map(lambda number: number / 2)
# texts over one parent or two, and what they mean; the last ones are no straight lines
FORMULAS: tuple[tuple[str, Callable[..., float]], ...] = (
    ("2 - 0.5 * {0}", lambda a: 2 - 0.5 * a),
    ("abs({0} - 2) / 2", lambda a: abs(a - 2) / 2),
    ("min({0}, 21, 3 * {0}) - 1", lambda a: min(a, 21, 3 * a) - 1),
    ("{0} / 2 - max({1}, 2 * {0} - 20)", lambda a, b: a / 2 - max(b, 2 * a - 20)),
    ("min(abs({0} - 22), {1}) * 0.5", lambda a, b: min(abs(a - 22), b) * 0.5),
    ("{0} * {1} / 8", lambda a, b: a * b / 8),
    ("{0} / ({1} - 1)", lambda a, b: a / (b - 1) if b != 1 else math.nan),
    ("floor({0} / 3 + {1}) + exp(0 - {1})", lambda a, b: math.floor(a / 3 + b) + math.exp(-b)),
)


@st.composite
def equations(draw: Any, child: str, *, learned: bool) -> dict[str, Any]:
    """Draw what one number follows."""
    earlier = ORDER[: ORDER.index(child)]
    kinds = ["coefficients", "points", "network", "formula", *(["learned"] if learned else [])]
    kind = draw(st.sampled_from(kinds))
    several = [name for name in earlier if name in NUMBERS] if kind == "formula" else list(earlier)
    parents = draw(st.lists(st.sampled_from(several), unique=True, min_size=1, max_size=2))
    equation = {"child": child, "parents": parents}
    if kind == "learned":
        return {**equation, "model": draw(st.sampled_from(["linear", "tree"]))}
    if kind == "formula":
        text, _ = draw(st.sampled_from([one for one in FORMULAS if _arguments(one[0]) == len(parents)]))
        return {**equation, "formula": text.format(*(f"x.{name}" for name in parents))}
    if kind == "network":
        return {**equation, "network": draw(networks(parents))}
    coefficients = {
        name: {level: draw(halves) for level in LEVELS[name]}
        if name in LEVELS
        else draw(points)
        if kind == "points" and name != "member"
        else draw(halves)
        for name in parents
    }
    return {**equation, "coefficients": coefficients, "intercept": 1.5}


points = st.lists(
    st.sampled_from([-1.0, 0.5, 1.0, 2.0, 20.5, 21.0, 24.0]), min_size=2, max_size=4, unique=True
).flatmap(
    lambda values: st.lists(halves, min_size=len(values), max_size=len(values)).map(
        lambda added: [list(pair) for pair in zip(sorted(values), added, strict=True)]
    )
)


@st.composite
def networks(draw: Any, parents: Sequence[str]) -> dict[str, Any]:
    """Draw a network of one layer or two."""
    inputs: list[Any] = [
        [name, level] if name in LEVELS else name
        for name in parents
        for level in (LEVELS[name][:2] if name in LEVELS else ("",))
    ]
    widths = [len(inputs), *draw(st.sampled_from([[1], [2, 1], [3, 2, 1]]))]
    layers = [*pairwise(widths)]
    weights = [[[draw(halves) for _ in range(out)] for _ in range(into)] for into, out in layers]
    return {"weights": weights, "biases": [[draw(halves) for _ in range(out)] for _, out in layers], "inputs": inputs}


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
    wanted = row[child] + expected(equation, frame, found) - expected(equation, frame, row)
    seen = sorted(set(frame[child].dropna().tolist()))
    below = [found[child] - value for value in seen if value < found[child]]
    above = [value - found[child] for value in seen if value > found[child]]
    gaps = (min(below or above), min(above or below))
    return bool(found[child] - gaps[0] / 2 - 1e-9 <= wanted <= found[child] + gaps[1] / 2 + 1e-9)


def expected(equation: Mapping[str, Any], frame: pd.DataFrame, row: Mapping[str, Any]) -> float:
    """Return what a given function says of a row."""
    known = {name: _usual(frame[name], name) if row[name] is None else row[name] for name in equation["parents"]}
    if "formula" in equation:
        names = [f"x.{name}" for name in known]
        (meant,) = [
            means
            for text, means in FORMULAS
            if _arguments(text) == len(names) and text.format(*names) == equation["formula"]
        ]
        return float(meant(*known.values()))
    if "network" in equation:
        return _of_network(equation["network"], known)
    return sum(_added(equation["coefficients"][name], value) for name, value in known.items())


def _arguments(text: str) -> int:
    return 2 if "{1}" in text else 1


def _of_network(network: Mapping[str, Any], known: Mapping[str, Any]) -> float:
    values = [float(known[one[0]] == one[1] if isinstance(one, list) else known[one]) for one in network["inputs"]]
    for weights, biases in zip(network["weights"], network["biases"], strict=True):
        values = [
            bias + sum(value * row[place] for value, row in zip(values, weights, strict=True))
            for place, bias in enumerate(biases)
        ]
        last, values = values, [max(value, 0.0) for value in values]
    return last[0]


def _added(coefficient: Any, value: Any) -> float:
    if isinstance(coefficient, dict):
        return float(coefficient.get(value, 0.0))
    if not isinstance(coefficient, list):
        return float(coefficient * value)
    for (start, low), (end, high) in pairwise(coefficient):
        if start <= value <= end:
            return float(low + (high - low) * (value - start) / (end - start))
    return float(coefficient[0][1] if value < coefficient[0][0] else coefficient[-1][1])


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
