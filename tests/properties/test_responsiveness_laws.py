"""Responsiveness against enumeration: shares to the last digit, and intervals of drawn shares that cover them."""

from itertools import combinations, product

import numpy as np
import pytest
from exact_worlds import TOLERANCE, Drawn, drawn
from hypothesis import given
from hypothesis import strategies as st
from laws import dear, many

from mlflow_cf.levers.responses import responses, wilson
from mlflow_cf.policy import Distance
from mlflow_cf.proof.pipeline import run_inquiries

OPENED = ("forest", "forest", "linear", "network")


def told(world, sets, seed=0, evaluations=10**7):
    task = world.row_task(evaluations)
    asked = responses(task, sets, TOLERANCE, np.random.default_rng(seed), weighted=True)
    (found,) = run_inquiries(world.judge, world.space, [asked])
    assert not isinstance(found, Exception), found
    return found


def enumerated(world, groups):
    """Return how many lawful rows change some groups and nothing else, how many of them turn, and both by weight."""
    domains, x0 = world.bound_policy.domains, world.x0
    parts = [np.vstack([domains[g].actions, x0[list(domains[g].columns)]]) for g in groups]
    weights = [np.append(domains[g].weights, 0.0) for g in groups]
    rows, weight = {}, {}
    for places in product(*(range(len(part)) for part in parts)):
        row = x0.copy()
        for group, part, at in zip(groups, parts, places, strict=True):
            row[list(domains[group].columns)] = part[at]
        rows[row.tobytes()] = row
        weight[row.tobytes()] = max(
            weight.get(row.tobytes(), 0.0), sum(w[at] for w, at in zip(weights, places, strict=True))
        )
    Z = np.array(list(rows.values()))
    Z = Z[world.bound_policy.covering(world.space).accepts(Z, x0)]
    turned = world.accepts(Z) if len(Z) else np.empty(0, dtype=bool)
    by_weight = np.array([weight[row.tobytes()] for row in Z])
    return len(Z), int(turned.sum()), by_weight.sum(), by_weight[turned].sum()


def some_sets(world):
    groups = range(len(world.bound_policy.domains))
    return [(group,) for group in groups] + list(combinations(groups, 2))[:6]


@given(drawn((*OPENED, "none")).filter(lambda world: world.open))
def test_shares_are_those_of_enumeration(world):
    sets = some_sets(world)
    for groups, one in zip(sets, told(world, sets), strict=True):
        lawful, turned, weight, by_weight = enumerated(world, groups)
        assert one.groups == groups
        assert one.interval is None
        assert one.changes == lawful
        assert one.share == (turned / lawful if lawful else 0.0)
        if len(groups) > 1 or not weight:
            assert one.weighted_share is None
        else:
            assert one.weighted_share == pytest.approx(by_weight / weight, abs=1e-12)


@dear(2)
@given(drawn(OPENED).filter(lambda world: world.open), st.integers(0, 20))
def test_a_small_budget_is_kept(world, evaluations):
    task = world.row_task(evaluations)
    asked = responses(task, some_sets(world), TOLERANCE, np.random.default_rng(0), weighted=False)
    (found,) = run_inquiries(world.judge, world.space, [asked])
    assert task.budget.used <= evaluations
    assert found is None or all(one.weighted_share is None for one in found)


def test_intervals_of_drawn_shares_cover_the_exact_one(monkeypatch):
    """As often as they say: that is 95 of 100 times."""
    query = {"age": 20, "income": 0.0, "grade": "low", "job": "a", "member": False, "rooms": 1}
    covered, tried = 0, 0
    for seed in range(many(20, 100)):
        world = Drawn(
            seed=seed, grid=False, constraints={}, distance=Distance(0.5, 0.5, 0), query=query, count=1,
            model="forest", task="two", goal="label", quantile=0.5, least=None,
        )  # fmt: skip
        sets = list(combinations(range(len(world.bound_policy.domains)), 3))
        exact = told(world, sets)
        with monkeypatch.context() as patch:
            patch.setattr("mlflow_cf.levers.responses.MOST_COUNTED", 10)
            patch.setattr("mlflow_cf.levers.responses.DRAWN", 200)
            for drawing in range(3):
                for one, share in zip(told(world, sets, drawing), (each.share for each in exact), strict=True):
                    if one.interval is not None and 0.02 <= share <= 0.98:
                        covered, tried = covered + (one.interval[0] <= share <= one.interval[1]), tried + 1
    assert tried >= 100
    assert 0.93 <= covered / tried <= 0.97


def test_the_interval_of_a_share():
    """Of 10, none turns: up to 28 % may, as in Wilson's paper of 1927 with z = 1.96."""
    assert wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    low, high = wilson(50, 100)
    assert (low, high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))
