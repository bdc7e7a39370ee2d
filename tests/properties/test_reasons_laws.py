"""Reasons against the definition of Shapley values, by all sets of players and all reference rows."""

from dataclasses import replace
from itertools import chain, combinations, count
from math import factorial

import numpy as np
import pandas as pd
from exact_worlds import drawn
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import dear
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

import mlflow_cf
from mlflow_cf.goal import Requirements
from mlflow_cf.model.parity import Opened
from mlflow_cf.reasons.game import Game, contributions_of, encode_all
from mlflow_cf.reasons.reasoning import DecidedRow, Effort, Reasoning
from mlflow_cf.reasons.reference import approved, favourable_median
from mlflow_cf.reasons.score import explained_score

EXACT = ("forest", "forest", "linear")
CLOSE = 1e-9


def ordered(models):
    """Return worlds whose rules can be ordered."""
    return drawn(models).filter(lambda world: world.ordered)


def brute_force(score, row, references, player):
    """Return Shapley values (players,) of the mean over references, straight from their definition."""
    players = int(player.max()) + 1
    values = {}
    for some in chain.from_iterable(combinations(range(players), size) for size in range(players + 1)):
        values[frozenset(some)] = score(np.where(np.isin(player, some), row, references)).mean()
    found = np.zeros(players)
    for one in range(players):
        for some, value in values.items():
            if one not in some:
                before = factorial(len(some)) * factorial(players - len(some) - 1) / factorial(players)
                found[one] += before * (values[some | {one}] - value)
    return found, values[frozenset(range(players))], values[frozenset()]


def scorer(structure, weights):
    return lambda rows: structure.sums(encode_all(structure, rows)) @ weights


def players(draw, columns):
    """Draw which columns are one player."""
    drawn_players = draw(st.lists(st.integers(0, columns - 1), min_size=columns, max_size=columns))
    return np.unique(drawn_players, return_inverse=True)[1]


def known_row(world):
    """Return the row to explain, as far as the model knows its levels."""
    unknown = world.bound_policy.bound_distance.unknown_from
    return np.where(world.x0 >= unknown, world.bound_policy.background[0], world.x0)


@given(ordered(EXACT), st.data())
def test_trees_and_linear_models_are_exact(world, data):
    structure, background = world.structure, world.bound_policy.background
    player, row = players(data.draw, len(world.space)), known_row(world)
    references = background[: data.draw(st.integers(1, len(background)))]
    weights = np.array(data.draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=structure.outputs,
                                          max_size=structure.outputs)))  # fmt: skip
    told = contributions_of(structure, references, player).of_row(encode_all(structure, row[None]), weights)
    expected, score, reference = brute_force(scorer(structure, weights), row, references, player)
    np.testing.assert_allclose(told.contributions, expected, rtol=0, atol=CLOSE)
    np.testing.assert_allclose([told.score, told.reference], [score, reference], rtol=0, atol=CLOSE)
    assert abs(told.contributions.sum() - (told.score - told.reference)) <= CLOSE


