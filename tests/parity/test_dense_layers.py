"""Layers answer restrict, sweep and bounds as many single scores would."""

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import mlflow_cf
from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.structures import IntervalColumn, Layers, LevelColumn, MonotoneStep, NumberColumn, score_encoded
from mlflow_cf.structures.structure import linked

NEAR = {"rtol": 1e-9, "atol": 1e-9}
PLAIN = {
    "identity": lambda sums: sums,
    "relu": lambda sums: np.maximum(sums, 0),
    "logistic": expit,
    "tanh": np.tanh,
}


class Drawn:
    """Layers, the columns and weights they were compiled from, and where to take codes from."""

    def __init__(self, levels, columns, widths, shape, seed):
        self.rng = np.random.default_rng(seed)
        self.levels, self.shape = levels, shape
        self.binned = {}
        self.cuts = np.sort(self.rng.normal(0, 2, self.rng.integers(0, 4)))
        self.columns = [self.column(feature, count) for feature, count in columns]
        widths = [len(columns), *widths]
        self.weights = [self.rng.normal(0, 2, pair) for pair in pairwise(widths)]
        self.biases = [self.rng.normal(0, 1, width) for width in widths[1:]]
        features = [
            Feature(f"f{i}", "category" if n else "real", "str", tuple("abcd"[:n])) for i, n in enumerate(levels)
        ]
        self.space = FeatureSpace(tuple(features))
        self.layers = Layers.compile(self.columns, self.space, self.weights, self.biases, *shape)

    def column(self, feature, levels):
        if levels:
            return LevelColumn(feature, self.rng.normal(0, 1, levels + 2) * (self.rng.random(levels + 2) < 0.5))
        mean, scale = self.rng.normal(0, 3, 2)
        number = NumberColumn(
            feature, (MonotoneStep(lambda codes: codes - mean), MonotoneStep(lambda codes: codes / scale))
        )
        if self.rng.random() < 0.5:
            return number
        table = self.rng.normal(0, 1, len(self.cuts) + 2)
        return IntervalColumn(self.binned.setdefault(feature, number), self.cuts, table)

    def codes(self, feature, count):
        """Return random codes (count,): numbers, or levels, some of them unseen or missing."""
        levels = self.levels[feature]
        if not levels:
            return self.rng.normal(0, 5, count)
        codes = self.rng.integers(0, levels + 3, count).astype(float)
        return np.where(codes == levels + 2, np.nan, codes)

    def encoded(self, counts):
        return [self.layers.encode(i, self.codes(i, count)) for i, count in enumerate(counts)]

    def rows(self, count):
        return self.encoded([count] * len(self.levels))


@st.composite
def drawn(draw, activations=tuple(PLAIN), hidden=2):
    levels = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    owners = draw(st.lists(st.integers(0, len(levels) - 1), min_size=1, max_size=8))
    widths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=hidden + 1))
    link = draw(st.sampled_from(["identity", "sigmoid", "softmax"]))
    shape = draw(st.sampled_from(activations)), link
    return Drawn(levels, [(i, levels[i]) for i in owners], widths, shape, draw(st.integers(0, 2**32 - 1)))


@given(drawn(), st.integers(1, 9))
def test_sums_and_scores_are_those_of_the_dense_layers(world, count):
    codes = [world.codes(i, count) for i in range(len(world.levels))]
    sums = np.column_stack([column.encode(codes[column.feature]) for column in world.columns])
    for number, (weights, bias) in enumerate(zip(world.weights, world.biases, strict=True)):
        sums = (PLAIN[world.shape[0]](sums) if number else sums) @ weights + bias
    encoded = [world.layers.encode(i, part) for i, part in enumerate(codes)]
    np.testing.assert_allclose(world.layers.sums(encoded), sums, **NEAR)
    np.testing.assert_allclose(score_encoded(world.layers, encoded), linked(sums, world.shape[1]), **NEAR)


@given(drawn(), st.integers(1, 40))
def test_rows_scored_alone_have_the_bits_of_one_row_at_a_time(world, count):
    rows = world.rows(count)
    single = [world.layers.sums([part[at : at + 1] for part in rows]) for at in range(count)]
    np.testing.assert_array_equal(world.layers.sums_alone(rows), np.concatenate(single))


