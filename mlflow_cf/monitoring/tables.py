"""Inference tables as lines: a data frame, or parquet files of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.monitoring.grouping import Grouping
from mlflow_cf.monitoring.lines import KNOWN, Lines, lines_of, named, unread
from mlflow_cf.parquet import footer, parquet_files

REPLIES: Final = "counterfactuals"  # of the served reply, as it is
USED: Final = (*KNOWN, REPLIES)
NEEDED: Final = ("time", "status")


def of_table(table: pd.DataFrame, groups: Grouping, columns: Mapping[str, str] | None) -> tuple[Lines, dict[str, int]]:
    """Return the lines of an inference table: one line per answered row.

    Args:
        table: with ``time`` and ``status``, and any others of `KNOWN`; or with ``counterfactuals`` as the reply has
            them, of which the nearest one is taken.
        groups: columns by which figures are split.
        columns: what the table calls them, where that is another name: ``{"time": "ts"}``.

    Raises:
        InputError: a column that is needed, or named, is not there, or two have one name.
    """
    _check_names(table.columns)
    rows = _renamed(table.reset_index(drop=True), columns or {})
    for name in NEEDED:
        if name not in rows:
            fix = did_you_mean(name, table.columns, "columns")
            raise InputError(f"columns.{name}", "not a column of the table", f"columns={{{name!r}: '...'}}; {fix}")
    if REPLIES in rows:
        rows = rows.assign(**_nearest(rows[REPLIES]))
    raw = rows[[name for name in KNOWN if name in rows]]
    return lines_of(raw, groups.of(rows), {}), unread(raw)


def of_files(
    paths: Sequence[Path], groups: Grouping, columns: Mapping[str, str] | None
) -> tuple[Lines, dict[str, int]]:
    """Return the lines of parquet files, and of all in folders, of which only the columns that are needed are read.

    Raises:
        InputError: there are none, or one cannot be read; a column that is needed is not there.
    """
    wanted = {*USED, *groups.columns, *(columns or {}).values()}
    tables = []
    for file in (file for path in paths for file in parquet_files(path)):
        footer(file)
        try:
            with pq.ParquetFile(file) as opened:
                names = [name for name in opened.schema_arrow.names if name in wanted]
                _check_names(names)
                tables.append(opened.read(columns=names).to_pandas())
        except (pa.ArrowException, OSError) as error:
            fact = f"cannot be read as parquet ({type(error).__name__})"
            raise InputError(file.name, fact, "write it again") from error
    return of_table(pd.concat(tables, ignore_index=True), groups, columns)


def _check_names(names: Iterable[Any]) -> None:
    """Refuse columns of which two have one name.

    Raises:
        InputError: there are such.
    """
    twice = pd.Index(names)[pd.Index(names).duplicated()]
    if len(twice):
        raise InputError("source", f"several columns are called {twice[0]!r}", "give each a name of its own")


def _renamed(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return a table in which columns have our names; what had one of them before, or is one of ours, gives way.

    Raises:
        InputError: names that we do not use, or that the table does not have.
    """
    for ours, theirs in columns.items():
        if ours not in USED:
            raise InputError(f"columns.{ours}", "not a column that is used", did_you_mean(ours, USED))
        if theirs not in table:
            fix = did_you_mean(theirs, table.columns, "columns")
            raise InputError(f"columns.{ours}", f"{theirs!r} is not in the table", fix)
    moved = [theirs for theirs in columns.values() if theirs in USED]
    return table.drop(columns=moved).assign(**{ours: table[theirs] for ours, theirs in columns.items()})


def _nearest(replies: pd.Series[Any]) -> dict[str, list[Any]]:
    """Return what is known of the nearest counterfactual of each reply."""
    nearest = [_nearest_of(reply) for reply in replies.tolist()]
    found: dict[str, list[Any]] = {
        name: [one.get(name) for one in nearest] for name in ("distance", "n_changed", "proof")
    }
    return {**found, "changed": [_changed(one) for one in nearest]}


def _nearest_of(reply: Any) -> Mapping[str, Any]:
    """Return the nearest counterfactual of a reply, which may be JSON; empty where there is none."""
    try:
        own = json.loads(reply) if isinstance(reply, str) else reply
        return dict(min(own, key=lambda one: float(one["distance"]), default={}))
    except (TypeError, KeyError, ValueError):
        return {}


def _changed(found: Mapping[str, Any]) -> list[str] | None:
    try:
        return [change["feature"] for change in found["changes"]]
    except (TypeError, KeyError):
        return named(found.get("changed"))
