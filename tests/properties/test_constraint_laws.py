"""Constraints in codes decide as the independent checker decides on raw values."""

from typing import Any

import numpy as np
import pandas as pd
from checker import Checker, same
from hypothesis import example, given
from hypothesis import strategies as st
from worlds import (
    FEATURES,
    ORDERS,
    background,
    bind,
    constraint_dicts,
    row_dicts,
    setting_of,
    stepped,
    table,
    wide_rows,
)

from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy

seeds = st.integers(0, 40)
mixes = st.lists(st.integers(0, 63), min_size=6, max_size=12)
QUERY = {"age": 20, "income": 0.0, "grade": "low", "job": "a", "member": False, "rooms": 1}


def never(rows: pd.DataFrame) -> Any:
    raise AssertionError(rows)


def judge(frame: pd.DataFrame, *constraints: dict[str, Any]) -> Checker:
    return Checker(never, frame, constraints, "yes", ORDERS)


@given(seeds, constraint_dicts, st.lists(wide_rows, min_size=2, max_size=6), mixes)
def test_pairs_are_checked_as_rows_are_one_by_one(
    seed: int, constraints: dict[str, Any], queries: list[dict[str, Any]], picks: list[int]
) -> None:
    frame = background(seed)
    bound_policy = setting_of(frame, constraints)
    others = [candidates(query, row_dicts(frame), picks)[1 + at] for at, query in enumerate(queries)]
    raw = table([*queries, *others], frame)
    space = bound_policy.space.covering(raw)
    bound_policy, codes = bound_policy.covering(space), space.encode(raw)
    X, Z = codes[: len(queries)], codes[len(queries) :]
    expected = [bool(bound_policy.accepts(Z[at : at + 1], X[at])[0]) for at in range(len(Z))]
    assert bound_policy.accepts(Z, X).tolist() == expected
    for rule in bound_policy.all_rules:
        assert rule.holds(Z, X).tolist() == [bool(rule.holds(Z[at : at + 1], X[at])[0]) for at in range(len(Z))]


GRIDS = {"age": (20, 26, 1), "income": (0.0, 2.5, 0.5), "rooms": (1, 4, 1)}


def codes_of(bound_policy: Any, rows: list[dict[str, Any]], frame: pd.DataFrame) -> Any:
    raw = table(rows, frame)
    return bound_policy.space.covering(raw).encode(raw)


def candidates(query: dict[str, Any], others: list[dict[str, Any]], picks: list[int]) -> list[dict[str, Any]]:
    """Mix the query row with other rows, so that few features differ and constraints are worth checking."""
    rows = [dict(query)]
    for number, pick in enumerate(picks):
        other = others[number % len(others)]
        rows.append({name: other[name] if pick >> bit & 1 else query[name] for bit, name in enumerate(query)})
    return rows


@given(seeds, constraint_dicts, wide_rows, st.lists(wide_rows, min_size=1, max_size=3), mixes)
def test_the_check_is_the_checkers(
    seed: int, constraints: dict[str, Any], query: dict[str, Any], odd: list[dict[str, Any]], picks: list[int]
) -> None:
    frame = background(seed)
    bound_policy = setting_of(frame, constraints)
    rows = candidates(query, row_dicts(frame) + odd, picks)
    codes = codes_of(bound_policy, [query, *rows], frame)
    accepted = bound_policy.accepts(codes[1:], codes[0])
    expected = [judge(frame, constraints).accepts(query, row) for row in rows]
    assert accepted.tolist() == expected


@given(seeds, st.sampled_from(["grid", "continuous"]), constraint_dicts, wide_rows, mixes)
def test_the_check_is_the_checkers_beyond_observed_values(
    seed: int, values: str, constraints: dict[str, Any], query: dict[str, Any], picks: list[int]
) -> None:
    frame = stepped(seed)
    bound_policy = setting_of_stepped(frame, constraints, values)
    near = [{**query, "income": 1.5, "age": 24}, {**query, "income": 0.7, "rooms": 3}, {**query, "grade": "top"}]
    rows = candidates(query, row_dicts(frame)[:3] + near, picks)
    codes = codes_of(bound_policy, [query, *rows], frame)
    accepted = bound_policy.accepts(codes[1:], codes[0])
    grids = GRIDS if values == "grid" else {name: GRIDS[name] for name in ("age", "rooms")}  # whole numbers keep a step
    judging = Checker(never, frame, (constraints,), "yes", ORDERS, values, grids)
    assert accepted.tolist() == [judging.accepts(query, row) for row in rows]


