"""Several answers of MD-PSO: few changes of few deviations, without needless ones, and the nearest one first."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_mdpso import problem_of, search

import mlflow_cf
from mlflow_cf import MDPSO
from mlflow_cf.explainers.mdpso.selection import AGAIN, CHANGE, in_deviations, left_by_sparse
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.search.population import near_copies

# `stay` has a long tail: a change of 40 % of its range is hundreds of deviations; half of the rows have 0, 1, 2
STAYS = pd.DataFrame(
    {
        "priors": np.arange(40) % 20.0,
        "stay": np.append(np.arange(38) % 3.0, [400.0, 1000.0]),
        "job": list("abcd") * 10,
    }
)
STAY_ROW = (15.0, 1.0, 0.0)
SWARM = MDPSO(box="absolute", epsilon=1, iterations=20, particles=20)


def released(Z: np.ndarray) -> np.ndarray:
    """Want few priors, a very long stay, or one level beside somewhat fewer priors."""
    return (Z[:, 0] <= 10) | (Z[:, 1] >= 400) | ((Z[:, 2] == 1) & (Z[:, 0] <= 13))


def stays(count: int, favourable: Callable[[np.ndarray], np.ndarray] = released) -> Problem:
    return problem_of(favourable, row=STAY_ROW, count=count, frame=STAYS)


def test_a_change_counts_and_so_do_deviations_as_worked_by_hand() -> None:
    problem = in_deviations(stays(2))
    features = problem.space.features
    rows = np.array([[5.0, 1.0, 0.0], [15.0, 400.0, 0.0], [15.0, 1.0, 1.0], [5.0, 1.0, 1.0]])
    ten, far = 10 / features[0].mad, 399 / features[1].mad
    wanted = np.array([CHANGE + ten, CHANGE + far, CHANGE + 1, 2 * CHANGE + ten + 1]) / (CHANGE + 1) / 3
    found = problem.bound_distance.distance(problem.columns, rows, problem.x0)
    np.testing.assert_allclose(found, wanted)
    assert CHANGE > AGAIN > 0


def test_what_is_far_in_deviations_displaces_no_second_value_of_what_is_near() -> None:
    far = 400.0
    by_clusters = search(stays(3), MDPSO(box="absolute", epsilon=1, pick="best")).rows
    assert (by_clusters[:, 1] >= far).any()
    found = search(stays(3)).rows
    assert len(found) == 3
    assert (found[:, 1] == STAY_ROW[1]).all()
    assert {tuple(row) for row in found[:, [0, 2]] if row[1] == 0} >= {(10.0, 0.0)}


tables = st.lists(st.booleans(), min_size=64, max_size=64)


@given(tables, st.integers(2, 6), st.integers(0, 3))
def test_picks_are_wanted_differ_and_need_each_change_and_the_first_is_nearest(
    table: list[bool], count: int, seed: int
) -> None:
    wanted = np.array(table).reshape(4, 4, 4)

    def favourable(Z: np.ndarray) -> np.ndarray:
        kind = wanted[(Z[:, 0] // 5).astype(int), np.minimum(Z[:, 1], 3).astype(int), Z[:, 2].astype(int)]
        return np.asarray(kind & (Z != STAY_ROW).any(axis=1))

    problem = stays(count, favourable)
    found = search(problem, SWARM, seed=seed).rows[:count]
    assert favourable(found).all()
    undone = problem.undone(found)[1]
    assert not favourable(undone).any()
    for at in range(len(found)):
        assert not near_copies(problem, found[:at], found[at]).any()
    distance = problem.bound_distance.distance(problem.columns, found, problem.x0)
    assert not len(distance) or distance[0] == distance.min()


@given(st.integers(0, 10_000_000))
def test_the_swarm_leaves_half_of_few_evaluations(most: int) -> None:
    swarm = left_by_sparse(Budget(most))
    assert most // 2 <= swarm <= most


@pytest.mark.parametrize("most", [100, 6_000])
def test_few_evaluations_suffice_for_all_answers_that_exist(most: int) -> None:
    explained = mlflow_cf.wrap(
        lambda rows: released(np.column_stack([rows["priors"], rows["stay"], rows["job"] == "b"])).astype(int),
        STAYS,
        target=1,
        output="label",
        explainer=MDPSO(box="absolute", epsilon=1),
        seed=0,
    )
    row = pd.DataFrame({"priors": [15.0], "stay": [1.0], "job": ["a"]})
    (found,) = explained.explain(row, count=5, max_evaluations=most)
    assert len(found.counterfactuals) == 5
    assert found.evaluations <= most
