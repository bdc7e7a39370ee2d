"""Regions in requests: the logged model accepts every row inside, and replies say why there is none."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from laws import many
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.words.changes import RegionSide
from mlflow_cf.words.result import Counterfactual
from mlflow_cf.words.sentences import Speaker

DRAWN = 1_000
MODELS = {
    "tree": lambda seed: DecisionTreeClassifier(max_depth=6, random_state=seed),
    "forest": lambda seed: RandomForestClassifier(10, max_depth=6, random_state=seed),
    "boosting": lambda seed: GradientBoostingClassifier(n_estimators=20, random_state=seed),
    "linear": lambda _: make_pipeline(StandardScaler(), LogisticRegression()),
    "network": lambda seed: make_pipeline(
        StandardScaler(), MLPClassifier((8,), solver="lbfgs", max_iter=2_000, random_state=seed)
    ),
}
GROWING = ("tree", "forest", "boosting")  # boxes by themselves, where no rule is over several features


def world(seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return a random table of numbers with a label that three of them decide."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 200),
            "income": rng.normal(50, 15, 200).round(1),
            "debt": rng.gamma(2.0, 10.0, 200).round(2),
            "rooms": rng.integers(1, 8, 200),
        }
    )
    score = table["income"] - table["debt"] + 3 * rng.normal(0, 1, 4)[table["rooms"] % 4]
    return table, (score > score.quantile(0.6)).astype(int)


def inside(table: pd.DataFrame, found: Counterfactual, values: str, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows drawn from a region, its corners among them."""
    assert found.region is not None, found.region_reason
    rows = pd.DataFrame([found.row] * DRAWN)
    for side in found.region:
        low, high = side.low, side.high
        assert isinstance(low, int | float)
        assert isinstance(high, int | float)
        if values == "continuous":
            some = rng.uniform(low, high, DRAWN)
            ends = rng.random(DRAWN)
            some = np.where(ends < 0.2, low, np.where(ends > 0.8, high, some))
            rows[side.feature] = np.round(some).clip(low, high) if table.dtypes[side.feature].kind == "i" else some
        else:
            known = table[side.feature].unique()
            rows[side.feature] = rng.choice(
                np.append(known[(known >= low) & (known <= high)], found.row[side.feature]), DRAWN
            )
    return rows.astype(table.dtypes)


@pytest.mark.parametrize("values", ["observed", "continuous"])
@pytest.mark.parametrize(("kind", "linked"), [*((kind, True) for kind in MODELS), *((kind, False) for kind in GROWING)])
def test_the_model_accepts_what_is_drawn_inside(
    kind: str,
    linked: bool,  # noqa: FBT001
    values: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "mlflow_cf.request.widening")  # says where a region failed
    for seed in range(many(3, 60)):
        table, labels = world(seed)
        model = MODELS[kind](seed).fit(table, labels)
        rule = "x_cf.rooms <= x_cf.age - 17"
        rules = [rule] if linked else []
        constraints = {"immutable": ["age"], "relative": {"income": {"up": 30}}, "rules": rules}
        explained = mlflow_cf.wrap(model, table, target=1, constraints=constraints, values=values)
        rows = table[model.predict(table) == 0].head(5)
        rng = np.random.default_rng(seed)
        for region in (True, "all"):
            for answer in explained.explain(rows, region=region, count=2):
                for found in answer.counterfactuals:
                    if found.region is None:
                        assert found.region_reason == "no region: nothing around the answer could be proved"
                        continue
                    some = inside(table, found, values, rng)
                    assert (model.predict(some) == 1).all()
                    assert not linked or (some["rooms"] <= some["age"] - 17).all()
                    assert "it holds while " in found.text


def test_an_interval_of_a_regression() -> None:
    table, _ = world(0)
    values = table["income"] * 2 - table["debt"]
    model = RandomForestRegressor(8, max_depth=5, random_state=0).fit(table, values)
    explained = mlflow_cf.wrap(model, table, target={"low": 100.0})
    rows = table[model.predict(table) < 90].head(5)
    rng = np.random.default_rng(0)
    for answer in explained.explain(rows, region=True):
        (found,) = answer.counterfactuals
        assert (model.predict(inside(table, found, "observed", rng)) >= 100.0).all()


