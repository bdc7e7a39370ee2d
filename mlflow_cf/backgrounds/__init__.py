"""Backgrounds of more rows than memory holds: a sample, and counts of all rows."""

from mlflow_cf.backgrounds.background import Background, ColumnCounts, taken
from mlflow_cf.backgrounds.counting import Counted, GroupCounts

__all__ = ["Background", "ColumnCounts", "Counted", "GroupCounts", "taken"]
