"""Replies as MLflow's Spark UDF can turn them into columns.

Spark's columns may be null at every depth, but MLflow's conversion (`_convert_struct_values` of MLflow 3) fails at a
null where its schema has an array or a struct, and turns a null prediction into another value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from mlflow.types import ColSpec, Schema
from mlflow.types.schema import Array, Object

from mlflow_cf.errors import InputError


def for_spark(replies: pd.DataFrame, outputs: Schema) -> pd.DataFrame:
    """Return replies with an empty list for every null array, and a struct of nulls for every null struct.

    Raises:
        InputError: the model cannot predict a row.
    """
    unknown = replies["prediction"].isna().to_numpy()
    if unknown.any():
        reason = replies["reason"].iloc[int(unknown.argmax())]
        fix = "use mlflow_cf.spark.explain, which answers such a row as 'invalid', or leave the row out"
        raise InputError("rows", f"MLflow's Spark UDF has no null for a row that cannot be predicted ({reason})", fix)
    kinds = {str(spec.name): spec.type for spec in outputs.inputs if isinstance(spec, ColSpec)}
    columns = {
        name: [_filled(value, kinds[name]) for value in replies[name]] if name in kinds else replies[name].tolist()
        for name in replies.columns
    }
    return pd.DataFrame(columns, index=replies.index, dtype=object)


def _filled(value: Any, kind: object) -> Any:
    if isinstance(kind, Array):
        return [_filled(one, kind.dtype) for one in value or ()]
    if isinstance(kind, Object):
        known = value if isinstance(value, Mapping) else {}
        return {field.name: _filled(known.get(field.name), field.dtype) for field in kind.properties}
    return value
