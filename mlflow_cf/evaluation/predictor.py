"""An explained model as one that only predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.evaluation.source import ModelSource, source_of


def predictor(model: ModelSource) -> Callable[[pd.DataFrame], NDArray[Any]]:
    """Return a function of rows (m, d) to predictions (m,), for whatever expects a model that only predicts.

    MLflow's own evaluator of classifiers takes everything that a model returns for its prediction, whatever the column
    named by ``predictions``: ``mlflow.models.evaluate(predictor(uri), rows, targets="approved",
    model_type="classifier", model_id=...)`` evaluates an explained model. Its evaluator of regressors heeds the name.

    Args:
        model: an explained model in memory, a loaded pyfunc of one, or its URI or folder.

    Raises:
        InputError: there is nothing at that address, or it is no explained model.
    """
    explained = source_of(model).explained

    def predictions(rows: pd.DataFrame) -> NDArray[Any]:
        return np.array([one.prediction for one in explained.explain(rows, explain="none")])

    return predictions
