"""One row to explain: its groups of features, the actions of each, the distance, and a budget."""

from mlflow_cf.problem.actions import Codes, Group, JointRule
from mlflow_cf.problem.bound_policy import BoundPolicy
from mlflow_cf.problem.budget import Budget
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.problem.problem import Problem

__all__ = ["BoundDistance", "BoundPolicy", "Budget", "Codes", "Group", "JointRule", "Problem"]
