"""Embedding: rows as vectors and back, worked by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from mlflow_cf.features import UNIT_MISMATCH, Embedding, FeatureSpace

NAN = math.nan
FRAME = pd.DataFrame(
    {
        "v": [0.0, 2, 4, NAN],
        "job": ["a", "b", "c", "a"],
        "size": pd.Categorical(list("sslm"), list("sml"), ordered=True),
        "day": pd.to_datetime(["2024-01-01", "2024-01-11", "2024-01-11", "2024-01-06"]),
        "owner": [True, True, False, True],
    }
)
SPACE = FeatureSpace.infer(FRAME)
ROWS = SPACE.encode(FRAME)
DAY = ROWS[0, 3]


def test_numbers_by_range_and_one_coordinate_a_level():
    embedding = Embedding.fit(SPACE, ROWS)
    assert embedding.blocks == (slice(0, 1), slice(1, 4), slice(4, 5), slice(5, 6), slice(6, 7))
    assert embedding.owner.tolist() == [0, 1, 1, 1, 2, 3, 4]
    assert embedding.numeric.tolist() == [True, False, False, False, True, True, False]
    assert embedding.vectors(ROWS).tolist() == [
        [0, 1, 0, 0, 0, 0, 1],
        [0.5, 0, 1, 0, 0, 1, 1],
        [1, 0, 0, 1, 1, 1, 0],
        [0.5, 1, 0, 0, 0.5, 0.5, 1],
    ]
    assert embedding.filled(ROWS).tolist() == [[False] * 5] * 3 + [[True] + [False] * 4]


def test_numbers_about_the_mean_and_about_the_median():
    rows = np.array([[6.0, 0, 1, DAY, 1]])
    assert Embedding.fit(SPACE, ROWS, "deviation").vectors(rows)[0, 0] == 2  # mean 2, deviation 2
    assert Embedding.fit(SPACE, ROWS, "mad").vectors(rows)[0, 0] == 2  # median 2, deviations from it 2, 0, 2
    ranks = Embedding.fit(SPACE, ROWS, "deviation").vectors(rows)[0, 4]
    assert ranks == pytest.approx((1 - 0.75) / np.std([0, 0, 2, 1], ddof=1))


@pytest.mark.parametrize(("weight", "apart"), [(UNIT_MISMATCH, 1), (1.0, math.sqrt(2))])
def test_one_mismatch(weight, apart):
    embedding = Embedding.fit(SPACE, ROWS, level_weight=weight)
    a, b, true = embedding.vectors(np.array([[2.0, 0, 1, DAY, 0], [2, 1, 1, DAY, 0], [2, 0, 1, DAY, 1]]))
    assert np.linalg.norm(a - b) == pytest.approx(apart)
    assert np.linalg.norm(a - true) == 1


def test_what_has_no_place_of_its_own():
    space = SPACE.covering(pd.DataFrame({**FRAME.iloc[:1].to_dict("list"), "job": ["z"], "size": ["xl"]}))
    embedding = Embedding.fit(SPACE, ROWS)
    row = np.array([NAN, 3, 3, NAN, NAN])
    assert (space["job"].unseen, space["size"].unseen) == (("z",), ("xl",))
    assert embedding.vectors(row[None]).tolist() == [[0.5, 0, 0, 0, 0.25, 0.75, 1]]  # medians, the most frequent level
    assert embedding.filled(row[None]).tolist() == [[True, False, True, True, True]]
    assert embedding.unseen(row[None]).tolist() == [[False, True, False, False, False]]
    back = embedding.rows(embedding.vectors(row[None]))
    assert back.tolist() == [[2, 0, 0, DAY + 7.5, 1]]
    assert np.array_equal(embedding.rows(embedding.vectors(row[None]), like=row)[0], row, equal_nan=True)


def test_the_way_back():
    embedding = Embedding.fit(SPACE, ROWS)
    V = np.array([[0.7, 0.2, 0.7, 0.6, 0.49, 1.5, 0.49], [-1, 0.3, 0.3, 0.1, 0.25, 0.1, 0.5], [2, 0, 0, 0, 9, 0, 2]])
    assert embedding.rows(V) == pytest.approx(
        np.array([[2.8, 1, 1, DAY + 15, 0], [-4, 0, 0, DAY + 1, 1], [8, 0, 2, DAY, 1]])
    )
    choice = np.array([True, True, False, True, True, True, True])
    assert embedding.rows(V, choice=choice)[:, 1].tolist() == [2, 0, 0]
    assert embedding.rows(V, choice=np.zeros(7, bool))[:, 1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("scale", ["range", "deviation", "mad"])
@pytest.mark.parametrize("value", [3.0, 0.1])  # three times 0.1 has a deviation, by rounding
def test_a_constant_number_is_changed_or_not(value, scale):
    space = FeatureSpace.infer(pd.DataFrame({"v": [value, value, value]}), {"v": {"low": value, "high": value}})
    embedding = Embedding.fit(space, np.full((3, 1), value), scale)
    V = embedding.vectors(np.array([[value], [9.0], [NAN]]))
    assert V.tolist() == [[0], [1], [0]]
    assert embedding.rows(V).tolist() == [[value]] * 3
    assert embedding.rows(V, like=np.array([9.0])).tolist() == [[value], [9], [value]]


def test_nothing_but_missing_in_the_part_of_the_background():
    for scale in ("range", "deviation", "mad"):
        embedding = Embedding.fit(SPACE, np.full((2, 5), NAN), scale)
        assert np.isfinite(embedding.vectors(ROWS)).all()


def test_no_rows():
    embedding = Embedding.fit(SPACE, ROWS)
    assert embedding.vectors(ROWS[:0]).shape == (0, 7)
    assert embedding.rows(np.empty((0, 7)), like=ROWS[0]).shape == (0, 5)


def test_arrays():
    embedding = Embedding.fit(SPACE, ROWS, "deviation", UNIT_MISMATCH)
    again = Embedding.from_arrays(SPACE, embedding.to_arrays())
    assert again.vectors(ROWS).tobytes() == embedding.vectors(ROWS).tobytes()
