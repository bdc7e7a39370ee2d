"""What sums between bounds can come to: how far into a target, and whether all of them meet it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import expit

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem.sums import SumTarget, Targets


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def reach(low: Floats, high: Floats, targets: Targets, doubt: float) -> Floats:
    """Return (m,) how far into all targets sums between `low` and `high` (m, k) can come; < 0: not at all.

    It is a bound on the lead of a label over the others, where it is negative in probability if that is what is
    compared, and on what its probability exceeds the least one by; of a value, on its distance from the nearer end of
    the interval. Sums that may be off by `doubt`, in units of max(1, |sum|), reach so much further.
    """
    found = np.full(len(low), np.inf)
    for target in targets:
        least, most = target.of(low), target.of(high)
        largest = np.maximum(np.abs(least).max(axis=1, initial=1.0), np.abs(most).max(axis=1, initial=1.0))
        if target.kind == "interval":
            far = np.minimum(most[:, 0] - target.low, target.high - least[:, 0])
        else:
            far = np.maximum.reduce(
                [_reach_label(least, most, column, target) for column in target.columns], initial=-np.inf
            )
        found = np.minimum(found, far + doubt * largest)
    return found


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def surely(low: Floats, high: Floats, targets: Targets, doubt: float) -> Bools:
    """Return (m,) whether all sums between `low` and `high` (m, k) meet all targets, even if off by `doubt`.

    That is so where nothing else comes within the doubt: no other label leads, and no probability is below the least.
    """
    found: Bools = np.ones(len(low), dtype=np.bool_)
    for target in targets:
        least, most = target.of(low), target.of(high)
        largest = np.maximum(np.abs(least).max(axis=1, initial=1.0), np.abs(most).max(axis=1, initial=1.0))
        found &= _left_over(least, most, target) > doubt * largest
    return found


def _left_over(low: Floats, high: Floats, target: SumTarget) -> Floats:
    """Return (m,) by how much all sums between bounds (m, k) meet a target; below 0, some may miss it."""
    if target.kind == "interval":
        return np.minimum(low[:, 0] - target.low, target.high - high[:, 0])
    if target.column < 0 or (target.least > 0 and target.kind == "other"):
        return np.full(len(low), -np.inf)
    others = [column for column in range(target.classes) if column not in target.columns]
    plain = replace(target, least=0.0)
    found: Floats = -np.maximum.reduce([_reach_label(low, high, other, plain) for other in others], initial=-np.inf)
    if target.least > 0:
        found = np.minimum(found, _likely(low, high, target.column, target) - target.least)
    return found


def _likely(own: Floats, others: Floats, column: int, target: SumTarget) -> Floats:
    """Return the probability (m,) of a class with the one sums (m, k), where the other classes have the others."""
    if target.link == "share":
        return own[:, 0] if column == 1 else np.asarray(1.0 - others[:, 0])
    if target.link == "sigmoid" and own.shape[1] == 1:  # the same sum speaks for one class and against the other
        share: Floats = expit(own[:, 0]) if column == 1 else 1.0 - expit(others[:, 0])
        return share
    mine, rivals = own[:, column], np.delete(others, column, axis=1)
    if target.link == "softmax":
        found: Floats = 1.0 / (1.0 + np.exp(rivals - mine[:, None]).sum(axis=1))
        return found
    if target.link == "identity":
        return mine
    mine, rivals = expit(mine), expit(rivals)
    total = mine + rivals.sum(axis=1)
    return np.where(total > 0, mine / np.where(total > 0, total, 1.0), 1.0)


def _reach_label(low: Floats, high: Floats, column: int, target: SumTarget) -> Floats:
    """Return the most by which one class can lead all others, and by which its probability can exceed the least."""
    if target.classes == 2 and low.shape[1] == 1:
        best = _likely(high, low, column, target)
        return np.minimum(2.0 * best - 1.0, best - target.least) if target.least > 0 else 2.0 * best - 1.0
    own, rivals = high[:, column], np.delete(low, column, axis=1)
    if target.link == "sigmoid":
        own, rivals = expit(own), expit(rivals)
    lead: Floats = own - rivals.max(axis=1, initial=-np.inf)
    if target.link != "identity":  # at least so far behind in probability, for the likeliest has 1 / classes
        behind = np.expm1(np.minimum(lead, 0.0)) if target.link == "softmax" else lead
        lead = np.where(lead < 0, behind / low.shape[1], lead)
    return lead if target.least <= 0 else np.minimum(lead, _likely(high, low, column, target) - target.least)
