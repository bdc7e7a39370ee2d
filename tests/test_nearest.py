"""The nearest points are those of a table of all distances, to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from mlflow_cf.features import UNIT_MISMATCH, Embedding, Feature, FeatureSpace
from mlflow_cf.metrics import nearest
from mlflow_cf.metrics.nearest import Columns, neighbours
from mlflow_cf.metrics.outliers import _points

SPACE = FeatureSpace(
    (
        Feature("v", "real", "float64", high=4),
        Feature("job", "category", "object", tuple("abcd"), ("e", "f"), high=3),
        Feature("size", "ordinal", "object", tuple("sml"), (), high=2),
        Feature("home", "category", "object", tuple("xy"), ("z",), high=1),
        Feature("flag", "boolean", "bool", (False, True), (), high=1),
        Feature("w", "integer", "float64", high=4),
    )
)
ROW = st.tuples(*(st.sampled_from([np.nan, *map(float, range(known))]) for known in (5, 6, 3, 3, 2, 5)))


def told(points, asked, count, *, itself=False):
    """Return what a table of all distances tells."""
    distance = cdist(asked, points)
    if itself:
        np.fill_diagonal(distance, np.inf)
    places = np.sort(np.argsort(distance, axis=1, kind="stable")[:, :count], axis=1)
    return np.take_along_axis(distance, places, axis=1), places


def found(points, asked, count, *, itself=False):
    return [np.concatenate(part) for part in zip(*neighbours(points, asked, count, itself=itself), strict=True)]


@given(st.lists(ROW, min_size=2, max_size=60), st.lists(ROW, min_size=1, max_size=5), st.data())
def test_the_nearest_points_are_those_of_all_distances(rows, some, data):
    background, asked = np.array(rows), np.array(some)
    embedding = Embedding.fit(SPACE, background, scale="deviation", level_weight=UNIT_MISMATCH)
    points, others = _points(embedding, background), _points(embedding, asked)
    mine, theirs = Columns.of(embedding, points), Columns.of(embedding, others)
    count = data.draw(st.integers(1, len(rows) - 1))
    for a, b in zip(found(mine, theirs, count), told(points, others, count), strict=True):
        assert a.tobytes() == b.tobytes()
    for a, b in zip(found(mine, mine, count, itself=True), told(points, points, count, itself=True), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("count", [1, 7, 100, 999])
def test_many_points(count, monkeypatch):
    rng = np.random.default_rng(count)
    points = np.round(rng.normal(size=(1_000, 3)), 1)  # with ties
    asked = np.round(rng.normal(size=(7, 3)), 1)
    columns, others = (Columns(np.ascontiguousarray(some.T), np.zeros(3)) for some in (points, asked))
    expected = told(points, asked, count)
    for work in (1, nearest.WORK):
        monkeypatch.setattr(nearest, "WORK", work)
        for a, b in zip(found(columns, others, count), expected, strict=True):
            assert a.tobytes() == b.tobytes()


def test_points_too_far_apart_for_their_distances():
    points = Columns(np.array([[0.0, 1e200, -1e200, 1.0]]), np.zeros(1))
    distance, places = found(points, Columns(np.zeros((1, 1)), np.zeros(1)), 3)
    assert distance.tolist() == [[0.0, np.inf, 1.0]]
    assert places.tolist() == [[0, 1, 3]]
