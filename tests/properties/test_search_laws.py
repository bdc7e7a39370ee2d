"""Searches against brute force on small random problems: every answer holds, and what is there is found."""

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from typing import Any

import pytest
from checker import Checker, Ruler
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from worlds import (
    FEATURES,
    ORDERS,
    background,
    checker_of,
    constraint_dicts,
    explained,
    lottery,
    row_dicts,
    stepped,
    table,
    wide_rows,
)

from mlflow_cf.explainers import Explainer, GeCo, NearestRow
from mlflow_cf.options import WrapOptions
from mlflow_cf.testing.checker import absent
from mlflow_cf.words.result import Explanation
from mlflow_cf.wrapping import assemble

Row = dict[str, Any]
seeds = st.integers(0, 40)
shares = st.sampled_from([0.02, 0.1, 0.3])


def moves(checker: Checker, query: Row, most: int) -> Iterator[Row]:
    """Yield every row that changes at most `most` groups to observed tuples, lawful or not."""
    lines = row_dicts(checker.background)
    groups = checker.groups()
    offered = {group: {tuple(line[name] for name in group) for line in lines} for group in groups}
    for size in range(1, most + 1):
        for chosen in combinations(groups, size):
            for tuples in product(*(sorted(offered[group], key=repr) for group in chosen)):
                parts = [zip(group, values, strict=True) for group, values in zip(chosen, tuples, strict=True)]
                yield {**query, **{name: value for part in parts for name, value in part}}


def is_there(checker: Checker, query: Row, most: int) -> bool:
    """Whether a counterfactual with at most `most` changed groups exists."""
    lawful = [row for row in moves(checker, query, most) if checker.accepts(query, row)]
    if not lawful:
        return False
    return bool((checker.predict(table(lawful, checker.background)) == "yes").any())


def check_answers(checker: Checker, query: Row, found: Explanation, weights: tuple[float, float, float]) -> None:
    ruler = Ruler(checker.background, *weights, orders=ORDERS)
    assert found.status != "invalid", found.reason
    for answer in found.counterfactuals:
        assert checker.faults(query, answer.row) == []
        assert answer.distance == pytest.approx(ruler.distance(query, answer.row), abs=1e-9)
        moved = {name for name in query if query[name] != answer.row[name]}
        assert {change.feature for change in answer.changes} == moved
        assert answer.n_changed == len(moved)
        for change in answer.changes:
            assert (change.old, change.new) == (query[change.feature], answer.row[change.feature])
    rows = [tuple(answer.row.values()) for answer in found.counterfactuals]
    assert len(set(rows)) == len(rows)
    sets = [tuple(checker.changed_groups(query, answer.row)) for answer in found.counterfactuals]
    distinct = len(set(sets))
    assert len(set(sets[:distinct])) == distinct  # repetitions come last
    for part in (found.counterfactuals[:distinct], found.counterfactuals[distinct:]):
        assert all(one.distance <= two.distance for one, two in pairwise(part))
    assert (found.status == "found") == bool(found.counterfactuals)
    if found.status == "found":
        assert not found.reason or found.reason.startswith(f"{len(rows)} of ")
    else:
        assert bool(found.reason) == (found.status in {"infeasible", "not_found", "budget", "invalid"})


def near_copies(checker: Checker, query: Row, one: Row, two: Row) -> bool:
    """Whether two rows change the same groups, have the same levels, and numbers within 5 % of their range."""
    if checker.changed_groups(query, one) != checker.changed_groups(query, two):
        return False
    for name, value in one.items():
        if name in ("age", "income", "rooms") and not (absent(value) or absent(two[name])):
            seen = checker.background[name]
            if value != two[name] and abs(value - two[name]) >= 0.05 * (seen.max() - seen.min()):
                return False
        elif not (value == two[name] or (absent(value) and absent(two[name]))):
            return False
    return True


def is_minimal(checker: Checker, query: Row, row: Row) -> bool:
    """Whether no changed group can be put back alone."""
    for group in checker.changed_groups(query, row):
        back = {**row, **{name: query[name] for name in group}}
        if not checker.faults(query, back):
            return False
    return True


