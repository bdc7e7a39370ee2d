"""Snapping: rows moved to what a problem may propose, worked by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from worlds import bind

from mlflow_cf.constraints import Constraints
from mlflow_cf.features import Embedding, FeatureSpace
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.search.snapping import Snapping

NAN = math.nan
FRAME = pd.DataFrame(
    {
        "income": [10.0, 20, 30, 40, 60],
        "job": list("abcab"),
        "owner": [True, False, True, False, True],
        "rooms": pd.array([1, 2, 4, None, 2], dtype="Int64"),
    }
)
OWN = {"income": 30.0, "job": "b", "owner": True, "rooms": 2}


def problem_of(constraints=None, values="observed", frame=FRAME, overrides=None, **changed):
    space = FeatureSpace.infer(frame, overrides)
    bound_policy = BoundPolicy.build(
        space, space.encode(frame), Constraints.read(constraints or {}), Distance(), values
    )
    query = pd.DataFrame([{**OWN, **changed}], columns=list(frame.columns))
    dtypes = {name: dtype for name, dtype in frame.dtypes.items() if not isinstance(dtype, pd.CategoricalDtype)}
    return bind(bound_policy, query.astype(dtypes))


def moved(problem, column, *wanted, box=None):
    """Return where a column goes from the numbers wanted, all else as in the row to explain."""
    at = problem.space.index[column]
    Z = np.tile(problem.x0, (len(wanted), 1))
    Z[:, at] = wanted
    rows = Snapping(problem, box).rows(Z)
    others = np.arange(len(problem.space)) != at
    assert np.array_equal(rows[:, others], Z[:, others], equal_nan=True)
    return rows[:, at].tolist()


def box_of(problem, **ends):
    box = np.full((2, len(problem.space)), NAN)
    for name, pair in ends.items():
        box[:, problem.space.index[name]] = pair
    return box


def test_a_lone_number():
    problem = problem_of()
    assert moved(problem, "income", 24, 26, 25, 35, 50, -9, 1e9, NAN) == [20, 30, 30, 30, 40, 10, 60, 30]
    assert moved(problem_of(income=33.0), "income", 31.5, 35, 36.5, 33.1) == [33, 33, 33, 33]
    assert moved(problem_of(income=55.0), "income", 15, 57.4, 57.5, 57.6) == [20, 55, 55, 60]


def test_numbers_with_none_in_between_stay_apart():
    close = [1.0]
    while len(close) < 5:
        close.append(float(np.nextafter(close[-1], 2)))
    for own in (close[0], close[2], close[4]):
        problem = problem_of(None, "observed", FRAME.assign(income=close), income=own)
        assert moved(problem, "income", *close) == close
        embedding = Embedding.fit(problem.space, problem.background)
        rows = problem.background[~np.isnan(problem.background).any(axis=1)]
        assert embedding.rows(embedding.vectors(rows)).tolist() == rows.tolist()


def test_a_box_leaves_the_own_value():
    problem = problem_of()
    box = box_of(problem, income=(35, 45))
    assert moved(problem, "income", 0, 34, 36, 99, box=box) == [30, 30, 40, 40]
    box = box_of(problem, income=(31, 39), rooms=(4, NAN))
    assert moved(problem, "income", 0, 38, box=box) == [30, 30]
    assert moved(problem, "rooms", 1, 3.5, 2.9, box=box) == [2, 4, 2]


def test_bounds_and_what_must_change():
    problem = problem_of({"ranges": {"income": [35, 50]}, "immutable": ["owner"], "levels": {"job": ["a", "c"]}})
    assert moved_job(problem, 1) == 0  # b must change
    assert Snapping(problem).rows(np.array([[30.0, 2, 0, 2]])).tolist() == [[40, 2, 1, 2]]
    nothing = box_of(problem, income=(0, 20))  # what must change does not fit the box: the box does not count
    assert Snapping(problem, nothing).rows(np.array([[30.0, 2, 0, 2]]))[0, 0] == 40
    stuck = problem_of({"ranges": {"income": [31, 39]}})
    assert moved(stuck, "income", 60) == [30]  # no admissible value: verification will say so


def moved_job(problem, code):
    return Snapping(problem).rows(np.array([[30.0, code, 1, 2]]))[0, 1]


def test_missing_is_kept_and_never_proposed():
    problem = problem_of(rooms=None)
    assert np.isnan(moved(problem, "rooms", NAN)).all()
    assert moved(problem, "rooms", 2.9, 3.1) == [2, 4]
    assert moved(problem_of(), "rooms", NAN) == [2]


def test_blocks_and_truth_values():
    problem = problem_of()
    embedding = Embedding.fit(problem.space, problem.background)
    start = embedding.vectors(problem.x0[None])[0]
    V = np.tile(start, (4, 1))
    V[:, embedding.blocks[1]] = [[0.2, 0.7, 0.6], [0.4, 0.4, 0.4], [0, 0, 0.1], [0, 1, 0]]
    V[:, embedding.blocks[2]] = [[0.49], [0.5], [0.51], [1]]
    rows = Snapping(problem).rows(Snapping(problem).read(embedding, V))
    assert rows[:, 1].tolist() == [1, 0, 2, 1]
    assert rows[:, 2].tolist() == [0, 1, 1, 1]
    limited = Snapping(problem_of({"levels": {"job": ["b", "c"]}}))
    assert limited.rows(limited.read(embedding, V))[:, 1].tolist() == [1, 1, 2, 1]


def test_the_own_unseen_level_and_the_own_missing_number():
    problem = problem_of(job="z", rooms=None)
    embedding = Embedding.fit(FeatureSpace.infer(FRAME), problem.background)
    V = np.tile(embedding.vectors(problem.x0[None]), (2, 1))
    V[1, embedding.blocks[1]] = [0, 0.1, 0]
    V[1, embedding.blocks[3]] = 1.0
    rows = Snapping(problem).rows(Snapping(problem).read(embedding, V))
    assert np.array_equal(rows[0], problem.x0, equal_nan=True)
    assert rows[1].tolist() == [30, 1, 1, 4]


def test_a_group_goes_as_a_whole_to_its_nearest_tuple():
    problem = problem_of({"groups": [["income", "job"]]})
    Z = np.array([[20.0, 0, 1, 2], [29, 1, 1, 2], [44, 0, 1, 2], [50, 1, 1, 2], [35, 2, 1, 2], [15, 0, 0, 2]])
    # 10 a, 20 b, 30 c, 40 a, 60 b and the own 30 b; a mismatch is as far as the whole range of incomes
    assert Snapping(problem).rows(Z)[:, :2].tolist() == [[10, 0], [30, 1], [40, 0], [60, 1], [30, 2], [10, 0]]
    tied = Snapping(problem).codes(np.array([[25.0, 0, 1, 2], [25, 1, 1, 2]]))[:, problem.owner[0]]
    assert problem.groups[problem.owner[0]].actions[tied].tolist() == [[10, 0], [20, 1]]


FRACTIONS = FRAME.assign(income=[10.0, 20.5, 30.0, 40.0, 60.0])


def test_continuous_numbers():
    problem = problem_of({"relative": {"income": {"up": 20.5}}}, "continuous", FRACTIONS)
    assert moved(problem, "income", 12.25, 49.75, 70, -3, 30) == [12.25, 49.75, 50.5, 10, 30]
    box = box_of(problem, income=(28, 45))
    assert moved(problem, "income", 12.25, 44, 70, box=box) == [28, 44, 45]
    assert moved(problem, "rooms", 2.6, 3.2) == [3, 3]  # whole numbers move on their grid
    outside = problem_of(None, "continuous", FRACTIONS, income=90.0)
    assert moved(outside, "income", 74, 75, 76) == [60, 90, 90]


def test_a_continuous_number_is_one_that_its_column_holds():
    problem = problem_of(None, "continuous", FRACTIONS.astype({"income": "float32"}))
    assert moved(problem, "income", 12.3) == [float(np.float32(12.3))]
    box = box_of(problem, income=(12.2, 37.2))  # as float32 both lie outside
    low, high = moved(problem, "income", 0, 99, box=box)
    assert [low, high] == [float(np.nextafter(np.float32(end), np.float32(25))) for end in (12.2, 37.2)]
    assert 12.2 < low < high < 37.2


def test_continuous_dates():
    days = pd.to_datetime([f"2024-01-0{day} 06:00" for day in (1, 3, 5, 7, 9)])
    problem = problem_of(None, "continuous", FRAME.assign(day=[*days[:4], days[4] + pd.Timedelta("1h")]), day=days[1])
    start = problem.x0[4]
    hour, third = moved(problem, "day", start + 1 / 24, start + 1 / 3 + 1e-13)
    row = np.array([[*problem.x0[:4], hour]])
    assert third == pytest.approx(start + 1 / 3, abs=1e-11)
    assert problem.check(row).all()
    assert problem.space.decode(row)["day"][0] == pd.Timestamp("2024-01-03 07:00")


def test_no_rows():
    problem = problem_of({"groups": [["income", "job"]]})
    assert Snapping(problem).rows(np.empty((0, 4))).shape == (0, 4)
    assert Snapping(problem).codes(np.empty((0, 4))).shape == (0, 3)
