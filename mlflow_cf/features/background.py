"""A sample of training rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features.feature import Floats


class Background(NamedTuple):
    """Rows of training data as a table, their labels (m,), if they are known, and their codes (m, d), if at hand."""

    rows: pd.DataFrame
    labels: NDArray[np.generic] | None
    codes: Floats | None = None