@dear(10)
@given(st.integers(0, 2**16), st.integers(1, 200), st.booleans())
def test_many_references_have_the_mean_of_each(seed, rows, boosted):
    """Also where their bits fill several words."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, (200, 5)).astype(float)
    y = (X[:, 0] * X[:, 1] - X[:, 2] > rng.normal(4, 3, 200)).astype(int)
    assume(0 < y.sum() < len(y))
    kind = GradientBoostingClassifier if boosted else RandomForestClassifier
    structure = opened(kind(n_estimators=4, max_depth=4, random_state=0).fit(X, y), X)
    player, weights = np.array([0, 1, 1, 2, 3]), np.ones(structure.outputs)
    row = encode_all(structure, X[-1:])
    together = contributions_of(structure, X[:rows], player).of_row(row, weights)
    alone = [contributions_of(structure, X[[at]], player).of_row(row, weights) for at in range(rows)]
    np.testing.assert_allclose(
        together.contributions, np.mean([one.contributions for one in alone], axis=0), atol=CLOSE
    )
    assert abs(together.reference - np.mean([one.reference for one in alone])) <= CLOSE
    assert abs(together.score - alone[0].score) <= CLOSE


def opened(model, X):
    return mlflow_cf.wrap(model, pd.DataFrame(X, columns=list("abcde")), privacy={"sample": "shown"}).opened.structure


@dear(2)
@given(ordered(("network", "forest")), st.data())
def test_a_small_game_is_enumerated(world, data):
    structure, background = world.structure, world.bound_policy.background
    player, row = players(data.draw, len(world.space)), known_row(world)
    references = background[: data.draw(st.integers(1, len(background)))]
    weights = np.ones(structure.outputs)
    found = Game(row, references, player, scorer(structure, weights)).solved(10**6, np.random.default_rng(0), never)
    expected, score, reference = brute_force(scorer(structure, weights), row, references, player)
    assert found.errors is None
    np.testing.assert_allclose(found.attribution.contributions, expected, rtol=0, atol=CLOSE)
    np.testing.assert_allclose([found.attribution.score, found.attribution.reference], [score, reference], atol=CLOSE)


def never():
    return False


@dear(2)
@given(ordered(("network", "forest")), st.data())
def test_samples_add_up_and_tell_their_errors(world, data):
    structure, background = world.structure, world.bound_policy.background
    player, row, most = players(data.draw, len(world.space)), known_row(world), data.draw(st.integers(1, 4_000))
    weights, asked = np.ones(structure.outputs), 0

    def score(rows):
        nonlocal asked
        asked += len(rows)
        return scorer(structure, weights)(rows)

    game = Game(row, background, player, score)
    playing = np.unique(player[~((background == row) | (np.isnan(background) & np.isnan(row))).all(axis=0)])
    found = game.solved(most, np.random.default_rng(0), never)
    assert asked <= most
    if found is None:
        assert most < 2 * 2 * (len(playing) + 1)
        return
    assert found.evaluations == asked
    expected, score_of_row, reference = brute_force(scorer(structure, weights), row, found.references, player)
    told = found.attribution
    assert abs(told.contributions.sum() - (told.score - told.reference)) <= CLOSE
    np.testing.assert_allclose([told.score, told.reference], [score_of_row, reference], atol=CLOSE)
    if found.errors is None:
        np.testing.assert_allclose(told.contributions, expected, atol=CLOSE)
    elif asked >= 2_000:
        assert (np.abs(told.contributions - expected) <= 8 * found.errors + 1e-3 * (1 + np.abs(expected).max())).all()
    else:
        assert not (found.errors < 0).any()


@dear(2)
@given(ordered(("network",)), st.integers(0, 99))
def test_the_same_seed_draws_the_same(world, seed):
    background, weights = world.bound_policy.background, np.ones(world.structure.outputs)
    game = Game(known_row(world), background, np.arange(len(world.space)), scorer(world.structure, weights))
    one, other = (game.solved(600, np.random.default_rng(seed), never) for _ in range(2))
    np.testing.assert_array_equal(one.attribution.contributions, other.attribution.contributions)


@dear(4)
@given(ordered(("network",)), st.integers(0, 3))
def test_it_ends_when_it_is_late(world, after):
    looks = count()
    weights = np.ones(world.structure.outputs)
    player = np.arange(len(world.space))
    game = Game(known_row(world), world.bound_policy.background, player, scorer(world.structure, weights))
    found = game.sampled(np.unique(player), 10**6, np.random.default_rng(0), lambda: next(looks) >= after)
    assert (found is None) == (after == 0)


def reasoning(world, structure, *, protected=()):
    """Return what tells reasons of a world's model; `structure` None: it is not opened."""
    outcome = world.verdict(world.bound_policy.background)
    model = Requirements(world.bound_policy.space, world.judge, outcome, Opened(structure, ""))
    player = np.arange(len(world.space))
    return Reasoning(model, world.bound_policy.background, player, {}, frozenset(protected))


