"""Means over the same rows, and how sure they are: a bootstrap that draws rows once for everything compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.evaluation.measure.lines import members_of
from mlflow_cf.features import Floats
from mlflow_cf.metrics import METRICS

ALL: Final = ""  # the group of all rows; others are called by column and value, such as "sex.F"
FEWEST: Final = 5  # values below which nobody should believe an interval
CELLS: Final = 4_000_000  # drawn at once
COLUMNS: Final = ("group", "measure", "rows", "mean", "low", "high", "change", "change_low", "change_high")
SIGNS: Final = {"up": 1.0, "down": -1.0, "relative": 0.0}


@dataclass(frozen=True)
class Bootstrap:
    """Percentile intervals of means over rows that are drawn again and again.

    Tables of as many rows are drawn alike, so that what is measured on the same rows can be compared draw by draw.

    Attributes:
        seed: of the draws.
        draws: how many.
        level: share of the draws inside an interval.
    """

    seed: int = 0
    draws: int = 1_000
    level: float = 0.95

    def counts(self, rows: int) -> Iterator[Floats]:
        """Yield (b, rows) how often each draw has each row, until all draws are made."""
        rng = np.random.default_rng(self.seed)
        for start in range(0, self.draws, step := max(1, CELLS // max(rows, 1))):
            drawn = rng.integers(0, rows, (min(step, self.draws - start), rows))
            places = drawn + rows * np.arange(len(drawn))[:, None]
            yield np.bincount(places.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)

    def means(self, values: Floats) -> Floats:
        """Return the means (draws, k) of values (m, k) over the drawn rows that have one; NaN where none has."""
        known = ~np.isnan(values)
        filled, counted = np.where(known, values, 0.0), known.astype(np.float64)
        with np.errstate(invalid="ignore"):
            means = [(counts @ filled) / (counts @ counted) for counts in self.counts(len(values))]
        return np.vstack(means)

    def ends(self, means: Floats, sure: Floats) -> tuple[Floats, Floats]:
        """Return both ends (k,) of the interval of drawn means (draws, k); NaN where `sure` (k,) values are too few."""
        ends = np.full((2, means.shape[1]), np.nan)
        enough = (sure >= FEWEST) & ~np.isnan(means).all(axis=0)
        outside = 50 * (1 - self.level)
        if enough.any():
            ends[:, enough] = np.nanpercentile(means[:, enough], [outside, 100 - outside], axis=0)
        return ends[0], ends[1]


def means(
    values: pd.DataFrame, groups: pd.DataFrame | None, bootstrap: Bootstrap, before: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the means of columns (m, k) for all rows and each group, and how they moved since a measurement before.

    Each mean is over the rows that have a value in its own measurement. Groups of fewer than five such rows have no
    interval.

    Args:
        values: (m, k) what was measured.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of the intervals.
        before: (m, ..) the measurement before of the same rows; None: nothing has moved.

    Returns:
        One line per group and column: group, measure, rows (that have a value), mean, low, high, change, change_low,
        change_high.
    """
    found = []
    for group, rows in members_of(groups, len(values)).items():
        new = values[rows].to_numpy(np.float64)
        counted, drawn = (~np.isnan(new)).sum(axis=0), bootstrap.means(new)
        low, high = bootstrap.ends(drawn, counted)
        facts = {"measure": values.columns, "rows": counted, "mean": _mean(new), "low": low, "high": high}
        if before is not None:
            old = before[rows].reindex(columns=values.columns).to_numpy(np.float64)
            sure = np.minimum(counted, (~np.isnan(old)).sum(axis=0))
            low, high = bootstrap.ends(drawn - bootstrap.means(old), sure)
            facts |= {"change": _mean(new) - _mean(old), "change_low": low, "change_high": high}
        found.append(pd.DataFrame({"group": group, **facts}))
    return pd.concat(found, ignore_index=True).reindex(columns=COLUMNS)


def differences(before: pd.DataFrame, after: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the paired differences of metrics (m, k) over the rows that both measurements have a value for.

    Returns:
        One line per metric: metric, rows (pairs), before, after, difference (mean of after - before), low, high,
        verdict: ``better`` or ``worse`` where the interval leaves 0 out, else "".
    """
    pairs = (after - before).to_numpy(np.float64)
    both = ~np.isnan(pairs)
    counted = both.sum(axis=0)
    low, high = bootstrap.ends(bootstrap.means(pairs), counted)
    signs = np.array([SIGNS[METRICS[name].better] for name in after.columns])
    moved = signs * (np.sign(low) + np.sign(high))
    return pd.DataFrame(
        {
            "metric": list(after.columns),
            "rows": counted,
            "before": _mean(np.where(both, before, np.nan)),
            "after": _mean(np.where(both, after, np.nan)),
            "difference": _mean(pairs),
            "low": low,
            "high": high,
            "verdict": np.select([moved == 2, moved == -2], ["better", "worse"], ""),
        }
    )


def _mean(values: Floats) -> Floats:
    """Return the means (k,) of values (m, k) that are there."""
    counted = (~np.isnan(values)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(values, axis=0) / counted)
