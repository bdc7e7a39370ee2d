"""Real forests, swept and restricted: every answer is that of the model itself, asked about the changed row."""

from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from agreement import applications, goals, named, wrapped
from laws import THOROUGH
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.explainers import GeCo
from mlflow_cf.structures import Structure, score_encoded
from mlflow_cf.structures.structure import linked

FEW = {"n_estimators": 8, "random_state": 0}
BOOSTED = {"n_estimators": 8, "n_jobs": 1}
MODELS = [
    (DecisionTreeClassifier(random_state=0), "two"),
    (RandomForestClassifier(**FEW), "three"),
    (ExtraTreesRegressor(**FEW), "value"),
    (GradientBoostingClassifier(**FEW), "three"),
    (HistGradientBoostingClassifier(max_iter=8), "two"),
    (HistGradientBoostingRegressor(max_iter=8), "value"),
    (xgboost.XGBClassifier(**BOOSTED), "three"),
    (xgboost.XGBRegressor(**BOOSTED), "value"),
    (lightgbm.LGBMClassifier(verbose=-1, **BOOSTED), "two"),
    (lightgbm.LGBMRegressor(verbose=-1, **BOOSTED), "value"),
]
NATIVE = [
    (HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=8), "two"),
    (xgboost.XGBClassifier(enable_categorical=True, **BOOSTED), "two"),
    (xgboost.XGBRegressor(enable_categorical=True, max_cat_to_onehot=1, **BOOSTED), "value"),
    (lightgbm.LGBMClassifier(min_data_per_group=5, cat_smooth=1, verbose=-1, **BOOSTED), "three"),
]


def with_categories(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    data = applications(rows, seed)
    levels = {"housing": ["rent", "own", "free"], "job": ["a", "b", "c"]}
    return data.assign(**{name: pd.Categorical(data[name], categories=known) for name, known in levels.items()})


def fitted(estimator: Any, goal: str, *, native: bool) -> tuple[Any, pd.DataFrame, Any]:
    """Return a model, its rows, and what it learned; on one-hot columns unless it takes categories itself."""
    data = with_categories() if native else applications(300)
    wanted = goals(applications(300))[goal]
    if goal != "value":
        wanted = wanted.astype("category").cat.codes
    if native:
        return estimator.fit(data, wanted), data, wanted
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    )
    table = make_column_transformer(
        (words, ["housing", "job"]), (SimpleImputer(), ["income"]), remainder="passthrough", sparse_threshold=0
    )
    return make_pipeline(table, estimator).fit(data, wanted), data, wanted


CASES = [
    pytest.param(estimator, goal, native, id=f"{named(estimator)}-{goal}{'-categories' if native else ''}")
    for models, native in ((MODELS, False), (NATIVE, True))
    for estimator, goal in models
]


def asked(model: Any, rows: pd.DataFrame) -> np.ndarray:
    """Return what the model itself says: probabilities, or values as one column."""
    return model.predict_proba(rows) if hasattr(model, "classes_") else model.predict(rows)[:, None]


def near(found: np.ndarray, truth: np.ndarray) -> None:
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-5 * max(1, np.abs(truth).max()))


def opened(explained: mlflow_cf.ExplainedModel) -> Structure:
    assert explained.opened.structure is not None, explained.opened.note
    return explained.opened.structure


@pytest.mark.parametrize(("estimator", "goal", "native"), CASES)
def test_every_single_change_and_its_restrictions_are_what_the_model_says(estimator, goal, native):
    model, data, wanted = fitted(estimator, goal, native=native)
    explained = wrapped(model, data, wanted)
    structure, space = opened(explained), explained.space
    codes = space.encode(data.iloc[[3, 50, 117]])
    encoded = [structure.encode(column, codes[:, column]) for column in range(len(space))]
    values = [feature.values for feature in space.features]
    swept = structure.sweep(encoded, [structure.encode(column, known) for column, known in enumerate(values)])
    for column, (known, sums) in enumerate(zip(values, swept, strict=True)):
        alone = structure.encode(column, known)
        for row, own in enumerate(codes):
            changed = np.tile(own, (len(known), 1))
            changed[:, column] = known
            truth = asked(model, space.decode(changed))
            near(linked(sums[row], structure.link), truth)
            part = structure.restrict([part[row] for part in encoded], [column])
            whole = [structure.encode(other, changed[:, other]) for other in range(len(space))]
            assert score_encoded(part, [alone]).tolist() == score_encoded(structure, whole).tolist()


@pytest.mark.parametrize(("estimator", "goal", "native"), CASES)
def test_bounds_hold_for_the_rows_of_the_background(estimator, goal, native):
    model, data, wanted = fitted(estimator, goal, native=native)
    explained = wrapped(model, data, wanted)
    structure, codes = opened(explained), explained.space.encode(data)
    rng = np.random.default_rng(0)
    for _ in range(4):
        some = codes[rng.integers(len(codes), size=3)]
        allowed = [structure.encode(column, known) for column, known in enumerate(some.T)]
        low, high = structure.bounds(allowed)
        mixed = np.column_stack([rng.choice(known, 100) for known in some.T])
        sums = structure.sums([structure.encode(column, known) for column, known in enumerate(mixed.T)])
        assert (low <= sums.min(axis=0)).all()
        assert (sums.max(axis=0) <= high).all()


def targets(goal: str, wanted: Any) -> list[tuple[mlflow_cf.Target, Any]]:
    """Return targets with what each means: the row's own prediction, the counterfactual's, its probabilities."""
    if goal == "value":
        low, high = (float(end) for end in np.quantile(wanted, [0.6, 0.8]))
        return [(mlflow_cf.Target(low=low, high=high), lambda _own, said, _shares: low <= said <= high)]
    return [
        (mlflow_cf.Target(label=1), lambda _own, said, _shares: said == 1),
        (mlflow_cf.Target.other(), lambda own, said, _shares: said != own),
        (
            mlflow_cf.Target(label=0, min_probability=0.6),
            lambda _own, said, shares: said == 0 and shares[0] >= 0.6,
        ),
    ]


# usually a model has one of the kinds of targets that it can have, and the next model another
TARGETED = [pytest.param(*case.values, None if THOROUGH else place, id=case.id) for place, case in enumerate(CASES)]


@pytest.mark.parametrize(("estimator", "goal", "native", "place"), TARGETED)
def test_answers_by_sweeps_are_proved_by_the_model(estimator, goal, native, place):
    model, data, wanted = fitted(estimator, goal, native=native)
    rows, like = data[:6], data.dtypes
    own = model.predict(rows)
    tried = targets(goal, wanted)
    for target, met in tried if place is None else [tried[place % len(tried)]]:
        explained = mlflow_cf.wrap(model, data, target=target, explainer=GeCo(sweep=True))
        opened(explained)
        answered = 0
        for number, found in enumerate(explained.explain(rows, count=2)):
            for answer in found.counterfactuals:
                row = pd.DataFrame([answer.row]).astype(like)
                assert met(own[number], model.predict(row)[0], asked(model, row)[0])
                answered += 1
        assert answered
