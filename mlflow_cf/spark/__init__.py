"""Apache Spark: rows of data frames explained by its workers, and backgrounds far larger than memory.

Nothing else of this package imports it, or pyspark.
"""

try:
    import pyspark as _pyspark  # noqa: F401  an answer for those who do not have it
except ImportError as error:
    raise ImportError("mlflow_cf.spark needs pyspark; pip install 'mlflow-cf[spark]'") from error

from mlflow_cf.spark.background import background
from mlflow_cf.spark.explain import explain

__all__ = ["background", "explain"]
