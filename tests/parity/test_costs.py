"""Bounds on costs: no row of a box that reaches a score costs less than what is said, whatever the search started with.

Trees and linear models, against all rows of small boxes.
"""

from itertools import pairwise, product

import numpy as np
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from laws import bounding
from worlds import background, space_of

from mlflow_cf.structures.kernels.costs import find_price
from mlflow_cf.structures.layers.network import LinearBoxes

MOST_ROWS = 3_000


class World:
    """A grid of values with costs, boxes of it, and the scores of all its rows."""

    def __init__(self, rng, sizes):
        self.rng, self.start = rng, np.cumsum([0, *sizes])
        self.costs = np.round(rng.choice([0.0, 1.0], self.start[-1], p=[0.2, 0.8]) * rng.random(self.start[-1]), 2)
        self.rows = np.array(list(product(*(range(low, high) for low, high in pairwise(self.start)))))

    def box(self, within=None):
        """Return a random box (n,) with a value of every column, part of another one."""
        within = np.ones(self.start[-1], dtype=bool) if within is None else within
        mask = within & (self.rng.random(len(within)) < 0.7)
        for low, high in pairwise(self.start):
            mask[self.rng.choice(np.flatnonzero(within[low:high]) + low)] = True
        return mask

    def optimum(self, mask, scores, least):
        """Return the least cost of the rows of a box that reach a score; inf if none does."""
        inside = mask[self.rows].all(axis=1) & (scores >= least)
        return self.costs[self.rows[inside]].sum(axis=1).min(initial=np.inf)

    def check(self, bounds, scores, least, *, keeping=False):
        """Check boxes within boxes, each started with what is known of the one around it.

        `keeping`: bounds tell the values that rows within the limit may have, but where no row is within it.
        """
        mask, known = None, None
        for _ in range(4):
            mask = self.box(mask)
            optimum = self.optimum(mask, scores, least)
            limit = float(self.rng.choice([0.1, 0.5, 1.0, 3.0, np.inf, optimum]))
            known = bounds.of(mask, known, limit)
            assert known.low <= optimum + 1e-9
            if known.kept is not None:
                self.check_kept(mask, known.kept)
                if optimum <= limit:
                    assert self.optimum(known.kept, scores, least) == optimum
            elif keeping:
                assert known.low > limit or np.isinf(known.low)
            assert 0 <= known.column < len(self.start) - 1

    def check_kept(self, mask, kept):
        """Check values that are kept of a box: no others, and some of every column, for boxes have values of each."""
        assert not (kept & ~mask).any()
        assert np.logical_or.reduceat(kept, self.start[:-1]).all()


@bounding()
@given(seed=st.integers(0, 2**16), outputs=st.sampled_from([1, 2, 3]), depth=st.integers(0, 6), wide=st.booleans())
def test_trees_cost_no_less_than_their_bound(seed, outputs, depth, wide):
    rng = np.random.default_rng(seed)
    space = space_of(background(seed))
    structure = random_trees(seed, space, outputs, trees=int(rng.integers(1, 7)), depth=depth, wide=wide)
    every = [rng.permutation(np.append(feature.values, np.nan)) for feature in space.features]
    values = [some[: rng.integers(1, 5)] for some in every]
    world = World(rng, [len(some) for some in values])
    world.rows = world.rows[rng.permutation(len(world.rows))[:MOST_ROWS]]
    encoded = [structure.encode(column, some) for column, some in enumerate(values)]
    weights = rng.normal(size=outputs)
    places = world.rows - world.start[:-1]
    scores = structure.sums([some[at] for some, at in zip(encoded, places.T, strict=True)]) @ weights
    least = float(rng.choice(scores) if rng.random() < 0.8 else scores.max() + 1.0)
    world.check(structure.boxes(encoded).costs(world.costs, weights, least), scores, least, keeping=True)


@bounding()
@given(seed=st.integers(0, 2**16))
def test_linear_models_cost_no_less_than_their_bound(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        world = World(rng, rng.integers(1, 5, rng.integers(1, 6)))
        added, bias = np.round(rng.normal(size=(world.start[-1], 2)), 1), np.round(rng.normal(size=2), 1)
        boxes, weights = LinearBoxes(bias, added, world.start[:-1], np.full(2, 1e-12)), rng.normal(size=2)
        scores = (bias + added[world.rows].sum(axis=1)) @ weights
        least = float(rng.choice(scores) if rng.random() < 0.8 else scores.max() + 1.0)
        world.check(boxes.costs(world.costs, weights, least), scores, least)


@bounding()
@given(seed=st.integers(0, 2**16))
def test_the_price_of_a_sum_is_the_best_there_is(seed):
    """The bound of every other price, taken from a fine grid, is no larger."""
    rng = np.random.default_rng(seed)
    world = World(rng, rng.integers(1, 6, rng.integers(1, 6)))
    gains, mask = np.round(rng.normal(size=len(world.costs)), 1), world.box()
    need = float(rng.choice(gains[world.rows[mask[world.rows].all(axis=1)]].sum(axis=1)))
    picks = np.zeros((3, len(world.start) - 1), dtype=np.int64)
    found = find_price(mask, world.start, world.costs, gains, need, picks)
    prices = np.concatenate([np.linspace(0, 2, 200), np.geomspace(2, 1e3, 100)])
    worth = np.where(mask, world.costs - prices[:, None] * gains, np.inf)
    others = np.minimum.reduceat(worth, world.start[:-1], axis=1).sum(axis=1) + prices * need
    assert found >= others.max() - 1e-9
