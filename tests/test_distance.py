"""The distance: its worked formulas, and that tables, codes and rows give the same number to the last bit."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from checker import Ruler
from worlds import bind

from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance, BoundPolicy, binding

DEGREES = ["none", "bachelor", "master", "doctor"]
FRAME = pd.DataFrame(
    {
        "age": [20, 30, 40, 70],
        "income": [0.0, 10.0, np.nan, 40.0],
        "degree": ["none", "bachelor", "master", None],
        "job": ["a", "b", "c", "a"],
        "member": [True, False, True, False],
    }
)
FEATURES = {"degree": {"kind": "ordinal", "levels": DEGREES}}
SPACE = FeatureSpace.infer(FRAME, FEATURES)
ROW = {"age": 30, "income": 10.0, "degree": "bachelor", "job": "a", "member": True}
LONE = tuple((column,) for column in range(5))


def measure(weights: Any, query: dict[str, Any] | None = None, /, **moves: Any) -> float:
    """Return the distance of a moved row; asserts that the independent ruler agrees."""
    query = query or ROW
    distance = Distance.read(weights)
    raw = pd.DataFrame([query, {**query, **moves}]).astype({"age": "float64", "income": "float64"})
    space = SPACE.covering(raw)
    codes = space.encode(raw)
    found = float(BoundDistance.bind(distance, SPACE).distance(LONE, codes[1:], codes[0])[0])
    ruler = Ruler(FRAME, distance.l0, distance.l1, distance.linf, distance.scale, distance.weights, {"degree": DEGREES})
    assert found == pytest.approx(ruler.distance(query, {**query, **moves}), abs=1e-12)
    return found


class TestFormulas:
    """GeCo section 2: a * #changed/n + b * sum(d)/n + c * max(d), n = 5 features."""

    def test_number_by_range(self) -> None:
        assert measure((0, 1, 0), age=40) == pytest.approx(10 / 50 / 5)
        assert measure((0, 1, 0), income=40.0) == pytest.approx(30 / 40 / 5)

    def test_level_differs_or_not(self) -> None:
        assert measure((0, 1, 0), job="c") == measure((0, 1, 0), member=False) == pytest.approx(1 / 5)

    def test_ordinal_by_rank_over_all_declared_levels(self) -> None:
        assert measure((0, 1, 0), degree="master") == pytest.approx(1 / 3 / 5)
        assert measure((0, 1, 0), degree="doctor") == pytest.approx(2 / 3 / 5)

    def test_parts(self) -> None:
        moves: dict[str, Any] = {"age": 40, "job": "c"}
        assert measure((1, 0, 0), **moves) == pytest.approx(2 / 5)
        assert measure((0, 1, 0), **moves) == pytest.approx((0.2 + 1) / 5)
        assert measure((0, 0, 1), **moves) == pytest.approx(1)
        assert measure((0.5, 0.3, 0.2), **moves) == pytest.approx(0.5 * 2 / 5 + 0.3 * 1.2 / 5 + 0.2)

    def test_default_is_half_l0_half_l1(self) -> None:
        assert Distance() == Distance(0.5, 0.5, 0.0)
        assert measure((0.5, 0.5, 0), age=40) == pytest.approx(0.5 / 5 + 0.5 * 0.2 / 5)

    def test_nothing_changed_is_0(self) -> None:
        assert measure((0.4, 0.3, 0.3)) == 0

    def test_beyond_the_background_is_more_than_1(self) -> None:
        assert measure((0, 0, 1), age=170) == pytest.approx(140 / 50)

    def test_filling_in_a_missing_value_is_1(self) -> None:
        hole = {**ROW, "income": None, "degree": None}
        assert measure((0, 1, 0), hole, income=10.0) == pytest.approx(1 / 5)
        assert measure((0, 1, 0), hole, degree="none") == pytest.approx(1 / 5)
        assert measure((0, 1, 0), hole, age=40) == pytest.approx(0.2 / 5)
        assert measure({"l0": 0, "l1": 1, "scale": "mad"}, hole, income=40.0) == pytest.approx(1 / 5)

    def test_leaving_an_unseen_level_is_1(self) -> None:
        odd = {**ROW, "degree": "licence", "job": "z"}
        assert measure((0, 1, 0), odd, degree="master") == pytest.approx(1 / 5)
        assert measure((0, 1, 0), odd, job="a") == pytest.approx(1 / 5)

    def test_weights(self) -> None:
        options = {"l0": 0.4, "l1": 0.4, "linf": 0.2, "weights": {"age": 3, "job": 0.5}}
        total, moves = 3 + 0.5 + 3, {"age": 40, "job": "c"}
        expected = 0.4 * 3.5 / total + 0.4 * (3 * 0.2 + 0.5) / total + 0.2 * max(3 * 0.2, 0.5) / 3
        assert measure(options, **moves) == pytest.approx(expected)

    def test_mad(self) -> None:
        # ages 20 30 40 70: median 35, deviations 15 5 5 35, MAD 10; ranks 0 1 2: MAD 1; levels only differ
        options = {"l0": 0, "l1": 1, "scale": "mad"}
        assert measure(options, age=40) == pytest.approx(1 / 5)
        assert measure(options, degree="doctor") == pytest.approx(2 / 5)
        assert measure(options, job="c") == pytest.approx(1 / 5)

    def test_percentile_is_the_share_of_rows_between(self) -> None:
        # ages 20 30 40 70: of the two ends of a change half a row each counts
        options = {"l0": 0, "l1": 1, "scale": "percentile"}
        assert measure(options, age=40) == pytest.approx(1 / 4 / 5)
        assert measure(options, age=70) == pytest.approx(2 / 4 / 5)
        assert measure(options, age=20) == pytest.approx(1 / 4 / 5)
        # incomes 0 10 40, one is missing
        assert measure(options, income=40.0) == pytest.approx(1 / 3 / 5)
        assert measure(options, job="c") == pytest.approx(1 / 5)

    def test_percentile_between_observed_values_is_in_proportion(self) -> None:
        options = {"l0": 0, "l1": 1, "scale": "percentile"}
        assert measure(options, age=55) == pytest.approx((1 / 4 + 1 / 8) / 5)
        assert measure(options, {**ROW, "age": 34}, age=36) == pytest.approx(0.2 / 4 / 5)

    def test_percentile_beyond_the_background_goes_on_by_the_range(self) -> None:
        options = {"l0": 0, "l1": 1, "scale": "percentile"}
        assert measure(options, age=170) == pytest.approx((2 / 4 + 100 / 50) / 5)
        assert measure(options, age=10) == pytest.approx((1 / 4 + 10 / 50) / 5)
        assert measure(options, {**ROW, "age": -10}, age=170) == pytest.approx((3 / 4 + 130 / 50) / 5)

    def test_percentile_of_ordinals(self) -> None:
        # one row each for none, bachelor and master; nobody is a doctor, and the order has three steps
        options = {"l0": 0, "l1": 1, "scale": "percentile"}
        assert measure(options, degree="master") == pytest.approx(1 / 3 / 5)
        assert measure(options, degree="doctor") == pytest.approx((1 / 3 + 1 / 3) / 5)

    def test_percentile_counts_equal_rows(self) -> None:
        space = FeatureSpace.infer(pd.DataFrame({"gain": [0] * 8 + [100, 5000], "b": range(10)}))
        metric = BoundDistance.bind(Distance(0, 1, 0, scale="percentile"), space)
        moves = metric.changes(np.zeros(3, dtype=np.intp), np.array([0.0, 100.0, 5000.0]), np.zeros(3))
        np.testing.assert_allclose(moves, [0, 0.45, 0.55])

    def test_no_spread_only_differs(self) -> None:
        frame = pd.DataFrame({"a": [1, 1, 1], "b": [1, 2, 3]})
        space = FeatureSpace.infer(frame, {"a": {"low": 1, "high": 1}})
        for scale in ("range", "mad", "percentile"):
            metric = BoundDistance.bind(Distance(0, 1, 0, scale=scale), space)
            assert metric.distance(((0,), (1,)), np.array([[7.0, 1.0]]), np.array([1.0, 1.0])).tolist() == [0.5]


