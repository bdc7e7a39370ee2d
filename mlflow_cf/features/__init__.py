"""Features: a table of raw columns outside, one float64 array inside."""

from mlflow_cf.features.dates import days
from mlflow_cf.features.embedding import UNIT_MISMATCH, Embedding
from mlflow_cf.features.feature import Feature, Floats, Kind, Level
from mlflow_cf.features.space import FeatureSpace, check_table

__all__ = [
    "UNIT_MISMATCH",
    "Embedding",
    "Feature",
    "FeatureSpace",
    "Floats",
    "Kind",
    "Level",
    "check_table",
    "days",
]
