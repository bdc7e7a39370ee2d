"""Bounds and steps of single numbers, as the data show them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.suggest.columns import Column, Sample
from mlflow_cf.suggest.result import Suggestion

LEAST_AT_BOUND: Final = 20  # rows exactly on the smallest or largest value
SHARE_AT_BOUND: Final = 0.01
STEPS: Final = (0.5, 0.25, 0.2, 0.1, 0.05, 0.02, 0.01)  # of fractions
MOST_STEPS: Final = 100_000  # between the bounds


def bounds(sample: Sample) -> Iterator[Suggestion]:
    """Yield ranges where rows gather on the smallest or largest value; always as comments.

    What a sample has not seen may exist: a range that is applied leaves rows beyond it without an answer.
    """
    for column in sample.columns:
        if not column.numeric or column.kind == "date" or column.binary:
            continue
        present = column.values[~column.missing]
        low, high = float(present.min()), float(present.max())
        at = [int((present == end).sum()) for end in (low, high)]
        least = max(LEAST_AT_BOUND, SHARE_AT_BOUND * len(present))
        ends = [_plain(end) if count >= least else None for end, count in zip((low, high), at, strict=True)]
        if ends == [None, None]:
            continue
        told = [f"{n:,} rows are exactly {e}" for n, e in zip(at, ends, strict=True) if e is not None]
        reason = f"{' and '.join(told)}, none beyond"
        yield Suggestion(
            "range", (column.name,), {"ranges": {column.name: ends}}, len(present), 0, reason, active=False
        )


def steps(sample: Sample) -> Iterator[Suggestion]:
    """Yield steps that all values of a number keep, 1 of whole numbers not being worth a word."""
    for column in sample.columns:
        if not column.numeric or column.kind == "date" or column.binary or column.distinct < 3:
            continue
        values = np.unique(column.values[~column.missing])
        step = _whole_step(values) if column.kind == "integer" else _fraction(values)
        if step is None or len(column.values) < LEAST_AT_BOUND:
            continue
        reason = f"all values lie whole steps of {step} from {_plain(float(values[0]))}"
        constraint = {"features": {column.name: {"step": step}}}
        support = int((~column.missing).sum())
        yield Suggestion("step", (column.name,), constraint, support, 0, reason, active=False)


def _whole_step(values: Floats) -> float | int | None:
    step = int(np.gcd.reduce(np.diff(values).astype(np.int64)))
    return step if step > 1 and len(values) > 3 else None


def _fraction(values: Floats) -> float | None:
    """Return the largest of the usual steps that reaches all values from the smallest one."""
    span = float(values[-1] - values[0])
    for step in STEPS:
        if span > step * MOST_STEPS or len(values) < 4:
            continue
        number = (values - values[0]) / step
        if (np.abs(number - np.round(number)) < 1e-6).all():
            return step
    return None


def _plain(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def describe_key(column: Column) -> str:
    """Return the note about a column that numbers the rows."""
    return (
        f"{column.name} is nearly a key ({column.distinct:,} values): leave it out of the model, or make it immutable"
    )
