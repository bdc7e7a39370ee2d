"""Two shares that add up to 1 are one sum: forests of two classes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, RandomForestRegressor, VotingClassifier
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.features import FeatureSpace
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.goal.scorer import certainly_met, upper_bound
from mlflow_cf.goal.targets import SumTarget, rate_sums, shortfalls
from mlflow_cf.structures import Forest, score_encoded
from mlflow_cf.structures.layers.columns import NumberColumn
from mlflow_cf.structures.structure import linked
from mlflow_cf_flavors.sums import TreeModel

RNG = np.random.default_rng(0)
DATA = pd.DataFrame(RNG.integers(0, 6, (300, 4)).astype(float), columns=list("abcd"))
Y = (DATA["a"] + DATA["b"] * DATA["c"] > 9).astype(int)
MODELS = {
    "tree": DecisionTreeClassifier(max_depth=5, random_state=0),
    "forest": RandomForestClassifier(12, max_depth=4, random_state=0),
    "bagging": BaggingClassifier(DecisionTreeClassifier(max_depth=3), 5, random_state=0),
    "voting": VotingClassifier(
        [("a", DecisionTreeClassifier(max_depth=3)), ("b", RandomForestClassifier(3))], voting="soft"
    ),
}
DOUBT = 1e-5


@pytest.mark.parametrize("name", sorted(MODELS))
def test_one_sum_tells_both(name: str) -> None:
    explained = mlflow_cf.wrap(MODELS[name].fit(DATA, Y), DATA, target=1)
    structure = explained.opened.structure
    assert structure is not None
    assert (structure.link, structure.outputs) == ("share", 1)
    rows = pd.DataFrame(RNG.integers(-1, 7, (200, 4)).astype(float), columns=DATA.columns)
    encoded = [structure.encode(column, codes) for column, codes in enumerate(rows.to_numpy().T)]
    np.testing.assert_allclose(score_encoded(structure, encoded), MODELS[name].predict_proba(rows), rtol=0, atol=1e-12)


def test_a_forest_of_two_minds_says_what_the_model_says() -> None:
    """Trees that are grown out vote: of forty, twenty are often for each class."""
    X = pd.DataFrame(RNG.normal(size=(300, 12)).round(2))
    model = RandomForestClassifier(40, random_state=0).fit(X, X.sum(axis=1) > 0)
    structure = mlflow_cf.wrap(model, X, target=True).opened.structure
    assert structure is not None
    assert structure.link == "share"
    rows = pd.DataFrame(RNG.normal(size=(4000, 12)))
    scores = score_encoded(
        structure, [structure.encode(column, codes) for column, codes in enumerate(rows.to_numpy().T)]
    )
    votes = model.predict_proba(rows)
    assert (votes[:, 0] == votes[:, 1]).sum() > 50
    np.testing.assert_array_equal(scores.argmax(axis=1), votes.argmax(axis=1))


def test_values_are_no_shares() -> None:
    explained = mlflow_cf.wrap(RandomForestRegressor(3).fit(DATA, Y), DATA, target={"low": 0.5})
    assert explained.opened.structure.link == "identity"


@pytest.mark.parametrize(("leaf", "link"), [([0.75, 0.25], "share"), ([0.75, 0.5], "identity")])
def test_what_does_not_add_up_stays(leaf: list[float], link: str) -> None:
    """A forest of one stump whose two leaves hold [0.5, 0.5] and `leaf`."""
    forest = Forest(
        roots=np.array([0], dtype=np.int32),
        outputs=np.array([-1], dtype=np.int32),
        column=np.array([0, -1, -1], dtype=np.int32),
        threshold=np.array([1.5, 0.0, 0.0]),
        missing_left=np.zeros(3, dtype=np.bool_),
        left=np.array([1, 0, 0], dtype=np.int32),
        right=np.array([2, 0, 0], dtype=np.int32),
        value=np.array([[0.5, 0.5], [0.5, 0.5], leaf]),
        rule="<= float64",
        base=np.zeros(2),
        link="identity",
    )
    space = FeatureSpace.infer(DATA)
    for base, expected in (([0.0, 0.0], link), ([0.5, 0.0], "identity")):
        structure = TreeModel([NumberColumn(0)], replace(forest, base=np.array(base))).compile(space)
        assert structure.link == expected


targets = st.builds(
    lambda kind, column, least: SumTarget("share", 0, 1, 2, kind, column, least, -np.inf, np.inf, 1.0, margins=False),
    st.sampled_from(["label", "other"]),
    st.sampled_from([0, 1]),
    st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0]),
)
shares = st.lists(
    st.floats(0.0, 1.0) | st.sampled_from([0.0, 0.2, 0.5, 0.5 + 1e-6, 0.8, 0.8 - 2e-6, 1.0]), min_size=1, max_size=20
).map(lambda drawn: np.array(drawn)[:, None])


def both(sums: np.ndarray) -> np.ndarray:
    return linked(sums, "share")


@given(targets, shares)
def test_one_share_is_rated_as_two(target: SumTarget, sums: np.ndarray) -> None:
    pair = replace(target, link="identity", stop=2)
    for one, two in zip(rate_sums(sums, [target]), rate_sums(both(sums), [pair]), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(shortfalls(sums, [target]), shortfalls(both(sums), [pair]), rtol=0, atol=1e-10)


@given(targets, shares, shares)
def test_bounds_hold_for_what_is_between(target: SumTarget, ends: np.ndarray, sums: np.ndarray) -> None:
    low, high = ends.min(keepdims=True), ends.max(keepdims=True)
    within = sums[(low[0, 0] <= sums[:, 0]) & (sums[:, 0] <= high[0, 0])]
    favourable, _, margin = rate_sums(within, [target])
    if certainly_met(low, high, [target], DOUBT)[0]:
        assert (favourable & (margin >= DOUBT / 2)).all()
    if upper_bound(low, high, [target], DOUBT)[0] < 0:
        assert not (favourable | (margin < DOUBT / 2)).any()


@given(targets, shares)
def test_the_share_leads(target: SumTarget, sums: np.ndarray) -> None:
    lead = DecisionScore.of([target], DOUBT)
    if lead is None:
        return
    favourable, _, margin = rate_sums(sums, [target])
    number = sums @ lead.weights
    assert (number[favourable | (margin < DOUBT)] >= lead.may).all()
    assert (favourable & (margin >= DOUBT))[number >= lead.sure].all()