@given(drawn(), st.data())
def test_restricted_layers_score_like_the_whole_ones(world, data):
    columns = range(len(world.levels))
    changed = data.draw(st.permutations(columns))[: data.draw(st.integers(1, len(columns)))]
    row, new = world.rows(1), world.rows(6)
    part = world.layers.restrict([encoded[0] for encoded in row], changed)
    whole = [new[i] if i in changed else np.repeat(row[i], 6, axis=0) for i in columns]
    np.testing.assert_allclose(part.sums([new[i] for i in changed]), world.layers.sums(whole), **NEAR)
    again = part.restrict([row[i][0] for i in changed], [0])
    whole = [new[i] if i == changed[0] else np.repeat(row[i], 6, axis=0) for i in columns]
    np.testing.assert_allclose(score_encoded(again, [new[changed[0]]]), score_encoded(world.layers, whole), **NEAR)
    codes = world.codes(changed[0], 4)
    np.testing.assert_array_equal(again.encode(0, codes), world.layers.encode(changed[0], codes))


def check_sweep(layers, rows, values):
    for column, (allowed, found) in enumerate(zip(values, layers.sweep(rows, values), strict=True)):
        if allowed is None:
            assert found is None
            continue
        for row, sums in enumerate(found):
            single = [np.repeat(encoded[row : row + 1], len(allowed), axis=0) for encoded in rows]
            single[column] = allowed
            np.testing.assert_allclose(sums, layers.sums(single), **NEAR)


@given(drawn(), st.integers(1, 4), st.data())
def test_a_sweep_is_every_single_change(world, count, data):
    counts = data.draw(st.lists(st.integers(0, 5), min_size=len(world.levels), max_size=len(world.levels)))
    values = [encoded if len(encoded) else None for encoded in world.encoded(counts)]
    check_sweep(world.layers, world.rows(count), values)


@pytest.mark.parametrize(
    ("activation", "widths"), [("relu", (40, 2)), ("relu", (40, 9, 1)), ("tanh", (150, 1)), ("tanh", (3,))]
)
def test_sweeps_larger_than_their_blocks(activation, widths):
    world = Drawn([0, 3, 0], [(0, 0), (1, 3), (1, 3), (2, 0), (2, 0)], widths, (activation, "identity"), 0)
    values = [encoded.copy("F") for encoded in world.encoded([900, 5, 65])]
    check_sweep(world.layers, world.rows(260), [values[0], None, values[2]])
    check_sweep(world.layers, [encoded[::2] for encoded in world.rows(5)], values)


def test_a_sweep_loses_nothing_beside_a_large_number():
    weights, biases = [np.array([[1.0], [1.0]]), np.array([[1.0]])], [np.zeros(1), np.zeros(1)]
    space = FeatureSpace(tuple(Feature(name, "real", "float64") for name in "ab"))
    layers = Layers.compile([NumberColumn(0), NumberColumn(1)], space, weights, biases, "relu", "identity")
    rows = [np.array([[1e17]]), np.array([[0.3]])]
    assert layers.sweep(rows, [np.array([[0.2]]), None])[0].item() == 0.3 + 0.2


def combinations(layers, allowed):
    places = np.array(list(product(*(range(len(part)) for part in allowed))))
    return layers.sums([part[places[:, column]] for column, part in enumerate(allowed)])


@given(drawn(), st.data())
def test_all_combinations_lie_within_the_bounds(world, data):
    counts = data.draw(st.lists(st.integers(1, 3), min_size=len(world.levels), max_size=len(world.levels)))
    allowed = world.encoded(counts)
    low, high = world.layers.bounds(allowed)
    sums = combinations(world.layers, allowed)
    assert (low <= sums).all()
    assert (sums <= high).all()
    if sum(counts) == len(counts):
        np.testing.assert_allclose(low, sums[0], **NEAR)
        np.testing.assert_allclose(high, sums[0], **NEAR)


def test_bounds_allow_for_terms_that_cancel():
    space = FeatureSpace((Feature("f", "real", "float64"), Feature("g", "real", "float64")))
    columns = [
        NumberColumn(1),
        NumberColumn(1, (MonotoneStep(np.sqrt),)),
        NumberColumn(1, (MonotoneStep(np.square),)),
        NumberColumn(0),
    ]
    rng = np.random.default_rng(0)
    for _ in range(300):
        weights = rng.normal(0, 1e6, (4, 1))
        x = rng.random(1)
        weights[0] = -(weights[1] * np.sqrt(x) + weights[2] * x**2) / x
        layers = Layers.compile(columns, space, [weights], [np.zeros(1)], "identity", "identity")
        encoded = [layers.encode(0, rng.normal(0, 1e-6, 1)), layers.encode(1, x)]
        low, high = layers.bounds(encoded)
        assert low <= layers.sums(encoded) <= high


