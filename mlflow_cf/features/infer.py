"""Find each column's kind and active domain in the background, with the user's overrides on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features.codec import EXACT_INTEGER, decode_column, encode_column, plain, raw_array
from mlflow_cf.features.feature import KINDS, NUMERIC, Feature, Kind, Level, a_kind
from mlflow_cf.features.tables import is_text

SPOKEN = ("label", "unit", "units")  # how sentences tell a feature, besides its decimals
OVERRIDES = ("kind", "levels", "step", "low", "high", *SPOKEN, "decimals")
MOST_SPOKEN = 100  # characters of a label or a unit
MOST_DECIMALS = 12


def checked_overrides(overrides: object, names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return the facts of `features`, which are given by column, as plain values; None gives none.

    Raises:
        InputError: no mapping of mappings, or a column that is not among `names`.
    """
    given = {} if overrides is None else overrides
    if not isinstance(given, Mapping):
        raise InputError("features", f"{given!r:.60} does not name columns", "write {'income': {'low': 0}}")
    for name, facts in given.items():
        if name not in names:
            raise InputError(f"features.{name}", "not a column of data", did_you_mean(name, names, "columns"))
        if not isinstance(facts, Mapping):
            raise InputError(f"features.{name}", f"{facts!r:.60} is no dict of facts", "write {'low': 0}, for example")
    return {name: {key: plain(fact) for key, fact in facts.items()} for name, facts in given.items()}


def infer_feature(name: str, column: pd.Series[Any], override: Mapping[str, Any]) -> Feature:
    """Describe one background column.

    Args:
        name: column name.
        column: the background's values (n,).
        override: any of kind, levels (declared order), step, low, high, label, unit, units, decimals; declared facts
            win over inferred ones.

    Raises:
        InputError: an unsupported type, or an override that contradicts the data.
    """
    path = f"data.{name}"
    present = column.dropna()
    _check_override(name, override)
    kind = cast("Kind", override.get("kind") or _kind(path, column, present))
    if "levels" in override and kind in NUMERIC:
        raise InputError(
            f"features.{name}.levels", f"{a_kind(kind)} has no levels", "declare kind 'ordinal' or 'category'"
        )
    levels = _levels(name, kind, column, present, override)
    halves = [level for level in levels if isinstance(level, str) and not is_text(level)]
    if halves:
        raise InputError(path, f"level {halves[0]!r} holds half of a surrogate pair, which is no text", "clean it")
    dtype, categories_dtype, ordered = _dtype(path, column)
    bare = Feature(
        name=name,
        kind=kind,
        dtype=dtype,
        levels=levels,
        missing=len(present) < len(column),
        nan=dtype == "object" and any(isinstance(value, float) for value in column[column.isna()]),
        ordered=ordered,
        categories_dtype=categories_dtype,
    )
    return replace(_with_domain(bare, column, override), **_spoken(name, kind, override))


def _spoken(name: str, kind: Kind, override: Mapping[str, Any]) -> dict[str, Any]:
    """Return how sentences tell a feature."""
    told = {key: override[key] for key in (*SPOKEN, "decimals") if override.get(key) is not None}
    for key in SPOKEN:
        text = told.get(key, "x")
        if not isinstance(text, str) or not text.strip() or len(text) > MOST_SPOKEN or not is_text(text):
            fact = f"{text!r:.50} is no text of 1 to {MOST_SPOKEN} characters"
            raise InputError(f"features.{name}.{key}", fact, "write a few words")
    decimals = told.get("decimals", 0)
    if isinstance(decimals, bool) or not isinstance(decimals, int) or not 0 <= decimals <= MOST_DECIMALS:
        raise InputError(f"features.{name}.decimals", f"{decimals!r} is no number from 0 to {MOST_DECIMALS}", "")
    numbers = [key for key in ("unit", "units", "decimals") if key in told and kind not in ("real", "integer")]
    if numbers:
        raise InputError(f"features.{name}.{numbers[0]}", f"{a_kind(kind)} has none", "leave it out")
    if "units" in told and "unit" not in told:
        raise InputError(f"features.{name}.units", "there is no unit", "name one of them in unit, several in units")
    return told


