"""Any column of any kind survives the way into codes and back, also through JSON."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from checker import Ruler
from hypothesis import given
from hypothesis import strategies as st
from worlds import ORDERS, WIDE, background, row_dicts, space_of, table, wide_rows

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, plain_rows
from mlflow_cf.features import space as spaces
from mlflow_cf.features.codec import FACTORIZED, decode_column, encode_column, fits, recode_column, recoded_levels
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance
from mlflow_cf.request.rows import CodedRows

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NULLABLE = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
FLOATS = ["float32", "float64", "Float32", "Float64", "float[pyarrow]", "double[pyarrow]"]
EXACT = 2**53


def bounds(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(dtype.lower().removesuffix("[pyarrow]"))
    return max(int(limits.min), -EXACT), min(int(limits.max), EXACT)


@st.composite
def integer_columns(draw: st.DrawFn) -> pd.Series:
    dtype = draw(st.sampled_from([*INTEGERS, *NULLABLE, "int32[pyarrow]", "uint64[pyarrow]"]))
    values = draw(st.lists(st.integers(*bounds(dtype)), min_size=2, max_size=12))
    holes = st.one_of(st.none(), st.sampled_from(values)) if dtype not in INTEGERS else st.sampled_from(values)
    return pd.Series([*values, *draw(st.lists(holes, max_size=5))], dtype=dtype)


@st.composite
def float_columns(draw: st.DrawFn) -> pd.Series:
    dtype = draw(st.sampled_from(FLOATS))
    width = 32 if "32" in dtype or dtype == "float[pyarrow]" else 64
    largest = {32: 2.0**127, 64: 1e150}[width]
    number = st.floats(-largest, largest, allow_nan=False, width=width, allow_subnormal=False)
    values = draw(st.lists(st.one_of(number, st.none()), min_size=2, max_size=12))
    return pd.Series(values, dtype=dtype)


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@st.composite
def level_columns(draw: st.DrawFn) -> pd.Series:
    dtype = draw(st.sampled_from(["str", "object", "string[python]", "string[pyarrow]", "category", "ordered"]))
    level = words if dtype != "object" else st.one_of(words, st.integers(-9, 9), st.sampled_from([0.5, -1.5]))
    values = draw(st.lists(st.one_of(level, st.none()), min_size=2, max_size=12))
    if dtype in {"category", "ordered"}:
        levels = list(dict.fromkeys(value for value in values if value is not None))
        return pd.Series(pd.Categorical(values, categories=levels, ordered=dtype == "ordered"))
    return pd.Series(values, dtype=dtype)


truths = st.builds(
    lambda values, dtype: pd.Series([False if v is None and dtype == "bool" else v for v in values], dtype=dtype),
    st.lists(st.sampled_from([True, False, None]), min_size=2, max_size=9),
    st.sampled_from(["bool", "boolean", "object", "bool[pyarrow]"]),
)


@given(st.one_of(integer_columns(), float_columns(), level_columns(), truths))
def test_round_trip(column: pd.Series) -> None:
    frame = pd.DataFrame({"x": column})
    try:
        space = FeatureSpace.infer(frame)
    except InputError as error:
        assert column.dropna().nunique() < 2 or error.path == "data.x"  # noqa: PT017
        assert column.dropna().nunique() < 2, str(error)  # noqa: PT017
        return
    codes = space.encode(frame)
    assert np.array_equal(np.isnan(codes[:, 0]), column.isna())
    pd.testing.assert_frame_equal(space.decode(codes), frame, check_exact=True)
    again = FeatureSpace.from_dict(json.loads(json.dumps(space.to_dict(), allow_nan=False)))
    pd.testing.assert_frame_equal(again.decode(again.encode(frame)), frame, check_exact=True)
    assert again.to_dict() == space.to_dict()


strange = st.sampled_from(
    [pd.Series([1.5, 1e200, np.inf, -0.0, 2.0**60]), pd.Series([None, "1", True, 10**400, b""], dtype=object)]
)


@given(st.one_of(integer_columns(), float_columns(), level_columns(), truths), st.data())
def test_a_row_is_coded_alone_as_it_is_beside_others(column: pd.Series, data: st.DataObject) -> None:
    """Whatever the column holds: values that it never had, of other types, or none at all."""
    words = [f"w{place % 2}" for place in range(len(column))]
    space = FeatureSpace.infer(pd.DataFrame({"x": column, "word": words, "other": words}))
    asked = data.draw(st.one_of(st.just(column), integer_columns(), float_columns(), level_columns(), truths, strange))
    rows = pd.DataFrame({"x": asked, "word": "w1", "other": data.draw(st.sampled_from(["w0", None, "w2"]))})
    codes, faults = space.encode_rows(rows)
    for place in range(len(rows)):
        alone, fault = space.encode_rows(rows.iloc[[place]])
        np.testing.assert_array_equal(alone[0], codes[place])
        assert fault.get(0) == faults.get(place)
    raw = space.decode(codes[[place for place in range(len(rows)) if place not in faults]])
    assert [raw[name].dtype for name in raw] == [column.dtype, *[space["word"].raw_dtype] * 2]


@given(st.one_of(level_columns(), truths), st.one_of(level_columns(), truths, integer_columns()))
def test_a_long_column_is_coded_as_a_short_one(column: pd.Series, asked: pd.Series) -> None:
    words = [f"w{place % 2}" for place in range(len(column))]
    space = FeatureSpace.infer(pd.DataFrame({"x": column, "word": words}))
    short, long = pd.DataFrame({"x": asked}), pd.DataFrame({"x": pd.concat([asked] * FACTORIZED, ignore_index=True)})
    codes, faults = space.encode_rows(short.assign(word="w1"))
    several, several_faults = space.encode_rows(long.assign(word="w1"))
    np.testing.assert_array_equal(several, np.tile(codes, (FACTORIZED, 1)))
    assert {row: fault for row, fault in several_faults.items() if row < len(asked)} == faults
    assert fits(space["x"], long["x"]) == fits(space["x"], short["x"])
    for rows in (short.assign(word="w2"), long.assign(word="w1")):
        space_of_all, covered, misfits = space.encode_covered(rows)
        wide = space.covering(rows)
        assert [feature.known for feature in space_of_all.features] == [feature.known for feature in wide.features]
        assert (space_of_all is space) == (wide is space)
        codes, faults = wide.encode_rows(rows)
        np.testing.assert_array_equal(covered, codes)
        assert misfits == faults


@given(st.one_of(level_columns(), truths), st.one_of(level_columns(), truths, integer_columns(), strange))
def test_long_tables_are_coded_as_short_ones(column: pd.Series, asked: pd.Series) -> None:
    words = [f"w{place % 2}" for place in range(len(column))]
    space = FeatureSpace.infer(pd.DataFrame({"x": column, "word": words}))
    rows = pd.DataFrame({"x": asked, "word": [f"w{place % 3}" for place in range(len(asked))]})
    covering, codes, misfits = space.encode_covered(rows)
    with patch.object(spaces, "READ_AT_ONCE", 3), ThreadPoolExecutor(2) as threads:
        shared, found, faults = space.encode_covered(rows, threads.map)
    assert [feature.known for feature in shared.features] == [feature.known for feature in covering.features]
    np.testing.assert_array_equal(found, codes)
    assert faults == misfits


@given(st.lists(st.floats(width=32), min_size=1, max_size=9), st.sampled_from((np.float64, np.float32, object)))
def test_long_tables_of_numbers_are_coded_as_short_ones(values: list[float], dtype: type) -> None:
    """Also where columns are of other types than the background's."""
    space = FeatureSpace.infer(pd.DataFrame({"x": [0.5, 1.5, np.nan], "y": [1.0, 2.0, 3.0]}))
    rows = pd.DataFrame({"x": np.array(values, dtype=dtype), "y": 1.0})
    codes, misfits = space.encode_rows(rows)
    with patch.object(spaces, "READ_AT_ONCE", 2), patch.object(plain_rows, "READ_AT_ONCE", 2):
        found, faults = space.encode_rows(rows)
        in_parts = CodedRows.unread_of(space, rows)
        assert (in_parts is None) == (dtype is object or len(rows) <= 2)
        good = np.arange(len(rows))
        if in_parts is not None:
            good = np.concatenate([in_parts.read(part) for part in np.array_split(good, 2)])
    np.testing.assert_array_equal(found, codes)
    assert faults == misfits
    if in_parts is None:
        return
    np.testing.assert_array_equal(in_parts.codes[good], codes[good])
    assert set(in_parts.faults) == set(misfits) == set(range(len(rows))) - set(good.tolist())


