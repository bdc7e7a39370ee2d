"""Products of matrices on one core."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.features import Floats

# OpenBLAS starts threads beyond so many multiplications (its SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD).
ALONE: Final = 2**18
FEWEST: Final = 16  # rows at once that are worth it


def times(left: Floats, right: Floats) -> Floats:
    """Return left (m, k) times right (k, n), in portions of rows that are too small for threads.

    Beside other work, threads that wait for each other take up to fifty times as long as the product itself, and their
    number is a setting of the whole process. Matrices of more than 2^14 numbers are multiplied as ever.
    """
    many = ALONE // right.size
    if len(left) <= many or many < FEWEST:
        whole: Floats = left @ right
        return whole
    found = np.empty((len(left), right.shape[1]))
    for start in range(0, len(left), many):
        np.matmul(left[start : start + many], right, out=found[start : start + many])
    return found
