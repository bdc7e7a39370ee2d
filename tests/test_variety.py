"""How several answers differ: the best of every changed set, or the nearest that differ by so much."""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import CEOCL
from mlflow_cf.errors import InputError
from mlflow_cf.policy import Policy
from mlflow_cf.policy.limits import Variety

GRID = pd.DataFrame([(a, b) for a in range(0, 105, 5) for b in range(0, 105, 5)], columns=["a", "b"])
ROW = pd.DataFrame({"a": [0], "b": [0]})
BOX = GRID.to_numpy()


def enough(rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    return np.asarray(((rows["a"] >= 40) | (rows["b"] >= 80)).astype(int))


def answers(explained: mlflow_cf.ExplainedModel, **asked: Any) -> list[tuple[int, int]]:
    (answer,) = explained.explain(ROW, **asked)
    return [(cf.row["a"], cf.row["b"]) for cf in answer.counterfactuals]


@pytest.fixture(scope="module")
def opened() -> mlflow_cf.ExplainedModel:
    return mlflow_cf.wrap(DecisionTreeClassifier().fit(GRID, enough(GRID)), GRID, target=1)


@pytest.fixture(scope="module")
def plain() -> mlflow_cf.ExplainedModel:
    return mlflow_cf.wrap(enough, GRID, target=1, output="label")


def test_other_features_come_first_unless_the_nearest_are_wanted(opened: Any, plain: Any) -> None:
    for explained in (opened, plain):
        assert answers(explained, count=3) == [(40, 0), (0, 80), (45, 0)]
        assert answers(explained, count=3, diversity="near") == [(40, 0), (45, 0), (50, 0)]
        assert answers(explained, count=3, diversity="near", min_difference=0.2) == [(40, 0), (60, 0), (0, 80)]
        assert answers(explained, count=3, diversity="near", min_difference=0.5) == [(40, 0), (0, 80), (90, 0)]
        assert answers(explained, diversity="near") == answers(explained)


def test_the_nearest_are_proved(opened: Any) -> None:
    (answer,) = opened.explain(ROW, count=4, diversity="near", certify=True)
    assert [(cf.row["a"], cf.proof) for cf in answer.counterfactuals] == [(at, "optimal") for at in (40, 45, 50, 55)]
    assert [cf.bound for cf in answer.counterfactuals] == [cf.distance for cf in answer.counterfactuals]


def test_numbers_between_those_of_the_model() -> None:
    tree = DecisionTreeClassifier().fit(GRID * 1.5, enough(GRID))
    for model, output in ((tree, None), (tree.predict, "label")):
        explained = mlflow_cf.wrap(model, GRID * 1.5, target=1, values="continuous", output=output)
        (answer,) = explained.explain(ROW, count=3, diversity="near")
        several = np.array([cf.row["a"] for cf in answer.counterfactuals])
        assert several == pytest.approx(several[0] + np.array([0, 7.5, 15]), abs=1e-6)
        assert (np.diff(several) >= 7.5).all()


def differ(first: Any, second: Any, least: float, ranges: pd.Series) -> bool:
    return any(
        first.row[name] != second.row[name]
        and (ranges[name] == 0 or abs(first.row[name] - second.row[name]) >= least * ranges[name])
        for name in first.row
    )


MIXED = pd.DataFrame(
    {"income": np.arange(0, 1000, 10), "age": np.arange(100) % 41 + 20, "job": ["cook", "nurse", "vet", "cook"] * 25}
)
RANGES = (MIXED[["income", "age"]].max() - MIXED[["income", "age"]].min()).reindex(MIXED.columns).fillna(0)
EXPLAINERS = ["geco", "nearest_row", "random_search", "certifai", "growing_spheres", "simcf", "face", "cscf", "mdpso"]


@pytest.mark.parametrize("explainer", EXPLAINERS)
@pytest.mark.parametrize("least", [0.05, 0.3])
def test_all_explainers_keep_the_least_difference(explainer: str, least: float) -> None:
    explained = mlflow_cf.wrap(
        lambda rows: 1 / (1 + np.exp(-(rows["income"] + 5 * rows["age"] + 100 * (rows["job"] == "vet") - 700) / 100)),
        MIXED, target=1, output="score", privacy={"sample": "shown"}, diversity="near", min_difference=least,
    )  # fmt: skip
    for answer in explained.explain(MIXED[:60:20], count=4, explainer=explainer, max_evaluations=3_000):
        for first, second in combinations(answer.counterfactuals, 2):
            assert differ(first, second, least, RANGES)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.25]), st.integers(2, 4))
