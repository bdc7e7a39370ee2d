"""Raw pandas columns to float64 codes and back, one column at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features.feature import Feature, Floats, Level

EXACT_INTEGER = 2.0**53  # float64 holds every whole number up to here


def encode_column(feature: Feature, column: pd.Series[Any]) -> tuple[Floats, NDArray[np.bool_]]:
    """Code one raw column.

    Returns:
        codes (n,) with NaN for missing values, and (n,) flags of values that have no code:
        not a number, infinite, a fraction in a whole-number column, or a level `feature` does not know.
    """
    missing = column.isna().to_numpy(dtype=bool)
    if feature.levels:
        return _encode_levels(feature, column, missing)
    codes = _numbers(column)
    if isinstance(feature.raw_dtype, np.dtype) and feature.raw_dtype.kind == "f":
        codes = codes.astype(feature.raw_dtype).astype(np.float64)  # what the model will be shown
    bad = ~np.isfinite(codes) & ~missing
    if not _holds_fractions(feature):
        with np.errstate(invalid="ignore"):
            bad |= ~missing & ((np.floor(codes) != codes) | (np.abs(codes) > EXACT_INTEGER))
    return codes, bad


def decode_column(feature: Feature, codes: Floats) -> Any:
    """Return the raw column behind `codes` (n,) as an array of the background's exact dtype."""
    if feature.levels:
        return _decode_levels(feature, codes)
    dtype = feature.raw_dtype
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return codes.astype(dtype)
    if isinstance(dtype, np.dtype):
        return np.array([feature.value(code) for code in codes], dtype=object)
    absent = np.isnan(codes)
    filled = np.where(absent, 0.0, codes)
    exact: Floats | NDArray[np.int64] = filled if _holds_fractions(feature) else filled.astype(np.int64)
    column = pd.array(exact, dtype=dtype)
    if absent.any():
        column[absent] = None
    return column


def fits(feature: Feature, column: pd.Series[Any]) -> tuple[Level, ...]:
    """Return the levels of `column` that `feature` has no code for, in order of appearance."""
    if not feature.levels or feature.kind == "boolean":
        return ()
    known = feature.code_of
    return tuple(dict.fromkeys(v for v in map(plain, column.dropna().tolist()) if _is_level(v) and v not in known))


def plain(value: Any) -> Any:
    """Return `value` as a plain Python scalar if it is a numpy one."""
    return value.item() if isinstance(value, np.generic) else value


def _encode_levels(
    feature: Feature, column: pd.Series[Any], missing: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.bool_]]:
    code_of = feature.code_of
    values = column.to_numpy(dtype=object)
    codes = np.array([code_of.get(plain(v), -1) if _is_level(v) else -1 for v in values], dtype=np.float64)
    codes[missing] = np.nan
    return codes, codes == -1


def _decode_levels(feature: Feature, codes: Floats) -> Any:
    absent = np.isnan(codes)
    positions = np.where(absent, -1, codes).astype(np.intp)
    dtype = feature.raw_dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Categorical.from_codes(positions, dtype=dtype)
    if isinstance(dtype, np.dtype):
        pool = np.array([*feature.known, None if dtype.kind == "O" else np.nan], dtype=object)
        return pool[positions].astype(dtype)
    return pd.array(feature.known, dtype=dtype).take(positions, allow_fill=bool(absent.any()))


def _numbers(column: pd.Series[Any]) -> Floats:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    # anything else (object columns of a JSON request): what is no number becomes NaN and is reported by the caller
    values = [float(v) if isinstance(v, int | float | np.number) else np.nan for v in column.tolist()]
    return np.array(values, dtype=np.float64)


def _holds_fractions(feature: Feature) -> bool:
    return "int" not in feature.dtype.lower()


def _is_level(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | np.generic)
