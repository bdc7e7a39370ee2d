"""Replies as columns of Arrow, each with the type that a schema gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mlflow_cf.features import Feature, Floats
from mlflow_cf.words.arrays import UNTOLD, AnswerArrays, Coded, Column, value_column
from mlflow_cf.words.changes import written
from mlflow_cf.words.explanations import Explanations


def typed_replies(answers: Explanations, kinds: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """Return the records of a reply as columns of these types, by the keys of `Explanation.to_dict`.

    Labels and levels of several types are text.
    """
    arrays, others = answers.parts()
    records = [one.to_dict() for one in others.values()]
    told = {key: typed([record[key] for record in records], kind) for key, kind in kinds.items()}
    if arrays is None:
        return told
    known = _known(arrays, kinds)
    if not others:
        return known
    place = np.empty(len(answers), dtype=np.intp)
    place[np.concatenate([arrays.rows, np.array(list(others), dtype=np.intp)])] = np.arange(len(answers))
    return {key: pa.concat_arrays([known[key], told[key]]).take(pa.array(place)) for key in kinds}


def typed(column: Column, kind: pa.DataType) -> pa.Array:
    """Return a column as values of one type; what is of several types is text, where the type is text."""
    if isinstance(column, Coded):
        return typed(list(column.distinct), kind).take(pa.array(column.places))
    if isinstance(column, np.ndarray) and column.dtype != object:
        return pa.array(column, mask=np.isnan(column)).cast(kind)
    try:
        return pa.array(column, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_fitting(value, kind) for value in column], type=kind)


def typed_values(feature: Feature, codes: Floats, kind: pa.DataType) -> pa.Array:
    """Return the values of a feature behind codes (k,) as values of one type."""
    if feature.kind == "integer" and pa.types.is_floating(kind):
        return typed(codes + 0.0, kind)  # whole numbers have no -0.0
    return typed(value_column(feature, codes), kind)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a value with text wherever its type is text, and floats wherever it is that of floats."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return written(value)
    if pa.types.is_floating(kind):
        return float(value)  # of whole numbers, arrow takes those alone that are exact
    if pa.types.is_list(kind):
        return [_fitting(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    return value


def _known(arrays: AnswerArrays, kinds: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """Return the columns of rows that stand in arrays."""
    told: dict[str, Column] = {
        "prediction": arrays.predictions,
        "probability": arrays.probabilities,
        "status": arrays.statuses,
        "evaluations": arrays.evaluations,
    }
    columns = {key: typed(column, kinds[key]) for key, column in told.items()}
    found = kinds["counterfactuals"]
    columns["counterfactuals"] = _list(arrays.start, _counterfactuals(arrays, found.value_type), found)
    same, rows = arrays.bare.to_dict(), len(arrays.rows)
    return {key: columns[key] if key in columns else _repeated(same[key], rows, kind) for key, kind in kinds.items()}


def _counterfactuals(arrays: AnswerArrays, kind: pa.StructType) -> pa.Array:
    """Return counterfactuals (k,) as objects of one type."""
    kinds = {field.name: field.type for field in kind}
    start, features, before, after, _ = arrays.changes
    one = kinds["changes"].value_type
    texts = [typed(column, field.type) for column, field in zip((features, before, after), one, strict=True)]
    columns = {key: typed(column, kinds[key]) for key, column in arrays.told.items()}
    columns["changes"] = _list(start, _struct(texts, one), kinds["changes"])
    values = {
        feature.name: (feature, codes) for feature, codes in zip(arrays.space.features, arrays.codes.T, strict=True)
    }
    columns["row"] = _struct([typed_values(*values[field.name], field.type) for field in kinds["row"]], kinds["row"])
    count = len(arrays.owner)
    told = [
        columns[key] if key in columns else _repeated(UNTOLD[key], count, field_kind)
        for key, field_kind in kinds.items()
    ]
    return _struct(told, kind)


def _struct(columns: list[pa.Array], kind: pa.StructType) -> pa.Array:
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _list(start: Any, values: pa.Array, kind: pa.ListType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(start, pa.int32()), values, type=kind)


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    """Return a column that holds one value everywhere."""
    return typed([value], kind).take(pa.array(np.zeros(count, dtype=np.intp)))
