"""The search among moves, against all rows of small worlds, and against many rows where numbers take any value."""

from itertools import product
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from laws import bounding

from mlflow_cf.engine.moves import search as moves
from mlflow_cf.engine.moves.bounds import Asked, Hidden
from mlflow_cf.engine.moves.search import Move, MoveSearch, _directions, hidden_of
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.problem import Budget
from mlflow_cf.structures.capabilities import HiddenLayer

WIDTH = 6


class World:
    """Groups of actions with costs and effects on units, rectified or not, and a score that the row itself misses."""

    def __init__(self, seed, groups=4):
        rng = self.rng = np.random.default_rng(seed)
        self.own, self.weights = rng.normal(size=WIDTH), rng.normal(size=WIDTH)
        self.rectified = seed % 3 > 0
        self.actions, start = [], 0
        for _ in range(groups):
            costs, effects = self._number(rng) if rng.random() < 0.7 else self._levels(rng)
            self.actions.append((np.arange(start, start + len(costs)), costs, effects))
            start += len(costs)
        self.rows = np.array(list(product(*(range(-1, len(costs)) for _, costs, _ in self.actions))))
        self.costs, self.scores = self._of(self.rows)
        above = np.sort(self.scores[self.scores > self.scores[0] + 1e-6])
        self.may = float(rng.choice(above)) if len(above) and rng.random() < 0.9 else float(self.scores.max() + 1)
        self.sure = self.may + float(rng.choice([0.0, 1e-3, 0.3]))

    def _number(self, rng):
        steps = np.unique(np.round(rng.normal(size=rng.integers(1, 7)), 1))
        steps = steps[steps != 0]
        line = np.abs(steps) ** rng.choice([0.5, 1.0, 1.0, 2.0, 4.0])
        return rng.choice([0.0, 0.1, 0.3]) + line, steps[:, None] * rng.normal(size=WIDTH)

    def _levels(self, rng):
        count = rng.integers(1, 5)
        return np.round(rng.random(count), 1) + 0.1, rng.normal(size=(count, WIDTH))

    def _of(self, rows):
        costs, units = np.zeros(len(rows)), np.tile(self.own, (len(rows), 1))
        for (_, cost, effect), at in zip(self.actions, rows.T, strict=True):
            costs += np.append(cost, 0.0)[at]
            units += np.vstack([effect, np.zeros((1, WIDTH))])[at]
        return costs, (np.maximum(units, 0.0) if self.rectified else units) @ self.weights

    def search(self, limit, *, lowers, most=9):
        """Return a search for the world's rows; rounding is left out of both thresholds."""
        groups = [_directions(*actions) for actions in self.actions]
        layer = HiddenLayer(self.own, np.empty((0, WIDTH)), self.weights, 0.0, 1e-9, self.rectified)
        score = DecisionScore(np.ones(1), self.may, self.sure - 2.5e-9)
        hidden = hidden_of(layer, self.own, groups, score)
        return MoveSearch(groups, hidden, Asked(1e-9, most, True, lowers), limit)

    def found(self, search):
        """Return the rows that a search has found, as tuples."""
        count = int(search.progress.counts[2])
        rows = set()
        for chosen, steps in zip(search.progress.chosen[:count], search.progress.step[:count], strict=True):
            row = []
            for move, step, (ids, _, _) in zip(chosen, steps, self.actions, strict=True):
                each = search._every[move] if move >= 0 else None
                row.append(-1 if each is None else int(each.ids[np.searchsorted(each.steps, step)] - ids[0]))
            assert tuple(row) not in rows
            rows.add(tuple(row))
        return rows


def some_limit(world):
    """Return a limit on costs, that of some row or none."""
    return float(world.rng.choice(world.costs)) if world.rng.random() < 0.7 else np.inf


