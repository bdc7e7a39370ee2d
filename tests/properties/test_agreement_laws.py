"""What several models of trees may all accept, listed the nearest first, against scoring every row."""

from itertools import combinations, product

import numpy as np
import pytest
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from worlds import background, space_of

from mlflow_cf.structures.agreement import Asked
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.kernels.triple_grid import GridChanges

SLACK = 1e-6
COLUMNS = 6


def ask(least, sure, c, changes, spare=0):
    """Return what is asked: the first model must accept, and all of the others but `spare`."""
    many = len(least) - 1
    return Asked(np.asarray(least), np.asarray(sure), np.array([1, many]), np.array([0, spare]), c, changes)


def enough(accepted, spare):
    """Return (m,) of which rows the first model accepts, and all of the others (m, models) but `spare`."""
    return accepted[:, 0] & ((~accepted[:, 1:]).sum(axis=1) <= spare)


class Models:
    """Random ensembles of trees that decide by one or two sums, some values of every column with costs, and a row."""

    def __init__(self, seed, models, most, deepest, sums=1):
        rng, space = np.random.default_rng(seed), space_of(background(seed))
        width = int(rng.integers(1, 3))
        own = random_trees(seed + 1, space, width, trees=4, depth=3, wide=bool(rng.random() < 0.5))
        many = random_trees(seed, space, models * width, trees=5 * models, depth=deepest)
        self.joined = Joined.of([own, many], len(space))
        self.weights = [rng.normal(0, 1, (count, width)) for count in (1, sums)]
        codes = [self._some(own, many, column) for column in range(len(space))]
        self.codes = [rng.choice(some, rng.integers(1, most + 1)) for some in codes]
        self.values = [self.joined.encode(column, codes) for column, codes in enumerate(self.codes)]
        self.start = np.cumsum([0, *map(len, self.codes)])
        self.own = np.array([rng.integers(len(some)) for some in self.codes]) + self.start[:-1]
        changed = np.ones(self.start[-1], dtype=bool)
        changed[self.own] = False
        self.cost = rng.integers(1, 20, self.start[-1]) * changed
        self.cost = self.cost + np.where(changed, rng.choice([0.0, 0.3], self.start[-1]), 0.0)
        if rng.random() < 0.3:  # a distance without differences counts changes, and how large the largest one is
            self.cost = 1.0 * changed
        owner = np.repeat(np.arange(len(space)), np.diff(self.start))
        peaks, self.peak = rng.random(len(owner)), np.empty(len(owner))
        order = np.lexsort((peaks, self.cost, owner))
        self.peak[order] = peaks[np.lexsort((peaks, owner))]  # what costs more is the larger change
        self.peak *= changed
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
            found.append((sums.reshape(-1, weights.shape[1]) @ weights.T).reshape(len(places), -1))
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

    def everything(self, most):
        """Return the places (m, d) of all rows that change so many columns at most, how far each is, and its scores."""
        sets = [some for size in range(1, most + 1) for some in combinations(range(COLUMNS), size)]
        places, far = zip(*map(self.candidates, sets), strict=True)
        rows = np.concatenate(places)
        return rows, np.concatenate(far), self.scores(rows)


def listed(agreement, asked, limit, wanted=1, most=10**9):
    """Return the places (m, d) of all that is listed, which ones are sure, and whether that is all."""
    parts = []
    with agreement.asking(asked) as listing:
        while not parts or not parts[-1].ended:
            parts.append(listing.next(limit, wanted, most))
    return np.concatenate([part.at for part in parts]), np.concatenate([part.sure for part in parts]), parts[-1].whole


