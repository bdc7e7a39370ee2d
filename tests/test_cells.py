"""Cells of continuous numbers: one value of each, the nearest, stands for all that the model cannot tell apart."""

from typing import Any

import numpy as np
import pandas as pd
from forest_worlds import forest_model, opened_problem
from hypothesis import given
from hypothesis import strategies as st
from worlds import explained

from mlflow_cf.problem import Group, Problem
from mlflow_cf.problem.points import with_points
from mlflow_cf.search.snapping import codes_of

RULES = ("x_cf.a >= x.a", "x_cf.a != 0.75", "x_cf.b <= x.b + 1.3", "IF x_cf.b > 0.5 THEN x_cf.b < 1.9", "x_cf.b > x.b")
TYPES = ("float64", "float32")
sides = st.sampled_from([-np.inf, np.inf])


def numbers(seed: int, dtype: str) -> pd.DataFrame:
    """Return two columns of fractions and a level."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.normal(0, 2, 40).round(2) + 0.001 for name in "ab"}).astype(dtype)
    frame.loc[0, "a"] = 0.75
    return frame.assign(grade=rng.choice(["low", "high"], 40))


class World:
    """A problem, shown by its address."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


@st.composite
def worlds(draw: Any) -> World:
    seed, dtype = draw(st.integers(0, 2**16)), draw(st.sampled_from(TYPES))
    frame = numbers(seed, dtype)
    constraints = {"rules": draw(st.lists(st.sampled_from(RULES), unique=True, max_size=2))}
    if draw(st.booleans()):
        constraints["ranges"] = {"a": [-1.05, 4.1]}
    wrapped = explained(
        forest_model(seed, frame), frame, constraints, distance=draw(st.sampled_from([(0.5, 0.5, 0), (0, 0.5, 0.5)])),
        values="continuous",
    )  # fmt: skip
    query = frame.iloc[[draw(st.integers(0, 39))]]
    if draw(st.booleans()):
        query = query.assign(a=np.array([draw(st.sampled_from([-50.0, 0.1, 99.5, np.nan]))], dtype=dtype))
    return World(opened_problem(wrapped, query))


def lawful(problem: Problem, group: Group, values: Any) -> Any:
    """Return (v,) which values of a group of one number its own rules and its interval allow."""
    rows = np.tile(problem.x0, (len(values), 1))
    rows[:, group.columns[0]] = values
    held = np.all([rule.holds(rows, problem.x0) for rule in group.rules], axis=0)
    return group.domain.contains(values[:, None]) & held


@given(worlds(), st.integers(0, 2**16))
def test_a_cell_stands_for_all_its_values_by_the_nearest_that_is_allowed(world: World, seed: int) -> None:
    problem = world.problem
    pointed, exact = with_points(problem)
    assert exact
    assert problem.scorer is not None
    rng = np.random.default_rng(seed)
    for before, group in zip(problem.groups[:2], pointed.groups[:2], strict=True):
        (column,), (low, high) = group.columns, group.interval or (0.0, 0.0)
        ends = problem.scorer.structure.ends(column)
        assert ends is not None
        # everything at which something may change, with its neighbours in the column's type, and any numbers besides
        stored = problem.space.features[column].stored.type
        near = np.concatenate([ends[np.isfinite(ends)], [low, high, 0.75, 0.5, 1.9], problem.x0[[column]]])
        near = np.concatenate([near, near[-1:] + 1.3, rng.uniform(low, high, 200), before.actions[:, 0]]).astype(stored)
        values = np.concatenate([near, *(np.nextafter(near, stored(side)) for side in (-np.inf, np.inf))])
        values = np.unique(values[~np.isnan(values)]).astype(np.float64)
        values = values[lawful(problem, before, values)]
        cost = problem.bound_distance.parts((column,), values[:, None], problem.x0[[column]])
        encoded = problem.scorer.structure.encode(column, values)
        for token, part, peak in zip(encoded, *cost, strict=True):
            same = pointed.encoded_tables[column] == token
            same[group.own] &= group.own_allowed
            assert ((group.cost[same] <= part) & (group.peak[same] <= peak)).any()


@given(worlds())
def test_values_of_cells_are_lawful_of_the_columns_type_and_where_they_are_said_to_be(world: World) -> None:
    problem = world.problem
    pointed, _ = with_points(problem)
    assert problem.scorer is not None
    for group in pointed.groups[:2]:
        (column,) = group.columns
        rows = np.tile(problem.x0, (len(group.actions), 1))
        rows[:, column] = group.actions[:, 0]
        others = np.delete(rows, group.own, axis=0)
        assert lawful(problem, group, others[:, column]).all()
        np.testing.assert_array_equal(problem.space.encode(problem.space.decode(others)), others)
        np.testing.assert_array_equal(group.actions[group.own], problem.x0[[column]])
        encoded = problem.scorer.structure.encode(column, group.actions[:, 0])
        np.testing.assert_array_equal(pointed.encoded_tables[column], encoded)
        part, peak = problem.bound_distance.parts((column,), group.actions, problem.x0[[column]])
        np.testing.assert_array_equal(group.cost, part)
        np.testing.assert_array_equal(group.peak, peak)


@given(worlds())
def test_background_rows_are_coded_by_rows_that_the_model_cannot_tell_from_them(world: World) -> None:
    problem = world.problem
    pointed, _ = with_points(problem)
    rows = problem.background[problem.check(problem.background)]
    codes = codes_of(pointed, rows)
    assert len(codes) == len(rows)
    assert pointed.scorer is not None
    np.testing.assert_array_equal(
        pointed.scorer.structure.sums(pointed.encoded(codes)),
        pointed.scorer.structure.sums(pointed.scorer.encoded(range(rows.shape[1]), rows)),
    )
    far = problem.bound_distance.distance(problem.columns, rows, problem.x0)
    assert (pointed.distance(codes) <= far + 1e-12).all()
