"""Constraints that training data suggest, to be reviewed."""

from mlflow_cf.suggest.result import Suggestion, Suggestions
from mlflow_cf.suggest.suggest import suggest_constraints

__all__ = ["Suggestion", "Suggestions", "suggest_constraints"]
