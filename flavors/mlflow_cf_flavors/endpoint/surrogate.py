"""A small model that imitates what an endpoint says of the background, opened, so that searches can look inside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import logit
from threadpoolctl import threadpool_limits

from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import Outcome
from mlflow_cf.structures import NotOpenedError, Structure
from mlflow_cf.structures.trees.ensemble import TreeEnsemble
from mlflow_cf_flavors.sklearn.structure import compile_model

LEAST_SHARE: Final = 1e-4  # of a class: beyond, probabilities say nothing of where the decision changes
TREES: Final = {
    "max_iter": 150,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 5,
    "early_stopping": False,
    "random_state": 0,
}


def imitate(space: FeatureSpace, rows: pd.DataFrame, outcome: Outcome) -> Structure:
    """Return boosted trees that were fitted on background rows (n, d) and what the model says of them.

    Of two classes with scores they learn the log odds, else labels; of a regression the values.

    Raises:
        NotOpenedError: the rows have too few labels to learn from.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    scores = outcome.scores
    if len(outcome.values):
        return _fitted(HistGradientBoostingRegressor(**TREES), space, rows, outcome.values)
    if scores is not None and scores.shape[1] == 2 and ((scores >= 0) & (scores <= 1)).all():
        odds = logit(np.clip(scores[:, 1], LEAST_SHARE, 1 - LEAST_SHARE))
        found = _fitted(HistGradientBoostingRegressor(**TREES), space, rows, odds)
        if isinstance(found, TreeEnsemble):
            return replace(found, link="sigmoid")
    known = len(np.unique(outcome.codes))
    classes = scores.shape[1] if scores is not None else known
    if known < max(2, classes) or outcome.codes.min() < 0:
        raise NotOpenedError("too few labels")
    return _fitted(HistGradientBoostingClassifier(**TREES), space, rows, outcome.codes)


def _fitted(trees: Any, space: FeatureSpace, rows: pd.DataFrame, wanted: Any) -> Structure:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder

    levels = [feature.column for feature in space.features if feature.kind in ("category", "ordinal")]
    numbers = [feature.column for feature in space.features if feature.numeric and feature.kind != "date"]
    numbers += [feature.column for feature in space.features if feature.kind == "boolean"]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = ColumnTransformer([("levels", one_hot, levels), ("numbers", "passthrough", numbers)])
    model = Pipeline([("columns", columns), ("trees", trees)])
    with threadpool_limits(1):
        model.fit(rows, wanted)
    return compile_model(model, space, rows.iloc[:20])