@dear(6)
@given(
    st.integers(0, 2**16),
    st.integers(1, 4),
    st.sampled_from([3, 9, 14]),
    st.sampled_from([3, 8]),  # 8: trees of several words
    st.integers(1, 4),
    st.data(),
)
def test_what_all_models_may_accept_is_what_scoring_every_row_finds(seed, models, most, deepest, changes, data):
    sums = data.draw(st.integers(1, 2))
    world = Models(seed, models, most if changes < 4 else 5, deepest, sums)
    rows, far, scores = world.everything(changes)
    least = np.quantile(scores, data.draw(st.floats(0, 0.95)), axis=0) if len(scores) else np.zeros(sums * models + 1)
    limit, wanted = data.draw(st.sampled_from([3.0, 20.0, 60.0, np.inf])), data.draw(st.sampled_from([1, 7, 1000]))
    spare = data.draw(st.integers(0, sums * models - 1))
    sure = least + data.draw(st.sampled_from([0.0, 0.5]))
    found, certain, whole = listed(world.agreement(), ask(least, sure, world.c, changes, spare), limit, wanted)
    assert whole
    known = {tuple(row): at for at, row in enumerate(rows.tolist())}
    at = [known[tuple(row)] for row in found.tolist()]
    assert len(set(at)) == len(at)
    assert enough(scores[at] >= least - SLACK, spare).all()
    assert enough(scores[at][certain] >= sure - 1e-9, spare).all()
    assert certain[enough(scores[at] >= sure + SLACK, spare)].all()
    assert (far[at] <= limit + SLACK).all()
    assert (np.diff(far[at]) >= -SLACK).all()
    good = enough(scores >= least + SLACK, spare) & (far <= limit - SLACK)
    assert set(np.flatnonzero(good)) <= set(at)


@dear(6)
@given(st.integers(0, 2**16), st.integers(1, 3), st.sampled_from(["BOXES", "SETS", "DEEPEST"]), st.integers(1, 4))
def test_what_there_is_no_room_for_is_farther_than_all_that_is_listed(seed, models, what, room):
    world = Models(seed, models, 6, 3)
    rows, far, scores = world.everything(COLUMNS)
    least = np.quantile(scores, 0.7, axis=0) if len(scores) else np.zeros(models + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"mlflow_cf.structures.agreement.{what}", room if what == "DEEPEST" else 3 * room)
        found, _, whole = listed(world.agreement(), ask(least, least, world.c, COLUMNS), np.inf)
    good = np.flatnonzero((scores >= least).all(axis=1))
    known = {tuple(row): at for at, row in enumerate(rows.tolist())}
    at = [known[tuple(row)] for row in found.tolist()]
    missing = sorted(set(good.tolist()) - set(at))
    assert not (whole and missing)
    assert not (at and missing) or far[at].max() <= far[missing].min() + SLACK