def setting_of_stepped(frame: pd.DataFrame, constraints: dict[str, Any], values: Any) -> BoundPolicy:
    steps: dict[str, dict[str, Any]] = {"income": {"step": 0.5}} if values == "grid" else {}
    space = FeatureSpace.infer(frame, {**FEATURES, **steps, "age": {"step": 1}, "rooms": {"step": 1}})
    return BoundPolicy.build(space, space.encode(frame), Constraints.read(constraints), Distance(), values)


@given(seeds, constraint_dicts, wide_rows)
def test_bound_tuples_are_what_enumeration_leaves(
    seed: int, constraints: dict[str, Any], query: dict[str, Any]
) -> None:
    frame = background(seed)
    problem = bind(setting_of(frame, constraints), table([query], frame))
    checker = judge(frame, constraints)
    assert [tuple(problem.space.names[c] for c in group.columns) for group in problem.groups] == sorted(
        checker_groups(checker, frame), key=lambda names: list(frame.columns).index(names[0])
    )
    for group in problem.groups:
        names = [problem.space.names[column] for column in group.columns]
        expected = {
            tuple(line[name] for name in names)
            for line in row_dicts(frame)
            if offered(checker, constraints, query, {name: line[name] for name in names})
        }
        values = [problem.space.features[column].value for column in group.columns]
        bound = [tuple(value(code) for value, code in zip(values, line, strict=True)) for line in group.actions]
        assert bound[group.own] == tuple(query[name] for name in names)
        proposed = bound[: group.own] + bound[group.own + 1 :]
        assert set(proposed) == expected
        assert len(proposed) == len(expected)
        assert group.weights[group.own] == 0
        for line, weight in zip(bound, group.weights, strict=True):
            if line != bound[group.own]:
                rows = [tuple(row[name] for name in names) for row in row_dicts(frame)]
                assert weight == rows.count(line)
        stays = not any(list(checker.broken_keys(constraints, name, query[name], query[name])) for name in names)
        assert group.own_allowed == stays
        assert (np.lexsort(np.where(np.isnan(group.actions), np.inf, group.actions).T[::-1])
                == np.arange(len(group.actions))).all()  # fmt: skip


def checker_groups(checker: Checker, frame: pd.DataFrame) -> list[tuple[str, ...]]:
    columns = list(frame.columns)
    return [tuple(sorted(group, key=columns.index)) for group in checker.groups()]


def offered(checker: Checker, constraints: dict[str, Any], query: dict[str, Any], parts: dict[str, Any]) -> bool:
    """Whether one group's tuple may be proposed, judged alone."""
    if all(same(query[name], value) for name, value in parts.items()):
        return False
    moved = {**query, **parts}
    alone = not any(list(checker.broken_keys(constraints, name, query[name], moved[name])) for name in parts)
    return alone and not list(checker.unknown_values(query, moved))


@given(seeds, constraint_dicts, constraint_dicts, wide_rows, st.lists(wide_rows, min_size=1, max_size=2), mixes)
@example(0, {"max_changes": 1}, {"groups": [["income", "rooms"]]}, QUERY, [QUERY], [0b100010] * 6)
def test_a_request_never_loosens(
    seed: int,
    policy: dict[str, Any],
    request: dict[str, Any],
    query: dict[str, Any],
    odd: list[dict[str, Any]],
    picks: list[int],
) -> None:
    frame = background(seed)
    bound_policy = setting_of(frame, policy)
    try:
        tightened = bound_policy.tightened(Constraints.read(request))
    except InputError:
        return
    rows = candidates(query, row_dicts(frame) + odd, picks)
    codes = codes_of(bound_policy, [query, *rows], frame)
    both = tightened.accepts(codes[1:], codes[0])
    alone = bound_policy.accepts(codes[1:], codes[0])
    assert not (both & ~alone).any()
    assert both.tolist() == [judge(frame, policy, request).accepts(query, row) for row in rows]
