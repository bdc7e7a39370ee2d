"""Explainable Boosting Machines, opened as trees over bins: they score as interpret does, terms of two features too."""

import numpy as np
import pandas as pd
import pytest
from agreement import agree, near_cuts, wrapped
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf
from mlflow_cf.model.flavors import open_folder, open_native
from mlflow_cf_flavors.sklearn import flavor

glassbox = pytest.importorskip("interpret.glassbox")
pytestmark = pytest.mark.filterwarnings("ignore:Missing values detected:UserWarning")

QUICK = {"outer_bags": 2, "max_rounds": 60, "n_jobs": 1, "random_state": 0}


def offers(rows: int = 500, seed: int = 0, *, gaps: bool = True) -> pd.DataFrame:
    """Return numbers, some of them missing, text, levels that are numbers, and flags."""
    rng = np.random.default_rng(seed)
    price = rng.normal(size=rows)
    return pd.DataFrame(
        {
            "price": np.where(rng.random(rows) < 0.1, np.nan, price) if gaps else price,
            "letter": np.array([*"abc", None if gaps else "d"], dtype=object)[rng.integers(0, 4, rows)],
            "count": rng.integers(0, 9, rows),
            "grade": pd.Categorical(rng.choice([1, 3, 7], rows)),
            "member": rng.random(rows) < 0.5,
            "weight": rng.normal(size=rows).astype("float32"),
        }
    )


def value(data: pd.DataFrame) -> pd.Series:
    high = (data["letter"] == "b") & (data["count"] > 4)
    return data["price"].fillna(0.3) + 2 * high + data["member"] * data["weight"] + (data["grade"].astype(float) == 3)


MODELS = {
    "two classes": glassbox.ExplainableBoostingClassifier(interactions=4, **QUICK),
    "coarse bins": glassbox.ExplainableBoostingClassifier(interactions=4, max_bins=8, max_interaction_bins=4, **QUICK),
    "terms of one feature": glassbox.ExplainableBoostingClassifier(interactions=0, **QUICK),
    "values": glassbox.ExplainableBoostingRegressor(interactions=4, **QUICK),
}


def wanted_of(model: object, data: pd.DataFrame) -> pd.Series:
    return value(data) if "Regressor" in type(model).__name__ else (value(data) > 1).map({True: "yes", False: "no"})


@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_terms_are_trees(model, gaps):
    data = offers(gaps=gaps)
    model.fit(data, wanted_of(model, data))
    explained = wrapped(model, data, wanted_of(model, data))
    assert explained.opened.note.startswith(f"{len(model.term_features_)} trees, "), explained.opened.note
    rows = offers(300, seed=1, gaps=gaps)
    rows.loc[::5, "letter"] = "z"
    agree(model, explained, rows, 1e-9)
    agree(model, explained, near_cuts(explained, offers(60, seed=2, gaps=gaps), ("price", "weight")), 1e-9)


def test_several_classes():
    data = offers()
    wanted = pd.cut(value(data), 3, labels=list("xyz")).astype(str)
    model = glassbox.ExplainableBoostingClassifier(interactions=0, **QUICK).fit(data, wanted)
    agree(model, wrapped(model, data, wanted), offers(300, seed=1), 1e-9)


def test_behind_a_step():
    data = offers(gaps=False)[["price", "count", "weight"]]
    model = make_pipeline(StandardScaler(), glassbox.ExplainableBoostingRegressor(interactions=2, **QUICK))
    model.fit(data, value(offers(gaps=False)))
    explained = mlflow_cf.wrap(model, data, target=mlflow_cf.Target(low=1.0))
    agree(model, explained, offers(300, seed=1, gaps=False)[["price", "count", "weight"]], 1e-9)


def test_stored_without_pickle(tmp_path):
    data = offers()
    model = MODELS["two classes"].fit(data, wanted_of(MODELS["two classes"], data))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    assert any(pin.startswith("interpret-core==") for pin in flavor.requirements(model))
    again, opened = open_folder(tmp_path / "m", rows=data), open_native(model, rows=data)
    np.testing.assert_array_equal(again.score(data), opened.score(data))
    np.testing.assert_array_equal(opened.score(data), model.predict_proba(data))
    np.testing.assert_array_equal(again.decide(data), model.predict(data))


def test_what_is_not_opened_says_why():
    data = offers(gaps=False)[["count", "price"]]
    types = ["nominal", "continuous"]
    model = glassbox.ExplainableBoostingRegressor(feature_types=types, interactions=0, **QUICK)
    model.fit(data, value(offers(gaps=False)))
    described = mlflow_cf.wrap(model, data, target=mlflow_cf.Target(low=1.0)).describe()["structure"]
    assert "numbers that ExplainableBoostingRegressor takes as categories" in described
    counts = glassbox.ExplainableBoostingRegressor(objective="poisson_deviance", interactions=0, **QUICK)
    counts.fit(data, data["count"])
    described = mlflow_cf.wrap(counts, data, target=mlflow_cf.Target(low=5.0)).describe()["structure"]
    assert "ExplainableBoostingRegressor with the link log" in described


@dear(5)
@given(seed=st.integers(0, 2**16), pairs=st.integers(0, 3), bins=st.integers(3, 20), gaps=st.booleans())
def test_every_machine_scores_as_interpret_does(seed, pairs, bins, gaps):
    data = offers(120, seed=seed, gaps=gaps)
    wanted = value(data) + np.random.default_rng(seed).normal(size=len(data))
    quick = {**QUICK, "max_rounds": 8, "max_bins": bins}
    model = glassbox.ExplainableBoostingRegressor(interactions=pairs, **quick).fit(data, wanted)
    agree(model, wrapped(model, data, wanted), offers(200, seed=seed + 1, gaps=gaps), 1e-9)


@pytest.mark.parametrize("interactions", [0, 2])
def test_certified_answers_are_those_of_enumeration(interactions):
    data = offers(200, gaps=False)[["letter", "count", "member", "weight"]].assign(
        weight=lambda t: t["weight"].round(0)
    )
    high = 2.0 * (data["letter"] == "b") + data["count"] / 4 - data["member"] * data["weight"] > 1.4
    model = glassbox.ExplainableBoostingClassifier(interactions=interactions, **QUICK).fit(data, high.astype(int))
    explained = mlflow_cf.wrap(model, data, target=1, constraints={"immutable": ["member"]})
    assert explained.opened.structure is not None
    every = pd.MultiIndex.from_product([data[name].unique() for name in data], names=list(data)).to_frame(index=False)
    good = every.astype(data.dtypes.to_dict())[model.predict(every.astype(data.dtypes.to_dict())) == 1]
    spread = {name: float(data[name].max()) - float(data[name].min()) for name in ("count", "weight")}
    rows = data[model.predict(data) == 0].head(12)
    answers = explained.explain(rows, certify=True)
    for (_, row), answer in zip(rows.iterrows(), answers, strict=True):
        lawful = good[good["member"] == row["member"]]
        if not len(lawful):
            assert answer.status == "infeasible"
            continue
        moves = np.column_stack(
            [
                np.abs(lawful[name] - row[name]) / spread[name] if name in spread else lawful[name] != row[name]
                for name in data
            ]
        ).astype(float)
        best = (0.5 * (moves > 0).mean(axis=1) + 0.5 * moves.mean(axis=1)).min()
        (found,) = answer.counterfactuals
        assert (found.proof, found.distance) == ("optimal", pytest.approx(best, abs=1e-6))
    assert {answer.status for answer in answers} >= {"found"}
