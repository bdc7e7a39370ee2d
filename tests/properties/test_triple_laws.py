"""Three changes of a row of trees: the kernels against scoring every row, and the engine against all triples."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from forest_worlds import opened_problem, random_trees
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from people import CONSTRAINTS, people, wrapped
from worlds import background, space_of

from mlflow_cf.engine import thresholds
from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.few_changes import try_few_changes
from mlflow_cf.engine.three_changes import TripleLimits
from mlflow_cf.explainers.geco.around import CLOSE
from mlflow_cf.problem import Budget
from mlflow_cf.structures.kernels.triple_grid import AskedTriples, GridChanges

DOUBT = CLOSE + thresholds.SWEPT
SLACK = 1e-9
COLUMNS = 6


class Grid:
    """Random trees, and some values of every column with their costs, the row's own among them."""

    def __init__(self, seed, outputs, most, *, wide):
        rng = np.random.default_rng(seed)
        space = space_of(background(seed))
        self.trees = random_trees(seed, space, outputs, trees=5, depth=5, wide=wide)
        cells = np.diff(self.trees.trees.features.start)
        self.values = [
            rng.choice(count - 1, rng.integers(1, most + 1))
            if ordered
            else rng.choice(count, rng.integers(1, most + 1))
            for count, ordered in zip(cells.tolist(), self.trees.trees.features.ordered, strict=True)
        ]
        calm = rng.random() < 0.5  # costs grow to either side of the row's own value
        self.values = [np.sort(some) for some in self.values] if calm else self.values
        self.start = np.cumsum([0, *map(len, self.values)])
        self.own = np.array([rng.integers(len(some)) for some in self.values]) + self.start[:-1]
        where = np.arange(self.start[-1])
        away = np.abs(where - self.own.repeat(np.diff(self.start)))
        drawn = rng.integers(1, 20, len(where)).astype(float)
        far, level = 4.0 * away + drawn / 20, rng.random() < 0.3  # all changes may be as far
        self.cost = np.where(away == 0, 0.0, 5.0 if level else far if calm else drawn)
        self.peak = (away if calm else rng.random(len(where))) * (away > 0)
        self.weights = rng.normal(0, 1, outputs)
        self.c = float(rng.choice([0.0, 0.7]))

    def scores(self, places):
        """Return the scores of rows that take the values at some places (m, d) of the whole grid, one per column."""
        return (
            self.trees.sums([some[places[:, at] - self.start[at]] for at, some in enumerate(self.values)])
            @ self.weights
        )

    def each(self, places):
        """Return the weighted raw scores (m, k) of the same rows, one by one."""
        rows = [some[places[:, at] - self.start[at]] for at, some in enumerate(self.values)]
        return self.trees.sums(rows) * self.weights

    def candidates(self):
        """Return of all rows of three changes columns, places, score, the largest score with one put back, distance."""
        rows = []
        changes = [[at for at in range(*span) if at != own] for span, own in self._spans()]
        for columns in combinations(range(COLUMNS), 3):
            three = np.array(list(product(*(changes[column] for column in columns))), dtype=np.intp).reshape(-1, 3)
            places = np.tile(self.own, (len(three), 1))
            places[:, columns] = three
            fewer = np.full(len(three), -np.inf)
            for column in columns:
                undone = places.copy()
                undone[:, column] = self.own[column]
                fewer = np.maximum(fewer, self.scores(undone))
            far = self.cost[three].sum(axis=1) + self.c * self.peak[three].max(axis=1, initial=0.0)
            scores = self.scores(places)
            rows += [(columns, *row) for row in zip(map(tuple, three.tolist()), scores, fewer, far, strict=True)]
        return rows

    def _spans(self):
        return zip(zip(self.start[:-1], self.start[1:], strict=True), self.own, strict=True)


def least_of(pairs):
    """Return the least number of every key."""
    least = {}
    for key, number in pairs:
        least[key] = min(number, least.get(key, np.inf))
    return least


