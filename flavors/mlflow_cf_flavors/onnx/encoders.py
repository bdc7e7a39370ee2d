"""The encoders of ONNX: tables over the values of one raw feature each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from mlflow_cf.structures import IntervalColumn, LevelColumn, NumberColumn
from mlflow_cf_flavors.onnx.graph import Node, words
from mlflow_cf_flavors.onnx.values import NARROW, TEXT, Table, Value, refused
from mlflow_cf_flavors.sklearn.sources import UNSEEN, Source, as_numbers, is_missing, values_of


def one_hot(node: Node, given: Sequence[Value]) -> Value:
    """Return one column per category of every column."""
    table = given[0]
    if not isinstance(table, Table) or not table.width:
        raise refused(node)
    texts = node.attributes.get("cats_strings", ())
    categories: list[Any] = words(texts) if len(texts) else node.integers("cats_int64s").tolist()
    columns: list[Source] = []
    for source in table.sources:
        values, column = values_of(source, sorted(categories) if isinstance(source, NumberColumn) else ())
        keys = [_key(value) for value in values]
        columns += [column(np.array([key == one for key in keys], dtype=NARROW)) for one in categories]
    return Table(tuple(columns), NARROW)


def _key(value: Any) -> Any:
    """Return a value of a feature as categories are compared with it; None for what none of them equals."""
    if value is UNSEEN or is_missing(value):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


_KINDS: Final = ("strings", "int64s", "floats", "tensor")
_MISSING: Final = "missing"


def labelled(node: Node, given: Sequence[Value]) -> Value:
    """Return the numbers that a LabelEncoder puts in the place of values."""
    table = given[0]
    keys, kind = _listed(node, "keys")
    numbers, numbered = _listed(node, "values")
    if not isinstance(table, Table) or not keys or numbered == "strings" or len(keys) != len(numbers):
        raise refused(node)
    known = {_MISSING if is_missing(key) else _key(key): number for key, number in zip(keys, numbers, strict=True)}
    points = sorted(float(key) for key in keys if not is_missing(key)) if kind != "strings" else []
    default = _default(node, numbered)
    dtype = np.dtype(np.int64) if numbered == "int64s" else NARROW
    return Table(tuple(_looked_up(source, points, known, default) for source in table.sources), dtype)


def _looked_up(source: Source, points: Sequence[float], known: Mapping[Any, Any], default: float) -> Source:
    values, column = values_of(source, points if isinstance(source, NumberColumn) else ())
    keys = [_MISSING if is_missing(value) else _key(value) for value in values]
    return column(np.array([float(known.get(key, default)) for key in keys]))


def _listed(node: Node, name: str) -> tuple[list[Any], str]:
    """Return the values of an attribute that has one name per type, and its type."""
    for kind in _KINDS:
        values = node.attributes.get(f"{name}_{kind}")
        if values is not None and len(values):
            return (words(values), kind) if kind == "strings" else (np.asarray(values).ravel().tolist(), kind)
    return [], ""


def _default(node: Node, kind: str) -> float:
    if kind == "int64s":
        return float(node.attributes.get("default_int64", -1))
    if kind == "tensor":
        return float(np.asarray(node.attributes.get("default_tensor", 0.0)).item())
    return float(node.attributes.get("default_float", 0.0))


def binarized(node: Node, given: Sequence[Value]) -> Value:
    """Return 1 where a number exceeds the threshold, and 0 elsewhere; onnxruntime refuses missing ones."""
    table, threshold = given[0], float(node.attributes.get("threshold", 0.0))
    if not isinstance(table, Table) or table.dtype == TEXT:
        raise refused(node)
    columns: list[Source] = []
    for source in map(as_numbers, table.sources):
        if isinstance(source, NumberColumn):
            columns.append(IntervalColumn(source, np.array([threshold]), np.array([0.0, 1.0, np.nan])))
        elif isinstance(source, LevelColumn | IntervalColumn):
            above = np.where(np.isnan(source.table), np.nan, source.table > threshold)
            columns.append(replace(source, table=above))
        else:
            raise refused(node)
    return Table(tuple(columns), NARROW)
