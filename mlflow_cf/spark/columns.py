"""Types of columns: those of a reply for Spark and Arrow, from the output schema that a model was logged with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import Array, Object
from pyspark.sql import types as sql

from mlflow_cf.features import FeatureSpace
from mlflow_cf.features.feature import zone_of

PLAIN: Final = MappingProxyType(
    {
        DataType.long: (sql.LongType(), pa.int64()),
        DataType.double: (sql.DoubleType(), pa.float64()),
        DataType.boolean: (sql.BooleanType(), pa.bool_()),
        DataType.string: (sql.StringType(), pa.string()),
    }
)


def reply_columns(outputs: Schema) -> dict[str, tuple[sql.DataType, pa.DataType]]:
    """Return the columns of a reply in order: their types in Spark and in Arrow, which may be null at every depth."""
    return {str(spec.name): _both(spec.type) for spec in outputs.inputs if isinstance(spec, ColSpec)}


def _both(kind: object) -> tuple[sql.DataType, pa.DataType]:
    if isinstance(kind, Array):
        element = _both(kind.dtype)
        return sql.ArrayType(element[0]), pa.list_(element[1])
    if isinstance(kind, Object):
        fields = {field.name: _both(field.dtype) for field in kind.properties}
        in_spark = sql.StructType([sql.StructField(name, one) for name, (one, _) in fields.items()])
        return in_spark, pa.struct([pa.field(name, one) for name, (_, one) in fields.items()])
    if isinstance(kind, DataType):
        return PLAIN[kind]
    raise TypeError(kind)


def rows_of(batch: pa.RecordBatch, space: FeatureSpace) -> pd.DataFrame:
    """Return rows of Spark as a table as the model takes it.

    Decimals become doubles. Moments are in the session's zone, and lose it where the model's column has none. Columns
    that may be left out, because the background has missing values in them, are missing.
    """
    columns: Mapping[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
    table: dict[str | int, Any] = {}
    for feature in space.features:
        column = columns.get(feature.name)
        if column is None:
            table[feature.column] = pd.Series([None] * batch.num_rows, dtype=object)
            continue
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
        if zoned and feature.kind == "date" and zone_of(feature.raw_dtype) is None:
            column = pc.local_timestamp(column)
        table[feature.column] = column.to_pandas()
    return pd.DataFrame(table)
