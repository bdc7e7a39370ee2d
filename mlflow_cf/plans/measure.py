"""How changes are measured, as far as plans need to know."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats, Percentiles


class Measure(Protocol):
    """The distance of problems, bound to the features (d,)."""

    @property
    def scale(self) -> Floats:
        """(d,) divisor of a numeric change; 0 where only [differs] counts."""
        ...

    @property
    def unknown_from(self) -> Floats:
        """(d,) codes from here on have no rank."""
        ...

    @property
    def weights(self) -> Floats:
        """(d,) how much each feature counts."""
        ...

    @property
    def percentiles(self) -> Percentiles | None:
        """Whether changes are those of the share of background rows below a value."""
        ...

    def changes(self, columns: NDArray[np.intp], values: Floats, own: Floats) -> Floats:
        """Return the scaled changes (m, n) of values (m, n) of `columns` (n,) from own ones."""
        ...