@given(drawn(activations=("identity",)), st.data())
def test_bounds_of_linear_models_are_reached(world, data):
    counts = data.draw(st.lists(st.integers(1, 4), min_size=len(world.levels), max_size=len(world.levels)))
    allowed = world.encoded(counts)
    sums = combinations(world.layers, allowed)
    low, high = world.layers.bounds(allowed)
    np.testing.assert_allclose(low, sums.min(axis=0), **NEAR)
    np.testing.assert_allclose(high, sums.max(axis=0), **NEAR)


@given(drawn(activations=("relu",), hidden=1), st.data())
def test_bounds_are_reached_where_no_rectifier_bends(world, data):
    world.biases[0] += 1e4 * (len(world.biases) - 1)
    layers = Layers.compile(world.columns, world.space, world.weights, world.biases, *world.shape)
    counts = data.draw(st.lists(st.integers(1, 4), min_size=len(world.levels), max_size=len(world.levels)))
    allowed = world.encoded(counts)
    sums = combinations(layers, allowed)
    low, high = layers.bounds(allowed)
    np.testing.assert_allclose(low, sums.min(axis=0), rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(high, sums.max(axis=0), rtol=1e-9, atol=1e-7)


@given(drawn(activations=("identity", "logistic", "tanh")), st.data())
def test_fewer_allowed_values_never_widen_the_bounds(world, data):
    allowed = world.encoded([4] * len(world.levels))
    kept = [part[: data.draw(st.integers(1, 4))] for part in allowed]
    (low, high), (inner_low, inner_high) = world.layers.bounds(allowed), world.layers.bounds(kept)
    slack = 1e-12 * np.maximum(1, np.maximum(np.abs(low), np.abs(high)))
    assert (low - slack <= inner_low).all()
    assert (inner_high <= high + slack).all()


@given(drawn())
def test_nothing_asked_changes_the_layers_or_the_tokens(world):
    rows, values = world.rows(3), world.rows(4)
    kept = [encoded.copy() for encoded in rows + values]
    before = score_encoded(world.layers, rows)
    score_encoded(world.layers.restrict([encoded[0] for encoded in rows], [0]), values[:1])
    world.layers.sweep(rows, values)
    world.layers.bounds(values)
    np.testing.assert_array_equal(score_encoded(world.layers, rows), before)
    for encoded, copy in zip(rows + values, kept, strict=True):
        np.testing.assert_array_equal(encoded, copy)


def test_a_missing_number_makes_no_sums_but_those_where_it_is_replaced():
    world = Drawn([0, 0], [(0, 0), (1, 0)], (5, 1), ("relu", "identity"), 1)
    rows = world.rows(2)
    rows[0][1] = np.nan
    replaced, kept = world.layers.sweep(rows, world.rows(3))
    assert np.isnan(world.layers.sums(rows)).ravel().tolist() == [False, True]
    assert np.isfinite(replaced).all()
    assert np.isnan(kept[1]).all()


def flats(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": rng.normal(70, 25, rows).round(1),
            "rooms": rng.integers(1, 6, rows),
            "heating": np.array(["gas", "oil", "heat pump"])[rng.integers(0, 3, rows)],
            "state": np.array(["bad", "fair", "good"])[rng.integers(0, 3, rows)],
            "lift": rng.random(rows) < 0.4,
        }
    )


NET = {"max_iter": 40, "random_state": 0}
CLASSIFIERS = [
    LogisticRegression(),
    SGDClassifier(loss="log_loss", random_state=0),
    MLPClassifier((20,), **NET),
    MLPClassifier((8, 5), activation="tanh", **NET),
    MLPClassifier((6, 4), activation="identity", **NET),
]
REGRESSORS = [LinearRegression(), MLPRegressor(hidden_layer_sizes=(9,), activation="logistic", **NET)]
PIPELINES = [(model, classes) for model in CLASSIFIERS for classes in (2, 3)] + [(model, 0) for model in REGRESSORS]