def _check_override(name: str, override: Mapping[str, Any]) -> None:
    for key in override:
        if key not in OVERRIDES:
            raise InputError(f"features.{name}.{key}", "not a known key", did_you_mean(key, OVERRIDES, "keys"))
    if "kind" in override and override["kind"] not in KINDS:
        fact = f"{override['kind']!r} is not a kind"
        raise InputError(f"features.{name}.kind", fact, did_you_mean(override["kind"], KINDS, "kinds"))
    step = override.get("step", 1)
    if isinstance(step, bool) or not isinstance(step, int | float) or not np.isfinite(step):
        raise InputError(f"features.{name}.step", f"{step!r} is not a finite number", "")
    if isinstance(override.get("levels", ()), str):
        raise InputError(
            f"features.{name}.levels", f"{override['levels']!r} is not a list", "give [lowest, ..., highest]"
        )


def _kind(path: str, column: pd.Series[Any], present: pd.Series[Any]) -> Kind:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "ordinal" if dtype.ordered else "category"
    types = pd.api.types
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_complex_dtype(dtype) or types.is_timedelta64_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        raise InputError(path, f"columns of type {dtype} cannot be explained", "turn it into a number or a level")
    if types.is_numeric_dtype(dtype):
        missing = present.empty and dtype.kind == "f"  # whatever a row has there must have a code
        return "integer" if not missing and _whole(present.to_numpy(dtype=np.float64)) else "real"
    return _kind_of_values(path, present)


def _kind_of_values(path: str, present: pd.Series[Any]) -> Kind:
    seen = {type(plain(v)) for v in present.tolist()}
    if seen == {bool}:
        return "boolean"
    if seen and seen <= {int, float}:
        return "integer" if _whole(present.astype(float).to_numpy()) else "real"
    if not seen <= {str, int, float}:
        names = ", ".join(sorted(t.__name__ for t in seen - {str}))
        raise InputError(path, f"values of type {names} are no levels", "use strings, numbers or booleans")
    return "category"


def _levels(
    name: str, kind: Kind, column: pd.Series[Any], present: pd.Series[Any], override: Mapping[str, Any]
) -> tuple[Level, ...]:
    if kind in NUMERIC:
        return ()
    if kind == "boolean":
        return (False, True)
    seen = list(dict.fromkeys(map(plain, present.tolist())))
    if "levels" in override:
        declared = tuple(override["levels"])
        unknown = [level for level in seen if level not in declared]
        if unknown or len(set(declared)) != len(declared):
            fact = f"level {unknown[0]!r} of the data is not declared" if unknown else "a level is declared twice"
            raise InputError(f"features.{name}.levels", fact, "list every level once, lowest first")
        return declared
    if isinstance(column.dtype, pd.CategoricalDtype):
        return tuple(map(plain, column.dtype.categories.tolist()))
    if kind == "ordinal" and not all(isinstance(level, int | float) for level in seen):
        raise InputError(f"features.{name}", "an ordinal of names needs its order", "add 'levels', lowest first")
    return tuple(sorted(seen, key=lambda level: (isinstance(level, str), level)))


def _dtype(path: str, column: pd.Series[Any]) -> tuple[str, str, bool]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category", _dtype_name(path, column.dtype.categories.dtype), bool(column.dtype.ordered)
    return _dtype_name(path, column.dtype), "", False


def _dtype_name(path: str, dtype: Any) -> str:
    """Return the name from which pandas makes exactly this dtype again; not all that it prints are such names."""
    name = str(dtype)
    if isinstance(dtype, pd.StringDtype):
        return f"string[{dtype.storage}]" if name == "string" else name
    if isinstance(dtype, pd.ArrowDtype) and name == "string[pyarrow]":
        return "utf8[pyarrow]"
    try:
        exact = pd.api.types.pandas_dtype(name) == dtype
    except (TypeError, NotImplementedError):
        exact = False
    if not exact:
        raise InputError(path, f"columns of type {name} cannot be restored", "convert it, e.g. with astype(float)")
    return name