@bounding()
@given(seed=st.integers(0, 2**32), most=st.sampled_from([1, 2, 9]))
def test_all_rows_within_the_limit_are_found(seed, most):
    world = World(seed)
    limit = some_limit(world)
    search = world.search(limit, lowers=False, most=most)
    assert search.run(Budget(10**9))
    few = (world.rows >= 0).sum(axis=1) <= most
    wanted = (world.costs <= limit + 1e-9) & (world.scores >= world.may - 1e-9) & few
    assert world.found(search) == set(map(tuple, world.rows[wanted].tolist()))


@bounding()
@given(seed=st.integers(0, 2**32))
def test_the_nearest_rows_are_found_where_they_lower_the_limit(seed):
    world = World(seed)
    limit = some_limit(world)
    search = world.search(limit, lowers=True)
    assert search.run(Budget(10**9))
    nearest = min(limit, world.costs[world.scores >= world.sure - 1e-9].min(initial=np.inf))
    assert np.isclose(search.limit, min(nearest, search.limit))
    wanted = (world.costs <= nearest + 1e-9) & (world.scores >= world.may - 1e-9)
    assert world.found(search) >= set(map(tuple, world.rows[wanted].tolist()))


@bounding()
@given(seed=st.integers(0, 2**32), parted=st.integers(1, 30), lowers=st.booleans())
def test_a_search_that_is_cut_says_how_near_the_rest_may_be(seed, parted, lowers):
    world = World(seed)
    search = world.search(some_limit(world), lowers=lowers)
    with patch.object(moves, "AT_ONCE", 1):
        search.run(Budget(parted))
    found = world.found(search)
    good = world.rows[world.scores >= world.may - 1e-9]
    rest = [row for row in map(tuple, good.tolist()) if row not in found]
    costs = world._of(np.array(rest, dtype=np.intp).reshape(-1, len(world.actions)))[0]
    assert search.low <= costs.min(initial=np.inf) + 1e-9


@bounding()
@given(seed=st.integers(0, 2**32), parted=st.integers(1, 60))
def test_rows_of_any_steps_cost_no_less_than_the_bound(seed, parted):
    rng = np.random.default_rng(seed)
    own, weights, nothing = rng.normal(size=WIDTH), rng.normal(size=WIDTH), np.empty(0)
    groups = [
        [Move((0.1, slope, least, 1.0), effect, nothing, nothing, nothing.astype(np.intp), 1.0)
         for effect in rng.normal(size=(rng.integers(1, 3), WIDTH)) * 2]
        for slope, least in zip(rng.random(3), rng.choice([0.0, 0.2], 3), strict=True)
    ]  # fmt: skip
    steps = np.maximum(rng.random((4_000, 3)), [[moves_[0].limits[2] for moves_ in groups]])
    steps *= rng.random((4_000, 3)) < 0.6
    effects = [np.array([move.effect for move in moves_])[rng.integers(0, len(moves_), 4_000)] for moves_ in groups]
    units = own + sum(step[:, None] * effect for step, effect in zip(steps.T, effects, strict=True))
    scores = np.maximum(units, 0.0) @ weights
    slopes = np.array([moves_[0].limits[1] for moves_ in groups])
    costs = steps @ slopes + 0.1 * (steps > 0).sum(axis=1)
    base = float(np.maximum(own, 0.0) @ weights)
    may = base + float(rng.random()) * (scores.max() - base) + 1e-3
    search = MoveSearch(groups, Hidden(own, weights, 0.0, may, may + 1e-9), Asked(-1e-4, 3, False, True), np.inf)
    with patch.object(moves, "AT_ONCE", 1):
        search.run(Budget(parted))
    assert search.low <= costs[scores >= may].min(initial=np.inf) + 1e-9
    chosen, lengths = search.progress.best, search.progress.best_step
    if chosen.max() >= 0:
        point = own + sum(search._every[m].effect * s for m, s in zip(chosen, lengths, strict=True) if m >= 0)
        assert np.maximum(point, 0.0) @ weights >= may
        cost = sum(search._every[m].limits[0] + search._every[m].limits[1] * s
                   for m, s in zip(chosen, lengths, strict=True) if m >= 0)  # fmt: skip
        assert np.isclose(cost, search.limit)
