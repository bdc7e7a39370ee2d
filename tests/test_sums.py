"""Ratings of sums and of scores are what the words of a target say, written out a second time."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from mlflow_cf.goal import BoundTarget
from mlflow_cf.goal.targets import SumTarget, rate_sums, shortfalls
from mlflow_cf.model.judge import OpenModel, Outcome
from mlflow_cf.policy import Target
from mlflow_cf.structures import Link
from mlflow_cf.structures.structure import linked

LABELS = ("a", "b", "c", "d")
LEAST = (None, 0.0, 0.25, 0.5, 0.9, 1.0)
# every way from sums to scores: link, number of sums, what the model calls its scores
WAYS: list[tuple[Link, int, Any]] = [
    ("sigmoid", 1, "probability"),
    ("share", 1, "probability"),
    *[(link, k, "probability") for link, k in product(("sigmoid", "softmax", "identity"), (2, 3, 4))],
    *[("identity", k, kind) for kind, k in product(("score", "margin"), (2, 3, 4))],
]


def model_of(classes: int, kind: Any) -> OpenModel:
    return OpenModel("test", LABELS[:classes], lambda rows: np.full(len(rows), "a"), score_kind=kind)


def are_shares(link: Link, kind: Any) -> bool:
    """Whether sums are probabilities themselves."""
    return link == "share" or (link == "identity" and kind == "probability")


def drawn_sums(rng: np.random.Generator, width: int, *, shares: bool) -> np.ndarray:
    """Return sums (m, width): random ones, small whole ones that tie, and very large ones."""
    if shares and width == 1:
        return np.concatenate([rng.uniform(size=(30, 1)), rng.integers(0, 5, (30, 1)) / 4])
    if shares:
        parts = rng.integers(0, 3, (60, width)) + np.eye(width)[rng.integers(width, size=60)]
        return parts / parts.sum(axis=1, keepdims=True)
    whole = rng.integers(-2, 3, (30, width)).astype(float)
    return np.concatenate([rng.normal(0, 3, (30, width)), whole, whole * 400, np.zeros((1, width))])


def rated(bound: BoundTarget, link: Link, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    favourable, grade, _ = rate_sums(sums, [bound.of_sums(link, 0, sums.shape[1])])
    return favourable, grade


def rate_one(sums: np.ndarray, *targets: SumTarget) -> tuple[bool, float, float]:
    favourable, grade, margin = rate_sums(sums[None], targets)
    return bool(favourable[0]), float(grade[0]), float(margin[0])


def shares_of(scores: np.ndarray, kind: str) -> np.ndarray:
    """Return margins as shares that keep their order; what is a share stays."""
    if kind != "margin":
        return scores
    if len(scores) == 2:
        likelier = float(expit((scores[1] - scores[0]) / 2))
        return np.array([1 - likelier, likelier])
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def by_words(bound: BoundTarget, label: int, scores: np.ndarray) -> tuple[bool, float]:
    """Return whether a decided label meets the target, and its grade: the definition, one row at a time."""
    target, shares = bound.target, shares_of(scores, bound.model.score_kind)
    column = bound.own if target.differs else LABELS.index(target.label)
    met = label >= 0 and (label != column if target.differs else label == column)
    if target.min_probability is not None:
        met = met and bool(shares[label] >= target.min_probability)
    others = [share for place, share in enumerate(shares.tolist()) if place != column]
    rest = max(others, default=0.0)
    one = float(shares[column]) if column >= 0 else 0.0
    wanted, rival = (rest, one) if target.differs else (one, rest)
    return met, wanted if len(shares) == 2 else (1 + wanted - rival) / 2


def value_by_words(target: Target, spread: float, value: float) -> tuple[bool, float]:
    """Return whether a value lies in the wanted interval, and its grade."""
    low = -math.inf if target.low is None else target.low
    high = math.inf if target.high is None else target.high
    if low <= value <= high:
        return True, 1.0
    gap = max(low - value, value - high, 0.0)
    return False, 0.0 if math.isnan(value) else max(0.0, (1 - gap / spread) / 2)


def check_labels(target: Target, own: int, way: tuple[Link, int, Any], seed: int) -> None:
    link, width, kind = way
    classes = 2 if width == 1 else width
    sums = drawn_sums(np.random.default_rng(seed), width, shares=are_shares(link, kind))
    scores = linked(sums, link)
    bound = BoundTarget(target, model_of(classes, kind), own)
    labels = scores.argmax(axis=1)
    expected = [by_words(bound, label, row) for label, row in zip(labels.tolist(), scores, strict=True)]
    rating = bound.rate(Outcome(labels, scores))
    for favourable, grade in (rated(bound, link, sums), (rating.favourable, rating.grade)):
        assert favourable.tolist() == [met for met, _ in expected]
        np.testing.assert_allclose(grade, [share for _, share in expected], rtol=0, atol=1e-12)


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
    expected = [by_words(bound, 0, row) for row in scores]
    favourable, grade = rated(bound, "softmax", sums)
    assert list(zip(favourable.tolist(), grade.tolist(), strict=True)) == expected


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
        expected = [value_by_words(bound.target, spread, value) for value in values.tolist()]
        rating = bound.rate(Outcome(np.full(len(values), -1), None, values))
        for favourable, grade in (rated(bound, "identity", values[:, None]), (rating.favourable, rating.grade)):
            assert favourable.tolist() == [met for met, _ in expected]
            np.testing.assert_allclose(grade, [share for _, share in expected], rtol=0, atol=1e-15)


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
    targets = BoundTarget(target, model_of(classes, kind), seed % classes).of_sums("identity", 0, classes)
    for scores in linked(drawn_sums(rng, width, shares=are_shares(link, kind)), link):
        favourable, _, doubt = rate_one(scores, targets)
        moved = scores + rng.uniform(-0.49, 0.49, classes) * doubt * np.maximum(1, np.abs(scores.max()))
        if doubt > 0:
            assert rate_one(moved, targets)[0] == favourable


def test_the_doubt_of_a_value_is_how_far_it_is_from_the_ends() -> None:
    model = OpenModel("test", (), lambda rows: np.zeros(len(rows)))
    targets = BoundTarget(Target(low=1, high=3), model).of_sums("identity", 0, 1)
    doubts = [rate_one(np.array([value]), targets)[2] for value in (0.5, 1.0, 1.5, 3.0, 100.0)]
    assert doubts == pytest.approx([0.5, 0, 0.5 / 1.5, 0, 0.97])


@given(st.lists(st.sampled_from(WAYS), min_size=2, max_size=3), st.integers(0, 2**32 - 1))
def test_several_targets_must_all_be_met(ways: list[tuple[Link, int, Any]], seed: int) -> None:
    """The worst grade counts; the doubt is that of the first rating that would change the whole one."""
    rng, tables, parts, start = np.random.default_rng(seed), [], [], 0
    for number, (link, width, kind) in enumerate(ways):
        classes = max(width, 2)
        bound = BoundTarget(Target(label=LABELS[(seed + number) % classes]), model_of(classes, kind))
        tables.append((bound.of_sums(link, start, width), bound.of_sums(link, 0, width)))
        parts.append(drawn_sums(rng, width, shares=are_shares(link, kind))[:30])
        start += width
    for row in range(30):
        single = [rate_one(part[row], own) for part, (_, own) in zip(parts, tables, strict=True)]
        sums = np.concatenate([part[row] for part in parts])
        favourable, grade, doubt = rate_one(sums, *[table for table, _ in tables])
        assert favourable == all(met for met, _, _ in single)
        assert grade == min(share for _, share, _ in single)
        wrong = [far for met, _, far in single if not met]
        assert doubt == (max(wrong) if wrong else min(near for _, _, near in single))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("least", LEAST)
def test_a_shortfall_is_what_is_to_be_added_to_the_wanted_sum(way: tuple[Link, int, Any], least: float | None) -> None:
    link, width, kind = way
    if least == 1.0 or (least and (kind != "probability" or (link == "sigmoid" and width > 1))):
        return  # sums cannot reach a share of 1; of one against the rest the shares are not those of a softmax
    for column in range(max(width, 2)):
        bound = BoundTarget(Target(label=LABELS[column], min_probability=least), model_of(max(width, 2), kind))
        targets = [bound.of_sums(link, 0, width)]
        sums = drawn_sums(np.random.default_rng(column), width, shares=are_shares(link, kind))
        sums = sums[np.abs(sums).max(axis=1) < 100]
        favourable, _, margin = rate_sums(sums, targets)
        missing = shortfalls(sums, targets)
        assert (missing >= 0).all()
        assert (missing[favourable] <= 1e-9).all()
        assert (missing[~favourable & (margin > 1e-9)] > 0).all()
        if are_shares(link, kind):
            continue  # what is added to one share is taken from the others
        direction = np.eye(width)[min(column, width - 1)] * (-1.0 if width == 1 and column == 0 else 1.0)
        moved = sums + (missing + 1e-6)[:, None] * direction
        assert rate_sums(moved, targets)[0].all()
        if (far := missing > 1e-3).any():
            almost = sums[far] + (missing[far] * 0.999)[:, None] * direction
            assert not rate_sums(almost, targets)[0].any()


def test_the_shortfalls_of_values_and_of_other_labels() -> None:
    values = BoundTarget(Target(low=2.0, high=4.0), model_of(2, "score"), spread=10.0)
    table = [values.of_sums("identity", 0, 1)]
    assert shortfalls(np.array([[1.0], [2.0], [4.5], [np.nan]]), table).tolist() == pytest.approx(
        [0.1, 0, 0.05, np.inf]
    )
    other = BoundTarget(Target.other(), model_of(3, "probability"), 0).of_sums("softmax", 0, 3)
    assert shortfalls(np.array([[5.0, 1.0, 3.0], [1.0, 2.0, 0.0]]), [other]).tolist() == [2.0, 0.0]
    both = [other, values.of_sums("identity", 3, 1)]
    assert shortfalls(np.array([[5.0, 1.0, 3.0, 1.0]]), both).tolist() == pytest.approx([2.1])
