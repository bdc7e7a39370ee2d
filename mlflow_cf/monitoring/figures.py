"""Figures of every window with intervals (95 %) that take answers of one request as one draw."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from scipy import sparse, stats

from mlflow_cf.features import Floats
from mlflow_cf.monitoring.lines import Ints
from mlflow_cf.monitoring.series import Followed

Z: Final = 1.959963984540054  # of 95 %
QUANTILES: Final = {"p50": 0.5, "p95": 0.95}


def figures(followed: Followed, windows: int) -> pd.DataFrame:
    """Return one line per window and series: value, low, high, count and requests.

    ``count`` is what the sum is divided by, ``requests`` how many units have a say. The variance is the linearised one
    of a ratio of sums over independent units (Cochran 1977, section 6.4). Shares have Wilson's interval with the size
    of a simple sample of the same variance; means have Student's.
    """
    below = [one.below for one in followed.series]
    own = followed.below[:, below]
    pick = sparse.csr_matrix(
        (np.ones(len(followed.window)), (followed.window, np.arange(len(followed.window)))),
        shape=(windows, len(followed.window)),
    )
    above, count, requests = (_dense(pick @ one) for one in (followed.above, own, (own != 0).astype(np.float64)))
    squares = [followed.above.multiply(followed.above), followed.above.multiply(own), own.multiply(own)]
    numerators, mixed, denominators = (_dense(pick @ one.tocsr()) for one in squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = above / count
        spread = np.maximum(numerators - 2 * value * mixed + value**2 * denominators, 0.0)
        variance = spread / count**2 * requests / (requests - 1)
        size = np.minimum(np.where(variance > 0, value * (1 - value) / variance, np.inf), count**2 / denominators)
    kinds = np.array([one.kind for one in followed.series])
    low, high = _intervals(value, variance, size, requests, kinds == "share")
    logarithms = kinds == "logarithm"
    for one in (value, low, high):
        one[:, logarithms] = np.exp(one[:, logarithms])
    named = pd.DataFrame(
        [(one.measure, one.feature, one.group, one.part) for one in followed.series],
        columns=["measure", "feature", "group", "part"],
    )
    table = named.loc[np.tile(np.arange(len(named)), windows)].reset_index(drop=True)
    table.insert(0, "window", np.repeat(np.arange(windows), len(named)))
    columns = {"value": value, "low": low, "high": high, "count": count, "requests": requests}
    return table.assign(**{name: one.ravel() for name, one in columns.items()})


def quantiles(values: Floats, unit: Ints, place: Ints, windows: int, name: tuple[str, str]) -> pd.DataFrame:
    """Return the median and the 95th percentile of numbers (m,) in every window, NaN for what is not known.

    Their intervals are Woodruff's (1952): the quantiles at the ends of the interval of the share that lies below.

    Args:
        values, unit, place: numbers, their units and windows.
        windows: how many there are.
        name: the measure, and the part that it is told with.
    """
    lines = []
    for window in range(windows):
        kept = (place == window) & ~np.isnan(values)
        for label, share in QUANTILES.items():
            told = _quantile(values[kept], unit[kept], share)
            lines.append((window, f"{name[0]}_{label}", "", "", name[1], *told, int(kept.sum()), len(set(unit[kept]))))
    names = ["window", "measure", "feature", "group", "part", "value", "low", "high", "count", "requests"]
    return pd.DataFrame(lines, columns=names)


def _quantile(values: Floats, unit: Ints, share: float) -> tuple[float, float, float]:
    """Return a quantile with its interval; NaN where too little is known."""
    if not len(values):
        return np.nan, np.nan, np.nan
    value = float(np.quantile(values, share))
    codes = pd.factorize(unit)[0]
    sums = np.bincount(codes, weights=(values <= value) - share)
    if len(sums) < 2:
        return value, np.nan, np.nan
    error = np.sqrt(float(np.sum(sums**2)) * len(sums) / (len(sums) - 1)) / len(values)
    ends = np.clip([share - Z * error, share + Z * error], 0.0, 1.0)
    low, high = np.quantile(values, ends)
    return value, float(low), float(high)


def _intervals(
    value: Floats, variance: Floats, size: Floats, requests: Floats, shares: Floats
) -> tuple[Floats, Floats]:
    """Return where the intervals of values (w, k) begin and end; NaN where less than two requests have a say."""
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (value + Z**2 / (2 * size)) / (1 + Z**2 / size)
        half = Z / (1 + Z**2 / size) * np.sqrt(np.maximum(value * (1 - value), 0.0) / size + Z**2 / (4 * size**2))
        reach = stats.t.ppf(0.975, np.maximum(requests - 1, 1)) * np.sqrt(variance)
        low = np.where(shares, np.maximum(middle - half, 0.0), value - reach)
        high = np.where(shares, np.minimum(middle + half, 1.0), value + reach)
    unknown = requests < 2
    return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)


def _dense(matrix: sparse.csr_matrix) -> Floats:
    return np.asarray(matrix.todense(), dtype=np.float64)
