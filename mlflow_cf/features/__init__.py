"""Features: a table of raw columns outside, one float64 array inside."""

from mlflow_cf.features.background import BackgroundRows, Percentiles, stand_ins
from mlflow_cf.features.coded import CodedTable
from mlflow_cf.features.embedding import UNIT_MISMATCH, Embedding
from mlflow_cf.features.feature import Feature, Floats, Kind, Level, a_kind, days
from mlflow_cf.features.space import FeatureSpace, JointCounts, columns_with
from mlflow_cf.features.tables import ColumnName, Rows, Table, as_background, as_rows, check_table

__all__ = [
    "UNIT_MISMATCH", "BackgroundRows", "CodedTable", "ColumnName", "Embedding", "Feature", "FeatureSpace", "Floats",
    "JointCounts", "Kind", "Level", "Percentiles", "Rows", "Table", "a_kind", "as_background", "as_rows", "check_table",
    "columns_with", "days", "stand_ins",
]  # fmt: skip
