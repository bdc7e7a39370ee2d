"""Which group each row belongs to, by its values in one or more columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError, did_you_mean

MOST_GROUPS: Final = 50  # of one column; more are not read by anybody
MISSING: Final = "missing"

GroupSource = str | Sequence[str] | Mapping[str, Sequence[float] | None]


def groups_of(rows: pd.DataFrame, groups: GroupSource | None) -> pd.DataFrame:
    """Return the group of each row as text, one column per column asked for, in rows' order.

    Args:
        rows: the table (m, d); columns that the model does not take are welcome.
        groups: a column, several, or column -> edges of bins: ``{"age": [30, 50]}`` makes ``below 30``, ``30 to 50``
            and ``50 or more``; without edges (None) every value is a group.

    Raises:
        InputError: a column that is not there, or one with more than 50 values and no bins.
    """
    edges = _read(groups)
    for name in edges:
        if name not in rows.columns:
            raise InputError(f"groups.{name}", "not a column of rows", did_you_mean(name, rows.columns, "columns"))
    columns = {name: _labels(rows[name], name, bins) for name, bins in edges.items()}
    return pd.DataFrame(columns, index=rows.index, dtype="str")


def members_of(groups: pd.DataFrame | None, rows: int) -> dict[str, Bools]:
    """Return which of so many rows are in each group, by column and label such as ``sex.F``; first all of them, ""."""
    members: dict[str, Bools] = {"": np.ones(rows, dtype=np.bool_)}
    for column, named in () if groups is None else groups.items():
        labels = named.to_numpy()
        members |= {f"{column}.{label}": labels == label for label in sorted(set(labels))}
    return members


def _read(groups: GroupSource | None) -> dict[str, Sequence[float] | None]:
    if groups is None:
        return {}
    if isinstance(groups, Mapping):
        return dict(groups)
    return dict.fromkeys([groups] if isinstance(groups, str) else groups)


def _labels(column: pd.Series[Any], name: str, bins: Sequence[float] | None) -> pd.Series[Any]:
    missing = column.isna()
    if bins is not None:
        return _binned(column, name, bins).mask(missing, MISSING)
    if (distinct := column.nunique()) > MOST_GROUPS:
        fix = f"give the edges of bins: groups={{{name!r}: [low, high]}}"
        raise InputError(f"groups.{name}", f"{distinct:,} different values", fix)
    return column.astype(object).map(str).mask(missing, MISSING)


def _binned(column: pd.Series[Any], name: str, bins: Sequence[float]) -> pd.Series[Any]:
    edges = sorted(set(bins))
    if not edges or not pd.api.types.is_numeric_dtype(column):
        raise InputError(f"groups.{name}", "bins need numbers, and at least one edge", f"groups={{{name!r}: [30, 50]}}")
    names = [f"below {edges[0]:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(edges)), f"{edges[-1]:g} or more"]
    places = np.searchsorted(edges, column.to_numpy(np.float64, na_value=np.nan), side="right")
    return pd.Series(np.array(names, dtype=object)[np.minimum(places, len(names) - 1)], index=column.index)
