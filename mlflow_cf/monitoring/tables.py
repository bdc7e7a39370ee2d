"""Inference tables as lines: a data frame, or parquet files of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.measure.lines import GroupSource, asked_groups
from mlflow_cf.monitoring.lines import KNOWN, Lines, lines_of
from mlflow_cf.parquet import footer, parquet_files

REPLIES: Final = "counterfactuals"  # of the served reply, as it is
NEEDED: Final = ("time", "status")


def of_table(
    table: pd.DataFrame, groups: GroupSource | None, columns: Mapping[str, str] | None
) -> tuple[Lines, dict[str, int]]:
    """Return the lines of an inference table: one line per answered row.

    Args:
        table: with ``time`` and ``status``, and any others of `KNOWN`; or with ``counterfactuals`` as the reply has
            them, of which the nearest one is taken.
        groups: columns by which figures are split.
        columns: what the table calls them, where that is another name: ``{"time": "ts"}``.

    Raises:
        InputError: a column that is needed, or named, is not there.
    """
    named = table.rename(columns=_names(list(table.columns), columns))
    for name in NEEDED:
        if name not in named:
            fix = did_you_mean(name, table.columns, "columns")
            raise InputError(f"columns.{name}", "not a column of the table", f"columns={{{name!r}: '...'}}; {fix}")
    if REPLIES in named:
        named = named.assign(**_nearest(named[REPLIES]))
    return lines_of(named.reset_index(drop=True), groups, {}), {}


def of_files(path: Path, groups: GroupSource | None, columns: Mapping[str, str] | None) -> tuple[Lines, dict[str, int]]:
    """Return the lines of a parquet file, or of all in a folder, of which only the columns that are needed are read.

    Raises:
        InputError: there are none, or one cannot be read; a column that is needed is not there.
    """
    wanted = {*KNOWN, REPLIES, *asked_groups(groups), *(columns or {}).values()}
    tables = []
    for file in parquet_files(path):
        footer(file)
        try:
            with pq.ParquetFile(file) as opened:
                names = [name for name in opened.schema_arrow.names if name in wanted]
                tables.append(opened.read(columns=names).to_pandas())
        except (pa.ArrowException, OSError) as error:
            fact = f"cannot be read as parquet ({type(error).__name__})"
            raise InputError(file.name, fact, "write it again") from error
    return of_table(pd.concat(tables, ignore_index=True), groups, columns)


def _names(known: list[Any], columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the table's names of columns -> ours.

    Raises:
        InputError: names that we do not use, or that the table does not have.
    """
    for ours, theirs in (columns or {}).items():
        if ours not in (*KNOWN, REPLIES):
            raise InputError(f"columns.{ours}", "not a column that is used", did_you_mean(ours, (*KNOWN, REPLIES)))
        if theirs not in known:
            raise InputError(
                f"columns.{ours}", f"{theirs!r} is not in the table", did_you_mean(theirs, known, "columns")
            )
    return {theirs: ours for ours, theirs in (columns or {}).items()}


def _nearest(replies: pd.Series[Any]) -> dict[str, list[Any]]:
    """Return what is known of the nearest counterfactual of each reply."""
    nearest = [_nearest_of(reply) for reply in replies.tolist()]
    found: dict[str, list[Any]] = {
        name: [None if one is None else one.get(name) for one in nearest] for name in ("distance", "n_changed", "proof")
    }
    found["changed"] = [None if one is None else [change["feature"] for change in one["changes"]] for one in nearest]
    return found


def _nearest_of(reply: Any) -> Mapping[str, Any] | None:
    try:
        return min(reply, key=lambda one: float(one["distance"]), default=None)
    except (TypeError, KeyError, ValueError):
        return None
