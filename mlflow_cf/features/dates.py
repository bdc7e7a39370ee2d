"""Dates and times as days since 1970-01-01 UTC, exact to the microsecond."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MICROSECONDS = 86_400_000_000  # of a day


def encode_dates(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return days (n,); NaN for missing values and for what is no date."""
    stamps = _stamps(column).dt.as_unit("us")
    codes: NDArray[np.float64] = stamps.astype("int64").to_numpy(dtype=np.float64) / MICROSECONDS
    codes[stamps.isna().to_numpy()] = np.nan
    return codes


def finer_than_microseconds(column: pd.Series[Any]) -> NDArray[np.bool_]:
    """Return (n,) whether a value has a part that days cannot hold."""
    stamps = _stamps(column)
    return np.asarray(stamps != stamps.dt.as_unit("us"), dtype=np.bool_) & stamps.notna().to_numpy()


def decode_dates(codes: NDArray[np.float64], dtype: Any) -> Any:
    """Return dates as an array of the raw column's dtype."""
    absent = np.isnan(codes)
    stamps = np.rint(np.where(absent, 0.0, codes) * MICROSECONDS).astype("datetime64[us]")
    stamps[absent] = np.datetime64("NaT")
    series = pd.Series(stamps)
    zone = getattr(dtype, "tz", None)
    if zone is None:
        return series.astype(dtype).array
    return series.dt.tz_localize("UTC").dt.tz_convert(zone).astype(dtype).array


def days(value: object) -> float | None:
    """Return the code of an ISO date, a date, a datetime or a timestamp; None for anything else."""
    if not isinstance(value, str | dt.date | np.datetime64):
        return None
    try:
        stamp = pd.Timestamp(value)
    except ValueError:
        return None
    if pd.isna(stamp):
        return None
    stamp = stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
    return float(stamp.as_unit("us").asm8.astype(np.int64) / MICROSECONDS)


def iso_date(code: float) -> str:
    """Return a code as an ISO date, with the time of day only where there is one."""
    stamp = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=round(code * MICROSECONDS))  # noqa: DTZ001
    return stamp.date().isoformat() if stamp.time() == dt.time() else stamp.isoformat()


def _stamps(column: pd.Series[Any]) -> pd.Series[Any]:
    return pd.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
