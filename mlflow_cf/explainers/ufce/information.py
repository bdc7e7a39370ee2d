"""Mutual information between features: which of them go together (UFCE section 2)."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.features import Embedding, Feature, FeatureSpace, Floats

NEIGHBOURS: Final = 3  # of the estimators for numbers
MOST_ROWS: Final = 5_000
FEWEST_ROWS: Final = 500
MOST_WORK: Final = 400_000  # rows of all pairs together, so that many features take seconds, too


def mutual_information(space: FeatureSpace, background: Floats, seed: int) -> Floats:
    """Return the mutual information (d, d) of every two features over coded background rows (n, d), in nats.

    Between numbers, and between a number and levels, it is estimated by nearest neighbours (Kraskov 2004, Ross 2014);
    levels are counted. A missing value counts as the median or the most frequent level; what never varies tells
    nothing. The diagonal is 0.
    """
    d = len(space)
    least = np.clip(MOST_WORK // max(d * (d - 1) // 2, 1), FEWEST_ROWS, MOST_ROWS)
    picked = np.linspace(0, len(background) - 1, min(len(background), int(least))).round().astype(np.intp)
    rows = background[picked]
    embedding = Embedding.fit(space, rows, scale="deviation")
    rows = np.where(embedding.filled(rows), embedding.fill, rows)
    varied = np.ptp(rows, axis=0) > 0 if len(rows) else np.zeros(d, dtype=np.bool_)
    known = np.zeros((d, d))
    for second, feature in enumerate(space.features):
        if varied[second]:
            _fill(known, second, rows, (space.features, varied, seed), feature)
    return np.maximum(known, known.T)


def _fill(
    known: Floats, second: int, rows: Floats, facts: tuple[tuple[Feature, ...], np.ndarray, int], feature: Feature
) -> None:
    """Write what one feature and those before it tell of each other; of mixed pairs all that it is the level of."""
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression  # noqa: PLC0415  as below

    features, varied, seed = facts
    others = [at for at in range(len(features)) if varied[at] and at != second]
    numbers = [at for at in others if features[at].has_order and (at < second or not feature.has_order)]
    if numbers and len(rows) > NEIGHBOURS + 1:
        estimate = mutual_info_regression if feature.has_order else mutual_info_classif
        known[numbers, second] = estimate(
            rows[:, numbers],
            rows[:, second],
            discrete_features=False,
            n_neighbors=NEIGHBOURS,
            random_state=seed % 2**32,
        )
    if not feature.has_order:
        for at in others:
            if at < second and not features[at].has_order:
                known[at, second] = counted(rows[:, at], rows[:, second])


def counted(a: Floats, b: Floats) -> float:
    """Return the mutual information of two lists of levels (n,), in nats: H(a) + H(b) - H(a, b)."""
    return _entropy(a[:, None]) + _entropy(b[:, None]) - _entropy(np.column_stack([a, b]))


def _entropy(values: Floats) -> float:
    _, counts = np.unique(values, axis=0, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
