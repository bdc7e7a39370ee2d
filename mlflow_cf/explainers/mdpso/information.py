"""Information value: how well each feature by itself tells favourable rows from all others (MD-PSO section 2)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.explainers.learned import Facts, known_labels
from mlflow_cf.features import Feature, Floats
from mlflow_cf.stepwise import Steps

Counts = NDArray[np.number[Any]]

BINS: Final = 10  # of a number, with as many rows each
REACH: Final = 1.5  # interquartile ranges beyond the quartiles, outside of which numbers do not count
SMOOTHING: Final = 0.5  # added to every count, so that no bin is without either


def information_values(facts: Facts) -> Steps[Floats]:
    """Return the information values (k, d) of all features for each class; of a regression (1, d) for its interval.

    The classes are those of the labels of training, or else what the model says. A class that no row has, or that all
    rows have, tells nothing: 0.

    Raises:
        InputError: a regression where no row or every row is in the wanted interval.
    """
    classes, members = len(facts.target.model.classes) or 1, _members(facts)
    found = []
    for feature, codes in zip(facts.space.features, facts.background.T, strict=True):
        found.append(_value(feature, codes, members, classes))
        yield
    return np.column_stack(found)


def information_value(positives: Counts, negatives: Counts, smoothing: float = SMOOTHING) -> Floats:
    """Return the information value (...) of bins with so many positives and negatives (bins, ...).

    It is the sum over all bins of ``(p - n) ln(p / n)`` with the shares p of all positives and n of all negatives that
    are in the bin; 0 where there are no positives, or no negatives, at all. The paper prints it without the logarithm.
    """
    all_positives, all_negatives = positives.sum(axis=0), negatives.sum(axis=0)
    bins = smoothing * len(positives)
    with np.errstate(divide="ignore", invalid="ignore"):
        p, n = (positives + smoothing) / (all_positives + bins), (negatives + smoothing) / (all_negatives + bins)
        value = ((p - n) * np.log(p / n)).sum(axis=0)
    return np.where((all_positives > 0) & (all_negatives > 0), value, 0.0)


def bins_of(feature: Feature, codes: Floats) -> tuple[NDArray[np.intp], Bools]:
    """Return the bin of each code (n,) and whether it counts: a level each, or as many rows each; missing is a bin.

    Of a number only the rows within 1.5 interquartile ranges of the quartiles count, unless they are all alike.
    """
    ranked = codes < feature.unknown_from  # neither missing nor a level without a rank
    counts = np.ones(len(codes), dtype=np.bool_)
    if not feature.has_order:
        return np.where(np.isnan(codes), -1, codes).astype(np.intp), counts
    known = codes[ranked]
    if not len(known):
        return np.zeros(len(codes), dtype=np.intp), counts
    first, third = np.quantile(known, [0.25, 0.75])
    reach = REACH * (third - first)
    inside = (known >= first - reach) & (known <= third + reach)
    if np.ptp(known[inside]) > 0:
        counts[ranked], known = inside, known[inside]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)))
    bins = np.searchsorted(edges[1:-1], codes, side="right")
    return np.where(ranked, bins, -1), counts


def _value(feature: Feature, codes: Floats, members: NDArray[np.intp], classes: int) -> Floats:
    """Return the information values (classes,) of one feature with codes (n,) for rows of classes `members` (n,)."""
    bins, counts = bins_of(feature, codes)
    known, bins = np.unique(bins[counts], return_inverse=True)
    members = members[counts]
    mine = np.bincount(bins[members >= 0] * classes + members[members >= 0], minlength=len(known) * classes)
    positives = mine.reshape(len(known), classes)
    return information_value(positives, np.bincount(bins, minlength=len(known))[:, None] - positives)


def _members(facts: Facts) -> NDArray[np.intp]:
    """Return the class (n,) of every row, -1 without; of a regression 0 in the wanted interval, -1 outside."""
    labels, target = known_labels(facts), facts.target.target
    if not target.interval:
        return labels.astype(np.intp)
    low = -np.inf if target.low is None else target.low
    high = np.inf if target.high is None else target.high
    inside = (labels >= low) & (labels <= high)
    if inside.all() or not inside.any():
        fact = f"{'every' if inside.all() else 'no'} row of the data is in the wanted interval, so no feature tells"
        raise InputError("explainer", fact, 'use "geco", or an interval that some rows are in')
    return np.where(inside, 0, -1)
