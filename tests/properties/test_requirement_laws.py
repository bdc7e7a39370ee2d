"""Several requirements at once: what must hold for two models is rated, swept, bounded and searched as one."""

from dataclasses import replace

import numpy as np
from exact_worlds import TOLERANCE, drawn
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import dear

from mlflow_cf.engine.best_first import BestFirst
from mlflow_cf.engine.engine import Engine
from mlflow_cf.explainers import GeCo
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget
from mlflow_cf.structures.capabilities import boxes_of

others = st.integers(1, 5)


def both(world, other):
    """Return the scorers of each of two models, that of both together, and the problem that asks for both."""
    second = replace(world, seed=world.seed + other)._structure(world.shift)
    pairs = [(world.structure, world.target), (second, world.target)]
    scorer = Scorer.of(pairs, len(world.space))
    problem = replace(world.row_task().problem, scorer=scorer, rate=scorer.rate)
    return [Scorer.of([pair], len(world.space)) for pair in pairs], scorer, problem


def some_codes(problem, seed, size=40):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, len(group.actions), size) for group in problem.groups])


@dear(2)
@given(drawn(("forest", "linear", "network")).filter(lambda world: world.open), others)
def test_ratings_sweeps_and_restrictions_are_those_of_each(world, other):
    singles, scorer, problem = both(world, other)
    codes = some_codes(problem, world.seed)
    Z = problem.rows(codes)
    ratings = [single.rate(Z) for single in singles]
    rating = scorer.rate(Z)
    np.testing.assert_array_equal(rating.favourable, ratings[0].favourable & ratings[1].favourable)
    np.testing.assert_array_equal(rating.grade, np.minimum(ratings[0].grade, ratings[1].grade))
    encoded = problem.encoded(codes)
    for column, sums in enumerate(scorer.structure.sweep([t[:3] for t in encoded], encoded)):
        for value in range(len(codes)):
            swept = Z[:3].copy()
            swept[:, column] = Z[value, column]
            np.testing.assert_allclose(
                sums[:, value], scorer.structure.sums(scorer.encoded(range(Z.shape[1]), swept)), atol=1e-9
            )
    changed = [0, len(world.space) - 1]
    restricted = scorer.structure.restrict([t[0] for t in encoded], changed)
    mixed = np.repeat(Z[:1], len(Z), axis=0)
    mixed[:, changed] = Z[:, changed]
    whole = scorer.structure.sums(scorer.encoded(range(Z.shape[1]), mixed))
    np.testing.assert_allclose(restricted.sums([encoded[column] for column in changed]), whole, atol=1e-9)


@given(drawn(("forest", "linear", "network")).filter(lambda world: world.open), others)
def test_bounds_hold_for_all_rows_of_a_box(world, other):
    _, scorer, problem = both(world, other)
    encoded = problem.encoded(some_codes(problem, world.seed, size=6))
    low, high = scorer.structure.bounds(encoded)
    masks = np.random.default_rng(world.seed).random((4, 6 * len(encoded))) < 0.5
    masks[:, ::6] = True
    rows = np.random.default_rng(1).integers(0, 6, (50, len(encoded)))
    sums = scorer.structure.sums([t[rows[:, column]] for column, t in enumerate(encoded)])
    assert (sums >= low - 1e-9).all()
    assert (sums <= high + 1e-9).all()
    lows, highs = boxes_of(scorer.structure, encoded).bounds(masks)
    inside = [masks[box][np.arange(len(encoded)) * 6 + rows].all(axis=1) for box in range(len(masks))]
    for box, members in enumerate(inside):
        assert (sums[members] >= lows[box] - 1e-9).all()
        assert (sums[members] <= highs[box] + 1e-9).all()


@given(drawn(("forest", "linear", "network")).filter(lambda world: world.open), others)
def test_the_nearest_for_both_is_found(world, other):
    singles, _, problem = both(world, other)
    assume(not problem.never)
    sizes = [len(group.actions) for group in problem.groups]
    assume(np.prod(sizes) <= 50_000)
    codes = np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), axis=1)
    Z = problem.rows(codes)
    good = problem.check(Z)
    for single in singles:
        good &= single.rate(Z).favourable
    nearest = problem.distance(codes[good]).min(initial=np.inf)
    search = BestFirst(Engine(problem), Budget(10**7), np.inf, TOLERANCE)
    while (leaf := search.next()) is not None:
        row = problem.rows(leaf.codes[None])
        if problem.check(row)[0] and all(single.rate(row).favourable[0] for single in singles):
            assert leaf.key[0] == nearest
            break
    else:
        assert nearest == np.inf
    found = GeCo().search(problem, Budget(10**5), np.random.default_rng(0)).rows
    for single in singles:
        assert single.rate(found).favourable.all()
    assert (world.row_task().distance(found) >= nearest).all()
