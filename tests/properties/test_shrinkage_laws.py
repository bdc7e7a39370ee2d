"""Laws of linear models that are moved to where later ones are to be expected."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.layers.merged import LinearModels
from mlflow_cf.survival import shrinkage
from mlflow_cf.survival.shrinkage import LEAST_DRAWS, MOST_EFFECTS, Effects, shrinks, shrunk


class World(NamedTuple):
    """Linear models over two numbers, one of which may be missing, and a category."""

    models: LinearModels
    space: FeatureSpace
    codes: Floats
    of: int


def world(seed: int, of: int = 24, outputs: int = 1, differ: float = 1.0) -> World:
    """Return models whose weights differ by so much."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(3, 2, 80), "b": rng.exponential(size=80), "c": rng.choice(list("xyz"), 80)})
    frame.loc[rng.random(80) < 0.2, "b"] = np.nan
    space = FeatureSpace.infer(frame)

    def drawn(*shape: int) -> Floats:
        around = np.tile(rng.normal(size=(*shape, outputs)), of)
        return np.asarray(around + differ * rng.normal(size=(*shape, of * outputs)))

    added = tuple(drawn(2 if feature.numeric else len(feature.levels) + 2) for feature in space.features)
    return World(LinearModels(added, drawn(), "sigmoid"), space, space.encode(frame), of)


def scored(models: LinearModels, known: World) -> Floats:
    structure = models.structure(known.space)
    return structure.sums([structure.encode(column, known.codes[:, column]) for column in range(len(known.space))])


def moved(known: World, chance: float = 0.5) -> LinearModels:
    structure = shrunk(known.models.structure(known.space), known.space, known.codes, known.of, chance)
    return LinearModels.read(structure, known.space)


@given(st.integers(0, 2**16), st.integers(LEAST_DRAWS, 40), st.sampled_from([1, 3]))
def test_all_models_move_alike_and_the_mean_score_of_the_rows_stays(seed: int, of: int, outputs: int) -> None:
    known = world(seed, of, outputs)
    before, after = scored(known.models, known), scored(moved(known), known)
    by = (after - before).reshape(len(before), of, outputs)
    np.testing.assert_allclose(by, np.broadcast_to(by[:, :1], by.shape), atol=1e-9)
    filled = np.where(np.isnan(known.codes), np.nanmean(known.codes, axis=0), known.codes)
    all_there = known._replace(codes=filled)
    means = [scored(models, all_there).mean(axis=0) for models in (known.models, moved(known))]
    np.testing.assert_allclose(*means, atol=1e-9)


@given(st.integers(0, 2**16))
def test_models_that_do_not_differ_stay_where_they_are(seed: int) -> None:
    for differ in (0.0, 1e-7):
        known = world(seed, differ=differ)
        np.testing.assert_allclose(scored(moved(known), known), scored(known.models, known), atol=1e-5)


@dear(4)
@given(st.integers(0, 2**16), st.floats(0.1, 1.0))
def test_effects_are_the_mean_of_the_posterior_under_the_likeliest_prior(seed: int, chance: float) -> None:
    known = world(seed)
    effects = Effects.of(known.models, known.space, known.codes)
    at_hand, deviation = effects.values.mean(axis=1), effects.values.std(axis=1, ddof=1)
    alike, _ = ledoit_wolf(((effects.values - at_hand[:, None]) / deviation[:, None]).T, assume_centered=True)
    variance = chance * alike * np.outer(deviation, deviation)

    def likely(prior: float) -> float:
        return float(multivariate_normal.logpdf(at_hand, cov=prior * np.eye(len(at_hand)) + variance))

    def expected(prior: float) -> Floats:
        found = prior * np.linalg.solve(prior * np.eye(len(at_hand)) + variance, at_hand)
        found[2:] -= effects.mean[2:] @ found[2:]  # levels are counted from the mean of the rows
        return np.asarray(found)

    after = Effects.of(moved(known, chance), known.space, known.codes).values.mean(axis=1)
    priors = np.geomspace(1e-6, 100, 400) * np.abs(at_hand).max() ** 2
    likeliest = int(np.argmax([likely(prior) for prior in priors]))
    around = [expected(priors[np.clip(at, 0, len(priors) - 1)]) for at in (likeliest - 1, likeliest, likeliest + 1)]
    assert (after >= np.min(around, axis=0) - 1e-3).all()
    assert (after <= np.max(around, axis=0) + 1e-3).all()


def test_the_largest_effect_is_what_later_models_find_in_the_mean() -> None:
    """Of the one that seems largest, chance has made much."""
    rng, said, shown, true = np.random.default_rng(0), list[float](), list[float](), list[float]()
    for _ in range(300):
        effects = rng.normal(size=12)
        at_hand = effects + rng.normal(size=12)
        draws = at_hand[:, None] + np.sqrt(2.0) * rng.normal(size=(12, 89))
        largest = int(np.argmax(at_hand))
        said.append(draws.mean(axis=1)[largest] + shrinkage._move(draws, 0.5)[largest])
        shown.append(at_hand[largest])
        true.append(effects[largest])
    error = np.std(np.subtract(said, true)) / np.sqrt(len(true))
    assert abs(np.mean(said) - np.mean(true)) < 3 * error
    assert np.mean(shown) - np.mean(true) > 10 * error


def test_which_models_shrink() -> None:
    known = world(0)
    structure = known.models.structure(known.space)
    assert shrinks(structure, LEAST_DRAWS)
    assert not shrinks(structure, LEAST_DRAWS - 1)
    assert len(structure.first.table) < MOST_EFFECTS


@pytest.mark.parametrize("constant", [3.0, np.nan])
def test_a_number_that_is_the_same_everywhere_stays_as_it_is(constant: float) -> None:
    known = world(1)
    codes = known.codes.copy()
    codes[:, 0] = constant
    after = moved(known._replace(codes=codes))
    np.testing.assert_array_equal(after.added[0], known.models.added[0])
    assert not np.array_equal(after.added[2], known.models.added[2])
