"""Groups of numbers and dates: four bins of about equally many rows, named as people write ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import Floats

FEW_VALUES: Final = 10  # as many numbers or days are groups of their own
QUARTILES: Final = (0.25, 0.5, 0.75)
DIGITS: Final = 3  # significant ones of an edge between numbers with fractions, or as many as keep edges apart
LONG: Final = 1e15  # numbers from here on are written with an exponent
DAY: Final = "%Y-%m-%d"


def quartile_labels(column: pd.Series[Any]) -> pd.Series[Any] | None:
    """Return the bin of every row of a column with more than ten different numbers or days; None for any other column.

    Bins begin at the column's quartiles, so that each has about a quarter of the rows; equal values are never parted,
    and a bin that this leaves empty is left out. Integers are named by both ends, which belong to the bin (``25-37``);
    other numbers by edges of three significant digits, of which the upper one belongs to the next bin (``1.25-3.5``);
    ``to`` stands between ends below 0. Dates are named by days (``2019-03-04 to 2020-05-01``). Of ten days or fewer
    each is a group.

    Args:
        column: (m,) numbers, or dates; what is missing or infinite has no say in the edges, and what is missing has
            no label.
    """
    if pd.api.types.is_datetime64_any_dtype(column):
        return _of_dates(column)
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return None
    if pd.api.types.is_complex_dtype(column) or column.nunique() <= FEW_VALUES:
        return None
    values = column.to_numpy(np.float64, na_value=np.nan)
    finite = values[np.isfinite(values)]
    if len(np.unique(finite)) < 2:
        return None
    whole = bool((finite == np.floor(finite)).all()) and float(np.abs(finite).max()) < LONG
    edges = _edges(finite) if whole else _rounded(_edges(finite), finite)
    names = list(_integer_names(edges, finite) if whole else _names(edges, finite))
    return _labelled(values, edges, names, column.index)


def _edges(values: Floats) -> Floats:
    """Return where the second and each further bin begins: at values, ascending, none at the least of all."""
    found = np.unique(np.quantile(values, QUARTILES, method="higher"))
    found = found[found > values.min()]
    return found if len(found) else np.array([values[values > values.min()].min()])


def _rounded(edges: Floats, values: Floats) -> Floats:
    """Return edges with few digits; with more where fewer would empty a bin."""
    for digits in range(DIGITS, 17):
        found = np.unique([float(f"{edge:.{digits - 1}e}") for edge in edges])
        bins = np.searchsorted(found, values, side="right")
        if len(found) == len(edges) and len(np.unique(bins)) == len(edges) + 1:
            return found
    return edges


def _integer_names(edges: Floats, values: Floats) -> Iterator[str]:
    lows, highs = [values.min(), *edges], [*(edges - 1), values.max()]
    for low, high in zip(lows, highs, strict=True):
        first, last = _plain(low), _plain(high)
        yield first if first == last else _range(first, last)


def _names(edges: Floats, values: Floats) -> Iterator[str]:
    least = _shortened(float(values.min()), lambda number: number < edges[0])
    largest = _shortened(float(values.max()), lambda number: number >= edges[-1])
    ends = [_plain(number) for number in (least, *edges, largest)]
    yield from (_range(low, high) for low, high in pairwise(ends))


def _range(low: str, high: str) -> str:
    return f"{low} to {high}" if "-" in low + high else f"{low}-{high}"


def _shortened(number: float, fits: Callable[[float], bool]) -> float:
    """Return a number with as few digits as still fit."""
    shown = (float(f"{number:.{digits - 1}e}") for digits in range(DIGITS, 18))
    return next((one for one in shown if fits(one)), number)


def _plain(number: float) -> str:
    """Return a number without marks that the name of a metric cannot have."""
    if number and not 1 / LONG < abs(number) < LONG:
        return f"{number:.{DIGITS}g}".replace("+", "")
    return np.format_float_positional(number + 0.0, trim="-")


def _of_dates(column: pd.Series[Any]) -> pd.Series[Any]:
    days = column.dt.tz_localize(None) if column.dt.tz is not None else column
    days = days.dt.floor("D")
    if days.nunique() <= FEW_VALUES:
        labels: pd.Series[Any] = days.dt.strftime(DAY)
        return labels
    known = days.dropna().sort_values().to_numpy("datetime64[D]")
    edges = _edges(known.astype(np.float64))
    starts = [known[0], *edges.astype(np.int64).astype("datetime64[D]")]
    ends = [*(start - np.timedelta64(1, "D") for start in starts[1:]), known[-1]]
    names = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    numbers = np.where(days.isna(), np.nan, days.to_numpy("datetime64[D]").astype(np.float64))
    return _labelled(numbers, edges, names, column.index)


def _labelled(values: Floats, edges: Floats, names: Sequence[str], index: pd.Index[Any]) -> pd.Series[Any]:
    places: NDArray[np.intp] = np.searchsorted(edges, values, side="right")
    labels = np.array(names, dtype=object)[np.minimum(places, len(names) - 1)]
    return pd.Series(labels, index=index).mask(np.isnan(values))
