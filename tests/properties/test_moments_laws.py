"""Sums of parts of the rows, against slow references over all of them: parting rows changes nothing."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mlflow_cf.evaluation.measure.moments import LEAST_S, Moments, Quantiles, Shared, Tally, Together

CELLS = st.just(np.nan) | st.floats(-1e6, 1e6, allow_subnormal=False) | st.sampled_from([0.0, 1.0, 1e6 + 0.1])


@st.composite
def parted(draw, columns=2):
    """Values (m, columns), two groups, and where the rows are parted."""
    rows = draw(st.integers(1, 25))
    values = draw(arrays(np.float64, (rows, columns), elements=CELLS))
    group = draw(arrays(np.bool_, rows))
    ends = sorted(draw(st.lists(st.integers(0, rows), max_size=4)))
    return values, [np.ones(rows, np.bool_), group], list(zip([0, *ends], [*ends, rows], strict=True))


def over(parts, make):
    return reduce(lambda one, other: one.merged(other), (make(slice(*part)) for part in parts))


@given(parted())
def test_means_and_errors_of_parts_are_those_of_all_rows(world):
    values, members, parts = world
    found = over(parts, lambda at: Moments.of(values[at], [rows[at] for rows in members]))
    for group, rows in enumerate(members):
        for column in range(values.shape[1]):
            known = values[rows, column][~np.isnan(values[rows, column])]
            assert found.count[group, column] == len(known)
            scale = np.abs(known).max(initial=1.0)
            if not len(known):
                assert np.isnan(found.known_mean[group, column])
                continue
            assert found.mean[group, column] == pytest.approx(known.mean(), abs=1e-12 * scale)
            assert (found.least[group, column], found.largest[group, column]) == (known.min(), known.max())
            if len(known) > 1:
                error = known.std(ddof=1) / np.sqrt(len(known))
                assert found.error[group, column] == pytest.approx(error, rel=1e-6, abs=1e-9 * scale)
            else:
                assert np.isnan(found.error[group, column])


@given(parted(columns=4))
def test_what_varies_together_is_that_of_all_rows(world):
    values, members, parts = world
    first, second = values[:, :2], values[:, 2:]
    found = over(parts, lambda at: Together.of(first[at], second[at], [rows[at] for rows in members]))
    for group, rows in enumerate(members):
        for column in range(2):
            both = rows & ~np.isnan(first[:, column]) & ~np.isnan(second[:, column])
            a, b = first[both, column], second[both, column]
            assert found.count[group, column] == len(a)
            if len(a):
                scale = np.abs(a).max(initial=1.0) * np.abs(b).max(initial=1.0)
                assert found.product[group, column] == pytest.approx(
                    np.sum((a - a.mean()) * (b - b.mean())), abs=1e-10 * scale
                )
                about = found.about(np.full((2, 2), 3.0), np.full((2, 2), -2.0))[group, column]
                assert about == pytest.approx(np.sum((a - 3.0) * (b + 2.0)), abs=1e-9 * scale)


@given(st.lists(st.floats(LEAST_S, 1e5), min_size=1, max_size=40), st.floats(0, 1), st.integers(0, 40))
def test_quantiles_are_those_of_the_values_within_half_a_percent(values, share, end):
    seconds = np.array(values)
    everybody = np.ones(len(values), np.bool_)
    end = min(end, len(values))
    parts = [(0, end), (end, len(values))]
    found = over(parts, lambda at: Quantiles.of(seconds[at], [everybody[at]])).at(share)[0]
    assert found == pytest.approx(np.quantile(seconds, share, method="lower"), rel=0.0051)


def test_nothing_has_no_quantile():
    assert np.isnan(Quantiles.of(np.array([np.nan]), [np.ones(1, np.bool_)]).at(0.5)[0])


@given(parted(columns=3), st.lists(st.booleans(), min_size=3, max_size=3))
def test_shared_means_are_over_rows_that_all_have_who_have_any(world, alive):
    values, _, parts = world
    found = over(parts, lambda at: Shared.of(values[at])).means(np.array(alive))
    counted = [column for column in range(3) if alive[column] and not np.isnan(values[:, column]).all()]
    rows = ~np.isnan(values[:, counted]).any(axis=1)
    for column in range(3):
        if column not in counted or not rows.any():
            assert np.isnan(found[column])
        else:
            assert found[column] == pytest.approx(values[rows, column].mean(), rel=1e-12, abs=1e-6)


@given(parted(columns=2))
def test_a_tally_comes_back_from_bytes(world):
    values, members, _ = world
    sums = {
        "moments/a/b": Moments.of(values, members),
        "together/a": Together.of(values, values, members),
        "shared/": Shared.of(values),
        "quantiles/é%2F": Quantiles.of(values[:, 0], members),
    }
    tally = Tally(sums, {"failure/a/geco": "ValueError: none"})
    back = Tally.from_bytes(tally.to_bytes())
    assert back.failures == tally.failures
    assert list(back.sums) == list(sums)
    for name, one in sums.items():
        assert type(back.sums[name]) is type(one)
        for key, array in one.arrays().items():
            np.testing.assert_array_equal(back.sums[name].arrays()[key], array)
