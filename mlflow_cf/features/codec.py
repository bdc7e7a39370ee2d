"""Raw pandas columns to float64 codes and back.

Levels of many columns are decoded together: taking from a pandas array costs the same for one column as for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeGuard

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features.feature import Feature, Floats, Level, beyond_days, decode_dates, encode_dates
from mlflow_cf.validation import LARGEST

FACTORIZED = 256  # values of a column: to look up those of shorter ones takes less than to find the distinct ones
EXACT_INTEGER = 2.0**53  # float64 holds every whole number up to here
Raw = pd.api.extensions.ExtensionArray | NDArray[Any]  # the array of a raw column
_LEVELS = (str, int, float, bool, np.generic)  # a tuple: a union would be built anew for every value asked


def raw_array(column: pd.Series[Any]) -> Raw:
    """Return the array of a raw column: of numpy where the dtype is."""
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


def is_plain(feature: Feature) -> bool:
    """Whether a column of the feature's stored type holds its codes as they are."""
    return feature.numeric and feature.kind != "date" and feature.stored.kind in "iuf"


def largest(feature: Feature) -> float:
    """Return the largest code of a plain column."""
    return LARGEST if feature.stored.kind == "f" else EXACT_INTEGER


def exceeded(feature: Feature, value: object) -> float | None:
    """Return how large numbers may be if `value` is one of the feature's type, and larger in size; else None."""
    if not feature.numeric or feature.kind == "date" or not isinstance(value, int | float):
        return None
    if feature.stored.kind in "iu":
        whole = np.iinfo(feature.stored)
        held, most = whole.min <= value <= whole.max, EXACT_INTEGER
    else:
        real = np.finfo(feature.stored if feature.stored.kind == "f" else np.float64)
        held, most = abs(value) <= float(real.max), LARGEST
    return most if held and abs(value) > most else None


@dataclass(frozen=True, eq=False)
class CodeRanges:
    """Which codes are those of the values that they stand for: decoded and coded again, they are the same.

    Attributes:
        low, high: (d,) the smallest and the largest code of each feature.
        whole: (d,) whether its codes are whole numbers; missing: (d,) whether NaN is one of them.
        single: (k,) columns of numbers in single precision.
    """

    low: Floats
    high: Floats
    whole: NDArray[np.bool_]
    missing: NDArray[np.bool_]
    single: NDArray[np.intp]

    @classmethod
    def of(cls, features: Sequence[Feature]) -> Self | None:
        """Return those of features in columns of numpy's numbers, or of levels; None where some are of other types."""
        ends, single = list[tuple[float, float]](), list[int]()
        for column, feature in enumerate(features):
            found = _code_range(feature)
            if found is None:
                return None
            ends.append(found)
            if feature.numeric and feature.stored == np.float32:
                single.append(column)
        low, high = np.array(ends).T
        whole = np.array([not feature.numeric or feature.stored.kind in "iu" for feature in features])
        missing = np.array([feature.nullable for feature in features])
        return cls(low, high, whole, missing, np.array(single, dtype=np.intp))

    def hold(self, codes: Floats) -> bool:
        """Whether all codes (n, d) are such."""
        nearest = np.clip(codes, self.low, self.high)
        if self.whole.all():
            np.floor(nearest, out=nearest)
        else:
            nearest[:, self.whole] = np.floor(nearest[:, self.whole])
        held = nearest == codes
        if not held.all() and not (held | (np.isnan(codes) & self.missing)).all():
            return False
        some = codes[:, self.single]
        return not some.size or np.array_equal(some, some.astype(np.float32), equal_nan=True)


def _code_range(feature: Feature) -> tuple[float, float] | None:
    """Return the smallest and the largest code of a feature; None where others may be lost on the way."""
    if not feature.numeric:
        known, count = recoded_levels(feature), len(feature.code_of)
        same = known is not None and np.array_equal(known[0], np.arange(count)) and not known[1].any()
        return (0.0, count - 1.0) if same else None
    if not is_plain(feature) or feature.raw_dtype != feature.stored or feature.stored == np.float16:
        return None
    most = largest(feature)
    if feature.stored.kind == "f":
        return -most, most
    bounds = np.iinfo(feature.stored)
    return max(float(bounds.min), -most), min(float(bounds.max), most)