@dear(6)
@given(
    st.integers(0, 2**16),
    st.sampled_from([1, 3]),
    st.sampled_from([4, 12]),
    st.booleans(),
    st.integers(1, 3),
    st.data(),
)
def test_three_changes_are_those_of_scoring_every_row(seed, outputs, most, wide, count, data):
    limit = data.draw(st.floats(3, 40))
    grid = Grid(seed, outputs, most, wide=wide)
    rows = grid.candidates()
    scores = sorted({score for *_, score, _, _ in rows}) or [0.0]
    may = data.draw(st.sampled_from(scores)) + data.draw(st.sampled_from([-1e-3, 1e-3]))
    sure = may + data.draw(st.sampled_from([0.0, 0.05]))
    known = np.sort(data.draw(st.lists(st.sampled_from([2.0, 9.0, 15.5, np.inf]), min_size=count, max_size=count)))
    triples = np.array(list(combinations(range(COLUMNS), 3)))
    asked = AskedTriples(triples, grid.weights, may, sure, grid.c, limit, 10**9)
    boxes = grid.trees.boxes(grid.values)
    found = boxes.triples(GridChanges(grid.own, grid.cost, grid.peak), asked, known)
    first = {}
    for columns, _, score, fewer, far in rows:
        if score >= sure + SLACK and fewer < may - SLACK:
            first[columns] = min(first.get(columns, np.inf), far)
    last = min(limit, np.sort([*known, *first.values()])[count - 1])
    listed = {tuple(sorted(at)) for at in found.at.tolist()}
    assert len(listed) == len(found.at)
    nearest = least_of(((columns, round(score, 9)), far) for columns, three, score, _, far in rows if three in listed)
    for columns, three, score, fewer, far in rows:
        inside = far <= min(last, first.get(columns, np.inf)) - SLACK
        needed = fewer < min(sure, score) - SLACK  # all three changes: two that do the same are known already
        if inside and score >= may + SLACK and needed:  # or what trees do not tell apart, no farther
            assert nearest[columns, round(score, 9)] <= far + SLACK
        outside = far > min(limit, first.get(columns, np.inf)) + SLACK
        if outside or score < may - SLACK or fewer >= sure + SLACK:
            assert three not in listed
    assert np.allclose(found.top, np.sort([*known, *(far for far in first.values() if far <= limit)])[:count])


@dear(6)
@given(st.integers(0, 2**16), st.integers(1, 3), st.sampled_from([4, 12]), st.booleans(), st.data())
def test_three_changes_that_several_models_may_accept_are_all_listed_nearest_first(seed, models, most, wide, data):
    grid = Grid(seed, models, most, wide=wide)
    grid.weights[:] = data.draw(st.sampled_from([-1.0, 1.0]))
    rows = grid.candidates()
    places = np.tile(grid.own, (len(rows), 1))
    for at, (columns, three, *_) in enumerate(rows):
        places[at, list(columns)] = three
    each = grid.each(places) if len(rows) else np.empty((0, models))
    may = data.draw(st.sampled_from(sorted(set(each.ravel().tolist())) or [0.0])) + data.draw(
        st.sampled_from([-1e-3, 1e-3])
    )
    limit, beyond, room = data.draw(st.floats(3, 40)), data.draw(st.floats(-1, 8)), data.draw(st.integers(4, 400))
    triples = np.array(list(combinations(range(COLUMNS), 3)))
    asked = AskedTriples(triples, grid.weights, may, np.inf, grid.c, limit, 10**9, beyond, joins=False, models=models)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.structures.kernels.triple_grid.MOST_LISTED", room)
        changes = GridChanges(grid.own, grid.cost, grid.peak)
        found = grid.trees.boxes(grid.values).triples(changes, asked, np.array([np.inf]))
    far = np.array([row[-1] for row in rows])
    good = np.flatnonzero((each >= may + SLACK).all(axis=1) & (far > beyond + SLACK) & (far <= limit - SLACK))
    if wide and models > 1:  # leaves are of one model each
        assert found is None
        return
    if found is None:  # too many are as near
        assert len(good) > room / 2
        return
    listed = {tuple(sorted(at)): distance for at, distance in zip(found.at.tolist(), found.far.tolist(), strict=True)}
    assert len(listed) == len(found.at)
    last = min(limit, found.complete[0])
    assert {rows[at][1] for at in good if far[at] <= last - SLACK} <= set(listed)
    known = {row[1]: (at, row[-1]) for at, row in enumerate(rows)}
    for three, distance in listed.items():
        at, right = known[three]
        assert distance == pytest.approx(right)
        assert (each[at] >= may - SLACK).all()
        assert beyond - SLACK <= right <= last + SLACK


