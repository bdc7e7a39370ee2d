"""Combinations of structures: the four questions agree with each other, and what is proved with what trying finds."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from agreement import applications, goals, wrapped
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import AdaBoostRegressor, RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from test_products import rows_of
from worlds import background, space_of

import mlflow_cf
from mlflow_cf.structures import Combined, Increasing, Structure, WeightedMedian, WeightedScores
from mlflow_cf.structures.capabilities import SupportsProduct, boxes_of
from mlflow_cf.structures.joined import Joined
from mlflow_cf.testing.checker import Ruler, plain_rows, table_of

LINKS = (("identity", 1), ("identity", 3), ("sigmoid", 1), ("sigmoid", 3), ("softmax", 3), ("share", 1))


def weighted(rng: np.random.Generator, links: list[Any]) -> WeightedScores:
    counts = tuple(count for _, count in links)
    outputs = int(rng.integers(1, 4))
    return WeightedScores(
        tuple(link for link, _ in links), counts, rng.normal(size=(sum(counts), outputs)), rng.normal(size=outputs)
    )


@st.composite
def combinations(draw: Any) -> tuple[Any, int]:
    """Return a combination, and how many raw scores it takes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    kind = draw(st.sampled_from(["scores", "median", "function"]))
    if kind == "scores":
        links = draw(st.lists(st.sampled_from(LINKS), min_size=1, max_size=3))
        return weighted(rng, links), sum(count for _, count in links)
    if kind == "median":
        count = draw(st.integers(1, 6))
        weights = rng.integers(0, 4, count) / 4  # sums of quarters are not rounded
        return WeightedMedian(weights + (weights.sum() == 0)), count
    return Increasing("exp", draw(st.sampled_from([np.exp, np.cbrt, np.log1p]))), 1


@given(combination=combinations(), seed=st.integers(0, 2**16), wide=st.sampled_from([0.0, 1e-12, 0.1, 3.0, 800.0]))
def test_bounds_hold_for_all_raw_scores_between(combination, seed, wide):
    how, count = combination
    rng = np.random.default_rng(seed)
    low = rng.normal(size=(6, count)).round(int(rng.integers(0, 9)))
    high = low + wide * rng.random((6, count)).round(1)
    least, most = how.between(low, high)
    assert least.shape == most.shape == (6, how.outputs)
    for place in np.linspace(0, 1, 5):
        inside = low + (high - low) * np.where(rng.random(low.shape) < 0.5, place, rng.integers(0, 2, low.shape))
        made = how.of(np.clip(inside, low, high))
        assert ((least <= made) | np.isnan(made)).all()
        assert ((made <= most) | np.isnan(made)).all()