def test_the_nearest_of_a_tree_are_those_of_all_rows(seed: int, least: float, count: int) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random(len(GRID)) < 0.05 + 0.4 * ((GRID["a"] > 50) & (GRID["b"] > 30))).astype(int)
    labels[0], labels[len(labels) - 1] = 0, 1
    tree = DecisionTreeClassifier(max_depth=6, random_state=0).fit(GRID, labels)
    if tree.predict(ROW)[0] == 1 or tree.predict(GRID).max() == 0:
        return
    explained = mlflow_cf.wrap(tree, GRID, target=1, min_difference=least, diversity="near")
    (answer,) = explained.explain(ROW, count=count, certify=True)
    wanted = {tuple(row) for row in GRID[tree.predict(GRID) == 1].to_numpy().tolist()}
    minimal = [(a, b) for a, b in wanted if not (a and b and ((a, 0) in wanted or (0, b) in wanted))]
    distance = {(a, b): ((a > 0) + (b > 0)) / 4 + (a + b) / 400 for a, b in minimal}
    chosen: list[Any] = []
    for row in sorted(minimal, key=lambda row: (round(distance[row], 12), (row[0] > 0) + (row[1] > 0), row)):
        apart = [max(abs(row[0] - a), abs(row[1] - b)) for a, b in chosen]
        if len(chosen) < count and all(gap > 0 and gap >= 100 * least for gap in apart):
            chosen.append(row)
    found = [distance[cf.row["a"], cf.row["b"]] for cf in answer.counterfactuals]
    assert found == pytest.approx([distance[row] for row in chosen])


class TestRequests:
    def test_they_choose_the_diversity_and_may_ask_for_more_difference(self) -> None:
        explained = mlflow_cf.wrap(enough, GRID, target=1, output="label", min_difference=0.1)
        asked = {"count": 3, "diversity": "near"}
        (found,) = explained.predict(ROW, {"counterfactual": asked})["counterfactuals"]
        assert [one["row"]["a"] for one in found] == [40, 50, 60]
        (found,) = explained.predict(ROW, {"counterfactual": {**asked, "min_difference": 0.2}})["counterfactuals"]
        assert [one["row"]["a"] for one in found] == [40, 60, 0]

    def test_but_not_for_less(self) -> None:
        explained = mlflow_cf.wrap(enough, GRID, target=1, output="label", min_difference=0.1)
        told = "min_difference: 0.05 is less than the policy's 0.1; ask for more, or leave it out"
        with pytest.raises(InputError) as error:
            explained.predict(ROW, {"counterfactual": {"min_difference": 0.05}})
        assert str(error.value) == told
        with pytest.raises(InputError, match="diversity"):
            explained.predict(ROW, {"counterfactual": {"diversity": "far"}})

    def test_the_policy_keeps_them(self) -> None:
        explained = mlflow_cf.wrap(enough, GRID, target=1, output="label", diversity="near", min_difference=0.2)
        again = Policy.from_dict(explained.policy.to_dict())
        assert again.variety_for(None, None) == Variety("near", 0.2)
        assert again.variety_for("sets", 0.3) == Variety("sets", 0.3)
        assert answers(explained, count=2) == [(40, 0), (60, 0)]


def test_fewer_say_why(opened: Any) -> None:
    limit = {"ranges": {"a": [0, 50]}, "immutable": ["b"]}
    (answer,) = opened.explain(ROW, count=3, diversity="near", min_difference=0.075, constraints=limit)
    assert [cf.row["a"] for cf in answer.counterfactuals] == [40, 50]
    assert answer.reason.startswith("2 of 3 counterfactuals asked for: nothing else was found that differs by a level,")
    assert answer.reason.endswith("or a number by 7.5% of its range more")


class TestPrograms:
    @pytest.mark.parametrize("values", ["observed", "continuous"])
    @pytest.mark.parametrize("explainer", [CEOCL(engine="milp"), CEOCL(objective="l1"), CEOCL(objective="l2", mu=0.1)])
    def test_the_nearest_come_one_after_the_other(self, values: Any, explainer: CEOCL) -> None:
        tree = DecisionTreeClassifier().fit(GRID, enough(GRID))
        explained = mlflow_cf.wrap(tree, GRID * 1.0, target=1, values=values)
        (answer,) = explained.explain(ROW * 1.0, count=3, explainer=explainer, diversity="near", min_difference=0.1)
        several = np.array([cf.row["a"] for cf in answer.counterfactuals])
        assert len(several) == 3
        assert several == pytest.approx(several[0] + np.array([0, 10, 20]), abs=0.01)
        assert (np.diff(several) >= 10).all()
        assert all(len(cf.changes) == 1 for cf in answer.counterfactuals)
        (answer,) = explained.explain(ROW * 1.0, count=2, explainer=explainer)
        assert [cf.changes[0].feature for cf in answer.counterfactuals] == ["a", "b"]
