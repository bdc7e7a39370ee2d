"""What MLflow checks before us and promises after us: the signature of an explained model, written by hand.

MLflow's inference would call every reply with an empty list of counterfactuals "any".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType, Array, Object, Property

from mlflow_cf.errors import InputError
from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.model.judge import Label, OpenModel
from mlflow_cf.policy import Query

PARAM: Final = "counterfactual"
Column = DataType | AnyType
Type = DataType | Array | Object


@dataclass(frozen=True)
class _Maybe:
    """A type whose value may be null."""

    kind: Type


_Fields = Mapping[str, Type | _Maybe]


def signature_of(space: FeatureSpace, model: OpenModel, given: ModelSignature | None = None) -> ModelSignature:
    """Return the signature of a model with these features and labels; where the user has `given` one, completed.

    It gets our param, and our outputs where it has none; InputError if its inputs are not the features.
    """
    # The values are checked by us, with paths; MLflow refuses [1, 2] where it expects doubles.
    keys = [Property(key, AnyType(), required=False) for key in Query.model_fields]
    params = ParamSchema([ParamSpec(PARAM, Object(keys), default={})])
    if given is None or given.inputs is None:
        return ModelSignature(inputs=_inputs(space), outputs=_outputs(space, model), params=params)
    if given.inputs.is_tensor_spec():
        fact = "is one of tensors, and an explained model takes columns"
        raise InputError("signature", fact, "leave the signature out")
    names = set(map(str, given.inputs.input_names()))
    if names != set(space.names):
        lost, more = sorted(set(space.names) - names), sorted(names - set(space.names))
        fact = f"its inputs lack {lost} and have {more} on top" if more else f"its inputs lack {lost}"
        raise InputError("signature", fact, "name the columns of data, or leave the signature out")
    return ModelSignature(inputs=given.inputs, outputs=given.outputs or _outputs(space, model), params=params)


def inner_signature(space: FeatureSpace, model: OpenModel) -> ModelSignature:
    """Return the signature of the model alone: its features in, one label or number out."""
    return ModelSignature(inputs=_inputs(space), outputs=Schema([ColSpec(_label_type(model.classes))]))


def example_rows(space: FeatureSpace, rows: pd.DataFrame) -> pd.DataFrame:
    """Return `rows` in the plain types that MLflow's check of the inputs lets pass.

    It refuses pandas' categories and every nullable type with a missing value in it.
    """
    return pd.DataFrame({f.name: _plain_column(f, rows[f.column]) for f in space.features})


def _plain_column(feature: Feature, column: pd.Series[Any]) -> Any:
    kind = _column_type(feature)
    if feature.kind == "date" and kind != DataType.string:
        column = pd.Series([None if pd.isna(value) else value.isoformat() for value in column], dtype=object)
    if kind == DataType.boolean:
        return column.to_numpy(dtype=np.bool_)
    if kind == DataType.long:
        return column.to_numpy(dtype=np.int64)
    if kind == DataType.double and not column.hasnans:
        return column.to_numpy(dtype=np.float64)
    # None, not NaN: MLflow writes NaN into the example as it is, which is no JSON.
    values = column.astype(object).where(column.notna(), None).to_numpy()
    return pd.Series(values, dtype=object)  # a bare array of strings and None would become a column of strings and NaN


def _inputs(space: FeatureSpace) -> Schema:
    return Schema([ColSpec(_column_type(f), f.name, required=not f.missing) for f in space.features])


def _column_type(feature: Feature) -> Column:
    if feature.kind == "boolean":
        # Over HTTP, MLflow silently reads a null in a boolean column as False; of this type it leaves everything alone.
        return AnyType() if feature.missing else DataType.boolean
    if feature.kind == "date":
        # It also turns dates beyond 2262 into others, numbers into nanoseconds, and refuses time zones.
        return AnyType() if pd.api.types.is_datetime64_any_dtype(feature.raw_dtype) else DataType.string
    if feature.numeric:
        whole = "int" in feature.dtype.lower() and not feature.missing
        return DataType.long if whole else DataType.double
    kind = _label_type(feature.levels) if feature.levels else DataType.string
    return DataType.double if kind == DataType.long and feature.missing else kind


def _label_type(labels: tuple[Label, ...]) -> DataType:
    """Return the one type that holds all labels or levels; a regressor has none and answers doubles."""
    kinds = {type(label) for label in labels}
    if kinds == {bool}:
        return DataType.boolean
    if kinds == {int}:
        return DataType.long
    return DataType.double if kinds <= {int, float} else DataType.string


def _outputs(space: FeatureSpace, model: OpenModel) -> Schema:
    """Return the schema of a reply: no "any" and no dates, which Spark would garble or refuse."""
    label = _label_type(model.classes)
    reply: _Fields = {
        "prediction": label,
        "probability": _Maybe(DataType.double),
        "status": DataType.string,
        "reason": DataType.string,
        "counterfactuals": Array(_counterfactual(space, label)),
        "levers": Array(_lever_set()),
        "responsiveness": _responsiveness(),
        "record": DataType.string,
        "reasons": _reasons(),
        "explainer": DataType.string,
        "seed": DataType.long,
        "evaluations": DataType.long,
        "judge_calls": DataType.long,
        "judged_rows": DataType.long,
    }
    return Schema([ColSpec(p.dtype, p.name, required=p.required) for p in _properties(reply)])


def _lever_set() -> Object:
    text, number = DataType.string, DataType.double
    fields: _Fields = {
        "features": Array(text),
        "status": text,
        "by": Array(text),
        "distance": _Maybe(number),
        "probability": _Maybe(number),
        "proof": _Maybe(text),
        "bound": _Maybe(number),
        "changes": Array(_change()),
        "text": text,
        "reason": text,
    }
    return Object(_properties(fields))


def _responsiveness() -> Object:
    number = DataType.double
    share: _Fields = {
        "features": Array(DataType.string),
        "share": number,
        "weighted_share": _Maybe(number),
        "changes": DataType.long,
        "low": _Maybe(number),
        "high": _Maybe(number),
    }
    fields: _Fields = {
        "responsive": _Maybe(DataType.boolean),
        "shares": Array(Object(_properties(share))),
        "reason": DataType.string,
    }
    return Object(_properties(fields))


def _reasons() -> Object:
    text, number = DataType.string, DataType.double
    factor: _Fields = {
        "features": Array(text),
        "values": Array(Object(_properties({"feature": text, "value": _Maybe(text)}))),
        "contribution": number,
        "error": _Maybe(number),
        "code": text,
        "text": text,
        "protected": DataType.boolean,
    }
    fields: _Fields = {
        "status": text,
        "scale": text,
        "against": text,
        "score": _Maybe(number),
        "reference_score": _Maybe(number),
        "shortfall": _Maybe(number),
        "reference": text,
        "method": text,
        "factors": Array(Object(_properties(factor))),
        "rest": number,
        "alarm": Array(text),
        "reason": text,
    }
    return Object(_properties(fields))


def _change() -> Object:
    text = DataType.string
    return Object(_properties({"feature": text, "from": _Maybe(text), "to": _Maybe(text)}))


def _counterfactual(space: FeatureSpace, label: DataType) -> Object:
    kinds = {f.name: _value_type(f) for f in space.features}
    row = Object(_properties({f.name: _Maybe(kinds[f.name]) if f.missing else kinds[f.name] for f in space.features}))
    text, number, change = DataType.string, DataType.double, _change()
    step: _Fields = {
        "step": DataType.long,
        "action": text,
        "changes": Array(change),
        "effort": number,
        "discount": number,
        "probability": _Maybe(number),
        "row": row,
    }
    solver: _Fields = {"objective": text, "value": number, "bound": _Maybe(number), "proof": text}
    return Object(
        _properties(
            {
                "row": row,
                "changes": Array(change),
                "prediction": label,
                "probability": _Maybe(number),
                "distance": number,
                "n_changed": DataType.long,
                "proof": text,
                "bound": _Maybe(number),
                "solver": _Maybe(Object(_properties(solver))),
                "text": text,
                "plan": Array(Object(_properties(step))),
                "region": _Maybe(Array(_side())),
                "region_reason": text,
                "rung": _Maybe(DataType.long),
                "survival": _Maybe(_survival()),
            }
        )
    )


def _side() -> Object:
    text = DataType.string
    fields: _Fields = {
        "feature": text,
        "low": _Maybe(text),
        "high": _Maybe(text),
        "levels": Array(text),
        "maximal": DataType.boolean,
    }
    return Object(_properties(fields))


def _survival() -> Object:
    share, count = DataType.double, DataType.long
    fields: _Fields = {"holds": share, "at_least": share, "confidence": share, "agreeing": count, "models": count}
    return Object(_properties(fields))


def _properties(kinds: _Fields) -> list[Property]:
    return [
        Property(name, kind.kind, required=False) if isinstance(kind, _Maybe) else Property(name, kind)
        for name, kind in kinds.items()
    ]


def _value_type(feature: Feature) -> DataType:
    """Return the type of a feature's value in a reply, where null is null."""
    if feature.kind == "boolean":
        return DataType.boolean
    if feature.kind == "date":
        return DataType.string  # replies are JSON: ISO dates
    kind = _column_type(feature)
    return kind if isinstance(kind, DataType) else DataType.string
