"""Constraints: what users write, the rules they compile to, and the values they leave."""

from mlflow_cf.constraints.compile import compile_rules, group_columns
from mlflow_cf.constraints.domains import Domain, Values, build_domains
from mlflow_cf.constraints.model import Constraints, ConstraintSource, Relative
from mlflow_cf.constraints.order import repair_order
from mlflow_cf.constraints.rules import Rule
from mlflow_cf.constraints.tighten import check_tightens

__all__ = [
    "ConstraintSource",
    "Constraints",
    "Domain",
    "Relative",
    "Rule",
    "Values",
    "build_domains",
    "check_tightens",
    "compile_rules",
    "group_columns",
    "repair_order",
]
