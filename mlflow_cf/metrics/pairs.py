"""How much the counterfactuals of one row differ from each other: means over the pairs of rows Z (k, d).

All return None with fewer than two answers, and the metrics of numbers (levels) None without numbers (levels).
"""

from __future__ import annotations

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.metrics.changes import (
    DEFAULTS,
    Options,
    level_columns,
    mean,
    numeric_columns,
    pair_changes,
    pairs_changed,
)
from mlflow_cf.metrics.proximity import cat_distances, cont_distances, prox_cont


def cont_diversity(space: FeatureSpace, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean over pairs of sum_j |a_j - b_j| over the numbers, without any scaling.

    Unit: the columns' own, added up. Better: up. Source: CE-OCL.
    """
    columns = numeric_columns(space)
    return mean(pair_changes(space, Z, "none", options)[:, columns].sum(axis=1)) if len(columns) else None


def cat_diversity(space: FeatureSpace, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean over pairs of the share of levels that differ.

    Unit: share. Better: up. Source: CE-OCL.
    """
    return mean(_cat_pairs(space, Z, options))


def sparsity_diversity(space: FeatureSpace, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean over pairs of the share of features that differ.

    Unit: share. Better: up. Source: CE-OCL.
    """
    return mean(pairs_changed(space, Z, options).mean(axis=1))


def diversity(space: FeatureSpace, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean over pairs of (1/n) sum_j |a_j - b_j| / MAD_j, the distance of `prox_cont`.

    Unit: MADs. Better: relative to `prox_cont`. Source: MD-PSO.
    """
    return mean(_cont_pairs(space, Z, options))


def diversity_cat(space: FeatureSpace, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean over pairs of the distance of `prox_cat`: the second figure of `diversity`.

    Unit: share. Better: relative to `prox_cat`. Source: MD-PSO; the same number as `cat_diversity`.
    """
    return cat_diversity(space, Z, options)


def norm_diversity(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean over pairs of d(a, b) / (d(a, x) + d(b, x)), d the distance of `prox_cont`; 0/0 is 0, at most 1.

    Unit: share. Better: relative. Source: MD-PSO's formula.
    """
    return _normed(_cont_pairs(space, Z, options), cont_distances(space, x, Z, options))


def norm_diversity_cat(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """`norm_diversity` with the distance of `prox_cat`.

    Unit: share. Better: relative. Source: MD-PSO's formula.
    """
    return _normed(_cat_pairs(space, Z, options), cat_distances(space, x, Z, options))


def diversity_ratio(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """`diversity` / `prox_cont`; None, and so no part of any mean, where no number changes and the latter is 0.

    Unit: none. Better: relative. Source: MD-PSO's table, whose column of normalised diversity holds this.
    """
    apart, near = diversity(space, Z, options), prox_cont(space, x, Z, options)
    return None if apart is None or not near else apart / near


def _cont_pairs(space: FeatureSpace, Z: Floats, options: Options) -> Floats | None:
    columns = numeric_columns(space)
    return pair_changes(space, Z, "mad", options)[:, columns].mean(axis=1) if len(columns) else None


def _cat_pairs(space: FeatureSpace, Z: Floats, options: Options) -> Floats | None:
    columns = level_columns(space)
    return pairs_changed(space, Z, options)[:, columns].mean(axis=1) if len(columns) else None


def _normed(apart: Floats | None, near: Floats | None) -> float | None:
    if apart is None or near is None:
        return None
    first, second = np.triu_indices(len(near), 1)
    total = near[first] + near[second]
    shares = np.divide(apart, total, out=np.zeros(len(apart)), where=total > 0)
    # a missing value that is filled in counts 1 however far the values are apart: no triangle inequality there
    return mean(np.minimum(shares, 1.0))
