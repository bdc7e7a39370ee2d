"""Answers that hold under the models that retraining may give: those models, and the requirement that they make."""

from mlflow_cf.survival.future import FutureModels, future_models, outlying
from mlflow_cf.survival.retrain import Opening, Refit, Retrained, given_models
from mlflow_cf.survival.rows import Rows, learned_from
from mlflow_cf.survival.shrinkage import shrinks
from mlflow_cf.survival.trial import Showing, Trial, tried

__all__ = [
    "FutureModels",
    "Opening",
    "Refit",
    "Retrained",
    "Rows",
    "Showing",
    "Trial",
    "future_models",
    "given_models",
    "learned_from",
    "outlying",
    "shrinks",
    "tried",
]
