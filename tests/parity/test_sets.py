"""The search among sets of changed features, against all rows of small worlds of trees."""

from dataclasses import dataclass
from itertools import product
from unittest.mock import patch

import numpy as np
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from laws import bounding
from worlds import background, space_of

from mlflow_cf.engine.sets import search as sets
from mlflow_cf.engine.sets.search import set_search
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.problem import Budget
from mlflow_cf.problem.actions import ActionTable, Within

MOST_ROWS = 3_000
ROUNDING = 1e-9  # of costs
SWEPT = 1e-5  # of scores, perhaps in float32: engines widen their tolerance by as much


@dataclass
class World:
    """Trees over a grid of actions with costs, the first of every group being the row's own, and all rows of it.

    Rows are places (m, d); `least` and `most` are how many features they may change.
    """

    seed: int
    least: int = 1
    most: int = 9
    always_far: bool = True

    def __post_init__(self):
        rng = self.rng = np.random.default_rng(self.seed)
        space = space_of(background(self.seed % 2**16))
        outputs = int(rng.integers(1, 4))
        trees, depth = int(rng.integers(1, 9)), int(rng.integers(0, 7))
        structure = random_trees(self.seed % 2**16, space, outputs, trees=trees, depth=depth, wide=rng.random() < 0.5)
        values = [self._values(rng, feature) for feature in space.features]
        self.encoded = [structure.encode(column, some) for column, some in enumerate(values)]
        self.cost = [self._costs(rng, some) for some in values]
        rows = np.array(list(product(*(range(len(some)) for some in values))))
        self.rows = rows[np.append(0, 1 + rng.permutation(len(rows) - 1)[:MOST_ROWS])]
        weights = rng.normal(size=outputs)
        places = [some[at] for some, at in zip(self.encoded, self.rows.T, strict=True)]
        self.scores = structure.sums(places) @ weights
        self.costs = sum(cost[at] for cost, at in zip(self.cost, self.rows.T, strict=True))
        self.may = float(rng.choice(self.scores)) if rng.random() < 0.9 else float(self.scores.max() + 1)
        self.sure = self.may + float(rng.choice([0.0, 1e-3, 0.3]))
        self.structure, self.weights = structure, weights
        self.limit = float(rng.choice(self.costs)) if rng.random() < 0.7 else float(self.costs.max())
        changes = (self.rows > 0).sum(axis=1)
        self.counted = (changes >= max(self.least, 1)) & (changes <= self.most)

    def _values(self, rng, feature):
        """Return the own value of a feature and others; nothing else is missing where the own one is not."""
        others = rng.permutation(feature.values)
        own = np.nan if rng.random() < 0.2 else others[0]
        return np.append(own, others[1 : rng.integers(1, 6)])

    def _costs(self, rng, values):
        """Return what values cost: mostly the more, the farther they are, plus something for every change."""
        far = np.abs(values - values[0]) if not np.isnan(values[0]) else np.ones(len(values))
        far = far if rng.random() < 0.7 else rng.random(len(values))
        costs = np.round(rng.choice([0.0, 0.3, 1.0]) + far / max(far.max(), 1.0), 2)
        costs[0] = 0.0
        return costs

    def table(self):
        """Return the actions, nearest first in every group, and per group where each place went."""
        order = [np.lexsort((np.arange(len(cost)), np.arange(len(cost)) > 0, cost)) for cost in self.cost]
        start = np.cumsum([0, *map(len, order)])
        cost = np.concatenate([some[at] for some, at in zip(self.cost, order, strict=True)])
        groups, own = np.repeat(np.arange(len(order)), np.diff(start)), np.zeros(len(order), dtype=np.intp)
        taken = groups, np.concatenate(order)
        return ActionTable(cost, cost, start, own, np.arange(len(order)), lambda: self.encoded, taken)

    def search(self):
        """Return the search for the world's rows; None: no row may change so many features within the limit."""
        actions = self.table()
        boxes = self.structure.boxes(actions.encoded)
        score = DecisionScore(self.weights, self.may - SWEPT, self.sure + SWEPT)
        within = Within(0.0, self.limit, self.most, self.least)
        return actions, set_search(actions, boxes.leaves(), score, within)

    def needed(self, some):
        """Return those of rows (m,) that change nothing in vain, and of equal cells take the nearest."""
        kept = []
        for at in np.flatnonzero(some).tolist():
            row = self.rows[at]
            cheaper = False
            for group, place in enumerate(row.tolist()):
                cells = self.encoded[group]
                same = (self.cost[group] <= self.cost[group][place]) & (np.arange(len(cells)) != place)
                same &= np.array([np.array_equal(cells[place], cell) for cell in cells])
                cheaper |= bool(place and same.any())
            kept.append(not cheaper and not self._vain(row))
        return self.rows[np.flatnonzero(some)[kept]] if kept else self.rows[:0]

    def _vain(self, row):
        """Whether every tree gives the same without one of the changes, and something is cheaper."""
        changed = np.flatnonzero(row)
        rows = np.tile(row, (len(changed) + 1, 1))
        rows[np.arange(len(changed)), changed] = 0
        leaves = [some[at] for some, at in zip(self.encoded, rows.T, strict=True)]
        sums = self.structure.sums(leaves)
        return bool((np.abs(sums[:-1] - sums[-1]).max(axis=1, initial=0.0) < 1e-12).any())


