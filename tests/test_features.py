"""Raw columns to codes and back, what a background tells about its columns, and what cannot be used."""

import re
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace

NUMPY_NUMBERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + ["float32", "float64"]
NULLABLE_NUMBERS = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)] + ["Float32", "Float64"]
ARROW_NUMBERS = ["int8[pyarrow]", "int64[pyarrow]", "uint32[pyarrow]", "float[pyarrow]", "double[pyarrow]"]
STRINGS = ["str", "string", "string[python]", "string[pyarrow]", "object", pd.ArrowDtype(pa.string())]


def column(values: list[Any], dtype: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": pd.Series(values, dtype=dtype)})


def describe(values: list[Any], dtype: Any, **override: Any) -> tuple[FeatureSpace, pd.DataFrame]:
    frame = column(values, dtype)
    return FeatureSpace.infer(frame, {"x": override} if override else {}), frame


def check_round_trip(frame: pd.DataFrame, space: FeatureSpace) -> None:
    codes = space.encode(frame)
    assert codes.dtype == np.float64
    assert np.array_equal(np.isnan(codes), frame.isna().to_numpy())
    pd.testing.assert_frame_equal(space.decode(codes), frame, check_exact=True)
    again = FeatureSpace.from_dict(space.to_dict())
    pd.testing.assert_frame_equal(again.decode(again.encode(frame)), frame, check_exact=True)


class TestRoundTrip:
    @pytest.mark.parametrize("dtype", NUMPY_NUMBERS + NULLABLE_NUMBERS + ARROW_NUMBERS)
    def test_numbers(self, dtype: str) -> None:
        space, frame = describe([3, 1, 7, 1], dtype)
        assert space["x"].kind == "integer"
        check_round_trip(frame, space)

    @pytest.mark.parametrize("dtype", ["float32", "float64", "Float32", "Float64", "float[pyarrow]", "double[pyarrow]"])
    def test_fractions(self, dtype: str) -> None:
        space, frame = describe([0.1, 2.7, -3.3], dtype)
        assert space["x"].kind == "real"
        check_round_trip(frame, space)

    @pytest.mark.parametrize("dtype", [*NULLABLE_NUMBERS, *ARROW_NUMBERS, "float32", "float64"])
    def test_numbers_with_missing(self, dtype: str) -> None:
        space, frame = describe([3, None, 7, 1], dtype)
        assert space["x"].missing
        check_round_trip(frame, space)

    @pytest.mark.parametrize("dtype", STRINGS, ids=repr)
    def test_strings(self, dtype: Any) -> None:
        space, frame = describe(["b", "", "ü", "b"], dtype)
        assert (space["x"].kind, space["x"].levels) == ("category", ("", "b", "ü"))
        check_round_trip(frame, space)

    @pytest.mark.parametrize("dtype", STRINGS, ids=repr)
    def test_strings_with_missing(self, dtype: Any) -> None:
        space, frame = describe(["b", None, "a"], dtype)
        check_round_trip(frame, space)

    @pytest.mark.parametrize("dtype", ["bool", "boolean", "object", "bool[pyarrow]"])
    def test_truth_values(self, dtype: str) -> None:
        space, frame = describe([True, False, True], dtype)
        assert (space["x"].kind, space["x"].levels) == ("boolean", (False, True))
        check_round_trip(frame, space)

    @pytest.mark.parametrize("dtype", ["boolean", "object", "bool[pyarrow]"])
    def test_truth_values_with_missing(self, dtype: str) -> None:
        space, frame = describe([True, None, False], dtype)
        assert space["x"].kind == "boolean"
        check_round_trip(frame, space)

    @pytest.mark.parametrize("ordered", [True, False])
    @pytest.mark.parametrize("levels", [["lo", "mid", "hi"], [3, 1, 2], [0.5, 2.5, 1.5], ["x", 2, 3]], ids=str)
    def test_categoricals(self, levels: list[Any], *, ordered: bool) -> None:
        dtype = pd.CategoricalDtype(levels, ordered=ordered)
        space, frame = describe([levels[2], levels[0], None, levels[0]], dtype)
        assert space["x"].kind == ("ordinal" if ordered else "category")
        assert space["x"].levels == tuple(levels)  # levels nobody has belong to it, in their order
        check_round_trip(frame, space)

    @pytest.mark.parametrize("dtype", ["str", "string[python]", "object", "int8", "Int16"])
    def test_categoricals_keep_the_type_of_their_levels(self, dtype: str) -> None:
        levels = pd.Index([1, 2, 3] if "nt" in dtype else ["a", "b", "c"], dtype=dtype)
        space, frame = describe([levels[0], levels[1]], pd.CategoricalDtype(levels))
        check_round_trip(frame, space)
        assert space.decode(space.encode(frame))["x"].cat.categories.dtype == levels.dtype

    def test_mixed_objects(self) -> None:
        space, frame = describe(["b", 2, None, 1.5, "a"], "object")
        assert space["x"].levels == (1.5, 2, "a", "b")
        check_round_trip(frame, space)

    def test_whole_numbers_in_an_object_column(self) -> None:
        space, frame = describe([1, 2, None, 5], "object")
        assert space["x"].kind == "integer"
        check_round_trip(frame, space)

    @pytest.mark.parametrize(
        ("values", "dtype", "override"),
        [
            ([0, 1, 1], "int64", {"kind": "boolean"}),
            ([1, 3, 2], "int16", {"kind": "category"}),
            ([1, None, 2], "Int64", {"kind": "category"}),
            ([0.5, None, 1.5], "float64", {"kind": "category"}),
            ([3, 1, 2], "uint8", {"kind": "ordinal", "levels": [3, 2, 1]}),
            ([1, 5, 2], "int64", {"kind": "real"}),
            (["hi", "lo", None], "str", {"kind": "ordinal", "levels": ["lo", "mid", "hi"]}),
        ],
        ids=str,
    )
    def test_declared_kinds(self, values: list[Any], dtype: str, override: dict[str, Any]) -> None:
        space, frame = describe(values, dtype, **override)
        assert space["x"].kind == override["kind"]
        check_round_trip(frame, space)

    def test_order_of_columns_is_the_backgrounds(self) -> None:
        frame = pd.DataFrame({"z": [1, 2], "a": ["p", "q"], "m": [True, False]})
        space = FeatureSpace.infer(frame)
        assert space.names == ("z", "a", "m")
        shuffled = frame[["m", "a", "z"]].assign(more=0)
        pd.testing.assert_frame_equal(space.decode(space.encode(shuffled)), frame)


class TestExactly:
    @pytest.mark.parametrize(
        ("values", "code", "back"),
        [
            (np.array([1, 2], dtype="int8"), 2, 2),
            (np.array([1, 2], dtype="int8"), 1.5, 1),
            (np.array([0.5, 1], dtype="float32"), 0.25, 0.25),
            (np.array([0.5, 1], dtype="float32"), 0.3, float(np.float32(0.3))),
            (np.array([0.5, 1], dtype="float32"), np.nan, np.nan),
            (np.array([0.5, 1]), 0.3, 0.3),
            (pd.array([1, 2, None], dtype="Int64"), np.nan, np.nan),
            (["a", "b"], 1, 1),
            (pd.to_datetime(["2024-01-01", "2024-01-02"]), 19723.5, 19723.5),
            (pd.to_datetime(["2024-01-01", "2024-01-02"]), 19723 + 4e-12, 19723),
        ],
        ids=str,
    )
    def test_says_which_codes_come_back(self, values: Any, code: float, back: float) -> None:
        background = pd.DataFrame({"x": values, "y": np.arange(len(values)) / 2})
        space = FeatureSpace.infer(background)
        codes = np.vstack([[code, 0.5], space.encode(background)])
        frame, held = space.decode_exactly(codes)
        assert np.array_equal(space.encode(frame)[0], [back, 0.5], equal_nan=True)
        assert held.tolist() == [bool(code == back or np.isnan(code)), *([True] * len(values))]
        pd.testing.assert_frame_equal(frame, space.decode(codes))


class TestUnseen:
    @pytest.mark.parametrize("dtype", [*STRINGS, "category"], ids=repr)
    def test_levels_are_kept_but_not_part_of_the_domain(self, dtype: Any) -> None:
        space, _ = describe(["a", "b"], dtype)
        row = column(["new", "b", "other", "new"], "object")
        covering = space.covering(row)
        codes = covering.encode(row)[:, 0]
        assert codes.tolist() == [2.0, 1.0, 3.0, 2.0]
        assert covering.decode(codes[:, None])["x"].tolist() == ["new", "b", "other", "new"]
        assert covering["x"].values.tolist() == space["x"].values.tolist() == [0.0, 1.0]
        assert covering["x"].levels == ("a", "b")
        assert covering.to_dict() == space.to_dict()

    def test_whole_number_levels(self) -> None:
        space, _ = describe([1, 2, 3], "int64", kind="category")
        row = column([7.0, 2.0], "float64")
        covering = space.covering(row)
        assert covering.decode(covering.encode(row))["x"].tolist() == [7, 2]

    def test_nothing_new_is_the_same_space(self) -> None:
        space, frame = describe(["a", "b", None], "str")
        assert space.covering(frame) is space

    def test_numbers_beyond_the_background_are_kept(self) -> None:
        space, _ = describe([1, 3, 5], "int64")
        row = column([2, 99], "int64")
        assert space.decode(space.encode(row))["x"].tolist() == [2, 99]


class TestRowsWithoutCodes:
    """A value the column cannot hold must never reach the model as some other value."""

    @pytest.mark.parametrize(
        ("background", "dtype", "value"),
        [
            ([1, 2], "int64", None),
            ([1, 2], "int64", 2.5),
            ([1, 2], "int64", np.inf),
            ([1, 2], "int64", "2"),
            ([1, 2], "int8", 128),
            ([1, 2], "int8", -129),
            ([1, 2], "uint8", -1),
            ([1, 2], "UInt8", 256),
            ([1, 2], "int64", 2**60 + 1),
            ([1, 2], "int64", 10**400),
            ([1, 2], pd.CategoricalDtype([1, 2]), 10**400),
            ([1, 2], pd.CategoricalDtype([1, 2]), np.inf),
            ([1, 2], "int16[pyarrow]", 2**15),
            ([0.5, 1.5], "float64", -np.inf),
            ([0.5, 1.5], "float32", 1e300),
            ([0.5, 1.5], "float64", 1e300),
            ([0.5, 1.5], "Float32", 1e300),
            ([0.5, 1.5], "float64", "0.5"),
            ([0.5, 1.5], "float64", [0.5]),
            ([True, False], "bool", None),
            ([True, False], "bool", "yes"),
            ([True, False], "boolean", 2),
            (["a", "b"], "str", 5),
            (["a", "b"], "str", ["a"]),
            (["a", "b"], "category", 5),
            ([1, 2], pd.CategoricalDtype([1, 2]), "1"),
        ],
        ids=str,
    )
    def test_are_named(self, background: list[Any], dtype: Any, value: Any) -> None:
        space, _ = describe(background, dtype)
        row = pd.DataFrame({"x": pd.Series([background[0], value], dtype=object)})
        codes, reasons = space.covering(row).encode_rows(row)
        assert list(reasons) == [1]
        assert reasons[1].startswith("x: ")
        assert codes[0, 0] == space.encode(column(background, dtype))[0, 0]
        with pytest.raises(InputError, match=r"rows\[1\]\.x: "):
            space.covering(row).encode(row)

    @pytest.mark.parametrize("value", ["3", 2.5, None, 300, True])
    def test_level_of_another_type(self, value: Any) -> None:
        space, _ = describe([1, 2, 3], "int8", kind="category")
        row = column([1, value], "object")
        reasons = space.covering(row).encode_rows(row)[1]
        assert bool(reasons) == (value is not True)  # True is 1, as everywhere in Python

    def test_one_bad_row_leaves_the_others(self) -> None:
        frame = pd.DataFrame({"n": [1, 2, 3], "s": ["a", "b", "a"]})
        space = FeatureSpace.infer(frame)
        rows = pd.DataFrame({"n": [1, "x", 3], "s": ["a", "b", "b"]}, dtype=object)
        codes, reasons = space.encode_rows(rows)
        assert reasons == {1: "n: 'x' is no finite whole number of type int64"}
        assert codes[[0, 2]].tolist() == [[1, 0], [3, 1]]

    @pytest.mark.parametrize(
        ("value", "dtype", "fact"),
        [
            (1e308, "float64", r"is beyond ±1e\+150, and only numbers within that can be explained"),
            (-(10**200), "float64", r"is beyond ±1e\+150, "),
            (np.inf, "float64", "is no finite number of type float64"),
            (1e40, "float32", "is no finite number of type float32"),
            (2**62, "int64", "is beyond ±9007199254740992, and only numbers within that can be explained"),
            (-(2.0**60), "int64", "is beyond ±9007199254740992, "),
            (2**63, "int64", "is no finite whole number of type int64"),
            (300, "int8", "is no finite whole number of type int8"),
        ],
    )
    def test_numbers_that_are_too_large_are_told_from_those_of_another_type(
        self, value: float, dtype: str, fact: str
    ) -> None:
        space, _ = describe([1, 2, 3], dtype, kind="real" if dtype.startswith("float") else "integer")
        reasons = space.encode_rows(column([value], "object"))[1]
        assert re.match(f"x: -?[0-9.e+inf]+ {fact}", reasons[0])

    def test_missing_column(self) -> None:
        space, _ = describe([1, 2], "int64")
        with pytest.raises(InputError, match=r"rows\.x: column is missing; did you mean 'xx'\?") as error:
            space.encode(pd.DataFrame({"xx": [1]}))
        assert error.value.path == "rows.x"

    def test_column_there_twice(self) -> None:
        space, frame = describe([1, 2], "int64")
        with pytest.raises(InputError, match=r"rows\.x: two columns have this name"):
            space.encode(pd.concat([frame, frame], axis=1))


class TestDomain:
    def test_values_counts_range(self) -> None:
        feature = describe([5, 1, 1, 9, None], "float64")[0]["x"]
        assert feature.values.tolist() == [1, 5, 9]
        assert feature.counts.tolist() == [2, 1, 1]
        assert (feature.low, feature.high, feature.step, feature.kind) == (1, 9, 4, "integer")

    @pytest.mark.parametrize(
        ("values", "mad"),
        [
            ([1, 2, 4, 9], 1.5),  # around the median 3: 2, 1, 1, 6
            ([1, 1, 1, 5], 2.0),  # median deviation 0: standard deviation with n - 1
            ([2, 4, None], 1.0),
        ],
    )
    def test_mad(self, values: list[Any], mad: float) -> None:
        assert describe(values, "float64")[0]["x"].mad == pytest.approx(mad)

    def test_a_constant_fraction_has_no_deviation(self) -> None:
        assert FeatureSpace.infer(pd.DataFrame({"x": [0.1] * 7, "y": range(7)}))["x"].mad == 0

    def test_ordinals_measure_in_ranks(self) -> None:
        feature = describe(["hi", "lo", "lo"], "str", kind="ordinal", levels=["lo", "mid", "hi"])[0]["x"]
        assert (feature.low, feature.high, feature.values.tolist()) == (0, 2, [0, 2])

    @pytest.mark.parametrize(
        ("values", "dtype", "step"),
        [([10, 14, 20], "int64", 2), ([3.0, 9.0], "float64", 6), ([0, 1], "int64", 1), ([0.5, 1.0], "float64", None)],
    )
    def test_step_of_whole_numbers(self, values: list[Any], dtype: str, step: float | None) -> None:
        assert describe(values, dtype)[0]["x"].step == step

    def test_declared_facts_win(self) -> None:
        feature = describe([10, 14, 20], "int64", step=1, low=0, high=50)[0]["x"]
        assert (feature.step, feature.low, feature.high) == (1, 0, 50)

    def test_round_numbers_are_no_reason_to_lose_a_fraction(self) -> None:
        space, _ = describe([1.0, 2.0, 4.0], "float64")  # looks like whole numbers
        row = column([2.5], "float64")
        assert space.decode(space.encode(row))["x"].tolist() == [2.5]
        assert space["x"].value(2.5) == 2.5
        assert isinstance(space["x"].value(2.0), int)

    def test_values_are_plain_python(self) -> None:
        frame = pd.DataFrame(
            {
                "i": np.array([1, 2], dtype="int8"),
                "f": np.array([0.5, 1.5], dtype="float32"),
                "b": [True, False],
                "s": ["p", "q"],
                "o": pd.array([1, None], dtype="Int64"),
                "o2": pd.array([1, 4], dtype="Int64"),
            }
        ).drop(columns="o")
        space = FeatureSpace.infer(frame)
        row = space.values(space.encode(frame)[0])
        assert row == {"i": 1, "f": 0.5, "b": True, "s": "p", "o2": 1}
        assert [type(value) for value in row.values()] == [int, float, bool, str, int]


class TestBadBackgrounds:
    @pytest.mark.parametrize(
        ("frame", "message"),
        [
            (pd.DataFrame({"a": [], "b": []}), "data: 0 rows and 2 columns; give at least two rows"),
            (pd.DataFrame(index=[0, 1]), "data: 2 rows and 0 columns"),
            (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "data.a: two columns have this name; rename one"),
            (pd.DataFrame({0.5: [1, 2]}), "data.0.5: column names must be strings or integers; rename with"),
            (pd.DataFrame([[1, 2], [3, 4]], columns=[1, "1"]), "data.1: two columns have this name; rename one"),
            (pd.DataFrame({"a": [1.0, np.inf]}), "data.a: row 1 is infinite"),
            (pd.DataFrame({"a": [1, 2**60]}), "data.a: row 1 is infinite, beyond 2^53"),
            (pd.DataFrame({"a": [1, 1e200]}), "data.a: row 1 is infinite"),
            (pd.DataFrame({"a": [1j, 2j]}), "data.a: columns of type complex128 cannot be explained"),
            (pd.DataFrame({"a": pd.to_timedelta([1, 2])}), "data.a: columns of type timedelta64"),
            (pd.DataFrame({"a": pd.Series([["x"], ["y"]])}), "data.a: values of type list are no levels"),
            (pd.DataFrame({"a": pd.Series([True, "x"], dtype=object)}), "data.a: values of type bool are no levels"),
            (
                pd.DataFrame({"a": pd.array([1, 2], dtype=pd.ArrowDtype(pa.decimal128(5, 2)))}),
                "data.a: columns of type decimal128(5, 2)[pyarrow] cannot be restored; convert it",
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_are_refused_with_a_reason(self, frame: pd.DataFrame, message: str) -> None:
        with pytest.raises(InputError) as error:
            FeatureSpace.infer(frame)
        assert message in str(error.value)

    @pytest.mark.parametrize(
        ("frame", "override"),
        [
            (pd.DataFrame({"a": [1, 1]}), {"low": 0, "high": 5}),
            (pd.DataFrame({"a": ["x", "x"]}), {"kind": "category", "levels": ["x", "y"]}),
        ],
    )
    def test_a_constant_with_a_declared_domain_is_fine(self, frame: pd.DataFrame, override: dict[str, Any]) -> None:
        assert FeatureSpace.infer(frame, {"a": override}).names == ("a",)

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ({"kidn": "real"}, "features.a.kidn: not a known key; did you mean 'kind'?"),
            ({"kind": "ordnial"}, "features.a.kind: 'ordnial' is not a kind; did you mean 'ordinal'?"),
            ({"kind": "real", "levels": [1, 2]}, "features.a.levels: a real has no levels"),
            ({"levels": ["p"]}, "features.a.levels: level 'q' of the data is not declared"),
            ({"levels": ["p", "q", "p"]}, "features.a.levels: a level is declared twice"),
            ({"levels": "pq"}, "features.a.levels: 'pq' is not a list"),
            ({"kind": "ordinal"}, "features.a: an ordinal of names needs its order; add 'levels', lowest first"),
            ({"kind": "integer"}, "data.a: row 0 is infinite, beyond 2^53 or not of kind integer"),
        ],
        ids=str,
    )
    def test_bad_overrides_of_levels(self, override: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            FeatureSpace.infer(pd.DataFrame({"a": ["p", "q"]}), {"a": override})
        assert message in str(error.value)

    @pytest.mark.parametrize(
        ("override", "path"),
        [
            ({"low": "x"}, "features.a.low"),
            ({"high": float("nan")}, "features.a.high"),
            ({"low": 5, "high": 1}, "features.a"),
            ({"step": 0}, "features.a"),
            ({"step": -1}, "features.a"),
            ({"step": "1"}, "features.a.step"),
            ({"step": float("inf")}, "features.a.step"),
            ({"step": 0.5}, "features.a.step"),
            ({"low": 0.5}, "features.a.low"),
            ({"high": 2.5}, "features.a.high"),
            ({"kind": "real", "high": 2.5}, "features.a.high"),  # the column holds whole numbers alone
        ],
        ids=str,
    )
    def test_bad_overrides_of_numbers(self, override: dict[str, Any], path: str) -> None:
        with pytest.raises(InputError) as error:
            FeatureSpace.infer(pd.DataFrame({"a": [1, 2]}), {"a": override})
        assert error.value.path == path

    def test_numbers_of_numpy_are_ends_and_steps(self) -> None:
        frame = pd.DataFrame({"a": [1, 2, 5], "b": [0.5, 1.0, 2.0]})
        given = {"a": {"low": np.int64(0), "step": np.int32(1)}, "b": {"high": np.float32(2.5)}}
        whole, real = FeatureSpace.infer(frame, given).features
        assert (whole.low, whole.high, whole.step, real.high) == (0, 5, 1, 2.5)

    def test_fractions_are_ends_of_floats_that_are_declared_real(self) -> None:
        frame = pd.DataFrame({"a": [1.0, 2.0]})
        with pytest.raises(InputError, match=r"features.a.low: 0.5 is a fraction, .* or declare kind 'real'"):
            FeatureSpace.infer(frame, {"a": {"low": 0.5}})
        assert FeatureSpace.infer(frame, {"a": {"kind": "real", "low": 0.5}})["a"].low == 0.5

    @pytest.mark.parametrize("odd", [2.5, 1e17])
    def test_fractions_and_huge_numbers_are_no_integers(self, odd: float) -> None:
        fact = f"is 'integer', but {odd} in data is no whole number up to 2^53; leave it out, or declare 'real'"
        with pytest.raises(InputError, match=re.escape(f"features.a.kind: {fact}")):
            FeatureSpace.infer(pd.DataFrame({"a": [1.0, odd]}), {"a": {"kind": "integer"}})

    def test_an_integer_has_no_levels(self) -> None:
        with pytest.raises(InputError, match=r"features.a.levels: an integer has no levels"):
            FeatureSpace.infer(pd.DataFrame({"a": [1, 2]}), {"a": {"levels": [1, 2]}})

    def test_override_of_no_column(self) -> None:
        with pytest.raises(InputError, match=r"features\.agee: not a column of data; did you mean 'age'\?"):
            FeatureSpace.infer(pd.DataFrame({"age": [1, 2]}), {"agee": {"kind": "real"}})

    def test_ordinal_numbers_need_no_levels(self) -> None:
        space = FeatureSpace.infer(pd.DataFrame({"a": [3, 1, 2]}), {"a": {"kind": "ordinal"}})
        assert space["a"].levels == (1, 2, 3)


class TestKinds:
    @pytest.mark.parametrize(
        ("values", "dtype", "kind"),
        [
            ([1.0, 2.0], "float64", "integer"),
            ([1.0, 2.5], "float64", "real"),
            ([1, 2.5], "object", "real"),
            ([1, 2], "object", "integer"),
            ([True, False], "object", "boolean"),
            (["1", "2"], "str", "category"),
            ([0, 1], "int64", "integer"),  # 0/1 stays a number unless declared boolean
            ([1e100, 2e100], "float64", "real"),
        ],
    )
    def test_are_inferred(self, values: list[Any], dtype: str, kind: str) -> None:
        assert describe(values, dtype)[0]["x"].kind == kind

    def test_levels_are_in_order(self) -> None:
        assert describe([10, 9, "10", "9"], "object")[0]["x"].levels == (9, 10, "10", "9")


class TestDates:
    DAYS: ClassVar = ["2024-02-29", "1969-12-31", "2024-03-01", "2024-02-29"]

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "-03:30"])
    def test_round_trip(self, unit: str, zone: str | None) -> None:
        column = pd.Series(pd.to_datetime(self.DAYS)).dt.as_unit(unit).dt.tz_localize(zone)
        space = FeatureSpace.infer(column.to_frame("x"))
        assert space["x"].kind == "date"
        check_round_trip(column.to_frame("x"), space)
        check_round_trip(column.mask(column.index == 1).to_frame("x"), space)

    def test_times_of_day(self) -> None:
        column = pd.Series(
            pd.to_datetime(
                ["2024-03-31 02:30:00", "2024-01-01 00:00:00.000001", "1900-01-01 23:59:59"], format="ISO8601"
            )
        )
        frame = column.dt.as_unit("us").to_frame("x")
        check_round_trip(frame, FeatureSpace.infer(frame))

    def test_domain_is_in_days(self) -> None:
        frame = pd.DataFrame({"x": pd.to_datetime(["1970-01-02", "1970-01-08", "1970-01-05"])})
        feature = FeatureSpace.infer(frame)["x"]
        assert (feature.low, feature.high, feature.step) == (1, 7, 3)
        assert feature.value(1.0) == "1970-01-02"

    def test_rows_may_hold_iso_strings(self) -> None:
        frame = pd.DataFrame({"x": pd.to_datetime(["1970-01-02", "1970-01-08"])})
        space = FeatureSpace.infer(frame)
        rows = pd.DataFrame({"x": pd.Series(["1970-01-05", "1970-01-08T00:00:00", None, "soon", 3], dtype=object)})
        codes, reasons = space.encode_rows(rows)
        assert codes[:2, 0].tolist() == [4, 7]
        assert np.isnan(codes[2, 0])
        assert list(reasons) == [3, 4]
