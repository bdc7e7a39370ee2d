"""SimCF: what a step draws and keeps, when a walk fails, and that its answers meet all constraints."""

import numpy as np
import pandas as pd
import pytest
from checker import Checker
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from searched import Watched, bound
from worlds import ORDERS, background, constraint_dicts, explained, lottery, row_dicts, table, wide_rows

from mlflow_cf import InputError, SimCF
from mlflow_cf.explainers import Candidates
from mlflow_cf.problem import Budget, Problem

DATA = pd.DataFrame(
    {"a": [0] * 18 + [1, 2], "b": [0, 1, 2, 3] * 5, "c": [0, 1] * 10, "d": [0.0, 0.5, 2.0, 10.0, 3.5] * 4}
)


def search(problem: Problem, explainer: SimCF | None = None, most: int = 100_000, seed: int = 0) -> Candidates:
    return (explainer or SimCF()).search(problem, Budget(most), np.random.default_rng(seed))


def test_a_walk_visits_every_group_once() -> None:
    """The row itself and 2, 3, 1 and 4 other values, for the model accepts nothing and no change is worth its price."""
    problem = bound(DATA, lambda Z: np.zeros(len(Z), dtype=bool))
    found = search(problem)
    Z = problem.rate.seen
    assert len(Z[0]) == 1
    assert sorted(len(part) for part in Z[1:]) == [1, 2, 3, 4]
    assert not len(found.rows)
    assert found.diagnostics == {"walks": 1, "failed": 1}
    assert all(problem.changed(part).sum(axis=1).max() == 1 for part in Z[1:])


def test_the_group_may_have_to_change() -> None:
    problem = bound(DATA, lambda Z: np.zeros(len(Z), dtype=bool))
    search(problem, SimCF(allow_no_change=False))
    assert [problem.changed(part).sum(axis=1).max() for part in problem.rate.seen] == [0, 1, 2, 3, 4]


def test_a_step_keeps_the_nearest_that_is_favourable() -> None:
    """By hand: of 0.5, 2, 3.5 and 10, those from 2 on are favourable; the change of a, b and c is no way out."""
    problem = bound(DATA, lambda Z: Z[:, 3] >= 2)
    for seed in range(5):
        assert search(problem, seed=seed).rows.tolist() == [[0, 0, 0, 2.0]]


def test_values_are_drawn_by_frequency() -> None:
    frame = pd.DataFrame({"a": [0] * 10 + [1] * 95 + [2] * 5})
    drawn = []
    for seed in range(200):
        problem = bound(frame, lambda Z: np.zeros(len(Z), dtype=bool), row=(0,))
        search(problem, SimCF(values=1), seed=seed)
        drawn.append(problem.rate.seen[1][0, 0])
    assert 0.9 < np.mean(np.array(drawn) == 1) < 0.99


def test_every_answer_wanted_has_walks_of_its_own() -> None:
    problem = bound(DATA, lambda Z: Z[:, 0] + Z[:, 1] + Z[:, 2] > 0, count=8)
    found = search(problem, SimCF(walks=2))
    assert found.diagnostics["walks"] == 16
    assert len({tuple(row) for row in found.rows.tolist()}) == 3
    assert (np.diff(problem.bound_distance.distance(problem.columns, found.rows, problem.x0)) >= 0).all()


def test_the_row_itself_is_no_answer_though_favourable() -> None:
    """It breaks a constraint of the policy: b must be 2 or 3."""
    problem = bound(DATA, lambda Z: np.ones(len(Z), dtype=bool), constraints={"ranges": {"b": [2, 3]}})
    assert problem.check(search(problem).rows).all()
    assert len(search(problem).rows)


def test_rules_are_repaired_and_nothing_is_scored_twice_over_the_budget() -> None:
    rules = {"rules": ["IF x_cf.a > x.a THEN x_cf.b >= 2"]}
    problem = bound(DATA, lambda Z: Z[:, 0] > 0, constraints=rules)
    found = search(problem)
    assert problem.check(found.rows).all()
    assert (found.rows[:, 1] >= 2).all()
    for most in range(6):
        problem = bound(DATA, lambda Z: np.zeros(len(Z), dtype=bool))
        search(problem, most=most)
        assert sum(map(len, problem.rate.seen)) <= most


def test_nothing_may_change() -> None:
    problem = bound(DATA, lambda Z: np.zeros(len(Z), dtype=bool), constraints={"immutable": list(DATA)})
    assert not len(search(problem).rows)


@dear(4)
@given(st.integers(0, 50), wide_rows, constraint_dicts)
def test_answers_meet_all_constraints(seed: int, row: dict[str, object], constraints: dict[str, object]) -> None:
    frame, model = background(seed), lottery(seed, share=0.4)
    query = table([row], frame)
    try:
        loan = explained(model, frame, constraints, explainer=SimCF())
    except InputError:
        return
    (found,) = loan.explain(query, count=3)
    checker = Checker(model.decide, frame, (constraints,), "yes", ORDERS, "observed")
    (plain,) = row_dicts(query)
    for answer in found.counterfactuals:
        assert not checker.faults(plain, dict(answer.row))


@pytest.mark.parametrize(("option", "value"), [("values", 0), ("walks", 101), ("values", 1.5), ("walks", True)])
def test_options_that_are_refused(option: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"explainer\.{option}: {value!r} is no whole number from 1 to "):
        SimCF(**{option: value})


def test_the_same_seed_walks_the_same() -> None:
    seen = []
    for _ in range(2):
        problem = bound(DATA, lambda Z: np.zeros(len(Z), dtype=bool))
        assert isinstance(problem.rate, Watched)
        search(problem, seed=3)
        seen.append(np.concatenate(problem.rate.seen))
    assert (seen[0] == seen[1]).all()
