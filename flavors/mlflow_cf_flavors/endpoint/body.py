"""Rows as the JSON that MLflow's model servers read, and their replies as answers, one per row."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf_flavors.answers import Answers

NUMBER: Final = (bool, int, float)


class ReplyError(Exception):
    """A reply that is none of what was asked for; the message quotes no value of it."""


def rows_of(table: pd.DataFrame) -> list[list[Any]]:
    """Return the rows of a table as plain values of JSON; missing values are null."""
    columns = [_column(table.iloc[:, place]) for place in range(table.shape[1])]
    return [list(row) for row in zip(*columns, strict=True)]


def body_of(columns: Sequence[object], rows: Sequence[Sequence[Any]]) -> bytes:
    """Return the body of a call."""
    return json.dumps({"dataframe_split": split_of(columns, rows)}, allow_nan=False).encode()


def split_of(columns: Sequence[object], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows as model servers read them."""
    return {"columns": list(columns), "data": list(rows)}


def digest_of(row: Sequence[Any]) -> bytes:
    """Return the digest (32 bytes) of a row's values."""
    return hashlib.sha256(json.dumps(row).encode()).digest()


def answers_of(text: bytes, rows: int) -> list[Any]:
    """Return one answer per row: a plain value, a list of numbers, or such an object.

    Raises:
        ReplyError: the reply is no JSON, or has another shape.
    """
    try:
        reply = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ReplyError("no JSON") from error
    answers = reply.get("predictions") if isinstance(reply, dict) else None
    if not isinstance(answers, list):
        raise ReplyError("no list of predictions")
    if len(answers) != rows:
        raise ReplyError(f"{len(answers)} predictions for {rows} rows")
    for answer in answers:
        _check(answer, answers[0])
    return answers


def read(answers: Sequence[Any]) -> Answers | pd.DataFrame:
    """Return answers as `answers_of` gives them as an array (n,) or (n, k), or as a table where they name columns."""
    if answers and isinstance(answers[0], dict):
        return pd.DataFrame(list(answers), columns=list(answers[0]))
    if answers and isinstance(answers[0], list):
        return np.asarray(answers, dtype=np.float64)
    return pd.Series(list(answers)).to_numpy()


def _refused(constant: str) -> None:
    raise ValueError(constant)


def _check(answer: object, first: object) -> None:
    """Refuse an answer that is not of one kind with the first one."""
    if isinstance(first, list | dict):
        values = list(answer.values()) if isinstance(answer, dict) else answer
        alike = type(answer) is type(first) and isinstance(values, list) and len(values) == len(first) > 0
        if isinstance(first, dict) and isinstance(answer, dict):
            alike = alike and list(answer) == list(first)
        if not alike or not isinstance(values, list):
            raise ReplyError("predictions of different shapes")
        if not all(isinstance(value, NUMBER) and math.isfinite(value) for value in values) and len(values) > 1:
            raise ReplyError("predictions that are no numbers")
        return
    if not isinstance(answer, bool | int | float | str):
        raise ReplyError("predictions that are neither labels nor numbers")
    kinds = (isinstance(answer, str), isinstance(answer, bool))
    if kinds != (isinstance(first, str), isinstance(first, bool)):
        raise ReplyError("predictions of different types")


def _column(column: pd.Series[Any]) -> list[Any]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    missing = column.isna().to_numpy()
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        values = [None if gone else one.isoformat() for one, gone in zip(column, missing, strict=True)]
    else:
        values = [None if gone else one for one, gone in zip(column.tolist(), missing, strict=True)]
    return [one.item() if isinstance(one, np.generic) else one for one in values]