@pytest.fixture(scope="module")
def loans() -> pd.DataFrame:
    table, _ = world(1)
    return table.assign(
        job=np.random.default_rng(1).choice(["clerk", "nurse", "none"], len(table)),
        since=pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(len(table)) % 90, unit="D"),
    )


@pytest.fixture(scope="module")
def unopened(loans: pd.DataFrame) -> ExplainedModel:
    def accepted(rows: pd.DataFrame) -> np.ndarray:
        good = (rows["income"] > rows["debt"] + 20) & (rows["job"] != "none")
        return np.asarray(good.astype(int))

    return mlflow_cf.wrap(accepted, loans, target=1, output="label")


def test_a_model_that_is_not_opened_has_none(unopened: ExplainedModel, loans: pd.DataFrame) -> None:
    rows = loans[loans["income"] < loans["debt"] + 10].head(2)
    for record in unopened.predict(rows, {"counterfactual": {"region": True}}).to_dict("records"):
        assert record["status"] == "found"
        for found in record["counterfactuals"]:
            assert found["region"] is None
            assert found["region_reason"].startswith("no region: the model could not be opened")


def test_nothing_is_said_where_none_is_asked_for() -> None:
    table, labels = world(2)
    model = MODELS["linear"](0).fit(table, labels)
    rows = table[model.predict(table) == 0].head(1)
    explained = mlflow_cf.wrap(model, table, target=1)
    plain, wide = explained.explain(rows)[0], explained.explain(rows, region=True)[0]
    found, widened = plain.counterfactuals[0], wide.counterfactuals[0]
    assert (found.region, found.region_reason) == (None, "")
    assert widened.row == found.row
    assert widened.text.startswith(found.text + "\nit holds while ")
    assert wide.evaluations > plain.evaluations


def test_privacy_may_forbid_them() -> None:
    table, labels = world(2)
    model = MODELS["linear"](0).fit(table, labels)
    explained = mlflow_cf.wrap(model, table, target=1, privacy={"regions": False})
    rows = table[model.predict(table) == 0].head(1)
    with pytest.raises(InputError, match=r"region: the policy's privacy gives requests none; leave it out"):
        explained.predict(rows, {"counterfactual": {"region": True}})
    assert explained.predict(rows, {"counterfactual": {"region": False}})["status"].tolist() == ["found"]
    assert explained.explain(rows, region="all")[0].counterfactuals[0].region


def test_without_evaluations_left_there_is_a_reason() -> None:
    table, labels = world(2)
    model = MODELS["forest"](0).fit(table, labels)
    explained = mlflow_cf.wrap(model, table, target=1)
    rows = table[model.predict(table) == 0].head(1)
    used = explained.explain(rows)[0].evaluations
    (answer,) = explained.explain(rows, region=True, max_evaluations=used)
    for found in answer.counterfactuals:
        assert found.region is not None or found.region_reason.startswith("no region: ")


SENTENCES = [
    (RegionSide("credit_use", 0.0, 52.0, (), maximal=True), (True, False), "credit use is 52 or less"),
    (RegionSide("income", 38_000, 90_000, (), maximal=True), (False, True), "income is 38,000 or more"),
    (RegionSide("income", 38_000, 60_000, (), maximal=True), (False, False), "income is from 38,000 to 60,000"),
    (RegionSide("income", 38_000, 38_000, (), maximal=True), (False, False), "income is 38,000"),
    (RegionSide("job", None, None, ("clerk", "nurse"), maximal=True), (False, False), "job is clerk or nurse"),
    (
        RegionSide("start", "2024-01-01", "2024-02-01", (), maximal=True),
        (True, False),
        "start is 2024-02-01 or earlier",
    ),
]


@pytest.mark.parametrize(("side", "ends", "text"), SENTENCES)
def test_sentences(side: RegionSide, ends: tuple[bool, bool], text: str) -> None:
    assert Speaker().region([side], [ends]) == f"it holds while {text}"
    assert Speaker().region([side, side], [ends, ends]) == f"it holds while {text} and {text}"
