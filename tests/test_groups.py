"""Groups of rows: values, given bins, and bins at quartiles with names as people write them."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlflow_cf import InputError
from mlflow_cf.evaluation.measure.bins import FEW_VALUES
from mlflow_cf.evaluation.measure.lines import groups_of, members_of

FLOATS = st.floats(-1e9, 1e9, allow_nan=False) | st.floats(allow_nan=False)
NUMBERS = st.lists(FLOATS, min_size=FEW_VALUES + 1, max_size=60) | st.lists(st.integers(-50, 500), min_size=12)


def groups(values, groups="x"):
    return groups_of(pd.DataFrame({"x": values}), groups)["x"]


def sizes(values):
    found = groups(values)
    return {
        label.removeprefix("x."): int(rows.sum()) for label, rows in members_of(found.to_frame(), len(found)).items()
    }


def test_integers_have_bins_of_about_equally_many_rows_named_by_both_ends():
    found = sizes(np.arange(25, 65))
    assert found == {"": 40, "25-34": 10, "35-44": 10, "45-54": 10, "55-64": 10}


def test_numbers_with_fractions_have_edges_of_three_digits():
    assert list(sizes(np.linspace(0, 9.9996, 41))) == ["", "0-2.5", "2.5-5", "5-7.5", "7.5-10"]
    assert list(sizes(np.linspace(-1, 1, 40))) == ["", "-1 to -0.487", "-0.487 to 0.0256", "0.0256-0.538", "0.538-1"]


def test_days_are_bins_whatever_the_hour():
    found = sizes(pd.date_range("2019-01-01", periods=40, freq="12h", tz="UTC"))
    assert list(found) == ["", "2019-01-01 to 2019-01-05", "2019-01-06 to 2019-01-10", "2019-01-11 to 2019-01-15",
                           "2019-01-16 to 2019-01-20"]  # fmt: skip
    assert list(sizes(pd.date_range("2019-01-01", periods=40, freq="h"))) == ["", "2019-01-01", "2019-01-02"]


def test_one_value_that_most_rows_have_is_a_bin():
    assert sizes([0] * 80 + list(range(1, 21))) == {"": 100, "0": 80, "1-20": 20}


def test_what_is_missing_is_a_group_and_what_is_infinite_lies_outermost():
    found = sizes([np.nan, np.inf, *np.arange(12.0)])
    assert found == {"": 14, "0-2": 3, "3-5": 3, "6-8": 3, "9-11": 4, "missing": 1}
    assert "missing" in sizes(pd.array([None, *range(12)], dtype="Int64"))


def test_few_numbers_texts_and_booleans_are_groups_as_they_are():
    assert list(sizes([3, 1, 2, 10, 10])) == ["", "1", "2", "3", "10"]
    assert list(sizes(["b", "a"])) == ["", "a", "b"]
    assert list(sizes([True, False])) == ["", "False", "True"]


def test_a_mapping_asks_for_every_value_or_for_given_bins():
    assert set(groups(range(20), {"x": None})) == {str(number) for number in range(20)}
    rows = members_of(groups(range(20), {"x": [5, 12]}).to_frame(), 20)
    assert list(rows) == ["", "x.below 5", "x.5 to 12", "x.12 or more"]
    with pytest.raises(InputError, match=r"groups.x: 60 different values; give the edges of bins"):
        groups(range(60), {"x": None})
    with pytest.raises(InputError, match=r"groups.x: 60 different values"):
        groups([f"level {number}" for number in range(60)])


@given(NUMBERS)
def test_bins_part_the_numbers_in_their_order(values):
    """Each row is in one bin, bins do not overlap, equal numbers are together, and names are apart."""
    found = groups(np.array(values, dtype=np.float64))
    parts = pd.DataFrame({"x": values, "bin": found}).groupby("bin")["x"].agg(["min", "max"]).sort_values("min")
    assert (parts["max"].to_numpy()[:-1] < parts["min"].to_numpy()[1:]).all()
    if len(set(values)) > FEW_VALUES:
        assert 2 <= len(parts) <= 4
        assert not any(re.search(r"[^\w.\- ]", name) for name in parts.index)


@given(st.lists(st.integers(0, 10_000), min_size=40, max_size=200, unique=True), st.randoms())
def test_bins_of_different_integers_have_a_quarter_of_the_rows_in_any_order(values, random):
    found = sizes(values)
    assert all(abs(rows - len(values) / 4) <= 2 for name, rows in found.items() if name)
    random.shuffle(values)
    assert sizes(values) == found


@given(st.lists(st.integers(-500, 500), min_size=12, max_size=80))
def test_the_names_of_integers_say_which_rows_a_bin_has(values):
    for value, name in zip(values, groups(values), strict=True):
        ends = [int(end) for end in re.fullmatch(r"(-?\d+)(?:(?:-| to )(-?\d+))?", name).groups() if end is not None]
        assert ends[0] <= value <= ends[-1]
