"""Products in portions are products."""

import numpy as np
import pytest

from mlflow_cf.structures.layers.network import ALONE, FEWEST, times


@pytest.mark.parametrize(
    ("rows", "inner", "columns"),
    [
        (0, 3, 2),
        (1, 1, 1),
        (ALONE, 1, 1),
        (ALONE + 1, 1, 1),
        (3_000, 20, 20),
        (1_310, 100, 2),
        (1_311, 100, 2),
        (5_000, 100, 2),
        (100, 128, ALONE // FEWEST // 128),
        (40, 200, 100),
    ],
)
def test_portions_add_nothing(rows: int, inner: int, columns: int) -> None:
    rng = np.random.default_rng(rows + inner)
    left, right = rng.normal(size=(rows, inner)), rng.normal(size=(inner, columns))
    found = times(left, right)
    assert found.shape == (rows, columns)
    np.testing.assert_allclose(found, left @ right, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(times(np.asfortranarray(left), right.T.copy().T), found, rtol=1e-12, atol=1e-12)
