"""Dates and times as days since 1970-01-01 UTC, exact to the microsecond around our century."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MICROSECONDS = 86_400_000_000  # of a day
# pandas alone would also read "now", "March 3" or 03/04/2024, whose meaning changes with the day or the reader
_ISO = re.compile(r"\s*\d{4}-?\d\d-?\d\d([T ]\d\d(:?\d\d(:?\d\d(\.\d+)?)?)?\s?(Z|[+-]\d\d(:?\d\d)?)?)?\s*")


def encode_dates(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return days (n,); NaN for missing values and for what is no date."""
    stamps = _stamps(column).dt.as_unit("us")
    codes: NDArray[np.float64] = stamps.astype("int64").to_numpy(dtype=np.float64) / MICROSECONDS
    codes[stamps.isna().to_numpy()] = np.nan
    return codes


def beyond_days(column: pd.Series[Any]) -> NDArray[np.bool_]:
    """Return (n,) whether a value has a part that days cannot hold.

    These are parts of microseconds, and from 2059 on microseconds that a float64 of days rounds away.
    """
    stamps = _stamps(column)
    held = pd.Series(_moments(encode_dates(column)), index=column.index).dt.tz_localize("UTC")
    return np.asarray(stamps != held, dtype=np.bool_) & stamps.notna().to_numpy()


def decode_dates(codes: NDArray[np.float64], dtype: Any) -> Any:
    """Return dates as an array of the raw column's dtype; ISO strings for a column of strings."""
    if not pd.api.types.is_datetime64_any_dtype(dtype):
        return pd.Series([None if np.isnan(code) else iso_date(code) for code in codes], dtype=dtype).array
    series = pd.Series(_moments(codes))
    if zone_of(dtype) is None:
        return series.astype(dtype).array
    return series.dt.tz_localize("UTC").dt.tz_convert(zone_of(dtype)).astype(dtype).array


def days(value: object) -> float | None:
    """Return the code of an ISO date, a date, a datetime or a timestamp; None for anything else."""
    if not _is_date(value):
        return None
    try:
        stamp = pd.Timestamp(value)
    except ValueError:
        return None
    if pd.isna(stamp):
        return None
    stamp = stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
    return float(stamp.as_unit("us").asm8.astype(np.int64) / MICROSECONDS)


def iso_date(code: float, zone: Any = None) -> str:
    """Return a code as an ISO date, with the time of day only where there is one; in a zone always with its offset."""
    (moment,) = _moments(np.array([code]))
    if zone is not None:
        return pd.Timestamp(moment, tz="UTC").tz_convert(zone).isoformat()
    day = moment.astype("datetime64[D]")
    return str(day if moment == day else moment).removesuffix(".000000")


def zone_of(dtype: Any) -> Any:
    """Return the time zone of a pandas or pyarrow type of moments, or None."""
    inner = getattr(dtype, "pyarrow_dtype", dtype)
    return getattr(inner, "tz", None)


def _moments(codes: NDArray[np.float64]) -> NDArray[np.datetime64]:
    absent = np.isnan(codes)
    moments: NDArray[np.datetime64]
    moments = np.rint(np.where(absent, 0.0, codes) * MICROSECONDS).astype("datetime64[us]")
    moments[absent] = np.datetime64("NaT")
    return moments


def _is_date(value: object) -> TypeGuard[str | dt.date | np.datetime64]:
    return isinstance(value, dt.date | np.datetime64) or (isinstance(value, str) and bool(_ISO.fullmatch(value)))


def _stamps(column: pd.Series[Any]) -> pd.Series[Any]:
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        values = [value if _is_date(value) else None for value in column.tolist()]
        column = pd.Series(values, index=column.index, dtype=object)
    elif isinstance(column.dtype, pd.ArrowDtype):  # to_datetime would leave some of them as they are
        unit, zone = getattr(column.dtype.pyarrow_dtype, "unit", "s"), zone_of(column.dtype)
        dtype: Any = f"datetime64[{unit}]" if zone is None else f"datetime64[{unit}, {zone}]"
        column = column.astype(dtype)
    return pd.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