def as_rows(codes):
    """Return rows as a set of tuples."""
    return set(map(tuple, codes.tolist()))


@bounding()
@given(seed=st.integers(0, 2**32), least=st.sampled_from([1, 2, 3]), most=st.sampled_from([2, 3, 9]))
def test_all_nearest_rows_are_found(seed, least, most):
    world = World(seed, least, most)
    actions, search = world.search()
    good = world.counted & (world.scores >= world.may)
    if search is None:
        assert not len(world.needed(good & (world.costs <= world.limit)))
        return
    assert search.run(Budget(10**9))
    sure = world.counted & (world.scores >= world.sure + 2 * SWEPT)
    nearest = min(world.limit, world.costs[sure].min(initial=np.inf))
    assert search.limit >= nearest - ROUNDING
    found = as_rows(search.candidates(actions))
    assert found >= as_rows(world.needed(good & (world.costs <= nearest)))
    assert len(found) == 0 or {sum(map(bool, row)) for row in found} <= set(range(least, most + 1))


@bounding()
@given(seed=st.integers(0, 2**32), least=st.sampled_from([1, 2]), worked=st.integers(1, 60))
def test_a_search_that_is_cut_says_how_near_the_rest_may_be(seed, least, worked):
    world = World(seed, least)
    actions, search = world.search()
    if search is None:
        return
    with patch.object(sets, "AT_ONCE", 1):
        search.run(Budget(worked))
    found = as_rows(search.candidates(actions))
    rest = [row for row in map(tuple, world.needed(world.counted & (world.scores >= world.may))) if row not in found]
    costs = [sum(cost[at] for cost, at in zip(world.cost, row, strict=True)) for row in rest]
    assert search.low <= min(costs, default=np.inf) + ROUNDING


@given(seed=st.integers(0, 2**32))
def test_what_has_no_room_is_left(seed):
    """Candidates that are beyond the limit by now are dropped first."""
    world = World(seed)
    with patch.object(sets, "ROOM", (64, 64, 3)):
        actions, search = world.search()
    if search is None or search.run(Budget(10**9)):
        return
    found = as_rows(search.candidates(actions))
    rest = [row for row in map(tuple, world.needed(world.counted & (world.scores >= world.may))) if row not in found]
    costs = [sum(cost[at] for cost, at in zip(world.cost, row, strict=True)) for row in rest]
    assert search.low <= min(costs, default=np.inf) + ROUNDING
