"""Rows of the page as typed values: those to choose from, and one that is pasted as JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from mlflow_cf.errors import InputError, did_you_mean, raise_all
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Feature, FeatureSpace, Level
from mlflow_cf.words.changes import written

MOST_ROWS: Final = 200  # to choose from
YES: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
EMPTY: Final = frozenset({"", "nan", "none", "null", "na"})

Row = dict[str, Level | None]


def rows_of(explained: ExplainedModel, given: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Return rows to choose from with what the model says of them: those given, or else the sample if it may be shown.

    Raises:
        InputError: given rows that do not fit.
    """
    if given is None and not explained.policy.privacy.reveals:
        return []
    rows = (explained.background if given is None else given).head(MOST_ROWS).reset_index(drop=True)
    absent = [one.column for one in explained.space.features if one.missing and one.column not in rows.columns]
    table = explained.space.select(rows.reindex(columns=[*rows.columns, *absent]) if absent else rows)
    if table.empty:
        return []
    space = explained.space.covering(table)
    codes = space.encode(table)
    asked = {"counterfactual": {"explain": "none"}}
    answers = explained.request(table, asked, within_s=explained.policy.limits.time_limit_s)
    return [
        {"row": space.values(code), "prediction": one.prediction, "probability": one.probability}
        for code, one in zip(codes, answers, strict=True)
    ]


def table_of(space: FeatureSpace, records: object) -> pd.DataFrame:
    """Return the one row of ``dataframe_records`` in the model's own types.

    Raises:
        InputError: no list of one object, a column that is missing, or a value that a column cannot hold; all at once.
    """
    if not isinstance(records, list) or len(records) != 1 or not isinstance(records[0], Mapping):
        raise InputError("dataframe_records", "is no list of one object", "send one row")
    row = records[0]
    raise_all(_misfits(space, row))
    return space.from_values([{feature.name: row.get(feature.name) for feature in space.features}])


def _misfits(space: FeatureSpace, row: Mapping[str, Any]) -> Iterator[InputError]:
    for feature in space.features:
        path = f"rows.{feature.name}"
        if feature.name not in row:
            if not feature.missing:
                yield InputError(path, "column is missing", did_you_mean(feature.name, [str(name) for name in row]))
            continue
        value = row[feature.name]
        if value is None:
            if not feature.nullable:
                yield InputError(path, "is empty, and its column cannot hold missing values", "give a value")
        elif _coded(feature, value) is None:
            yield InputError(path, f"{written_short(value)} is not {_wanted(feature)}", _known(feature))


def _coded(feature: Feature, value: object) -> float | None:
    """Return the code of a value of a request; None: the column cannot hold it."""
    code = feature.code(value)
    if code is not None and feature.numeric and feature.stored.kind in "iu":
        return code if code.is_integer() else None
    if code is None and not feature.numeric and isinstance(value, str | int | float | bool) and feature.can_hold(value):
        return float(len(feature.known))  # a level that the background never had
    return code


def _wanted(feature: Feature) -> str:
    match feature.kind:
        case "integer":
            return "a whole number"
        case "real":
            return "a number"
        case "date":
            return "a date"
        case "boolean":
            return "true or false"
    return "a level of this column"


def _known(feature: Feature) -> str:
    return "write it as 2024-12-31" if feature.kind == "date" else ""


def written_short(value: object) -> str:
    """Return a value of a request as an error quotes it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def pasted(space: FeatureSpace, text: str) -> dict[str, Any]:
    """Return the first row of pasted JSON or CSV: ``row``, and ``notes`` on what was left out.

    JSON is an object, a list of them, or a request of MLflow; CSV has a line of names.

    Raises:
        InputError: neither, columns that are missing, or values of another kind; all at once, each with its path.
    """
    text = text.strip().removeprefix("\ufeff").strip()  # a mark that Excel writes before CSV
    if not text:
        raise InputError("pasted", "is empty", "paste one row as JSON, or as CSV with a line of names")
    json_text = text[0] in "{["
    rows = _from_json(text) if json_text else _from_csv(text)
    if not rows:
        raise InputError("pasted", "has no row", "paste one row as JSON, or as CSV with a line of names")
    known = {feature.name for feature in space.features}
    others = [name for name in rows[0] if name not in known]
    if len(others) == len(rows[0]):
        fix = did_you_mean(space.names[0], others, "columns")
        raise InputError("pasted", "has none of the model's columns", fix)
    notes = [f"left out, as no feature: {', '.join(others[:8])}"] if others else []
    notes += [f"the first of {len(rows):,} rows"] if len(rows) > 1 else []
    typed = {
        feature.name: _typed(feature, rows[0][feature.name]) for feature in space.features if feature.name in rows[0]
    }
    raise_all(_misfits(space, typed))
    return {"row": {name: typed.get(name) for name in space.names}, "notes": notes}


def _from_json(text: str) -> Sequence[Mapping[str, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError("pasted", f"is not valid JSON{where}", "check its quotes, commas and brackets") from None
    if isinstance(found, Mapping) and isinstance(found.get("dataframe_records"), list):
        found = found["dataframe_records"]
    elif isinstance(found, Mapping) and isinstance(split := found.get("dataframe_split"), Mapping):
        columns, data = split.get("columns"), split.get("data")
        if (
            not isinstance(columns, list)
            or not isinstance(data, list)
            or not all(isinstance(one, list) for one in data)
        ):
            raise InputError("pasted", "has a dataframe_split without columns and data", "paste a whole request")
        found = [dict(zip(map(str, columns), one, strict=False)) for one in data]
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError("pasted", "is JSON, but no object", 'paste one like {"age": 46, "income": 20500}')
    return rows


def _from_csv(text: str) -> Sequence[Mapping[str, Any]]:
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    try:
        lines = [line for line in csv.reader(io.StringIO(text), delimiter=separator) if line]
    except csv.Error as error:
        raise InputError("pasted", f"is not valid CSV ({error})", "check its quotes") from None
    if len(lines) < 2:
        raise InputError("pasted", "has one line", "begin with a line of the columns' names")
    names, values = lines[0], lines[1]
    if len(values) != len(names):
        fact = f"has {len(names)} names and {len(values)} values"
        raise InputError("pasted", fact, "quote values that hold the separator")
    row = dict(zip((name.strip() for name in names), values, strict=True))
    return [row] * (len(lines) - 1)


def _typed(feature: Feature, value: object) -> Any:
    """Return a pasted value as the column holds it; what cannot be read stays as it is, and is refused later."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if feature.numeric and feature.kind != "date":
        if text.lower() in EMPTY:
            return None
        try:
            number = float(text)
        except ValueError:
            return value
        return int(number) if feature.kind == "integer" and number.is_integer() else number
    if feature.kind == "date" or not text:
        return text or None
    found = next((level for level in feature.known if text in (written(level), str(level))), None)
    if found is None and feature.kind == "boolean":
        found = YES.get(text.lower())
    return value if found is None else found
