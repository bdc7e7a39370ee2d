"""What several models of trees may all accept, listed set after set, against scoring every row."""

from itertools import combinations, product

import numpy as np
import pytest
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from worlds import background, space_of

from mlflow_cf.structures.agreement import AskedSets
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.kernels.triple_grid import GridChanges

SLACK = 1e-6
COLUMNS = 6


class Models:
    """Random ensembles of trees, some values of every column with their costs, and a row."""

    def __init__(self, seed, models, most, deepest):
        rng, space = np.random.default_rng(seed), space_of(background(seed))
        width = int(rng.integers(1, 3))
        own = random_trees(seed + 1, space, width, trees=4, depth=3, wide=bool(rng.random() < 0.5))
        many = random_trees(seed, space, models * width, trees=5 * models, depth=deepest)
        self.joined = Joined.of([own, many], len(space))
        self.weights = [rng.normal(0, 1, width) for _ in range(2)]
        codes = [self._some(own, many, column) for column in range(len(space))]
        self.codes = [rng.choice(some, rng.integers(1, most + 1)) for some in codes]
        self.values = [self.joined.encode(column, codes) for column, codes in enumerate(self.codes)]
        self.start = np.cumsum([0, *map(len, self.codes)])
        self.own = np.array([rng.integers(len(some)) for some in self.codes]) + self.start[:-1]
        changed = np.ones(self.start[-1], dtype=bool)
        changed[self.own] = False
        self.cost = rng.integers(1, 20, self.start[-1]) * changed
        self.cost = self.cost + np.where(changed, rng.choice([0.0, 0.3], self.start[-1]), 0.0)
        self.peak = rng.random(self.start[-1]) * changed
        self.c = float(rng.choice([0.0, 2.5]))
        self.parts = (own, many)

    @staticmethod
    def _some(own, many, column):
        """Return codes in every cell of a column."""
        cuts = np.concatenate([part.lookups[column].cuts for part in (own, many)])
        cuts = cuts[np.isfinite(cuts)]
        return np.unique(
            np.concatenate([cuts, cuts + 0.1, cuts - 0.1, [np.nan]]) if len(cuts) else np.array([0.0, 1.0])
        )

    def scores(self, places):
        """Return what each model decides by (m, models), for rows that take the values at some places (m, d)."""
        rows = [some[places[:, at] - self.start[at]] for at, some in enumerate(self.values)]
        found = []
        for at, (part, weights) in enumerate(zip(self.parts, self.weights, strict=True)):
            sums = part.sums(self.joined.of_part(at, rows))
            found.append(sums.reshape(len(places), part.outputs // len(weights), len(weights)) @ weights)
        return np.concatenate(found, axis=1)

    def candidates(self, columns):
        """Return the places (m, d) of all rows that change some columns, and how far each is."""
        changes = [
            [at for at in range(*self.start[[column, column + 1]]) if at != self.own[column]] for column in columns
        ]
        some = np.array(list(product(*changes)), dtype=np.intp).reshape(-1, len(columns))
        places = np.tile(self.own, (len(some), 1))
        places[:, columns] = some
        far = self.cost[some].sum(axis=1) + self.c * self.peak[some].max(axis=1, initial=0.0)
        return places, far

    def agreement(self):
        changes = GridChanges(self.own, self.cost, self.peak)
        return self.joined.agreement(self.values, changes, self.weights)


def listed(agreement, asked, limit, most=10**9):
    """Return all places that are listed, set after set."""
    at, found = 0, []
    while at < len(asked.features):
        part = agreement.listed(asked, at, limit, most)
        assert part.whole
        assert part.next > at
        found += [tuple(sorted(row)) for row in part.at.tolist()]
        at = part.next
    return found


@dear(6)
@given(
    st.integers(0, 2**16),
    st.integers(1, 4),
    st.sampled_from([3, 9, 14]),
    st.sampled_from([3, 8]),  # 8: trees of several words
    st.integers(1, 4),
    st.data(),
)
def test_what_all_models_may_accept_is_what_scoring_every_row_finds(seed, models, most, deepest, size, data):
    world = Models(seed, models, most if size < 4 else 5, deepest)
    sets = np.array(list(combinations(range(COLUMNS), size)))
    rows = [world.candidates(list(some)) for some in sets]
    places, far = np.concatenate([each for each, _ in rows]), np.concatenate([each for _, each in rows])
    each = world.scores(places)
    least = np.quantile(each, data.draw(st.floats(0, 0.95)), axis=0) if len(each) else np.zeros(models + 1)
    limit = data.draw(st.floats(3, 60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.structures.agreement.FOUND", 10_000)
        agreement = world.agreement()
        lists = [listed(agreement, AskedSets(sets, least, world.c, some), limit) for some in (True, False)]
    for found in lists:
        assert len(set(found)) == len(found)
        known = {tuple(sorted(set(row) - set(world.own.tolist()))): at for at, row in enumerate(places.tolist())}
        for row in found:
            assert (each[known[row]] >= least - SLACK).all()
            assert far[known[row]] <= limit + SLACK
    good = np.flatnonzero((each >= least + SLACK).all(axis=1) & (far <= limit - SLACK))
    assert {tuple(sorted(set(places[at].tolist()) - set(world.own.tolist()))) for at in good} <= set(lists[1])


@dear(6)
@given(st.integers(0, 2**16), st.integers(1, 3), st.integers(1, 3), st.sampled_from([4, 40]))
def test_no_set_is_lost_where_candidates_are_many(seed, models, size, room):
    world = Models(seed, models, 6, 3)
    sets = np.array(list(combinations(range(COLUMNS), size)))
    asked = AskedSets(sets, np.full(models + 1, -1e9), world.c, some=False)
    whole = [world.candidates(list(some))[1] for some in sets]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.structures.agreement.FOUND", room)
        agreement, at, found = world.agreement(), 0, 0
        while at < len(sets):
            part = agreement.listed(asked, at, 1e9, 10**9)
            if not part.whole:  # this set alone has more than there is room for
                assert not any(map(len, whole[at : part.next]))
                assert len(whole[part.next]) > room
                at = part.next + 1
                continue
            assert len(part.at) == sum(map(len, whole[at : part.next]))
            found, at = found + len(part.at), part.next
    assert found == sum(len(far) for far in whole if len(far) <= room)


def test_a_limit_on_bounds_is_kept():
    world = Models(0, 2, 14, 3)
    sets = np.array(list(combinations(range(COLUMNS), 3)))
    part = world.agreement().listed(AskedSets(sets, np.full(3, -1e9), 0.0, some=False), 0, 1e9, 1)
    assert part.next < len(sets)


def test_models_that_share_leaves_are_not_told_apart():
    space = space_of(background(0))
    own, many = (random_trees(seed, space, 4, trees=3, depth=3, wide=True) for seed in (1, 0))
    joined = Joined.of([own, many], len(space))
    values = [joined.encode(column, np.zeros(1)) for column in range(len(space))]
    none = GridChanges(np.arange(len(space)), np.zeros(len(space)), np.zeros(len(space)))
    assert joined.agreement(values, none, [np.ones(4), np.ones(2)]) is None


def test_too_large_models_are_not_listed(monkeypatch):
    monkeypatch.setattr("mlflow_cf.structures.trees.model_leaves.MOST_WORDS", 10)
    assert Models(0, 2, 4, 3).agreement() is None