@dear(2)
@given(seeds, seeds, shares, constraint_dicts, wide_rows, st.integers(1, 4))
def test_geco_finds_what_single_changes_and_pairs_offer(
    seed: int, lots: int, share: float, constraints: dict[str, Any], query: Row, count: int
) -> None:
    frame, model = background(seed), lottery(lots, share)
    wrapped = explained(model, frame, constraints)
    checker = checker_of(model, frame, constraints)
    found = wrapped.explain(table([query], frame), count=count)[0]
    check_answers(checker, query, found, (0.5, 0.5, 0.0))
    assert all(is_minimal(checker, query, answer.row) for answer in found.counterfactuals)
    if found.status == "already":
        assert model.decide(table([query], frame))[0] == "yes"
    elif found.status != "found":
        assert not is_there(checker, query, 2)
        assert wrapped.explain(table([query], frame), explainer="nearest_row")[0].status != "found"
    if found.status == "infeasible":
        assert not any(checker.accepts(query, row) for row in moves(checker, query, 3))


@given(
    seeds,
    constraint_dicts,
    constraint_dicts,
    wide_rows,
    st.sampled_from([GeCo(), GeCo(q=8, m_init=2, m_mut=1), NearestRow()]),
    st.sampled_from([(0.5, 0.5, 0.0), (0.0, 1.0, 0.0), (0.2, 0.3, 0.5)]),
)
def test_answers_hold_under_policy_and_request(
    seed: int,
    policy: dict[str, Any],
    request: dict[str, Any],
    query: Row,
    explainer: Explainer,
    weights: tuple[float, float, float],
) -> None:
    frame, model = background(seed), lottery(seed, 0.3)
    wrapped = explained(model, frame, policy, distance=weights)
    try:
        found = wrapped.explain(table([query], frame), count=3, constraints=request, explainer=explainer)[0]
    except ValueError:
        return  # the request would loosen the policy
    check_answers(checker_of(model, frame, policy, request), query, found, weights)


@given(seeds, st.sampled_from(["grid", "continuous"]), constraint_dicts, wide_rows)
def test_answers_hold_beyond_observed_values(seed: int, values: str, constraints: dict[str, Any], query: Row) -> None:
    frame, model = stepped(seed), lottery(seed, 0.1)
    steps = {"income": {"step": 0.5}} if values == "grid" else {}
    features = {**FEATURES, **steps, "age": {"step": 1}, "rooms": {"step": 1}}
    options = WrapOptions(target="yes", constraints=constraints, features=features, values=values)
    found = assemble(model, frame, None, options).explain(table([query], frame), count=3)[0]
    grids = {"age": (20, 26, 1), "rooms": (1, 4, 1)} | ({"income": (0.0, 2.5, 0.5)} if steps else {})
    checker = Checker(model.decide, frame, [constraints], "yes", ORDERS, values, grids)
    check_answers(checker, query, found, (0.5, 0.5, 0.0))
    assert all(is_minimal(checker, query, answer.row) for answer in found.counterfactuals)


@given(seeds, seeds, constraint_dicts, wide_rows, st.integers(1, 3))
def test_nearest_row_is_brute_force(seed: int, lots: int, constraints: dict[str, Any], query: Row, count: int) -> None:
    frame, model = background(seed), lottery(lots, 0.5)
    checker = checker_of(model, frame, constraints)
    wrapped = explained(model, frame, constraints, explainer="nearest_row")
    found = wrapped.explain(table([query], frame), count=count)[0]
    if found.status == "already":
        return
    check_answers(checker, query, found, (0.5, 0.5, 0.0))
    ruler = Ruler(frame, orders=ORDERS)
    valid = {tuple(row.values()): row for row in row_dicts(frame) if not checker.faults(query, row)}
    distances = sorted(ruler.distance(query, row) for row in valid.values())
    assert bool(found.counterfactuals) == bool(valid)
    if valid:
        assert found.counterfactuals[0].distance == pytest.approx(distances[0], abs=1e-9)
    answers = [answer.row for answer in found.counterfactuals]
    assert all(tuple(answer.values()) in valid for answer in answers)
    assert not any(near_copies(checker, query, one, two) for one, two in combinations(answers, 2))
    if len(answers) < count:
        assert all(any(near_copies(checker, query, row, one) for one in answers) for row in valid.values())


@dear(4)
@given(seeds, constraint_dicts, st.lists(wide_rows, min_size=2, max_size=3))
def test_rows_do_not_see_each_other(seed: int, constraints: dict[str, Any], queries: list[Row]) -> None:
    frame, model = background(seed), lottery(seed, 0.1)
    wrapped = explained(model, frame, constraints)
    together = [found.to_dict() for found in wrapped.explain(table(queries, frame), count=2)]
    alone = [wrapped.explain(table([query], frame), count=2)[0].to_dict() for query in queries]
    assert together == alone