@given(combination=combinations(), seed=st.integers(0, 2**10), data=st.data())
def test_sweeps_restrictions_products_and_bounds_are_those_of_rows(combination, seed, data):
    how, count = combination
    space = space_of(background(seed))
    split = data.draw(st.integers(0, count - 1))
    parts: list[Structure] = [
        random_trees(seed + place, space, width, trees=3, depth=3)
        for place, width in enumerate((split, count - split))
        if width
    ]
    structure = Combined.of("mix", parts, len(space), how)
    assert isinstance(structure, SupportsProduct)
    values = [np.append(feature.values[:3], np.nan) for feature in space.features]
    rng = np.random.default_rng(seed)
    rows = [structure.encode(column, rng.choice(some, 4)) for column, some in enumerate(values)]
    encoded = [structure.encode(column, some) for column, some in enumerate(values)]
    swept = structure.sweep(rows, encoded)
    for column, found in enumerate(swept):
        for at in range(len(encoded[column])):
            changed = [some if other != column else np.repeat(encoded[column][at : at + 1], 4, axis=0)
                       for other, some in enumerate(rows)]  # fmt: skip
            np.testing.assert_allclose(found[:, at], structure.sums(changed), rtol=1e-5, atol=1e-5)
    free = [0, len(space) - 1]
    inner = structure.restrict([some[0] for some in rows], free)
    here = [np.repeat(some[:1], 4, axis=0) if place not in free else some for place, some in enumerate(rows)]
    np.testing.assert_allclose(inner.sums([rows[place] for place in free]), structure.sums(here), rtol=1e-5, atol=1e-5)
    low, high = structure.bounds(encoded)
    sums = structure.sums(rows)
    assert ((low <= sums) & (sums <= high) | np.isnan(sums)).all()  # a logarithm may have no value
    masks = np.ones((1, sum(map(len, encoded))), dtype=bool)
    np.testing.assert_allclose(boxes_of(structure, encoded).bounds(masks), ([low], [high]), rtol=1e-12)
    dimension = np.arange(len(encoded)) // 2
    some = [each[:2] for each in encoded]
    grid = structure.product(some, dimension)
    np.testing.assert_allclose(grid, structure.sums(rows_of(some, dimension)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(structure.product(some, dimension, np.ones((how.outputs, 1))), grid.sum(axis=1)[:, None])


@given(seed=st.integers(0, 2**10))
def test_a_combination_can_stand_inside_another_and_beside_others(seed):
    space = space_of(background(seed))
    rng = np.random.default_rng(seed)
    trees = [random_trees(seed + place, space, 1, trees=2, depth=2) for place in range(3)]
    inner = Combined.of("exp", trees[:1], len(space), Increasing("exp", np.exp))
    outer = Combined.of("sum", [inner, trees[1]], len(space), weighted(rng, [("identity", 1), ("sigmoid", 1)]))
    both = Joined.of([outer, trees[2]], len(space))
    Z = np.column_stack([rng.choice(feature.values, 5) for feature in space.features])
    sums = both.sums([both.encode(column, Z[:, column]) for column in range(len(space))])
    alone = [outer.sums([outer.encode(column, Z[:, column]) for column in range(len(space))])]
    alone += [trees[2].sums([trees[2].encode(column, Z[:, column]) for column in range(len(space))])]
    np.testing.assert_allclose(sums, np.concatenate(alone, axis=1), rtol=1e-12)


MEMBERS = [
    ("line", make_pipeline(StandardScaler(), LogisticRegression())),
    ("forest", RandomForestClassifier(n_estimators=5, max_depth=4, random_state=0)),
    ("network", make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=200, random_state=0))),
]
MODELS: dict[str, tuple[Any, str]] = {
    "vote": (VotingClassifier(MEMBERS, voting="soft"), "two"),
    "vote for classes": (VotingClassifier(MEMBERS[:2], voting="soft"), "three"),
    "stack": (StackingClassifier(MEMBERS[:2], cv=3), "two"),
    "calibrated": (CalibratedClassifierCV(DecisionTreeClassifier(max_depth=3, random_state=0), cv=3), "two"),
    "median": (AdaBoostRegressor(n_estimators=9, random_state=0), "value"),
    "power": (TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp), "value"),
    "power of trees": (
        TransformedTargetRegressor(DecisionTreeRegressor(max_depth=4), func=np.log1p, inverse_func=np.expm1),
        "value",
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("model", "goal"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("explainer", ["geco", "exact"])
def test_certified_is_what_trying_every_row_finds(model, goal, explainer):
    data = applications(40, seed=3)[["age", "debt", "member"]].assign(
        debt=lambda rows: rows["debt"].round(-1), age=lambda rows: rows["age"] // 8 * 8
    )
    value = goals(applications(40, seed=3))["value"]
    wanted = value - value.min() + 1 if goal == "value" else goals(applications(40, seed=3))[goal]
    model.fit(data, wanted)
    said = model.predict(data)
    high = float(np.quantile(said, 0.8)) if goal == "value" else ""
    target: Any = mlflow_cf.Target(low=high) if goal == "value" else "yes" if goal == "two" else "high"
    explained = mlflow_cf.wrap(model, data, target=target, explainer=explainer)
    assert isinstance(explained.opened.structure, Combined), explained.opened.note

    def met(rows: pd.DataFrame) -> Any:
        answers = model.predict(rows)
        return answers >= high if goal == "value" else answers == target

    ruler = Ruler(data)
    refused = data[~met(data)][:4]
    for query, answer in zip(plain_rows(refused), explained.explain(refused, certify=True), strict=True):
        values = [sorted({*data[name].tolist(), query[name]}) for name in data]
        tried = [dict(zip(data, some, strict=True)) for some in product(*values)]
        distances = [ruler.distance(query, tried[place]) for place in np.flatnonzero(met(table_of(tried, data)))]
        if not distances:
            assert answer.status == "infeasible"
            continue
        (found,) = answer.counterfactuals
        assert (answer.status, found.proof) == ("found", "optimal")
        assert found.distance == pytest.approx(min(distances), abs=1e-9)


def test_what_nobody_meets_is_proved_infeasible():
    data = applications()[["age", "debt"]]
    model = AdaBoostRegressor(n_estimators=5, random_state=0).fit(data, goals(applications())["value"].fillna(0))
    explained = mlflow_cf.wrap(model, data, target=mlflow_cf.Target(low=1e6))
    assert {one.status for one in explained.explain(data[:3], certify=True)} == {"infeasible"}


def test_numbers_between_observed_ones_are_proved_for_trees():
    data = applications()[["age", "debt"]]
    wanted = goals(applications())["two"]
    model = CalibratedClassifierCV(DecisionTreeClassifier(max_depth=3, random_state=0), cv=3).fit(data, wanted)
    explained = wrapped(model, data, wanted)
    assert explained.opened.structure is not None
    continuous = mlflow_cf.wrap(model, data, target="yes", values="continuous", explainer="exact")
    refused = data[model.predict(data) == "no"][:3]
    observed = mlflow_cf.wrap(model, data, target="yes", explainer="exact").explain(refused)
    for answer, known in zip(continuous.explain(refused), observed, strict=True):
        assert answer.counterfactuals[0].proof == "optimal"
        assert answer.counterfactuals[0].distance <= known.counterfactuals[0].distance + 1e-12