@given(st.integers(0, 40), st.lists(wide_rows, min_size=1, max_size=4))
def test_rows_come_back_as_they_were(seed: int, rows: list[dict[str, Any]]) -> None:
    """Unseen levels, numbers off the grid and missing values included."""
    frame = background(seed)
    raw = table(rows, frame)
    space = space_of(frame).covering(raw)
    assert row_dicts(space.decode(space.encode(raw))) == rows
    codes = space.encode(raw)
    assert [space.values(row) for row in codes] == rows
    assert [space.values_beside(row, codes[0], rows[0]) for row in codes] == rows


@given(
    st.integers(0, 40),
    wide_rows,
    st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in WIDE.items()}),
    st.sampled_from([(0.5, 0.5, 0.0), (0.0, 1.0, 0.0), (0.2, 0.3, 0.5)]),
    st.sampled_from(["range", "mad", "percentile"]),
    st.dictionaries(st.sampled_from(["age", "income", "job"]), st.sampled_from([0.1, 2.0, 5.0])),
)
def test_distance_is_the_rulers(
    seed: int, query: dict[str, Any], moves: dict[str, Any], parts: Any, scale: Any, weights: dict[str, float]
) -> None:
    frame, other = background(seed), {**query, **moves}
    raw = table([query, other], frame)
    space = space_of(frame)
    codes = space.covering(raw).encode(raw)
    metric = BoundDistance.bind(Distance(*parts, scale=scale, weights=weights), space)
    found = metric.distance(tuple((column,) for column in range(6)), codes[1:], codes[0])[0]
    assert np.isclose(found, Ruler(frame, *parts, scale, weights, ORDERS).distance(query, other), rtol=1e-12, atol=0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_levels_are_coded_again_once_each_as_they_are_all_together(seed: int, rows: int) -> None:
    """Codes that are none, such as fractions, come back as others."""
    space, rng = space_of(background(seed)), np.random.default_rng(seed)
    for feature in space.features:
        if feature.numeric:
            continue
        codes = rng.integers(0, len(feature.code_of), rows) + rng.choice([0.0, 0.0, 0.5], rows)
        codes = np.where(rng.random(rows) < 0.2, np.nan, codes)
        column = decode_column(feature, codes)
        exact = [
            ((again == codes) | (np.isnan(again) & np.isnan(codes))) & ~bad
            for again, bad in (
                recode_column(feature, codes, column, recoded_levels(feature)),
                encode_column(feature, column),
            )
        ]
        np.testing.assert_array_equal(*exact)
