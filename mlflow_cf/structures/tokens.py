"""The tokens of linear models and networks: what of a feature's value enters the first layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures.columns import Column, IntervalColumn, LevelColumn, NumberColumn

Encoder = Callable[[Floats], Floats]


def source_of(column: Column) -> object:
    """Return what is equal for encoded columns of one feature that are told by the same token."""
    if isinstance(column, IntervalColumn):
        return id(column.number), id(column.cuts)
    return "levels" if isinstance(column, LevelColumn) else id(column)


def token_of(group: Sequence[tuple[Column, Floats]]) -> tuple[Encoder, Floats, int]:
    """Return what makes the token of encoded columns with the same source, its rows of the table and `First.levels`."""
    rows = np.array([row for _, row in group], dtype=np.float64)
    one = group[0][0]
    if isinstance(one, NumberColumn):
        return one.encode, rows.sum(axis=0, keepdims=True), -1
    tables = [column.table for column, _ in group if not isinstance(column, NumberColumn)]
    encoder = _codes if isinstance(one, LevelColumn) else _intervals(one)
    return encoder, np.column_stack(tables) @ rows, len(tables[0]) - 2


def _intervals(column: IntervalColumn) -> Encoder:
    """Return what numbers the intervals of a column, which are then like levels."""
    return replace(column, table=np.append(np.arange(len(column.cuts) + 1.0), np.nan)).encode


def _codes(codes: Floats) -> Floats:
    return codes
