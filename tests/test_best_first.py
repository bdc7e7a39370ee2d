"""How far boxes come into a target: never less than a model within the tolerance may see."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlflow_cf.goal import BoundTarget
from mlflow_cf.goal.scorer import upper_bound
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.policy import Target
from mlflow_cf.structures.structure import Link, linked

TOLERANCE = 1e-3  # coarse, so that it shows
LABELS = tuple("abcdefghijkl")


def reached(bound: BoundTarget, link: Link, sums: np.ndarray) -> np.ndarray:
    """Return how far single rows of sums (m, k) reach, in tolerances."""
    return upper_bound(sums, sums, [bound.of_sums(link, 0, sums.shape[1])], 0.0) / TOLERANCE


def nobody(rows):
    raise AssertionError(rows)


def model_of(classes: int) -> OpenModel:
    return OpenModel("test", LABELS[:classes], nobody, nobody, "probability")


@given(
    st.sampled_from(["softmax", "sigmoid", "identity"]),
    st.integers(2, 12),
    st.integers(0, 2**32 - 1),
    st.sampled_from([None, 0.3, 0.9]),
    st.booleans(),
)
def test_what_a_model_within_the_tolerance_may_accept_is_reached(link, classes, seed, least, other):
    rng = np.random.default_rng(seed)
    sums = rng.normal(0, 0.01, (60, classes)) + rng.normal(0, 3, (60, classes)) * (rng.random((60, 1)) < 0.3)
    if link == "identity":
        sums = linked(sums, "softmax")
    target = Target.other(least) if other else Target(label="b", min_probability=least)
    bound = BoundTarget(target, model_of(classes), own=0)
    scores = linked(sums, link)
    for column in range(classes):  # every class may be the one that profits
        moved = scores - TOLERANCE
        moved[:, column] += 2 * TOLERANCE
        lucky = moved.argmax(axis=1)
        accepted = lucky != 0 if other else lucky == 1
        if least is not None:
            accepted &= moved[np.arange(len(moved)), lucky] >= least
        assert (reached(bound, link, sums)[accepted] >= -4).all()


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_equal_scores_of_many_classes(link):
    """Twelve scores of 1 / 12: two tolerances of probability are 24 of what the scores are made from."""
    sums = np.zeros((1, 12))
    sums[0, 1] = -23 * TOLERANCE if link == "softmax" else -40 * TOLERANCE
    scores = linked(sums, link)[0]
    assert scores[0] - scores[1] < 2 * TOLERANCE
    assert reached(BoundTarget(Target(label="b"), model_of(12)), link, sums)[0] >= -4
