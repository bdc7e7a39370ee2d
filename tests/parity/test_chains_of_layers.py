"""A chain of layers and the network that is made of it give the same answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.neural_network import MLPClassifier

import mlflow_cf
from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.structures import NotOpenedError, NumberColumn, score_rows
from mlflow_cf_flavors.layers import RELU, Affine, Curved, Rectified, clipped, leaky, network, scaled

NEAR = {"rtol": 1e-9, "atol": 1e-9}
LINKS = {"identity": lambda sums: sums, "softmax": lambda sums: softmax(sums, axis=1)}


def answers(layers, rows):
    """Return what a chain answers, layer by layer as it is written."""
    for layer in layers:
        if isinstance(layer, Affine):
            rows = rows @ layer.weights + layer.bias
        elif isinstance(layer, Curved):
            rows = expit(rows) if layer.name == "logistic" else np.tanh(rows)
        else:
            rows = layer.offset + sum(
                factor * np.maximum(slope * rows + shift, 0)
                for slope, shift, factor in zip(layer.slopes, layer.shifts, layer.factors, strict=True)
            )
    return rows


def drawn(rng, kinds, width, outputs):
    """Return a chain of layers of these kinds, from `width` numbers to `outputs` of them."""
    layers = []
    for kind in kinds:
        if kind == "affine":
            wider = int(rng.integers(1, 6))
            layers.append(Affine(rng.normal(0, 1, (width, wider)), rng.normal(0, 1, wider)))
            width = wider
        elif kind == "scaled":
            layers.append(scaled(rng.normal(0, 1, width), rng.normal(0, 1, width)))
        elif kind == "leaky":
            layers.append(leaky(rng.normal(0, 0.5, rng.choice([1, width]))))
        elif kind == "clipped":
            layers.append(clipped(-1.0, 1.5, rng.uniform(0.2, 2), rng.normal(0, 1)))
        else:
            layers.append(RELU if kind == "relu" else Curved(kind))
    return [*layers, Affine(rng.normal(0, 1, (width, outputs)), rng.normal(0, 1, outputs))]


def compiled(layers, features, link):
    space = FeatureSpace(tuple(Feature(f"f{place}", "real", "float64") for place in range(features)))
    return network(layers, [NumberColumn(place) for place in range(features)], link).compile(space)


SHARP = st.lists(st.sampled_from(["affine", "scaled", "relu", "leaky", "clipped"]), max_size=6)
SMOOTH = st.lists(st.sampled_from(["affine", "scaled", "logistic", "tanh"]), max_size=6)


@given(SHARP | SMOOTH, st.integers(1, 4), st.integers(1, 3), st.sampled_from(sorted(LINKS)), st.integers(0, 2**32 - 1))
def test_a_network_answers_as_its_layers_one_after_the_other(kinds, features, outputs, link, seed):
    rng = np.random.default_rng(seed)
    layers, rows = drawn(rng, kinds, features, outputs), rng.normal(0, 2, (20, features))
    if link == "softmax" and outputs == 1:
        link = "identity"
    structure = compiled(layers, features, link)
    np.testing.assert_allclose(score_rows(structure, rows), LINKS[link](answers(layers, rows)), **NEAR)


@given(st.floats(-2, 2), st.floats(-3, 3))
def test_a_leaky_activation_is_exact(below, number):
    one = np.array([[number]])
    assert answers([leaky(below)], one)[0, 0] == (number if number > 0 else below * number)


def test_layers_without_an_activation_between_them_are_one():
    rng = np.random.default_rng(0)
    layers = [Affine(rng.normal(size=(3, 4)), rng.normal(size=4)), scaled(rng.normal(size=4), rng.normal(size=4))]
    assert compiled([*layers, RELU, *drawn(rng, ["scaled"], 4, 1)], 3, "identity").kind == "network 4-1"
    assert compiled([*layers, *drawn(rng, ["scaled"], 4, 1)], 3, "identity").kind == "linear"


def test_two_raw_scores_behind_a_softmax_are_a_sigmoid_of_one():
    structure = compiled(drawn(np.random.default_rng(0), ["affine", "relu"], 3, 2), 3, "softmax")
    assert (structure.link, structure.outputs) == ("sigmoid", 1)


def test_an_activation_of_slope_nought_is_the_rectifier():
    assert leaky(0.0) is RELU
    assert len(leaky([0.0, 0.5]).factors) == 2


@pytest.mark.parametrize("other", ["tanh", "logistic"])
def test_lines_and_curves_in_one_network_are_not_opened(other):
    layers = drawn(np.random.default_rng(0), ["affine", "relu", "affine", other], 2, 1)
    with pytest.raises(NotOpenedError, match="piecewise linear activations beside curved ones"):
        compiled(layers, 2, "identity")


def test_weights_that_are_not_finite_are_not_opened():
    with pytest.raises(NotOpenedError, match="not finite"):
        compiled([Affine(np.array([[np.nan]]), np.zeros(1))], 1, "identity")


def test_the_layers_of_a_network_of_scikit_learn_are_the_structure_that_its_flavor_reads():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    model = MLPClassifier((5, 4), solver="lbfgs", random_state=0).fit(rows, rows.sum(axis=1) > 0)
    theirs = mlflow_cf.wrap(model, rows, target=True).opened.structure
    layers = []
    for weights, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layers += [Affine(weights, bias), RELU]
    ours = compiled(layers[:-1], 3, "sigmoid")
    assert (ours.kind, ours.activation, ours.link) == (theirs.kind, theirs.activation, theirs.link)
    for mine, other in zip((ours.first.table, *ours.weights), (theirs.first.table, *theirs.weights), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_pieces_add_up_as_they_are_written():
    pieces = Rectified(np.array([[2.0], [-1.0]]), np.array([[1.0], [0.0]]), np.array([[1.0], [3.0]]), 0.5)
    layers = [pieces, Affine(np.array([[2.0]]), np.array([1.0]))]
    assert score_rows(compiled(layers, 1, "identity"), np.array([[1.0], [-2.0]])).ravel().tolist() == [8.0, 14.0]