def test_a_limit_on_what_is_looked_at_is_kept():
    grid = Grid(0, 1, 4, wide=False)
    columns = np.flatnonzero(np.diff(grid.start) > 1)[:3]
    changes, boxes = GridChanges(grid.own, grid.cost, grid.peak), grid.trees.boxes(grid.values)
    for most in (0, 10**9):
        asked = AskedTriples(columns[None], grid.weights, -1e9, 1e9, 0.0, 1e9, most)
        assert (boxes.triples(changes, asked, np.array([np.inf])) is None) == (most == 0)


def test_trees_that_say_nothing_have_no_candidates():
    grid = Grid(0, 1, 4, wide=False)
    columns = np.flatnonzero(np.diff(grid.start) > 1)[:3]
    nodes = grid.trees.trees.nodes
    nothing = replace(
        grid.trees, trees=grid.trees.trees._replace(nodes=nodes._replace(value=np.zeros_like(nodes.value)))
    )
    asked = AskedTriples(columns[None], grid.weights, 1.0, 1.0, 0.0, 1e9, 10**9)
    changes = GridChanges(grid.own, grid.cost, grid.peak)
    assert not len(nothing.boxes(grid.values).triples(changes, asked, np.array([np.inf])).at)


def test_what_a_rule_for_whole_rows_refuses_lowers_no_limit():
    model, limits = wrapped("forest", 0, 0), TripleLimits(1.0, np.empty(0), CLOSE)
    rows = people(300, 40).dropna()
    rows = rows[model.predict(rows)["prediction"].to_numpy() == 0]
    tried = [Engine(opened_problem(model, rows.iloc[[row]], 2)).few.three for row in range(5)]
    assert sum(len(three.near(limits, Budget(10**9))) for three in tried)
    for three in tried:
        some = len(three.near(limits, Budget(10**9)))
        refusing = replace(three.problem, check=lambda rows: np.zeros(len(rows), dtype=bool))
        found = replace(three, problem=refusing).near(limits, Budget(10**9))
        assert found is None if some else not len(found)


def test_more_values_than_there_is_room_for_are_refused():
    grid = Grid(0, 1, 4, wide=False)
    asked = AskedTriples(np.array([[0, 1, 2]]), grid.weights, 0.0, 0.0, 0.0, 9.0, 10**9)
    values = [np.zeros(2_000, dtype=np.int64) for _ in grid.values]
    own, cost = 2_000 * np.arange(COLUMNS), np.random.default_rng(0).random(2_000 * COLUMNS)  # in no order
    cost[own] = 0.0
    boxes = grid.trees.boxes(values)
    assert boxes.triples(GridChanges(own, cost, cost), asked, np.array([np.inf])) is None


@pytest.mark.parametrize("columns", [2, 6])
def test_kernels_are_tried_whatever_the_number_of_columns(columns):
    frame = background(0)[["grade", "age", "income", "job", "member", "rooms"][:columns]]
    space = space_of(frame)
    try_few_changes(random_trees(0, space, 1, trees=3, depth=3), space.covering(frame).encode(frame))


