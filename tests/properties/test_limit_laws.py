"""How many groups may change, as a policy and a request count them: searches against the independent checker."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from forest_worlds import forest_model
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import ORDERS, background, bind, checker_of, explained, lottery, row_dicts, table, wide_rows

from mlflow_cf.constraints import Constraints
from mlflow_cf.explainers import Exact, Explainer, GeCo, NearestRow, RandomSearch
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.testing.checker import Ruler

Row = dict[str, Any]
seeds = st.integers(0, 40)
# what a request joins, beside what a policy has joined already
JOINED = [
    ([], [["age", "income", "job"]]),
    ([], [["age", "income"], ["job", "member", "rooms"]]),
    ([["income", "rooms"]], [["age", "grade", "member"]]),
    ([["income", "rooms"]], [["income", "rooms"], ["age", "job", "grade", "member"]]),
    ([["age", "member"], ["job", "income"]], [["grade", "rooms"]]),
]
limits = st.tuples(st.integers(1, 3), st.none() | st.integers(1, 3))
further = st.sampled_from(
    [{}, {"levels": {"member": [True]}}, {"immutable": ["grade"]}, {"ranges": {"age": [21, None]}}]
)


def both(joined: Any, most: Any, extra: Row) -> tuple[Row, Row]:
    """Return a policy and a request, each with its groups and its limit."""
    policy = {"groups": joined[0], "max_changes": most[0], **extra}
    request = {"groups": joined[1]} | ({} if most[1] is None else {"max_changes": min(most[1], most[0])})
    return policy, request


asks = st.builds(both, st.sampled_from(JOINED), limits, further)


def lawful_rows(frame: Any, policy: Row, request: Row, query: Row) -> list[Row]:
    """Return every row that a checker accepts, which shares no code with the package."""
    checker = checker_of(lottery(0), frame, policy, request)
    lines = row_dicts(frame)
    offered = [
        [tuple(query[name] for name in group), *dict.fromkeys(tuple(line[name] for name in group) for line in lines)]
        for group in checker.groups()
    ]
    names = [name for group in checker.groups() for name in group]
    rows = []
    for tuples in product(*offered):
        if sum(one != own[0] for one, own in zip(tuples, offered, strict=True)) <= policy["max_changes"]:
            moved = dict(zip(names, [value for values in tuples for value in values], strict=True))
            row = {name: moved[name] for name in frame.columns}
            if checker.accepts(query, row):
                rows.append(row)
    return rows


def nearest(model: OpenModel, frame: Any, query: Row, rows: list[Row]) -> float | None:
    """Return the distance of the nearest row with the wanted label."""
    if not rows:
        return None
    good = np.flatnonzero(model.decide(table(rows, frame)) == "yes").tolist()
    ruler = Ruler(frame, orders=ORDERS)
    return min((ruler.distance(query, rows[at]) for at in good), default=None)


@settings(max_examples=max(1, settings.default.max_examples // 2))
@given(seeds, asks, wide_rows)
def test_exact_search_finds_what_both_limits_leave(seed: int, asked: tuple[Row, Row], query: Row) -> None:
    frame, (policy, request) = background(seed, 8), asked
    model = forest_model(seed, frame)
    wrapped = explained(model, frame, policy)
    row = table([query], frame)
    (found,) = wrapped.explain(row, constraints=request, explainer=Exact())
    if found.status == "already" or wrapped.space.covering(row) is not wrapped.space:
        return  # levels that the background lacks are not searched exactly
    best = nearest(model, frame, query, lawful_rows(frame, policy, request, query))
    assert (found.status == "found") == (best is not None), found.reason
    if best is not None:
        (answer,) = found.counterfactuals
        assert (answer.proof, answer.distance) == ("optimal", pytest.approx(best, abs=1e-9))
    else:
        assert found.status == "infeasible"


EXPLAINERS = [GeCo(), GeCo(sweep=False, q=20), RandomSearch(copies=60), NearestRow(), Exact()]


@given(seeds, asks, wide_rows, st.sampled_from(EXPLAINERS), st.sampled_from([forest_model, None]))
def test_no_answer_breaks_a_limit(
    seed: int, asked: tuple[Row, Row], query: Row, explainer: Explainer, opened: Callable[..., OpenModel] | None
) -> None:
    frame, (policy, request) = background(seed), asked
    model = lottery(seed, 0.3) if opened is None else opened(seed, frame)
    options: Any = {"constraints": request, "count": 3, "explainer": explainer}
    (found,) = explained(model, frame, policy).explain(table([query], frame), **options)
    assert found.status != "invalid", found.reason
    checker = checker_of(model, frame, policy, request)
    assert [fault for answer in found.counterfactuals for fault in checker.faults(query, answer.row)] == []


@given(seeds, asks, wide_rows, st.integers(0, 2**16))
def test_changes_left_are_those_of_whole_rows(seed: int, asked: tuple[Row, Row], query: Row, draw: int) -> None:
    frame, (policy, request) = background(seed), asked
    bound_policy = explained(lottery(0), frame, policy).bound_policy.tightened(Constraints.read(request))
    problem = bind(bound_policy, table([query], frame))
    rng = np.random.default_rng(draw)
    codes = np.column_stack([rng.integers(len(group.actions), size=40) for group in problem.groups])
    codes = np.where(rng.random(codes.shape) < 0.5, problem.own, codes)
    rows = problem.rows(codes)
    differs = (rows != problem.x0) & ~(np.isnan(rows) & np.isnan(problem.x0))
    left = [
        limit.most - np.sum([differs[:, list(columns)].any(axis=1) for columns in limit.groups], axis=0)
        for limit in bound_policy.limits
    ]
    left.append(len(problem.groups) - (codes != problem.own).sum(axis=1))  # no more than all of them can change
    assert problem.changes_left(codes).tolist() == np.min(left, axis=0).tolist()
    assert problem.most_changes >= (codes != problem.own).sum(axis=1)[problem.changes_left(codes) >= 0].max(initial=0)
