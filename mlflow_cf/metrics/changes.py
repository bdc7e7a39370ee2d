"""What differs between coded rows, and by how much: the two questions every metric is built on.

How far apart two values are is asked of `BoundDistance`, the one distance of all explainers: a missing value that is
filled in and an unseen level that is left behind count 1, missing on both sides 0, a feature without spread [changed].
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance

Scale = Literal["range", "mad", "none"]
Columns = NDArray[np.intp]


@dataclass(frozen=True)
class Options:
    """Where the papers leave a choice.

    Attributes:
        distance: the problem's distance, for `l0`, `l1`, `linf` and `mixed`.
        tolerance: a number has changed if it moved by more than ``tolerance * max(1, |x_j|)``.
        zero_mad: divisor of a number whose median absolute deviation is 0: its standard deviation, or 1 as in the code
            of DiCE and UFCE.
        prox_euc: plain Euclidean (UFCE's tables), or the sum of changes in MADs (its formula).
        actionability: share or count of the changed features.
        actionable_from: smallest share that makes a counterfactual actionable.
    """

    distance: Distance = field(default_factory=Distance)
    tolerance: float = 1e-9
    zero_mad: Literal["std", "one"] = "std"
    prox_euc: Literal["euclidean", "mad"] = "euclidean"
    actionability: Literal["share", "count"] = "share"
    actionable_from: float = 0.3


DEFAULTS = Options()


def numeric_columns(space: FeatureSpace) -> Columns:
    """Return the columns of numbers and ordinals (n,)."""
    return np.flatnonzero([feature.has_order for feature in space.features])


def level_columns(space: FeatureSpace) -> Columns:
    """Return the columns of categories and booleans (c,)."""
    return np.flatnonzero([not feature.has_order for feature in space.features])


def changed(space: FeatureSpace, x: Floats, Z: Floats, options: Options = DEFAULTS) -> Bools:
    """Return (k, d) flags of what rows Z (k, d) change in x (d,), or each in a row of its own (k, d).

    A number has changed beyond the tolerance, a level if it is another one; missing is a value like any other.
    """
    return _differ(space, x, Z, options.tolerance * np.fmax(1.0, np.abs(x)))


def changes(space: FeatureSpace, x: Floats, Z: Floats, scale: Scale, options: Options = DEFAULTS) -> Floats:
    """Return how far rows Z (k, d) move each feature from x (d,), or each from a row of its own (k, d), as (k, d).

    Args:
        space: the features.
        x: codes of the query row, or of one for each counterfactual.
        Z: codes of the counterfactuals.
        scale: numbers count in shares of their range, in MADs, or unscaled (ordinals: in ranks); levels count 1.
        options: `tolerance` and `zero_mad` are used.
    """
    return _moves(_ruler(space, scale, options), x, Z, changed(space, x, Z, options))


def pairs_changed(space: FeatureSpace, Z: Floats, options: Options = DEFAULTS) -> Bools:
    """Return (p, d) flags of where the p pairs of rows Z (k, d) differ; the larger number sets the tolerance."""
    first, second = np.triu_indices(len(Z), 1)
    a, b = Z[first], Z[second]
    return _differ(space, a, b, options.tolerance * np.fmax(1.0, np.fmax(np.abs(a), np.abs(b))))


def pair_changes(space: FeatureSpace, Z: Floats, scale: Scale, options: Options = DEFAULTS) -> Floats:
    """Return `changes` between the p pairs of rows Z (k, d), as (p, d)."""
    ruler, differ = _ruler(space, scale, options), pairs_changed(space, Z, options)
    rows = np.split(differ, np.cumsum(np.arange(len(Z) - 1, 0, -1)))  # the pairs (0, 1..), (1, 2..), ...
    none = np.empty((0, len(space)))
    return np.vstack([none, *(_moves(ruler, Z[i], Z[i + 1 :], rows[i]) for i in range(len(Z) - 1))])


def mean(values: Floats | Bools | None) -> float | None:
    """Return the mean of (k,) values; None if there are none, or nothing is known."""
    return None if values is None or not len(values) else float(np.mean(values))


def _differ(space: FeatureSpace, a: Floats, b: Floats, slack: Floats) -> Bools:
    numbers = np.array([feature.numeric for feature in space.features])
    moved = np.where(numbers, np.abs(b - a) > slack, a != b)
    missing = np.isnan(a), np.isnan(b)
    differ: Bools = np.where(missing[0] | missing[1], missing[0] != missing[1], moved)
    return differ


def _moves(ruler: BoundDistance, own: Floats, rows: Floats, differ: Bools) -> Floats:
    moves = differ.astype(np.float64)
    spread = np.flatnonzero(ruler.scale != 0)
    touched = spread[((rows != own) & ~(np.isnan(rows) & np.isnan(own)))[:, spread].any(axis=0)]
    moves[:, spread] = 0.0
    moves[:, touched] = ruler.changes(touched, rows[:, touched], own[..., touched])
    return moves


def _ruler(space: FeatureSpace, scale: Scale, options: Options) -> BoundDistance:
    """Return the plain l1 part of the distance; its scale is 0 where only [changed] counts."""
    metric = BoundDistance.bind(Distance(0, 1, 0, scale="mad" if scale == "mad" else "range"), space)
    ordered = np.array([feature.has_order for feature in space.features])
    if scale == "none":
        return replace(metric, scale=ordered.astype(np.float64))
    if scale == "mad" and options.zero_mad == "one":
        # where one value makes up more than half of the background, `Feature.mad` holds the deviation
        no_mad = np.array([f.mad == 0 or 2 * f.counts.max(initial=0) > f.counts.sum() for f in space.features])
        return replace(metric, scale=np.where(ordered & no_mad, 1.0, metric.scale))
    return metric
