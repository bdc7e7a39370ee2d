"""Constraints: the form that users write, the rules that they compile to, and the values that features may take."""

from mlflow_cf.constraints.compile import (
    ChangeLimit,
    JoinedGroup,
    Pause,
    change_limit,
    check_groups,
    compile_rules,
    group_columns,
    joined_groups,
    no_pause,
)
from mlflow_cf.constraints.domains import Combinations, Domain, Values, build_domains, parted
from mlflow_cf.constraints.model import CausalEquation, Constraints, ConstraintSource, Relative
from mlflow_cf.constraints.rules import Origin, Rule, repair_order

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
    "repair_order",
]
