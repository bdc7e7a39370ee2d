"""Scorecards fitted for the tests of `mlflow_cf.testing`."""

import numpy as np
from scorecard import Scorecard

from mlflow_cf.testing import Fitted
from mlflow_cf.testing.goals import CUTS


def fit(goal, rows, values):
    """Fit points in steps of 1/64, which add up without rounding: the mean of what is left to explain."""
    left, bins, levels = values - values.mean(), {}, {}

    def mean(chosen):
        return round(64 * float(left[chosen].mean())) / 64 if chosen.any() else 0.0

    for name in ("age", "income", "hours", "rooms"):
        numbers = rows[name].to_numpy(dtype=float, na_value=np.nan)
        ends = np.unique(np.nanquantile(numbers, [0.2, 0.4, 0.6, 0.8]))
        place = np.where(np.isnan(numbers), len(ends) + 1, np.searchsorted(ends, numbers))
        points = np.array([mean(place == bin_) for bin_ in range(len(ends) + 2)])
        bins[name] = (ends.tolist(), points.tolist())
        left = left - points[place]
    for name in ("grade", "job", "member"):
        column = rows[name].astype(object)
        levels[name] = [(level, mean((column == level).to_numpy())) for level in column.dropna().unique().tolist()]
        left = left - column.map(dict(levels[name])).fillna(0.0).to_numpy(dtype=float)
    if not goal.n_labels:
        card = Scorecard(bins, levels)
        return Fitted(card, card.predict)
    threshold = round(64 * float(CUTS[2][0] - values.mean())) / 64
    card = Scorecard(bins, levels, threshold, ("no", "yes"))
    return Fitted(card, card.predict, card.labels)