def opened(estimator, classes):
    """Return the layers of a fitted pipeline, its features, and what it says about rows."""
    data = flats()
    rent = 8 * data["size"] + 90 * (data["heating"] == "gas") + 60 * data["lift"]
    words = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["heating"]),
        (OrdinalEncoder(), ["state"]),
        (StandardScaler(), ["size"]),
        remainder="passthrough",
    )
    model = make_pipeline(words, estimator).fit(data, pd.qcut(rent, classes, labels=False) if classes else rent)
    explained = mlflow_cf.wrap(model, data, target=0 if classes else mlflow_cf.Target(low=500))
    assert isinstance(explained.opened.structure, Layers), explained.opened.note
    ask = model.predict_proba if classes else lambda rows: model.predict(rows)[:, None]
    return explained.opened.structure, explained.space, ask


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("estimator", "classes"), PIPELINES, ids=lambda part: str(part)[:45])
def test_sweep_restrict_and_bounds_agree_with_scikit_learn(estimator, classes):
    layers, space, ask = opened(estimator, classes)
    row = space.encode(flats(1, seed=1))
    domains = [np.arange(len(f.levels), dtype=float) if f.levels else f.values for f in space.features]
    encoded = [layers.encode(i, row[:, i]) for i in range(len(space))]
    allowed = [layers.encode(i, domain) for i, domain in enumerate(domains)]
    low, high = layers.bounds(allowed)
    for column, sums in enumerate(layers.sweep(encoded, allowed)):
        Z = np.repeat(row, len(domains[column]), axis=0)
        Z[:, column] = domains[column]
        truth = ask(space.decode(Z))
        np.testing.assert_allclose(linked(sums[0], layers.link), truth, rtol=1e-6, atol=1e-6)
        part = layers.restrict([part[0] for part in encoded], [column])
        np.testing.assert_allclose(score_encoded(part, [allowed[column]]), truth, rtol=1e-6, atol=1e-6)
        assert (low <= sums).all()
        assert (sums <= high).all()


@given(drawn(activations=("identity", "relu")), st.data())
def test_parts_of_a_box_are_bounded_like_boxes_of_their_own(world, data):
    counts = data.draw(st.lists(st.integers(1, 4), min_size=len(world.levels), max_size=len(world.levels)))
    allowed = world.encoded(counts)
    boxes, starts = world.layers.boxes(allowed), np.cumsum([0, *counts])
    masks = world.rng.random((5, starts[-1])) < 0.5
    masks[:, starts[:-1]] = True
    for mask, low, high in zip(masks, *boxes.bounds(masks), strict=True):
        kept = [part[mask[a:b]] for part, a, b in zip(allowed, starts, starts[1:], strict=False)]
        sums = combinations(world.layers, kept)
        assert (low <= sums).all()
        assert (sums <= high).all()
        np.testing.assert_allclose([low, high], world.layers.bounds(kept), **NEAR)


@given(drawn(activations=("identity",)), st.data())
def test_groups_of_a_linear_model_are_confined_side_by_side(world, data):
    columns = range(len(world.levels))
    counts = data.draw(st.lists(st.integers(1, 4), min_size=len(columns), max_size=len(columns)))
    groups = data.draw(st.lists(st.lists(st.sampled_from(columns), min_size=1, unique=True), min_size=1, max_size=4))
    allowed, starts = world.encoded(counts), np.cumsum([0, *counts])
    boxes, mask = world.layers.boxes(allowed), world.rng.random(starts[-1]) < 0.7
    near = world.rng.random(starts[-1]) < 0.5
    mask[starts[:-1]] = near[starts[:-1]] = True
    parts = np.repeat(mask[None], len(groups), axis=0)
    for part, group in zip(parts, groups, strict=True):
        for column in group:
            part[starts[column] : starts[column + 1]] &= near[starts[column] : starts[column + 1]]
    lows, highs = boxes.confined(mask, near, groups)
    np.testing.assert_allclose([lows, highs], boxes.bounds(parts), **NEAR)
    for part, low, high in zip(parts, lows, highs, strict=True):
        kept = [some[part[a:b]] for some, a, b in zip(allowed, starts, starts[1:], strict=False)]
        sums = combinations(world.layers, kept)
        assert (low <= sums).all()
        assert (sums <= high).all()