def encode_column(feature: Feature, column: Raw) -> tuple[Floats, NDArray[np.bool_]]:
    """Code one raw column, given as its array.

    Returns:
        codes (n,) with NaN for missing values, and (n,) flags of values that have no code:
        not a number, infinite, a fraction in a whole-number column, beyond the column's type, missing where the
        type has no missing value, or a level `feature` does not know.
    """
    if column.dtype == feature.stored and is_plain(feature):
        codes = np.array(column, dtype=np.float64)
        return codes, np.abs(codes) > largest(feature)
    missing = np.asarray(pd.isna(column) if isinstance(column, np.ndarray) else column.isna(), dtype=np.bool_)
    lost = missing & (not feature.nullable)
    if not feature.numeric:
        codes, bad = _encode_levels(feature, column, missing)
        return codes, bad | lost
    if feature.kind == "date":
        moments = pd.Series(column, dtype=column.dtype if isinstance(column, np.ndarray) else None, copy=False)
        codes = encode_dates(moments)
        return codes, (np.isnan(codes) & ~missing) | beyond_days(moments)
    codes = _numbers(column)
    if feature.stored.kind == "f":
        with np.errstate(over="ignore"):
            codes = codes.astype(feature.stored).astype(np.float64)  # what the model will be shown
    bad = ~(np.abs(codes) <= LARGEST) & ~missing
    if feature.stored.kind in "iu":
        bounds = np.iinfo(feature.stored)
        with np.errstate(invalid="ignore"):
            whole = (np.floor(codes) == codes) & (np.abs(codes) <= EXACT_INTEGER)
            bad |= ~missing & ~(whole & (codes >= bounds.min) & (codes <= bounds.max))
    return codes, bad | lost


def encode_value(feature: Feature, value: Any) -> float | None:
    """Code one value as `encode_column` does; None where its column has to be looked at: it may have no code."""
    value = plain(value)
    if not feature.numeric:
        return feature.code_of.get(value) if _is_level(value) else None
    if type(value) not in (int, float) or feature.kind == "date" or not abs(value) <= LARGEST:
        return None
    if feature.stored.kind in "iu":
        bounds = np.iinfo(feature.stored)
        whole = value == int(value) and abs(value) <= EXACT_INTEGER
        return float(value) if whole and bounds.min <= value <= bounds.max else None
    if feature.stored.kind != "f" or feature.stored.itemsize == 8:
        return float(value)
    with np.errstate(over="ignore"):
        held = float(np.float64(value).astype(feature.stored))
    return held if np.isfinite(held) else None


def decode_column(feature: Feature, codes: Floats) -> Any:
    """Return the raw column behind `codes` (n,) as an array of the background's exact dtype."""
    column = _decoded(feature, codes)
    if feature.nan:
        column[np.isnan(codes)] = np.nan
    return column


def recoded_levels(feature: Feature) -> tuple[Floats, NDArray[np.bool_]] | None:
    """Return what `encode_column` says of all levels as they are decoded; None of a number, or without levels."""
    if feature.numeric or not feature.code_of:
        return None
    return encode_column(feature, decode_column(feature, np.arange(len(feature.code_of), dtype=np.float64)))


def recode_column(
    feature: Feature, codes: Floats, column: Raw, known: tuple[Floats, NDArray[np.bool_]] | None
) -> tuple[Floats, NDArray[np.bool_]]:
    """Code again a `column` that was decoded from `codes` (n,); `known` are its `recoded_levels`, if it has levels."""
    if known is None:
        return encode_column(feature, column)
    levels, odd = known
    missing = np.isnan(codes)
    places = np.where(missing, 0, codes).astype(np.intp)
    return np.where(missing, np.nan, levels[places]), np.where(missing, not feature.nullable, odd[places])


def _decoded(feature: Feature, codes: Floats) -> Any:
    if not feature.numeric:
        return _decode_levels(feature, codes)
    dtype = feature.raw_dtype
    if feature.kind == "date":
        return decode_dates(codes, dtype)
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return codes.astype(dtype)
    if isinstance(dtype, np.dtype):
        return np.array([feature.value(code) for code in codes], dtype=object)
    absent = np.isnan(codes)
    filled = np.where(absent, 0.0, codes)
    exact: Floats | NDArray[np.int64] = filled.astype(np.int64) if feature.stored.kind in "iu" else filled
    column = pd.array(exact, dtype=dtype)
    if absent.any():
        column[absent] = None
    return column


