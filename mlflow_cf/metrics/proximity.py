"""How near counterfactuals are to the row they explain, and how much they differ from each other.

Means over rows Z (k, d) against x (d,), None without answers (k = 0); and, further below, means over the pairs of rows
of Z, None with fewer than two. The metrics of numbers (levels) are None without numbers (levels). Numbers include
ordinals, by rank; levels are categories and booleans; d counts raw features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.metrics.changes import (
    DEFAULTS,
    Columns,
    Options,
    changed,
    changes,
    level_columns,
    mean,
    numeric_columns,
    pair_changes,
    pairs_changed,
)
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance


def distances(space: FeatureSpace, x: Floats, Z: Floats, distance: Distance) -> Floats:
    """Return the problem's distance (k,) of each row, as explainers report it.

    Here, and in all that returns a value of each row, x is one query row (d,), or one for each of Z (k, d).
    """
    groups = tuple((column,) for column in range(len(space)))
    return BoundDistance.bind(distance, space).distance(groups, Z, x)


def l0(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean of #{j: d_j != 0} / d, the l0 part of the distance, with its feature weights.

    Unit: share. Better: down. Source: GeCo. No tolerance: exactly as the distance counts.
    """
    return mean(l0_distances(space, x, Z, options))


def l0_distances(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats:
    """Return the l0 part of the distance of each row (k,), see `l0`."""
    return distances(space, x, Z, _part(options.distance, l0=1))


def l1(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean of sum_j d_j / d, the l1 part of the distance, with its scale and feature weights.

    Unit: share of the range (or MADs, or share of the background). Better: down. Source: GeCo.
    """
    return mean(l1_distances(space, x, Z, options))


def l1_distances(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats:
    """Return the l1 part of the distance of each row (k,), see `l1`."""
    return distances(space, x, Z, _part(options.distance, l1=1))


def linf(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean of max_j d_j, the l-infinity part of the distance, with its scale and feature weights.

    Unit: share of the range (or MADs, or share of the background). Better: down. Source: GeCo.
    """
    return mean(linf_distances(space, x, Z, options))


def linf_distances(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats:
    """Return the l-infinity part of the distance of each row (k,), see `linf`."""
    return distances(space, x, Z, _part(options.distance, linf=1))


def mixed(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean of the problem's own distance, alpha*l0 + beta*l1 + gamma*linf.

    Unit: none. Better: down. Source: GeCo.
    """
    return mean(mixed_distances(space, x, Z, options))


def mixed_distances(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats:
    """Return the problem's own distance of each row (k,)."""
    return distances(space, x, Z, options.distance)


def n_changed(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean number of changed features.

    Unit: features. Better: down.
    """
    return mean(changed_counts(space, x, Z, options))


def changed_counts(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats:
    """Return how many features each row changes (k,)."""
    return np.asarray(changed(space, x, Z, options).sum(axis=1, dtype=np.float64))


def gower(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean of (1/d) sum_j of |z_j - x_j| / range_j, or of the mismatch for levels; without feature weights.

    Unit: share, in [0, 1] inside the background's ranges. Better: down.
    """
    return mean(gower_distances(space, x, Z, options))


def gower_distances(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats:
    """Return Gower's distance of each row (k,), see `gower`."""
    return np.asarray(changes(space, x, Z, "range", options).mean(axis=1))


def cont_distances(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats | None:
    """Return (1/n) sum_j |z_j - x_j| / MAD_j of each row (k,); None without numbers."""
    columns = numeric_columns(space)
    return _of(changes(space, x, Z, "mad", options), columns).mean(axis=1) if len(columns) else None


def cat_distances(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats | None:
    """Return the share of levels that differ in each row (k,); None without levels."""
    columns = level_columns(space)
    return changed(space, x, Z, options)[:, columns].mean(axis=1) if len(columns) else None


def prox_cont(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean of (1/n) sum_j |z_j - x_j| / MAD_j over the n numbers.

    Unit: MADs. Better: down. Source: DiCE, MD-PSO.
    """
    return mean(cont_distances(space, x, Z, options))


def prox_cat(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean of (1/c) sum_j [z_j != x_j] over the c levels.

    Unit: share. Better: down. Source: MD-PSO.
    """
    return mean(cat_distances(space, x, Z, options))


def sparsity_changed(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean share of changed features.

    Unit: share. Better: down. Source: MD-PSO, UFCE.
    """
    return mean(changed_shares(space, x, Z, options))


def changed_shares(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats:
    """Return the share of the features that each row changes (k,)."""
    return np.asarray(changed(space, x, Z, options).mean(axis=1))


def sparsity_unchanged(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """1 - `sparsity_changed`.

    Unit: share. Better: up. Source: CE-OCL, DiCE.
    """
    return rest(sparsity_changed(space, x, Z, options))


def cat_proximity(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """1 - `prox_cat`.

    Unit: share. Better: up. Source: CE-OCL.
    """
    return rest(prox_cat(space, x, Z, options))


def cont_proximity(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Minus the mean of sum_j |z_j - x_j| over the numbers, without any scaling.

    Unit: the columns' own, added up. Better: up, to 0. Source: CE-OCL.
    """
    return less(mean(moved_totals(space, x, Z, options)))


def moved_totals(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats | None:
    """Return sum_j |z_j - x_j| over the numbers of each row (k,), unscaled; None without numbers."""
    columns = numeric_columns(space)
    return _of(changes(space, x, Z, "none", options), columns).sum(axis=1) if len(columns) else None


def rest(share: float | None) -> float | None:
    """Return what is left of a share, if it is known."""
    return None if share is None else 1 - share


def less(total: float | None) -> float | None:
    """Return a total as what is lost by it, if it is known."""
    return None if total is None else 0.0 - total  # not -total: no change is 0, not -0


def prox_jac(space: FeatureSpace, x: Floats, Z: Floats) -> float | None:
    """Mean of 1 - Jaccard over the levels: those of two levels as one bit (the second level is 1), others one-hot.

    A missing value that is filled in is a bit on one side only, one that stays is no bit.

    Unit: share. Better: down. Source: UFCE.
    """
    return mean(jaccard_distances(space, x, Z))


def jaccard_distances(space: FeatureSpace, x: Floats, Z: Floats) -> Floats | None:
    """Return 1 - Jaccard over the levels of each row (k,), see `prox_jac`; None without levels."""
    columns = level_columns(space)
    if not len(columns):
        return None
    own, rows = _bits(space, columns, np.atleast_2d(x)), _bits(space, columns, Z)
    lost = np.isnan(x[..., columns]) != np.isnan(Z[:, columns])
    missing = np.isnan(x[..., columns]) | np.isnan(Z[:, columns])
    both = (own & rows).sum(axis=(1, 2))
    either = np.where(missing, lost, (own | rows).sum(axis=2)).sum(axis=1)
    return np.asarray(1 - _ratio(both, either))


def jaccard(a: Bools, b: Bools) -> float:
    """Return |a and b| / |a or b| of two bit vectors (m,); 1 if both are all zero. A 0 on both sides is not counted."""
    return float(_ratio(np.sum(a & b, keepdims=True), np.sum(a | b, keepdims=True))[0])


def prox_euc(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean Euclidean distance over the numbers, unscaled; or (option) of sum_j |z_j - x_j| / MAD_j, not divided by n.

    Unit: the columns' own (or MADs). Better: down. Source: UFCE's tables (or its formula).
    """
    return mean(euclidean_distances(space, x, Z, options))


def euclidean_distances(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Floats | None:
    """Return the distance of `prox_euc` of each row (k,); None without numbers."""
    columns = numeric_columns(space)
    if not len(columns):
        return None
    if options.prox_euc == "mad":
        return np.asarray(_of(changes(space, x, Z, "mad", options), columns).sum(axis=1))
    return np.asarray(np.linalg.norm(_of(changes(space, x, Z, "none", options), columns), axis=1))


def _of(values: Floats, columns: Columns) -> Floats:
    """Return some columns of values (k, d), row after row in memory: so many rows are added up as one row is."""
    return np.ascontiguousarray(values[:, columns])


def _part(distance: Distance, *, l0: float = 0, l1: float = 0, linf: float = 0) -> Distance:
    return Distance(l0, l1, linf, scale=distance.scale, weights=distance.weights)


def _bits(space: FeatureSpace, columns: Columns, rows: Floats) -> Bools:
    """Return rows (k, d) as bits (k, columns, levels); a missing value is no bit."""
    sizes = [len(space.features[column].known) for column in columns]
    bits = rows[:, columns, np.newaxis] == np.arange(max(sizes))
    bits[:, np.array(sizes) == 2, 0] = False
    found: Bools = bits
    return found


def _ratio(both: NDArray[np.intp], either: NDArray[np.intp]) -> Floats:
    return np.divide(both, either, out=np.ones(len(both)), where=either > 0)


def cont_diversity(space: FeatureSpace, Z: Floats, options: Options = DEFAULTS) -> float | None:
    """Mean over pairs of sum_j |a_j - b_j| over the numbers, without any scaling.

    Unit: the columns' own, added up. Better: up. Source: CE-OCL.
    """
    columns = numeric_columns(space)
    return mean(_of(pair_changes(space, Z, "none", options), columns).sum(axis=1)) if len(columns) else None


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
    return _of(pair_changes(space, Z, "mad", options), columns).mean(axis=1) if len(columns) else None


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
