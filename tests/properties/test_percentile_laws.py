"""The percentile shift: a metric on each feature, equal to counting rows, for values that were observed and others."""

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.features import FeatureSpace
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance

samples = st.one_of(
    st.lists(st.integers(-50, 50), min_size=2, max_size=30),
    st.lists(st.sampled_from([0, 0, 0, 0, 1, 100, 99_999]), min_size=2, max_size=30),
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=30),
)
backgrounds = samples.filter(lambda values: len(set(values)) > 1).map(lambda values: [float(v) for v in values])
anywhere = st.floats(-2e6, 2e6, allow_subnormal=False)


def bound(values: list[float]) -> BoundDistance:
    space = FeatureSpace.infer(pd.DataFrame({"before": range(len(values)), "x": values}))
    return BoundDistance.bind(Distance(0, 1, 0, scale="percentile"), space)


def shift(metric: BoundDistance, old: float, new: float) -> float:
    return float(metric.changes(np.array([1]), np.array([new]), np.array([old]))[0])


def counted(values: list[float], value: float) -> Fraction:
    """Return the rows below a value, exactly: by counting, and in proportion where nobody has it."""
    low, high, exact = min(values), max(values), Fraction(value)
    if not low <= value <= high:
        end = low if value < low else high
        return counted(values, end) + (exact - Fraction(end)) / (Fraction(high) - Fraction(low)) * len(values)
    if value in values:
        return sum(v < value for v in values) + Fraction(values.count(value), 2)
    before, after = max(v for v in values if v < value), min(v for v in values if v > value)
    part = (exact - Fraction(before)) / (Fraction(after) - Fraction(before))
    return counted(values, before) + part * (counted(values, after) - counted(values, before))


@given(backgrounds, st.data())
def test_it_is_the_share_of_rows_between(values: list[float], data: st.DataObject) -> None:
    old, new = (data.draw(st.sampled_from(values) | anywhere) for _ in range(2))
    expected = abs(counted(values, new) - counted(values, old)) / len(values)
    assert np.isclose(shift(bound(values), old, new), float(expected), rtol=1e-9, atol=1e-12)


@given(backgrounds, st.data())
def test_observed_values_are_exactly_counted(values: list[float], data: st.DataObject) -> None:
    old, new = (data.draw(st.sampled_from(values)) for _ in range(2))
    assert shift(bound(values), old, new) == float(abs(counted(values, new) - counted(values, old))) / len(values)


@given(backgrounds, st.data())
def test_it_is_a_metric(values: list[float], data: st.DataObject) -> None:
    metric = bound(values)
    near = st.sampled_from(values).map(lambda value: float(np.nextafter(value, np.inf)))
    a, b, c = (data.draw(st.sampled_from(values) | near | anywhere) for _ in range(3))
    assert (shift(metric, a, b) == 0) == (a == b)
    assert shift(metric, a, b) == shift(metric, b, a)
    assert shift(metric, a, c) <= shift(metric, a, b) + shift(metric, b, c) + 1e-12


@given(backgrounds, st.data())
def test_what_is_further_away_on_one_side_never_counts_less(values: list[float], data: st.DataObject) -> None:
    """Not even by rounding: exact search relies on it where numbers are continuous."""
    metric, own = bound(values), data.draw(st.sampled_from(values) | anywhere)
    drawn = np.sort(data.draw(st.lists(st.sampled_from(values) | anywhere, min_size=2, max_size=20)))
    ladder = np.unique(np.concatenate([drawn, np.nextafter(drawn, np.inf), np.nextafter(drawn, -np.inf)]))
    moves = metric.changes(np.ones(len(ladder), dtype=np.intp), ladder, np.full(len(ladder), own))
    assert (np.diff(moves[ladder >= own]) >= 0).all()
    assert (np.diff(moves[ladder <= own]) <= 0).all()


@given(backgrounds, st.data())
def test_what_an_artifact_keeps_is_enough(values: list[float], data: st.DataObject) -> None:
    """And a model that keeps no rows measures as one that does: distributions come from the counts of every feature."""
    space = FeatureSpace.infer(pd.DataFrame({"before": range(len(values)), "x": values}))
    again = FeatureSpace.from_dict(json.loads(json.dumps(space.to_dict())))
    distance = Distance(0, 1, 0, scale="percentile")
    old, new = (data.draw(st.sampled_from(values) | anywhere) for _ in range(2))
    moves = [shift(BoundDistance.bind(distance, one), old, new) for one in (space, again)]
    assert moves[0] == moves[1]


@dear(5)
@given(st.integers(0, 2**16))
def test_certified_answers_among_continuous_numbers_are_nearest(seed: int) -> None:
    """Against the values on both sides of every cut of a tree."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"gain": np.where(rng.random(60) < 0.6, 0.0, rng.lognormal(7, 2, 60)), "rate": rng.random(60)})
    granted = ((frame["rate"] > 0.6) ^ (frame["gain"] > rng.choice([10, 1000]))).to_numpy()
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(frame, granted)
    distance = Distance(scale="percentile")
    explained = mlflow_cf.wrap(tree, frame, target=True, values="continuous", distance=distance, certify=True)
    rows = frame[~tree.predict(frame)].head(3)
    cuts = [tree.tree_.threshold[tree.tree_.feature == column] for column in range(2)]
    for row, answer in zip(rows.to_numpy(), explained.explain(rows), strict=True):
        sides = [
            np.concatenate([[own], cut * (1 - 1e-6), cut * (1 + 1e-6)]) for own, cut in zip(row, cuts, strict=True)
        ]
        points = pd.DataFrame(list(product(*sides)), columns=list(frame.columns))
        best = points[tree.predict(points)].to_numpy()
        far = explained.bound_policy.bound_distance.distance(((0,), (1,)), best, row)
        (found,) = answer.counterfactuals
        assert found.proof == "optimal"
        assert found.distance <= far.min() + 1e-12
        assert found.distance >= far.min() - 1e-4
