"""CERTIFAI's genetic search: where it starts, what it breeds, and that it never fails once it has started."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from searched import bound
from worlds import background, constraint_dicts, explained, lottery, table, wide_rows

from mlflow_cf import CERTIFAI, InputError
from mlflow_cf.explainers import Candidates
from mlflow_cf.problem import Budget, Problem

DATA = pd.DataFrame(
    {"a": [0] * 18 + [1, 2], "b": [0, 1, 2, 3] * 5, "c": [0, 1] * 10, "d": [0.0, 0.5, 2.0, 10.0, 3.5] * 4}
)


def search(problem: Problem, explainer: CERTIFAI | None = None, most: int = 100_000, seed: int = 0) -> Candidates:
    return (explainer or CERTIFAI(generations=30)).search(problem, Budget(most), np.random.default_rng(seed))


def far(Z: np.ndarray) -> np.ndarray:
    return (Z[:, 1] >= 2) & (Z[:, 3] >= 2)


def test_it_starts_from_the_favourable_rows_of_the_background() -> None:
    problem = bound(DATA, far)
    found = search(problem, CERTIFAI(generations=0))
    assert not problem.rate.seen
    assert found.diagnostics == {"generations": 0, "started_from": len(found.rows)}
    favourable = DATA[(DATA["b"] >= 2) & (DATA["d"] >= 2)].drop_duplicates()
    assert sorted(map(tuple, found.rows.tolist())) == sorted(favourable.itertuples(index=False, name=None))


def test_it_finds_what_no_row_has() -> None:
    """By hand: b = 2 and d = 2 with all else as it was; the background has d = 2 with a or c changed, or b = 3."""
    problem = bound(DATA.drop(index=[2]), far)
    assert search(problem).rows[0].tolist() == [0, 2, 0, 2.0]


def test_without_a_start_it_fails_and_asks_nothing() -> None:
    problem = bound(DATA, lambda Z: Z[:, 3] > 99)
    assert not len(search(problem).rows)
    assert not problem.rate.seen


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_the_smallest_populations(rows: int) -> None:
    frame = DATA.drop_duplicates().iloc[-rows - 3 :]
    wanted = set(map(tuple, frame.iloc[-rows:].to_numpy().tolist()))
    found = search(bound(frame, lambda Z: np.array([tuple(row) in wanted for row in Z.tolist()], dtype=bool)))
    assert set(map(tuple, found.rows.tolist())) == wanted


def test_no_row_is_scored_twice_and_rules_hold_for_all() -> None:
    problem = bound(DATA, far, constraints={"rules": ["IF x_cf.b > x.b THEN x_cf.d >= 2"], "max_changes": 3})
    found = search(problem)
    Z = np.concatenate(problem.rate.seen)
    assert len(np.unique(Z, axis=0)) == len(Z)
    assert problem.check(Z).all()
    assert problem.check(found.rows).all()


def test_the_budget_and_patience_end_it() -> None:
    for most in (1, 7, 20):
        problem = bound(DATA, far)
        assert len(search(problem, most=most).rows)
        assert sum(map(len, problem.rate.seen)) <= most
    hurried = search(bound(DATA, far), CERTIFAI(patience=3))
    assert hurried.diagnostics["generations"] < 20
    assert search(bound(DATA, far), CERTIFAI()).diagnostics["generations"] == 300


def test_the_nearest_come_first_and_only_so_many_are_kept() -> None:
    problem = bound(DATA, far, values="continuous")
    found = search(problem, CERTIFAI(population=7, generations=10))
    assert len(found.rows) == 7
    assert (np.diff(problem.bound_distance.distance(problem.columns, found.rows, problem.x0)) >= 0).all()


@dear(4)
@given(st.integers(0, 50), wide_rows, constraint_dicts)
def test_it_never_fails_where_a_row_of_the_background_answers(
    seed: int, row: dict[str, object], constraints: dict[str, object]
) -> None:
    frame, model = background(seed), lottery(seed, share=0.4)
    query = table([row], frame)
    try:
        loan = explained(model, frame, constraints)
    except InputError:
        return
    nearest, bred = (loan.explain(query, explainer=one)[0] for one in ("nearest_row", CERTIFAI(generations=5)))
    assert bool(bred.counterfactuals) >= bool(nearest.counterfactuals)
    if nearest.counterfactuals:
        assert bred.counterfactuals[0].distance <= nearest.counterfactuals[0].distance


@pytest.mark.parametrize(
    ("option", "value"), [("population", 1), ("generations", -1), ("patience", 0), ("patience", 2.0)]
)
def test_options_that_are_refused(option: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"explainer\.{option}: {value!r} is no whole number from"):
        CERTIFAI(**{option: value})
