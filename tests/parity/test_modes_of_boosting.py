"""The less common modes of the boosting libraries: what they are opened as answers what they answer."""

from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from agreement import agree, applications, goals, wrapped
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf

XGB = {"n_estimators": 12, "n_jobs": 1}
DART = {**XGB, "booster": "dart", "rate_drop": 0.4}
LGB = {"n_estimators": 12, "n_jobs": 1, "verbose": -1}
FOREST = {**LGB, "boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
CASES: dict[str, tuple[Any, str]] = {
    "xgboost, dart": (xgboost.XGBClassifier(**DART), "two"),
    "xgboost, dart for classes": (xgboost.XGBClassifier(**DART, one_drop=True), "three"),
    "xgboost, dart for values": (xgboost.XGBRegressor(**DART, normalize_type="forest"), "value"),
    "xgboost, forest": (xgboost.XGBRFClassifier(**XGB), "two"),
    "xgboost, forest for classes": (xgboost.XGBRFClassifier(**XGB), "three"),
    "xgboost, forest for values": (xgboost.XGBRFRegressor(**XGB), "value"),
    "xgboost, boosted forests": (xgboost.XGBClassifier(**XGB, num_parallel_tree=3, subsample=0.7), "three"),
    "xgboost, dropped forests": (xgboost.XGBRegressor(**DART, num_parallel_tree=3, subsample=0.7), "value"),
    "xgboost, linear": (xgboost.XGBClassifier(**XGB, booster="gblinear"), "two"),
    "xgboost, linear for classes": (xgboost.XGBClassifier(**XGB, booster="gblinear"), "three"),
    "xgboost, linear for values": (xgboost.XGBRegressor(**XGB, booster="gblinear"), "value"),
    "xgboost, counts": (xgboost.XGBRegressor(**XGB, objective="count:poisson"), "value"),
    "xgboost, gamma": (xgboost.XGBRegressor(**XGB, objective="reg:gamma"), "value"),
    "xgboost, tweedie": (xgboost.XGBRegressor(**DART, objective="reg:tweedie"), "value"),
    "xgboost, shares": (xgboost.XGBRegressor(**XGB, objective="reg:logistic"), "share"),
    "lightgbm, dart": (lightgbm.LGBMClassifier(**LGB, boosting_type="dart", drop_rate=0.4), "three"),
    "lightgbm, dart for values": (lightgbm.LGBMRegressor(**LGB, boosting_type="dart", drop_rate=0.4), "value"),
    "lightgbm, forest": (lightgbm.LGBMClassifier(**FOREST), "two"),
    "lightgbm, forest for classes": (lightgbm.LGBMClassifier(**FOREST), "three"),
    "lightgbm, forest for values": (lightgbm.LGBMRegressor(**FOREST), "value"),
    "lightgbm, counts": (lightgbm.LGBMRegressor(**LGB, objective="poisson"), "value"),
    "lightgbm, gamma": (lightgbm.LGBMRegressor(**LGB, objective="gamma"), "value"),
    "lightgbm, tweedie": (lightgbm.LGBMRegressor(**LGB, objective="tweedie"), "value"),
    "lightgbm, rooted": (lightgbm.LGBMRegressor(**LGB, reg_sqrt=True), "value"),
    "scikit-learn, counts": (HistGradientBoostingRegressor(loss="poisson", max_iter=8), "value"),
    "scikit-learn, gamma": (HistGradientBoostingRegressor(loss="gamma", max_iter=8), "value"),
    "scikit-learn, exponential": (GradientBoostingClassifier(loss="exponential", n_estimators=8), "two"),
}


@pytest.mark.parametrize("steps", ["alone", "scaled"])
@pytest.mark.parametrize(("model", "goal"), CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("ignore:Parameters. { .*:UserWarning")
def test_modes_of_boosting(model, goal, steps):
    data, rows = applications()[["age", "debt", "income"]], applications(200, seed=1)[["age", "debt", "income"]]
    if "Gradient" in type(model).__name__ and "Hist" not in type(model).__name__:
        data, rows = data.fillna(0), rows.fillna(0)
    value = goals(applications())["value"]
    known = {"value": value - value.min() + 1, "share": (value - value.min()) / np.ptp(value)}
    wanted = known[goal] if goal in known else goals(applications())[goal].astype("category").cat.codes
    model = model if steps == "alone" else make_pipeline(StandardScaler(), model)
    agree(model.fit(data, wanted), wrapped(model, data, wanted), rows, 1e-5)


@pytest.mark.filterwarnings("ignore:Parameters. { .*:UserWarning")
@pytest.mark.parametrize(
    "name", ["xgboost, counts", "xgboost, linear", "lightgbm, forest", "xgboost, dart for classes"]
)
def test_their_answers_are_certified(name):
    model, goal = CASES[name]
    data = applications()[["age", "debt"]]
    value = goals(applications())["value"]
    wanted = value - value.min() + 1 if goal == "value" else goals(applications())[goal].astype("category").cat.codes
    model.fit(data, wanted)
    target = mlflow_cf.Target(low=float(np.median(model.predict(data)))) if goal == "value" else 1
    explained = mlflow_cf.wrap(model, data, target=target)
    missed = model.predict(data) < target.low if goal == "value" else model.predict(data) != 1
    for found in explained.explain(data[missed][:4], certify=True):
        assert (found.status, found.counterfactuals[0].proof) == ("found", "optimal")


def test_early_stopping_of_dart_and_forests_leaves_later_rounds_out():
    data = applications()[["age", "debt"]]
    wanted = goals(applications())["two"].astype("category").cat.codes
    for options in ({}, {"num_parallel_tree": 2}):
        model = xgboost.XGBClassifier(n_jobs=1, early_stopping_rounds=2, n_estimators=60, learning_rate=1.0, **options)
        model.fit(data[:200], wanted[:200], eval_set=[(data[200:], wanted[200:])], verbose=False)
        assert model.best_iteration < 57
        agree(model, wrapped(model, data, wanted), data, 1e-5)
