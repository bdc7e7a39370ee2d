"""Cuts of raw numbers are exact: the last value that passes passes, and the next one does not."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlflow_cf.structures import MonotoneStep, NumberColumn
from mlflow_cf.structures.trees.cells import last_values

STEPS = {
    "none": (),
    "scaled": (lambda values: (values - 3.7) / 1.3,),
    "steep": (lambda values: values * 1e30,),
    "flat": (lambda values: values * 1e-30,),
    "clipped": (lambda values: np.clip(values * 0.1 + 0.2, 0.0, 1.0),),
    "float32": (lambda values: (values.astype(np.float32) - np.float32(0.1)) / np.float32(7),),
    "two": (lambda values: values - 1e9, lambda values: values / 3),
}
LIMITS = st.floats(-1e6, 1e6) | st.floats(-1, 1, width=32) | st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(("name", "narrow"), list(product(STEPS, (False, True))))
@given(limit=LIMITS)
@example(limit=0.0)
@example(limit=-5e-324)
@example(limit=1.0)
@example(limit=float(np.finfo(np.float32).max))
@example(limit=np.inf)
def test_the_last_value_passes_and_the_next_one_does_not(name, narrow, limit):
    number = NumberColumn(0, tuple(map(MonotoneStep, STEPS[name])))
    (last,) = last_values(number, np.array([limit]), narrow=narrow)

    def passes(raw: float) -> bool:
        with np.errstate(over="ignore"):
            encoded = number.encode(np.array([raw]))
            return bool(((encoded.astype(np.float32).astype(np.float64) if narrow else encoded) <= limit)[0])

    assert last == -np.inf or passes(min(last, np.finfo(np.float64).max))
    with np.errstate(over="ignore"):
        above = np.nextafter(last, np.inf) if last != -np.inf else -np.finfo(np.float64).max
    assert np.isinf(above) or not passes(above)


def test_limits_no_value_reaches_or_all_values_pass_are_infinite():
    clipped = NumberColumn(0, tuple(map(MonotoneStep, STEPS["clipped"])))
    assert last_values(clipped, np.array([-0.5, 1.0]), narrow=False).tolist() == [-np.inf, np.inf]
