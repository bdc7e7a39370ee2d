"""The replies of a served model as one table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray


class Replies(pd.DataFrame):
    """One record per row; where a single column is expected, they stand for their predictions.

    MLflow's evaluator of classifiers is told which column holds the predictions, and yet takes whatever a model returns
    for them: it makes an array of it, and a column of its deep copy (``ClassifierEvaluator`` of MLflow 3). As a table,
    the replies are like any other; what is selected from them is a plain one.
    """

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001
        """Return the predictions (m,)."""
        del copy  # it always is one
        return np.array(self["prediction"].tolist(), dtype=dtype)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> pd.Series:
        """Return the predictions (m,); `copy` copies the whole table."""
        del memo
        return pd.Series(np.asarray(self), index=self.index, name="prediction")
