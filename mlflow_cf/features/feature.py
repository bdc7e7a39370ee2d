"""One raw column of the model: its kind, its values in the background, and how it is coded.

Dates and times are days since 1970-01-01 UTC, exact to the microsecond around our century.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeGuard, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features.tables import is_text
from mlflow_cf.validation import LARGEST

Kind = Literal["real", "integer", "date", "ordinal", "category", "boolean"]
KINDS: tuple[str, ...] = get_args(Kind)
NUMERIC: tuple[Kind, ...] = ("real", "integer", "date")
Level = str | int | float | bool
Floats = NDArray[np.float64]


def a_kind(kind: Kind) -> str:
    """Return a kind with its article."""
    return f"an {kind}" if kind in ("integer", "ordinal") else f"a {kind}"


@dataclass(frozen=True, eq=False)
class Feature:
    """A raw column; its codes are the numbers themselves, or the position of a level in `levels`.

    Attributes:
        name: column name; `numbered`: whether the raw column's name is this number, not the string.
        kind: real, integer, date (coded in days since 1970, UTC), ordinal (declared order), category or boolean.
        dtype: pandas dtype of the raw column; `categories_dtype` and `ordered` complete it for categoricals.
        levels: levels of an ordinal, category or boolean, in code order; empty for numbers.
        unseen: levels met in rows to explain but not in the background; coded after `levels`, never proposed.
        model_levels: levels that the model tells apart and the background lacks. They are the first ones `unseen`, as
            soon as any level is, so that each has the same code in all rows.
        step: distance between neighbouring admissible numbers, anchored at `low`; None for a continuous number.
        low, high: smallest and largest code, in the column's unit (levels: ranks).
        mad: median absolute deviation over the background, or its standard deviation (ddof 1) where that is 0.
        missing: whether the background has missing values here; `nan`: whether those of an object column are NaN, not
            None, which many models tell apart.
        label, unit, units, decimals: how sentences tell it: what it is called (else by its name), in which unit, one of
            them and several, and with how many decimals; None: as many as it has, up to six digits.
        values, counts: the active domain: distinct codes of the background, ascending, and how often each occurs;
            empty for a constant, which is never proposed.
    """

    name: str
    kind: Kind
    dtype: str
    levels: tuple[Level, ...] = ()
    unseen: tuple[Level, ...] = ()
    model_levels: tuple[Level, ...] = ()
    step: float | None = None
    low: float = 0.0
    high: float = 0.0
    mad: float = 0.0
    missing: bool = False
    nan: bool = False
    ordered: bool = False
    categories_dtype: str = ""
    numbered: bool = False
    label: str = ""
    unit: str = ""
    units: str = ""
    decimals: int | None = None
    values: Floats = field(default_factory=lambda: np.empty(0))
    counts: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def column(self) -> str | int:
        """The name of the raw column."""
        return int(self.name) if self.numbered else self.name

    def describe(self) -> dict[str, Any]:
        """Return what is worth knowing of it, as plain values that JSON can hold."""
        return {
            "kind": self.kind,
            "values": len(self.values),
            "step": self.step if self.numeric else None,
            "missing": self.missing,
            "constant": self.constant,
        }

    @property
    def numeric(self) -> bool:
        """Whether codes are quantities (not levels)."""
        return self.kind in NUMERIC

    @property
    def constant(self) -> bool:
        """Whether the background never varies here, so that a row keeps the value it has."""
        return not len(self.values)

    @property
    def has_order(self) -> bool:
        """Whether ``<`` between two values means something."""
        return self.numeric or self.kind == "ordinal"

    @property
    def unknown_from(self) -> float:
        """Smallest code without a known rank: codes of unseen levels start here (infinite for numbers)."""
        return np.inf if self.numeric else float(len(self.levels))

    @cached_property
    def raw_dtype(self) -> Any:
        """The pandas dtype object of the raw column, unseen levels included."""
        if self.dtype != "category":
            return pd.api.types.pandas_dtype(self.dtype)
        categories = pd.Index(list(self.known), dtype=self.categories_dtype or None)
        return pd.CategoricalDtype(categories, ordered=self.ordered)

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The numpy type that holds one raw value (of a categorical: one level); object for strings and mixtures."""
        dtype = pd.api.types.pandas_dtype(self.categories_dtype or self.dtype)
        inner = getattr(dtype, "numpy_dtype", dtype)
        return inner if isinstance(inner, np.dtype) and inner.kind in "iufb" else np.dtype(object)

    @property
    def nullable(self) -> bool:
        """Whether the raw column can hold a missing value; whole numbers and truth values of numpy cannot."""
        return not (isinstance(self.raw_dtype, np.dtype) and self.raw_dtype.kind in "iub")

    def can_hold(self, level: Level) -> bool:
        """Whether the raw column can hold a level the background never had, as it is."""
        if isinstance(level, str) and not is_text(level):
            return False
        if self.stored.kind == "O":
            return isinstance(level, str) or "object" in (self.dtype, self.categories_dtype)
        if isinstance(level, str | bool) or self.stored.kind == "b":
            return False
        if self.stored.kind == "f":
            return True
        bounds = np.iinfo(self.stored)
        return bool(bounds.min <= level <= bounds.max) and level == int(level)

    @cached_property
    def known(self) -> tuple[Level, ...]:
        """All levels that have a code: those of the background, then the unseen ones."""
        return (*self.levels, *self.unseen)

    @cached_property
    def raw_levels(self) -> Any:
        """What the raw column holds for every code (not of a categorical), as an array to take from.

        In a numpy array the place after the last code, the one that -1 finds, is that of missing values.
        """
        if isinstance(self.raw_dtype, np.dtype):
            return np.array([*self.known, None if self.raw_dtype.kind == "O" else np.nan], dtype=object)
        return pd.array(self.known, dtype=self.raw_dtype)

    @cached_property
    def code_of(self) -> dict[Level, int]:
        """Level -> code."""
        return {level: code for code, level in enumerate(self.known)}

    def unmet(self, values: Iterable[Level | None]) -> tuple[Level, ...]:
        """Return the levels among plain `values` that have no code yet, in order of appearance."""
        if self.numeric:
            return ()
        return tuple(dict.fromkeys(value for value in values if value is not None and value not in self.code_of))

    def extends(self, other: Feature) -> bool:
        """Whether this is another feature, maybe with more levels: what has a code there has the same one here."""
        if self is other:
            return True
        same = self.levels is other.levels and (self.name, self.dtype) == (other.name, other.dtype)
        return same and other.known == self.known[: len(other.known)]

    def with_unseen(self, levels: tuple[Level, ...]) -> Feature:
        """Return the same feature with codes for `levels` it has not met before."""
        if not levels:
            return self
        before = self.unseen or self.model_levels
        return replace(self, unseen=(*before, *(level for level in levels if level not in before)))

    def with_model_levels(self, levels: Iterable[Level]) -> Feature:
        """Return the same feature, of which a model tells some `levels` apart.

        A categorical stays as it is: which levels there are is part of its type, which models look at.
        """
        if self.numeric or self.dtype == "category":
            return self
        further = set(levels).difference(self.levels)
        return replace(self, model_levels=tuple(sorted(level for level in further if self.can_hold(level))))

    @property
    def for_model(self) -> Feature:
        """The same feature as if the background had all levels that the model tells apart."""
        more = self.model_levels
        return replace(self, levels=(*self.levels, *more), model_levels=()) if more else self

    def value(self, code: float) -> Level | None:
        """Return the plain Python value behind one code; None for a missing one."""
        if math.isnan(code):
            return None
        if not self.numeric:
            return self.known[int(code)]
        if self.kind == "date":
            return iso_date(code, zone_of(self.raw_dtype))
        return int(code) if self.kind == "integer" and float(code).is_integer() else float(code)

    def code(self, value: object) -> float | None:
        """Return the code of a value as a user writes it (levels, numbers, ISO dates); None if it has none."""
        if self.kind == "date":
            return days(value)
        if not isinstance(value, str | int | float | bool):
            return None
        if self.numeric:
            return None if isinstance(value, str | bool) or not abs(value) <= LARGEST else self.held(float(value))
        code = self.code_of.get(value)
        same_type = code is not None and isinstance(value, bool) == isinstance(self.known[code], bool)
        return float(code) if code is not None and same_type else None

    def held(self, number: float) -> float:
        """Return a number as the column holds it: 0.1 is 0.10000000149 in a column of float32."""
        if self.stored.kind != "f":
            return number
        with np.errstate(over="ignore"):
            held = float(np.float64(number).astype(self.stored))
        return held if np.isfinite(held) else number

    def to_dict(self) -> dict[str, Any]:
        """Return the feature as plain JSON values; levels that the background lacks are not part of it."""
        plain = {"levels": list(self.levels), "values": self.values.tolist(), "counts": self.counts.tolist()}
        names = (one.name for one in fields(self) if one.name not in ("unseen", "model_levels"))
        return {name: plain[name] if name in plain else getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Feature:
        """Rebuild a feature from `to_dict`."""
        arrays = {key: np.asarray(data[key], dtype=np.float64) for key in ("values", "counts")}
        return cls(**{**data, "levels": tuple(data["levels"]), **arrays})


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