@dear(6)
@given(st.integers(0, 2**16), st.integers(1, 3), st.integers(1, 4), st.integers(1, 400), st.booleans())
def test_what_is_not_listed_yet_is_as_far_as_is_said(seed, models, calls, bounds, narrow):
    world = Models(seed, models, 6, 3)
    rows, far, scores = world.everything(COLUMNS)
    least = np.quantile(scores, 0.7, axis=0) if len(scores) else np.zeros(models + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.structures.agreement.BOXES", 30 if narrow else 2**17)
        with world.agreement().asking(ask(least, least, world.c, COLUMNS)) as listing:
            parts = [listing.next(np.inf, 1, bounds) for _ in range(calls)]
    found = {tuple(row) for part in parts for row in part.at.tolist()}
    good = np.flatnonzero((scores >= least + SLACK).all(axis=1))
    missing = [at for at in good.tolist() if tuple(rows[at].tolist()) not in found]
    assert (far[missing] >= parts[-1].low - SLACK).all()
    assert not parts[-1].whole or parts[-1].low == np.inf


@dear(2)
@given(
    st.integers(0, 2**16),
    st.integers(1, 3),
    st.sampled_from([3, 8]),  # 8: trees of several words
    st.floats(0.1, 0.8),
    st.integers(0, 2),
    st.data(),
)
def test_of_each_set_what_needs_all_its_changes_is_listed_until_it_is_closed(seed, models, deepest, share, spare, data):
    world, spare = Models(seed, models, 4, deepest), min(spare, models - 1)
    rows, far, scores = world.everything(COLUMNS)
    least = np.quantile(scores, share, axis=0)
    sure = least + data.draw(st.sampled_from([0.0, 0.5]))
    undo = np.array(data.draw(st.lists(st.booleans(), min_size=COLUMNS, max_size=COLUMNS)))
    asked = ask(least, sure, world.c, COLUMNS, spare)._replace(undo=undo)
    found, closed = set(), {}
    with world.agreement().asking(asked) as listing:
        ended = False
        while not ended:
            part = listing.next(np.inf, 1, 10**9)
            new = set(map(tuple, part.at.tolist()))
            assert not new & found
            found |= new
            some = np.flatnonzero(part.sure)[: data.draw(st.integers(0, 2)) if len(closed) < 5 else 0]
            listing.close(part.sets[some])
            changed = [tuple(row) for row in (part.at[some] != world.own).tolist()]
            closed |= dict.fromkeys(changed, part.low)
            ended = part.ended
    known = {tuple(row): at for at, row in enumerate(rows.tolist())}
    for at, row in enumerate(map(tuple, rows.tolist())):
        changed = np.array(row) != world.own
        undone = np.flatnonzero(changed & undo & (changed.sum() > 1)).tolist()
        fewer = [known[*row[:column], world.own[column], *row[column + 1 :]] for column in undone]
        needless = enough(scores[fewer] >= sure - SLACK, spare).any()
        if row in found:
            assert not enough(scores[fewer] >= sure + SLACK, spare).any()
        elif enough(scores[[at]] >= least + SLACK, spare)[0] and not needless:
            assert far[at] >= closed.get(tuple(changed.tolist()), np.inf) - SLACK


def test_a_limit_on_bounds_is_kept():
    world = Models(0, 2, 14, 3)
    with world.agreement().asking(ask(np.full(3, -1e9), np.zeros(3), 0.0, 3)) as listing:
        part = listing.next(np.inf, 10**9, 10)
    assert not part.ended
    assert part.bounds < 20


@pytest.mark.parametrize(("await_bounds", "whole"), [(1, True), (1000, False)])
def test_where_a_model_refuses_all_rows_sets_need_not_be_looked_at(await_bounds, whole, monkeypatch):
    monkeypatch.setattr("mlflow_cf.structures.agreement.AWAIT", await_bounds)
    monkeypatch.setattr("mlflow_cf.structures.agreement.SETS", 8)  # of 63
    least = np.array([-1e9, 1e9, -1e9])
    found, _, all_of_them = listed(Models(0, 2, 14, 3).agreement(), ask(least, least, 0.0, COLUMNS), np.inf)
    assert not len(found)
    assert all_of_them == whole


@pytest.mark.parametrize("seed", range(3))
def test_ranges_of_numbers_are_told_wherever_missing_values_go(seed):
    leaves = Models(seed, 3, 14, 4).agreement()._leaves
    numbers = [not feature.levels for feature in space_of(background(seed)).features]
    told, kinds = leaves.ranges.spanned[:, numbers], leaves.masks.kinds[:, numbers]
    assert (told >= kinds - 1).all()
    assert (told < kinds).any()


def test_models_that_share_leaves_are_not_told_apart():
    space = space_of(background(0))
    own, many = (random_trees(seed, space, 4, trees=3, depth=3, wide=True) for seed in (1, 0))
    joined = Joined.of([own, many], len(space))
    values = [joined.encode(column, np.zeros(1)) for column in range(len(space))]
    none = GridChanges(np.arange(len(space)), np.zeros(len(space)), np.zeros(len(space)))
    assert joined.agreement(values, none, [np.ones((1, 4)), np.ones((1, 2))]) is None


def test_too_large_models_are_not_listed(monkeypatch):
    monkeypatch.setattr("mlflow_cf.structures.trees.model_leaves.MOST_WORDS", 10)
    assert Models(0, 2, 4, 3).agreement() is None
