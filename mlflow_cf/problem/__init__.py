"""The problem of one row: target, distance, policy and query, budget."""

from mlflow_cf.problem.budget import Budget
from mlflow_cf.problem.distance import BoundDistance, Distance
from mlflow_cf.problem.further import Plausible, RobustTo
from mlflow_cf.problem.group import Codes, Group, JointRule
from mlflow_cf.problem.limits import Limits, QueryLimits
from mlflow_cf.problem.policy import Explain, NamedExplainer, Policy, Query, Sealable, Trace, WhyNotAsked
from mlflow_cf.problem.privacy import Privacy
from mlflow_cf.problem.problem import Problem
from mlflow_cf.problem.rater import Rater
from mlflow_cf.problem.rating import BoundTarget, Rating, spread_of
from mlflow_cf.problem.requirements import Requirement, Requirements
from mlflow_cf.problem.setting import Setting
from mlflow_cf.problem.target import Target

__all__ = [
    "BoundDistance",
    "BoundTarget",
    "Budget",
    "Codes",
    "Distance",
    "Explain",
    "Group",
    "JointRule",
    "Limits",
    "NamedExplainer",
    "Plausible",
    "Policy",
    "Privacy",
    "Problem",
    "Query",
    "QueryLimits",
    "Rater",
    "Rating",
    "Requirement",
    "Requirements",
    "RobustTo",
    "Sealable",
    "Setting",
    "Target",
    "Trace",
    "WhyNotAsked",
    "spread_of",
]