def _with_domain(feature: Feature, column: pd.Series[Any], override: Mapping[str, Any]) -> Feature:
    path = f"data.{feature.name}"
    codes, bad = encode_column(feature, raw_array(column))
    if bad.any():
        position = int(np.flatnonzero(bad)[0])
        fact = f"row {position} is infinite, beyond 2^53 or not of kind {feature.kind}"
        if feature.kind == "date":
            fact = f"row {position} is no ISO date, or finer than can be kept (to the microsecond until 2059)"
        raise InputError(path, fact, "clean the column, or declare its kind in features=")
    if feature.kind == "date":
        again = pd.Series(decode_column(feature, codes), index=column.index).astype(object)
        if not ((again == column.astype(object)) | column.isna()).all():
            fix = "convert it with pd.to_datetime, or write strings like '2024-12-31' or '2024-12-31T10:30:00'"
            raise InputError(path, "its dates could not be handed to the model as they are written here", fix)
    values, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
    feature = replace(feature, values=values, counts=counts.astype(np.float64))
    low, high, step = _extent(feature, override)
    known = codes[~np.isnan(codes)]
    feature = replace(feature, low=low, high=high, step=step, mad=_mad(known))
    declared = ("low" in override and "high" in override) or "levels" in override
    varies = len(values) + feature.missing > 1 or declared
    return feature if varies else replace(feature, values=np.empty(0), counts=np.empty(0))


def _whole(values: np.ndarray[Any, Any]) -> bool:
    """Whether all values are whole numbers; columns of floats with gaps often hold integers."""
    whole = np.isfinite(values) & (np.floor(values) == values) & (np.abs(values) <= EXACT_INTEGER)
    return bool(whole.all())


def _extent(feature: Feature, override: Mapping[str, Any]) -> tuple[float, float, float | None]:
    """Return the lowest and the highest code, and the step between neighbours.

    Raises:
        InputError: facts that contradict each other, or the data.
    """
    if not feature.numeric:
        return 0.0, float(max(len(feature.levels) - 1, 0)), 1.0
    values = feature.values
    odd = values[(np.floor(values) != values) | (np.abs(values) > EXACT_INTEGER)]
    if feature.kind == "integer" and len(odd):
        fact = f"is 'integer', but {odd[0]} in data is no whole number up to 2^53"
        raise InputError(f"features.{feature.name}.kind", fact, "leave it out, or declare 'real'")
    for key in ("low", "high", "step"):
        _check_whole(feature, key, override.get(key))
    ends = (values[0], values[-1]) if len(values) else (0.0, 0.0)
    low, high = (_end(feature, override, key, end) for key, end in zip(("low", "high"), ends, strict=True))
    step = override["step"] if "step" in override else _step(feature)
    if not low <= high or (step is not None and not step > 0):
        raise InputError(f"features.{feature.name}", "low must not exceed high, and step must be positive", "")
    return low, high, step


def _check_whole(feature: Feature, key: str, given: object) -> None:
    """Refuse a fraction as an end or a step where values are whole: a model would be asked about another value."""
    stored = feature.stored.kind in "iu"
    fraction = isinstance(given, float) and np.isfinite(given) and not given.is_integer()
    if fraction and (stored or feature.kind == "integer"):
        fix = "give a whole number" if stored else "give a whole number, or declare kind 'real'"
        raise InputError(f"features.{feature.name}.{key}", f"{given} is a fraction, and the column is whole", fix)


def _end(feature: Feature, override: Mapping[str, Any], key: str, inferred: float) -> float:
    if key not in override:
        return float(inferred)
    code = feature.code(override[key])
    if code is None:
        raise InputError(f"features.{feature.name}.{key}", f"{override[key]!r} is not {a_kind(feature.kind)} value", "")
    return code


def _step(feature: Feature) -> float | None:
    """Return the largest step that reaches every value from the smallest one; None for fractions, and times of day."""
    fractions = feature.kind == "real" and "int" not in feature.dtype.lower()
    if fractions or (feature.kind == "date" and not _whole(feature.values)):
        return None
    gaps = np.diff(feature.values).astype(np.int64)
    return float(np.gcd.reduce(gaps)) if len(gaps) else 1.0


def _mad(codes: np.ndarray[Any, Any]) -> float:
    """Median absolute deviation, not scaled by 1.4826; the standard deviation (ddof 1) where it is 0."""
    if not len(codes) or codes.min() == codes.max():  # of a fraction, rounding would leave some deviation
        return 0.0
    mad = float(np.median(np.abs(codes - np.median(codes))))
    return mad if mad > 0 else float(np.std(codes, ddof=1))
