"""Weighted sums that decide targets: what they rule out misses the target, and what they promise meets it."""

from typing import Literal, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import dear

from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.goal.targets import SumTarget, rate_sums
from mlflow_cf.structures.structure import linked

DOUBT = 1e-3
Links = Literal["softmax", "identity"]
LEAST = (0.0, 0.0005, 0.3, 0.5, 0.75, 1.0)


def of_class(link: Links, classes: int, column: int, least: float) -> SumTarget:
    return SumTarget(link, 0, classes, classes, "label", column, least, -np.inf, np.inf, 1.0, margins=False)


def of_values(low: float, high: float) -> SumTarget:
    return SumTarget("identity", 0, 1, 1, "interval", -1, 0.0, low, high, 1.0, margins=False)


OF_CLASSES = [
    of_class(link, classes, column, least)
    for link in get_args(Links)
    for classes, column in ((2, 1), (3, 0), (5, 2))
    for least in LEAST
]
OF_VALUES = [of_values(low, high) for low in (-20.0, 0.5) for high in (0.501, 30.0)]
seeds = st.integers(0, 2**16)


def sums_of(target: SumTarget, seed: int) -> np.ndarray:
    """Return raw scores (m, k), many of them next to where the target is met."""
    rng, width = np.random.default_rng(seed), target.stop
    if target.kind == "interval":
        ends = rng.choice([target.low, target.high], (400, 1))
        return ends + rng.choice([0.0, DOUBT, 4 * DOUBT, 1.0], (400, 1)) * rng.normal(0, 1, (400, 1))
    shares = rng.dirichlet(np.full(width, rng.choice([0.3, 1.0, 5.0])), 400)
    if target.least in (0.3, 0.5, 0.75):  # the wanted class has about the least share
        own = target.least + rng.normal(0, 2 * DOUBT, 400)
        shares *= ((1 - own) / (1 - shares[:, target.column]))[:, None]
        shares[:, target.column] = own
    else:
        at = np.argmax(np.where(np.arange(width) == target.column, -1, shares), axis=1)  # about that of another one
        shares[:, target.column] = shares[np.arange(400), at] + rng.normal(0, 2 * DOUBT, 400)
        shares = np.clip(shares, 1e-9, 1.0)
        shares /= shares.sum(axis=1, keepdims=True)
    return shares if target.link == "identity" else np.log(np.clip(shares, 1e-12, 1.0)) + rng.normal(0, 3, (400, 1))


def doubted(target: SumTarget, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of raw scores (m, k) meet a target if they are off by `DOUBT`, and which do so in any case."""
    favourable, _, margin = rate_sums(sums, [target])
    if target.kind == "interval":
        return favourable | (margin < DOUBT), favourable & (margin >= DOUBT)
    scores = linked(sums, target.link)
    own, others = scores[:, target.column], np.delete(scores, target.column, axis=1).max(axis=1)
    return (own - others > -DOUBT) & (own > target.least - DOUBT), favourable & (margin >= DOUBT)


@dear(5)
@pytest.mark.parametrize("target", [*OF_CLASSES, *OF_VALUES])
@given(seed=seeds)
def test_what_misses_an_end_misses_the_target_and_what_reaches_all_meets_it(target: SumTarget, seed: int) -> None:
    each, sums = DecisionScore.each(target, DOUBT), sums_of(target, seed)
    assert each
    possible, certain = doubted(target, sums)
    reached = np.stack([sums @ one.weights for one in each])
    may = np.logical_and.reduce([some >= one.may for some, one in zip(reached, each, strict=True)])
    sure = np.logical_and.reduce([some >= one.sure for some, one in zip(reached, each, strict=True)])
    assert may[possible].all()
    assert certain[sure].all()


@dear(5)
@pytest.mark.parametrize("target", [target for target in OF_CLASSES if target.least < 0.1])
@given(seed=seeds)
def test_without_a_least_share_no_more_than_doubt_is_between(target: SumTarget, seed: int) -> None:
    """Then a list of what all models may accept is hardly longer than of what they accept."""
    each, sums = DecisionScore.each(target, DOUBT), sums_of(target, seed)
    favourable, _, margin = rate_sums(sums, [target])
    may = np.logical_and.reduce([sums @ one.weights >= one.may for one in each])
    sure = np.logical_and.reduce([sums @ one.weights >= one.sure for one in each])
    far = 2 * target.classes * DOUBT
    assert not may[~favourable & (margin > far)].any()
    assert sure[favourable & (margin > far)].all()


@pytest.mark.parametrize("target", [of_values(0.0, 1.0), of_class("softmax", 3, 1, 0.0)])
@pytest.mark.parametrize("unasked", [np.array(0x7FF0000000000001).view(np.float64), 1e308, np.inf])
def test_sums_that_nobody_asked_for_may_be_anything(target: SumTarget, unasked: float) -> None:
    """Sweeps leave room for them as it was: numpy warned of what was there, once in many runs."""
    sums = np.full((5, target.width), unasked)
    target.leads(sums, np.full(target.width, -10.0))
    target.leads(sums, np.zeros(target.width))