class TestReading:
    def test_sources(self) -> None:
        options = {"l0": 0.2, "l1": 0.3, "linf": 0.5}
        assert Distance.read((0.2, 0.3, 0.5)) == Distance.read(options) == Distance(0.2, 0.3, 0.5)
        assert Distance.read(Distance(1, 0, 0)) == Distance(1, 0)

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ((0.5, 0.5), "distance: (0.5, 0.5) is not a distance; pass (l0, l1, linf)"),
            ("l1", "distance: 'l1' is not a distance"),
            ((0.5, 0.4, 0.0), "distance: l0 + l1 + linf must be 1"),
            ((1.5, -0.5, 0.0), "distance.l1: input should be greater than or equal to 0"),
            ({"weight": {}}, "distance.weight: not a known key; did you mean 'weights'?"),
            ({"scale": "std"}, "distance.scale: input should be 'range', 'mad' or 'percentile'"),
            ({"weights": {"age": 0}}, "distance.weights.age: input should be greater than 0"),
            ({"weights": {"age": float("inf")}}, "distance.weights.age: input should be a finite number"),
        ],
        ids=str,
    )
    def test_bad_ones(self, source: Any, message: str) -> None:
        with pytest.raises(InputError) as error:
            Distance.read(source)
        assert message in str(error.value)

    def test_weight_of_no_feature(self) -> None:
        with pytest.raises(InputError, match=r"distance\.weights\.agee: not a feature; did you mean 'age'\?"):
            BoundDistance.bind(Distance(weights={"agee": 2}), SPACE)


@pytest.mark.parametrize("weights", [(0.5, 0.5, 0.0), (0.2, 0.5, 0.3), (0, 0, 1)], ids=str)
@pytest.mark.parametrize("groups", [[], [["age", "degree"]], [["income", "job"], ["degree", "member"]]], ids=str)
@pytest.mark.parametrize("short", [500, 0])
@pytest.mark.parametrize("scale", ["range", "mad", "percentile"])
def test_codes_rows_and_single_rows_agree_bit_for_bit(
    weights: Any, groups: Any, scale: str, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "SHORT", short)
    names = dict(zip(("l0", "l1", "linf"), weights, strict=True))
    distance = Distance.read({**names, "scale": scale, "weights": {"age": 0.3, "job": 1.7}})
    bound_policy = BoundPolicy.build(SPACE, SPACE.encode(FRAME), Constraints(groups=groups), distance, "observed")
    for query in (ROW, {**ROW, "income": None, "job": "z", "degree": "odd"}):
        raw = pd.DataFrame([query]).astype({"income": "float64"})
        problem = bind(bound_policy, raw)
        rng = np.random.default_rng(5)
        codes = np.column_stack([rng.integers(len(group.actions), size=400) for group in problem.groups])
        Z = problem.rows(codes)
        table = problem.distance(codes)
        assert (table == problem.bound_distance.distance(problem.columns, Z, problem.x0)).all()
        one_by_one = [problem.bound_distance.distance(problem.columns, row[None, :], problem.x0)[0] for row in Z]
        assert table.tolist() == one_by_one
