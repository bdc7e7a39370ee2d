"""Answers as lines of a parquet file: one schema for a model and its options, whatever some rows of it hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Feature, Floats
from mlflow_cf.features.codec import decode_column
from mlflow_cf.features.feature import zone_of
from mlflow_cf.files.typed import typed, typed_values
from mlflow_cf.model.judge import Label
from mlflow_cf.words.arrays import Column
from mlflow_cf.words.explanations import CodedAnswers, Explanations
from mlflow_cf.words.result import Explanation

RUNG: Final = "rung"


@dataclass(frozen=True)
class Lines:
    """The lines of a file: those of `Explanations.to_table`, each column with one type, and the key before them.

    Attributes:
        schema: their names and types.
        key: whether the first column is the key of a row.
    """

    schema: pa.Schema
    key: bool

    @classmethod
    def of(cls, explained: ExplainedModel, params: Mapping[str, Any], key: pa.Field | None) -> Lines:
        """Return the lines of answers to requests with these options; `key` is the field of the rows' keys.

        A column has its missing values as nulls; numbers are of 64 bits, levels are text where they are not all
        numbers, and dates are moments in the column's own zone, or text where the model takes text.
        """
        table = Explanations((), pd.RangeIndex(0), explained.space).to_table([])
        features = [value_type(feature) for feature in explained.space.features]
        facts = [pa.int64(), label_type(explained.model.classes), pa.float64(), pa.float64(), pa.int64(), pa.string()]
        kinds = [pa.int64(), pa.string(), pa.string(), *features, *facts]
        names = list(map(str, table.columns))
        target = params.get("target")
        if isinstance(target, Mapping) and target.get("ladder"):
            names, kinds = [*names, _free(RUNG, names)], [*kinds, pa.int64()]
        fields = [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
        if key is not None:
            fields.insert(0, pa.field(_free(key.name, names), key.type))
        return cls(pa.schema(fields), key is not None)

    def table(self, coded: CodedAnswers, places: Sequence[int], start: int, key: pa.ChunkedArray | None) -> pa.Table:
        """Return the lines of the answers at some places, whose first row is row `start` of all, with keys (m,)."""
        rows, answers = coded.lines(places)
        told = rows.tolist()
        lines: list[Column] = [
            rows + start,
            [coded.statuses[row] for row in told],
            [coded.reasons[row] for row in told],
        ]
        kinds, at = self.schema.types[int(self.key) :], pa.array(answers, mask=answers < 0)
        columns: list[pa.Array] = [] if key is None else [key.take(pa.array(rows))]
        columns += [typed(values, kind) for values, kind in zip(lines, kinds, strict=False)]
        kinds, features = kinds[len(lines) :], coded.space.features
        found = list(map(_of_feature, features, coded.codes.T, kinds))
        facts = list(coded.facts.values())
        facts += [[None] * len(coded.rows)] * (len(kinds) - len(found) - len(facts))  # rungs, if no row has any
        found += [typed(values, kind) for values, kind in zip(facts, kinds[len(found) :], strict=True)]
        return pa.table([*columns, *(column.take(at) for column in found)], schema=self.schema)


def answer_block(explained: ExplainedModel, rows: pd.DataFrame, params: Mapping[str, Any]) -> Explanations:
    """Answer some rows of many as `ExplainedModel.predict` does; rows that cannot be read never end it.

    Where the model can predict none of them, all are ``invalid``: they may stand among millions that it can predict.

    Raises:
        InputError: options that do not fit, or missing columns.
    """
    try:
        return explained.request(rows, {"counterfactual": dict(params)})
    except InputError as error:
        return unreadable(explained, rows, error)


def unreadable(explained: ExplainedModel, rows: pd.DataFrame, error: InputError) -> Explanations:
    """Return ``invalid`` explanations for rows none of which can be predicted, as the `error` of the request says.

    Raises:
        InputError: the error is about something else.
    """
    if error.path != "rows" or not len(rows):
        raise error
    told = explained.space.encode_rows(explained.space.read(rows))[1]
    reasons = [told.get(place, error.fact) for place in range(len(rows))]
    named: dict[str, Any] = {"explainer": explained.explainer.name, "seed": explained.policy.seed}
    invalid = (Explanation("invalid", reason, None, None, **named) for reason in reasons)
    return Explanations(tuple(invalid), rows.index, explained.space)


def value_type(feature: Feature) -> pa.DataType:
    """Return the type of a feature's values in a file."""
    if feature.kind == "date":
        if not pd.api.types.is_datetime64_any_dtype(feature.raw_dtype):
            return pa.string()
        zone = zone_of(feature.raw_dtype)
        return pa.timestamp("us", None if zone is None else str(zone))
    if feature.kind == "boolean":
        return pa.bool_()
    if feature.stored.kind in "iu":
        return pa.int64()  # codes are whole numbers up to 2^53
    if feature.numeric or feature.stored.kind == "f":
        return pa.float64()
    return pa.bool_() if feature.stored.kind == "b" else pa.string()


def label_type(labels: Sequence[Label]) -> pa.DataType:
    """Return the one type that holds all labels; a regressor has none and predicts doubles."""
    kinds = {type(label) for label in labels}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def _free(name: str, names: Sequence[str]) -> str:
    while name in names:
        name += "_"
    return name


def _of_feature(feature: Feature, codes: Floats, kind: pa.DataType) -> pa.Array:
    """Return the values of a feature behind codes (k,) as a file holds them."""
    if not pa.types.is_timestamp(kind):
        return typed_values(feature, codes, kind)
    moments = pd.Series(decode_column(feature, codes))
    if zone_of(feature.raw_dtype) is not None:
        moments = moments.dt.tz_convert(None)  # of UTC, which is how arrow keeps those of any zone
    return pa.array(moments, from_pandas=True).cast(kind)
