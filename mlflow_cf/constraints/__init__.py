"""Constraints: the form that users write, the rules that they compile to, and the values that features may take."""

from mlflow_cf.constraints.compile import (
    Pause,
    change_limit,
    check_groups,
    compile_rules,
    group_columns,
    joined_groups,
    no_pause,
)
from mlflow_cf.constraints.domains import Combinations, Domain, Values, build_domains, parted, regrouped
from mlflow_cf.constraints.equations import CausalEquation
from mlflow_cf.constraints.limits import ChangeLimit, JoinedGroup
from mlflow_cf.constraints.model import Constraints, ConstraintSource, Relative
from mlflow_cf.constraints.order import repair_order
from mlflow_cf.constraints.origin import Origin
from mlflow_cf.constraints.rules import Rule

__all__ = [
    "CausalEquation",
    "ChangeLimit",
    "Combinations",
    "ConstraintSource",
    "Constraints",
    "Domain",
    "JoinedGroup",
    "Origin",
    "Pause",
    "Relative",
    "Rule",
    "Values",
    "build_domains",
    "change_limit",
    "check_groups",
    "compile_rules",
    "group_columns",
    "joined_groups",
    "no_pause",
    "parted",
    "regrouped",
    "repair_order",
]
