"""Whether a row looks like the background: the local outlier factor over standardised rows (UFCE section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import LocalOutlierFactor

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.metrics.changes import mean

MOST_ROWS = 5_000
NEIGHBOURS = 100
LIMIT = 1.5  # scikit-learn's contamination="auto"


@dataclass(frozen=True, eq=False)
class Standard:
    """Coded rows as points: numbers and ordinals by their standard deviation, one mismatch of levels a distance of 1.

    Attributes:
        space: the features.
        fill: (d,) what stands for a missing value: median, or most frequent level.
        centre, spread: (d,) mean and standard deviation (ddof 1) of numbers and ordinals; spread 0: only [differs].
    """

    space: FeatureSpace
    fill: Floats
    centre: Floats
    spread: Floats

    @classmethod
    def fit(cls, space: FeatureSpace, background: Floats) -> Standard:
        """Take medians, means and deviations from coded background rows (m, d), m > 1."""
        fill, centre, spread = (np.zeros(len(space)) for _ in range(3))
        for column, feature in enumerate(space.features):
            known = background[:, column]
            known = known[~np.isnan(known)]
            if not feature.has_order:
                values, counts = np.unique(known, return_counts=True)
                fill[column] = values[np.argmax(counts)] if len(values) else 0.0
            elif len(known):
                fill[column], centre[column] = np.median(known), np.mean(known)
                spread[column] = np.std(known, ddof=1) if len(known) > 1 else 0.0
        return cls(space, fill, centre, spread)

    def points(self, rows: Floats) -> Floats:
        """Return coded rows (k, d) as points (k, p)."""
        parts = [self._column(column, rows[:, column]) for column in range(len(self.space))]
        return np.hstack(parts) if parts else np.empty((len(rows), 0))

    def _column(self, column: int, codes: Floats) -> Floats:
        feature = self.space.features[column]
        unknown = np.isnan(codes) | (feature.has_order & (codes >= feature.unknown_from))
        codes = np.where(unknown, self.fill[column], codes)
        if feature.has_order:
            away, spread = codes - self.centre[column], self.spread[column]
            place: Floats = away / spread if spread > 0 else (away != 0).astype(np.float64)
            return place[:, np.newaxis]
        # levels that the background never had share a column: as far from every level as those are from each other
        places = np.minimum(codes, len(feature.levels)).astype(np.intp)
        corners: Floats = np.eye(len(feature.levels) + 1) / np.sqrt(2)
        return corners[places]


@dataclass(frozen=True, eq=False)
class Inliers:
    """The background's local outlier factor, fitted once.

    Attributes:
        standard: how rows become points.
        factor: scikit-learn's fitted LocalOutlierFactor for new rows.
    """

    standard: Standard
    factor: Any

    @classmethod
    def fit(cls, space: FeatureSpace, background: Floats) -> Inliers:
        """Fit on coded background rows (m, d), evenly picked if there are more than 5,000.

        Raises:
            InputError: fewer than two rows.
        """
        if len(background) < 2:
            raise InputError("background", f"{len(background)} rows", "plausibility needs at least two")
        picked = np.linspace(0, len(background) - 1, min(len(background), MOST_ROWS)).round().astype(np.intp)
        rows = background[picked]
        standard = Standard.fit(space, rows)
        factor = LocalOutlierFactor(n_neighbors=min(NEIGHBOURS, len(rows) - 1), novelty=True)
        return cls(standard, factor.fit(standard.points(rows)))

    def scores(self, Z: Floats) -> Floats:
        """Return the local outlier factor (k,) of rows Z (k, d): about 1 inside the background, larger outside."""
        if not len(Z):
            return np.empty(0)
        scores: Floats = -self.factor.score_samples(self.standard.points(Z))
        return scores

    def accept(self, Z: Floats) -> Bools:
        """Return (k,) whether each row is an inlier: its factor is at most 1.5."""
        return self.scores(Z) <= LIMIT


def plausibility(inliers: Bools) -> float | None:
    """Share of answers (k,) that are inliers of the background by LOF.

    Unit: share. Better: up. Source: UFCE. None without answers.
    """
    return mean(inliers)
