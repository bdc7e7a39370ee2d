"""Policies that owners log with a model, and options of requests, which can only tighten them."""

from mlflow_cf.policy.distance import Distance
from mlflow_cf.policy.further import Plausible, RobustTo
from mlflow_cf.policy.limits import Limits, QueryLimits
from mlflow_cf.policy.policy import Explain, NamedExplainer, Policy, Query, RegionAsked, Sealable, Trace, WhyNotAsked
from mlflow_cf.policy.privacy import Privacy
from mlflow_cf.policy.target import Target

__all__ = [
    "Distance",
    "Explain",
    "Limits",
    "NamedExplainer",
    "Plausible",
    "Policy",
    "Privacy",
    "Query",
    "QueryLimits",
    "RegionAsked",
    "RobustTo",
    "Sealable",
    "Target",
    "Trace",
    "WhyNotAsked",
]
