"""The wanted outcome over the raw scores of a model: decision, margin, bounds, and further requirements."""

from mlflow_cf.goal.requirements import Requirement, Requirements
from mlflow_cf.goal.scorer import Scorer
from mlflow_cf.goal.targets import BoundTarget, Rating, Votes, spread_of

__all__ = ["BoundTarget", "Rating", "Requirement", "Requirements", "Scorer", "Votes", "spread_of"]