@given(drawn(EXACT).filter(lambda world: world.open), st.integers(1, 6))
def test_reasons_speak_against_the_row_and_add_up_to_its_shortfall(world, most):
    row, names = known_row(world), set(world.bound_policy.space.names)
    assume(not world.accepts(row[None])[0])
    asked = reasoning(world, world.structure, protected=["age"])
    own = int(world.verdict(row[None]).codes[0])
    target = replace(world.target, own=own)
    reference = asked.reference("approved", target.target, own)
    decided = DecidedRow(row, world.space, world.verdict(row[None]))
    told = asked.exact(decided, target, reference, most)
    if reference.reason:
        assert told.status == "none"
        assert "decided as wanted" in told.reason
        return
    if told is None:  # within the tolerance, the structure decides otherwise
        return
    assert told.method == "exact"
    assert abs(sum(one.contribution for one in told.factors) + told.rest - told.shortfall) <= CLOSE
    contributions = [one.contribution for one in told.factors]
    assert contributions == sorted(contributions, reverse=True)
    assert all(one > 0 for one in contributions)
    assert len(contributions) <= most
    assert all(one.contribution <= min(contributions) for one in told.others if len(contributions) == most)
    used = [name for one in (*told.factors, *told.others) for name in one.features]
    assert len(used) == len(set(used)) <= len(names)
    assert (told.status == "alarm") == ("age" in used)
    sign = -1.0 if told.scale == "value" and told.score > told.reference_score else 1.0
    assert abs(sign * (told.reference_score - told.score) - told.shortfall) <= CLOSE


@dear(2)
@given(drawn(("forest", "linear", "none")).filter(lambda world: world.open))
def test_a_model_that_is_not_opened_has_reasons_of_its_own_scores(world):
    row = known_row(world)
    assume(not world.accepts(row[None])[0])
    own = int(world.verdict(row[None]).codes[0])
    asked, target = reasoning(world, None), replace(world.target, own=own)
    reference = asked.reference("approved", target.target, own)
    decided = DecidedRow(row, world.space, world.verdict(row[None]))
    assert asked.exact(decided, target, reference, 4) is None or reference.reason
    told, used = asked.sampled(decided, target, reference, 4, Effort(4_000, 0, never), world.judge)
    if reference.reason:
        assert (told.status, used) == ("none", 0)
        return
    assert used <= 4_000
    assert told.status == "stated"
    assert abs(sum(one.contribution for one in told.factors) + told.rest - told.shortfall) <= CLOSE


@given(ordered(("forest",)), st.integers(1, 12), st.data())
def test_references(world, most, data):
    background, space = world.bound_policy.background, world.bound_policy.space
    met = np.array(data.draw(st.lists(st.booleans(), min_size=len(background), max_size=len(background))))
    found = approved(background, met, most)
    assert len(found.rows) == min(met.sum(), most)
    rows = {row.tobytes() for row in background[met]}
    assert all(row.tobytes() in rows for row in found.rows)
    middle = favourable_median(background, met, space)
    assert bool(middle.reason) == bool(found.reason) == (not met.any())
    if met.any():
        for column, code in enumerate(middle.rows[0]):
            mine = background[met, column]
            assert code in mine or (np.isnan(code) and np.isnan(mine).sum() * 2 >= len(mine))


@dear(4)
@given(drawn(EXACT).filter(lambda world: world.open))
def test_the_explained_score_grows_where_the_target_is_met(world):
    """Of all reference rows that are decided as wanted, none has a smaller score than the row, up to the tolerance."""
    row = known_row(world)
    assume(not world.accepts(row[None])[0])
    structure, target = world.structure, replace(world.target, own=int(world.verdict(row[None]).codes[0]))
    assume(target.target.min_probability is None or len(target.model.classes) == 2)
    assume(structure.link != "sigmoid" or len(target.model.classes) == 2)  # sigmoids of large sums are equal
    over = target.of_sums(structure.link, 0, structure.outputs)
    sums = structure.sums(encode_all(structure, row[None]))[0]
    score = explained_score(over, sums, target.model.score_kind)
    wanted = world.bound_policy.background[world.accepts(world.bound_policy.background)]
    if over.kind == "other":
        return  # the best other class may differ between rows
    reached = scorer(structure, score.weights)(wanted) if len(wanted) else np.empty(0)
    assert (reached >= score.weights @ sums - 1e-4).all()
