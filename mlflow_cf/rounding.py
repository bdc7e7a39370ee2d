"""What sums may be off: limits that nothing exceeds because it was added up in another order."""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from numpy.typing import NDArray

ROUNDING: Final = 1e-12  # of a distance, relative: nothing that is as near is dropped because it was added up otherwise


def loose(limit: float) -> float:
    """Return a limit that nothing exceeds by rounding alone."""
    return limit + ROUNDING * max(1.0, limit)


def all_loose(limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same of limits (n,)."""
    return np.asarray(limits + ROUNDING * np.maximum(1.0, limits))


@numba.njit(inline="always")
def loosened(limit: Any) -> Any:
    """Return the same in a kernel."""
    return limit + ROUNDING * max(1.0, limit)
