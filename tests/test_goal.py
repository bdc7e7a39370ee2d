"""Ratings of sums, compiled, are those that the target gives to the scores the sums become."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlflow_cf.model.judge import OpenModel, Outcome
from mlflow_cf.problem import BoundTarget, Target
from mlflow_cf.problem.goal import classes_of, compiled_target, rate_one, rate_sums
from mlflow_cf.structures import Link
from mlflow_cf.structures.structure import linked

LABELS = ("a", "b", "c", "d")
LEAST = (None, 0.0, 0.25, 0.5, 0.9, 1.0)
# every way from sums to scores: link, number of sums, what the model calls its scores
WAYS: list[tuple[Link, int, Any]] = [
    ("sigmoid", 1, "probability"),
    *[(link, k, "probability") for link, k in product(("sigmoid", "softmax", "identity"), (2, 3, 4))],
    *[("identity", k, kind) for kind, k in product(("score", "margin"), (2, 3, 4))],
]


def model_of(classes: int, kind: Any) -> OpenModel:
    return OpenModel("test", LABELS[:classes], lambda rows: np.full(len(rows), "a"), score_kind=kind)


def drawn_sums(rng: np.random.Generator, width: int, *, shares: bool) -> np.ndarray:
    """Return sums (m, width): random ones, small whole ones that tie, and very large ones."""
    if shares:
        parts = rng.integers(0, 3, (60, width)) + np.eye(width)[rng.integers(width, size=60)]
        return parts / parts.sum(axis=1, keepdims=True)
    whole = rng.integers(-2, 3, (30, width)).astype(float)
    return np.concatenate([rng.normal(0, 3, (30, width)), whole, whole * 400, np.zeros((1, width))])


def rated(bound: BoundTarget, link: Link, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    goal = compiled_target(bound, link)
    favourable, grade = np.empty(len(sums), dtype=bool), np.empty(len(sums))
    rate_sums(sums, classes_of(goal, sums.shape[1]), goal, favourable, grade)
    return favourable, grade


def check_labels(target: Target, own: int, way: tuple[Link, int, Any], seed: int) -> None:
    link, width, kind = way
    classes = 2 if width == 1 else width
    sums = drawn_sums(np.random.default_rng(seed), width, shares=link == "identity" and kind == "probability")
    scores = linked(sums, link)
    bound = BoundTarget(target, model_of(classes, kind), own)
    expected = bound.rate(Outcome(scores.argmax(axis=1), scores))
    favourable, grade = rated(bound, link, sums)
    np.testing.assert_array_equal(favourable, expected.favourable)
    np.testing.assert_allclose(grade, expected.grade, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("least", LEAST)
def test_labels(way: tuple[Link, int, Any], least: float | None) -> None:
    if least is not None and way[2] != "probability":
        with pytest.raises(ValueError, match="probabilities"):
            Target(label="b", min_probability=least).check(model_of(2, way[2]))
        return
    for column in range(max(way[1], 2)):
        check_labels(Target(label=LABELS[column], min_probability=least), -1, way, seed=column)
    for own in range(-1, max(way[1], 2)):
        check_labels(Target.other(least), own, way, seed=own + 1)


@given(st.sampled_from(WAYS), st.data())
def test_labels_of_random_sums(way: tuple[Link, int, Any], data: Any) -> None:
    classes = max(way[1], 2)
    least = data.draw(st.none() | st.floats(0, 1)) if way[2] == "probability" else None
    label = data.draw(st.none() | st.sampled_from(LABELS[:classes]))
    target = Target.other(least) if label is None else Target(label=label, min_probability=least)
    check_labels(target, data.draw(st.integers(-1, classes - 1)), way, data.draw(st.integers(0, 2**32 - 1)))


@pytest.mark.parametrize("target", [Target(label="a"), Target.other()], ids=["label", "other"])
@pytest.mark.parametrize("own", [-1, 0])
def test_a_model_of_one_label(target: Target, own: int) -> None:
    bound, sums = BoundTarget(target, model_of(1, "probability"), own), np.array([[0.0], [1.0], [-3.0]])
    scores = linked(sums, "softmax")
    expected = bound.rate(Outcome(scores.argmax(axis=1), scores))
    favourable, grade = rated(bound, "softmax", sums)
    assert favourable.tolist() == expected.favourable.tolist()
    assert grade.tolist() == expected.grade.tolist()


ENDS = (None, -1e150, -1.0, 0.0, 0.5, 2.0, 1e150)
INTERVALS = [
    (low, high)
    for low, high in product(ENDS, ENDS)
    if (low, high) != (None, None) and (low is None or high is None or low <= high)
]


@pytest.mark.parametrize("spread", [1.0, 0.01, 70.0])
def test_intervals(spread: float) -> None:
    values = np.array([-np.inf, -1e300, -2.0, -1.0, np.nextafter(-1, 0), 0.0, 0.25, 0.5, 2.0, 2.5, 1e300, np.inf])
    model = OpenModel("test", (), lambda rows: np.zeros(len(rows)))
    for low, high in INTERVALS:
        bound = BoundTarget(Target(low=low, high=high), model, spread=spread)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = bound.rate(Outcome(np.full(len(values), -1), None, values))
        favourable, grade = rated(bound, "identity", values[:, None])
        assert favourable.tolist() == expected.favourable.tolist()
        np.testing.assert_allclose(grade, expected.grade, rtol=0, atol=1e-15)


def test_a_missing_prediction_misses_every_interval() -> None:
    model = OpenModel("test", (), lambda rows: np.zeros(len(rows)))
    for low, high in INTERVALS:
        bound = BoundTarget(Target(low=low, high=high), model)
        expected = bound.rate(Outcome(np.full(1, -1), None, np.array([np.nan])))
        favourable, grade = rated(bound, "identity", np.array([[np.nan]]))
        assert favourable.tolist() == expected.favourable.tolist() == [False]
        assert grade.tolist() == expected.grade.tolist() == [0.0]


@given(
    st.sampled_from(WAYS),
    st.integers(0, 2**32 - 1),
    st.none() | st.floats(0.2, 0.8),
    st.sampled_from(["label", "other"]),
)
def test_what_is_farther_from_a_change_than_its_doubt_stays_as_it_is(
    way: tuple[Link, int, Any], seed: int, least: float | None, wanted: str
) -> None:
    """Scores that move by less than the doubt, in units of `max(1, |score|)`, are rated the same."""
    link, width, kind = way
    classes, rng = max(width, 2), np.random.default_rng(seed)
    least = least if kind == "probability" else None
    target = Target.other(least) if wanted == "other" else Target(label=LABELS[seed % classes], min_probability=least)
    goal = compiled_target(BoundTarget(target, model_of(classes, kind), seed % classes), "identity")
    for scores in linked(drawn_sums(rng, width, shares=link == "identity" and kind == "probability"), link):
        favourable, _, doubt = rate_one(scores, goal, np.empty(classes))
        moved = scores + rng.uniform(-0.49, 0.49, classes) * doubt * np.maximum(1, np.abs(scores.max()))
        if doubt > 0:
            assert rate_one(moved, goal, np.empty(classes))[0] == favourable


def test_the_doubt_of_a_value_is_how_far_it_is_from_the_ends() -> None:
    model = OpenModel("test", (), lambda rows: np.zeros(len(rows)))
    goal = compiled_target(BoundTarget(Target(low=1, high=3), model), "identity")
    doubts = [rate_one(np.array([value]), goal, np.empty(1))[2] for value in (0.5, 1.0, 1.5, 3.0, 100.0)]
    assert doubts == pytest.approx([0.5, 0, 0.5 / 1.5, 0, 0.97])
