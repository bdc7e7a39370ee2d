"""Answers that hold under the models that retraining may give: those models, and the requirement that they make."""

from mlflow_cf.survival.future import FutureModels, future_models
from mlflow_cf.survival.retrain import Retrained, retrained

__all__ = ["FutureModels", "Retrained", "future_models", "retrained"]