def fits(feature: Feature, column: pd.Series[Any]) -> tuple[Level, ...]:
    """Return the levels of `column` that `feature` has no code for but could hold, in order of appearance."""
    if feature.numeric or feature.kind == "boolean":
        return ()
    known = feature.code_of
    # for pandas, 1 and True among objects are the same; and short columns have not enough that is twice
    few = column.dtype == object or len(column) <= FACTORIZED
    values = column if few else column.drop_duplicates()
    levels = dict.fromkeys(v for v in map(plain, values.tolist()) if _is_level(v) and v not in known)
    return tuple(level for level in levels if not pd.isna(level) and feature.can_hold(level))


def plain(value: Any) -> Any:
    """Return `value` as a plain Python scalar if it is a numpy one."""
    return value.item() if isinstance(value, np.generic) else value


def _encode_levels(feature: Feature, column: Raw, missing: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.bool_]]:
    if len(column) > FACTORIZED and column.dtype != object:
        array: Any = column  # pandas' stubs do not know that it takes arrays of its own
        places, distinct = pd.factorize(array)
        codes = np.append(_codes_of(feature, distinct), -1)[places]
    else:
        codes = _codes_of(feature, column)
    codes[missing] = np.nan
    return codes, codes == -1


def _codes_of(feature: Feature, values: Raw) -> Floats:
    """Return the code of every value, -1 for one that is no known level."""
    code_of = feature.code_of
    plain_values = map(plain, values.tolist())
    return np.array([code_of.get(value, -1) if _is_level(value) else -1 for value in plain_values], dtype=np.float64)


def _decode_levels(feature: Feature, codes: Floats) -> Any:
    absent = np.isnan(codes)
    positions = np.where(absent, -1, codes).astype(np.intp)
    dtype = feature.raw_dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Categorical.from_codes(positions, dtype=dtype)
    if isinstance(dtype, np.dtype):
        return feature.raw_levels[positions].astype(dtype)
    return feature.raw_levels.take(positions, allow_fill=bool(absent.any()))


def _numbers(column: Raw) -> Floats:
    if isinstance(column, np.ndarray) and column.dtype.kind in "iufb":
        return column.astype(np.float64)
    if isinstance(column, pd.api.extensions.ExtensionArray) and pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    # anything else (object columns of a JSON request): what is no number becomes NaN and is reported by the caller
    numbers = map(plain, column.tolist())
    values = [float(v) if isinstance(v, int | float) and abs(v) <= LARGEST else np.nan for v in numbers]
    return np.array(values, dtype=np.float64)


def _is_level(value: Any) -> TypeGuard[Level]:
    return isinstance(value, _LEVELS)


@dataclass(frozen=True, eq=False)
class PooledLevels:
    """The levels of all columns of one of pandas' own types, such as its strings.

    Attributes:
        columns: (k,) their numbers.
        first: (k,) where the levels of each start.
        levels: all of them, column after column.
    """

    columns: NDArray[np.intp]
    first: NDArray[np.intp]
    levels: pd.api.extensions.ExtensionArray

    @classmethod
    def of(cls, features: Sequence[Feature]) -> tuple[PooledLevels, ...]:
        """Return the levels of features whose columns are of such types, one pool for each type."""
        pools: dict[str, list[int]] = {}
        for column, feature in enumerate(features):
            if not feature.numeric and not isinstance(feature.raw_dtype, np.dtype | pd.CategoricalDtype):
                pools.setdefault(feature.dtype, []).append(column)
        found = []
        for columns in pools.values():
            some = [features[column] for column in columns]
            sizes = np.array([len(feature.known) for feature in some])
            levels: Any = pd.array([level for feature in some for level in feature.known], dtype=some[0].raw_dtype)
            found.append(cls(np.array(columns), np.cumsum(sizes) - sizes, levels))
        return tuple(found)

    def decode(self, codes: Floats) -> dict[int, pd.api.extensions.ExtensionArray]:
        """Return the raw columns behind codes (n, d) of all features, by their numbers; NaN is a missing value."""
        some = codes[:, self.columns]
        absent = np.isnan(some)
        places = np.where(absent, -1, some + self.first).astype(np.intp)
        taken: Any = self.levels.take(places.T.ravel(), allow_fill=bool(absent.any()))
        n = len(codes)
        return {column: taken[at * n : (at + 1) * n] for at, column in enumerate(self.columns.tolist())}