def every_triple(few):
    """Return all lawful candidates of three changes, and of these that may meet the target with no change redundant."""
    problem, actions = few.problem, few.actions
    changes = np.flatnonzero(actions.code != problem.own[actions.group])
    by_group = [changes[actions.group[changes] == group] for group in range(len(problem.groups))]
    parts = [
        np.stack(np.meshgrid(*(by_group[group] for group in three), indexing="ij"), axis=-1).reshape(-1, 3)
        for three in combinations(range(len(by_group)), 3)
    ]
    places = np.concatenate(parts)
    codes = actions.candidates(places)
    judged = few.scorer.decisions(few.scorer.structure.sums(problem.encoded(codes)), DOUBT)
    fewer = []
    for axis in range(3):
        pairs = actions.candidates(np.delete(places, axis, axis=1))
        fewer.append(few.scorer.decisions(few.scorer.structure.sums(problem.encoded(pairs)), DOUBT))
    may_be_less, less = np.logical_or.reduce(fewer)
    return codes, np.sort(actions.group[places], axis=1), judged, (may_be_less, less)


@given(st.sampled_from(["tree", "forest", "boosting"]), st.integers(0, 2), st.integers(0, 39))
def test_limits_grow_until_nothing_is_farther(kind, seed, row):
    few = Engine(opened_problem(wrapped(kind, seed, 0), people(seed + 300, 40).iloc[[row]], 5)).few
    limit, limits = few.three.first_limit(), []
    while limit < np.inf:
        limits.append(limit)
        limit = few.three.next_limit(limit)
    assert limits == sorted(limits)
    assert len(limits) < 12
    codes, *_ = every_triple(few)
    assert few.problem.distance(codes).max() <= limits[-1] + SLACK


@dear(4)
@given(
    st.sampled_from(["tree", "forest", "boosting", "tree value"]),
    st.integers(0, 2),
    st.integers(0, len(CONSTRAINTS) - 2),
    st.integers(0, 39),
    st.integers(1, 5),
    st.floats(0.2, 2.5),
)
def test_three_changes_that_may_be_answers_are_found(kind, seed, constraints, row, count, limit):
    query = people(seed + 300, 40).iloc[[row]]
    few = Engine(opened_problem(wrapped(kind, seed, constraints), query, count)).few
    if few is None:
        return
    found = few.three.near(TripleLimits(limit, np.empty(0), CLOSE), Budget(10**9))
    if found is None:
        assert few.problem.linking or not few.problem.plain_limits or query.isna().any(axis=None)
        return
    codes, sets, (may, sure), (may_be_less, less) = every_triple(few)
    allowed = few.problem.most_changes >= 3
    far, first = few.problem.distance(codes), {}
    for at in np.flatnonzero(sure & ~may_be_less & (far <= limit)) if allowed else ():
        three = tuple(sets[at])
        first[three] = min(first.get(three, np.inf), far[at])
    last = sorted([*first.values(), *[np.inf] * count])[count - 1]
    own = np.array([first.get(tuple(three), np.inf) for three in sets])
    wanted = may & ~less & allowed
    listed = set(map(tuple, found.tolist()))
    scores = few.scorer.structure.sums(few.problem.encoded(codes)).round(9).tolist()
    keys = [(*three, *some) for three, some in zip(sets.tolist(), scores, strict=True)]
    here = [tuple(each) in listed for each in codes.tolist()]
    nearest = least_of((keys[at], far[at]) for at in np.flatnonzero(here))
    needed = wanted & (sure | ~may_be_less)  # two changes that do the same are known already
    for at in np.flatnonzero(needed & (far <= np.minimum(own, min(last, limit)) - SLACK)):
        assert nearest[keys[at]] <= far[at] + SLACK  # itself, or what trees do not tell apart
    assert listed <= set(map(tuple, codes[wanted & (far <= np.minimum(own, limit) + SLACK)].tolist()))
