"""Categories that libraries split themselves: known and unseen ones, missing ones, and numbers that are categories."""

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from agreement import agree, near_cuts, wrapped
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import mlflow_cf

LETTERS = np.array(["a", "b", "c", "d", "e", "f", "g", "h", None], dtype=object)
XGB = {"n_estimators": 15, "n_jobs": 1, "enable_categorical": True}
LGB = {"n_estimators": 15, "n_jobs": 1, "verbose": -1, "min_data_per_group": 5, "cat_smooth": 1}


def offers(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "price": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
            "letter": pd.Categorical(LETTERS[rng.integers(0, 9, rows)], categories=LETTERS[:-1]),
            "grade": pd.Categorical(rng.choice([1, 3, 7], rows)),
            "size": pd.Categorical(rng.choice(["s", "m", "l"], rows), categories=["s", "m", "l"], ordered=True),
            "count": rng.integers(0, 9, rows),
            "member": rng.random(rows) < 0.5,
        }
    )


def value(data: pd.DataFrame) -> pd.Series:
    odd = data["letter"].isin(["a", "d", "e"]) ^ (data["grade"] == 3) ^ data["count"].isin([2, 5, 6])
    return data["price"].fillna(0.3) + 2 * odd + (data["size"] == "m")


def new_offers() -> pd.DataFrame:
    """Return rows with another seed, of which some lack what the training rows never lacked."""
    rows = offers(400, seed=1)
    rows.loc[::5, "grade"] = np.nan
    return rows


MODELS = {
    "hist": HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=15),
    "hist, by name": HistGradientBoostingClassifier(
        categorical_features=["letter", "grade", "size", "count"], max_iter=15
    ),
    "hist, by mask": HistGradientBoostingRegressor(categorical_features=[False, *[True] * 4, False], max_iter=15),
    "xgboost": xgboost.XGBClassifier(**XGB),
    "xgboost, one against the rest": xgboost.XGBClassifier(max_cat_to_onehot=99, **XGB),
    "xgboost, sets": xgboost.XGBRegressor(max_cat_to_onehot=1, **XGB),
    "lightgbm": lightgbm.LGBMClassifier(**LGB),
    "lightgbm, one against the rest": lightgbm.LGBMRegressor(max_cat_to_onehot=99, **LGB),
    "lightgbm, zeros missing": lightgbm.LGBMClassifier(zero_as_missing=True, **LGB),
    "lightgbm, zeros and no gaps": lightgbm.LGBMClassifier(zero_as_missing=True, use_missing=False, **LGB),
    "lightgbm, no gaps": lightgbm.LGBMClassifier(use_missing=False, **LGB),
    "lightgbm, dart": lightgbm.LGBMRegressor(boosting_type="dart", **LGB),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_categories(model):
    data = offers()
    wanted = value(data) if "Regressor" in type(model).__name__ else (value(data) > 1.5).astype(int)
    model.fit(data, wanted)
    explained = wrapped(model, data, wanted)
    agree(model, explained, new_offers(), 1e-5)
    agree(model, explained, near_cuts(explained, offers(300, seed=2), ("price",)), 1e-5)


@pytest.mark.parametrize("model", [MODELS["xgboost, sets"], MODELS["lightgbm"], MODELS["hist"]], ids=str)
def test_levels_in_another_order_than_when_it_was_fitted(model):
    data, wanted = offers(), (value(offers()) > 1.5).astype(int)
    model.fit(data, wanted)
    other = data.assign(letter=data["letter"].cat.reorder_categories(list("hgfedcba")))
    rows = new_offers().assign(letter=lambda rows: rows["letter"].cat.reorder_categories(list("hgfedcba")))
    agree(model, wrapped(model, other, wanted), rows, 1e-5)


@pytest.mark.parametrize("model", [MODELS["lightgbm"], MODELS["hist"], MODELS["hist, by name"]], ids=str)
def test_levels_it_was_not_fitted_on(model):
    data, wanted = offers(), (value(offers()) > 1.5).astype(int)
    model.fit(data, wanted)
    rows = new_offers()
    rows["letter"] = rows["letter"].cat.add_categories("z")
    rows.loc[::3, "letter"] = "z"
    agree(model, wrapped(model, data, wanted), rows)


def test_numbers_that_are_categories_to_lightgbm():
    data = offers()[["price", "count", "member"]].assign(rate=lambda data: data["count"] * 1.0)
    wanted = (value(offers()) > 1.5).astype(int)
    model = lightgbm.LGBMClassifier(**LGB).fit(data, wanted, categorical_feature=["count", "rate"])
    explained = wrapped(model, data, wanted)
    rows = data.copy()
    odd = [-3.0, -1.0, -0.5, -0.0, 0.4, 1.0, np.nextafter(2, 0), 2.0, 8.9, 9.0, 77.0, 1e9, np.nan]
    rows["rate"] = np.resize(odd, len(rows))
    rows["count"] = np.resize([-1, -2, 0, 5, 8, 9, 30, 31, 32, 10_000], len(rows))
    agree(model, explained, rows)
    agree(model, explained, near_cuts(explained, data, ("price", "rate")))


def test_numbers_that_are_categories_to_xgboost():
    table = np.column_stack([offers()["count"], offers()["price"].fillna(0)]).astype(float)
    label = (value(offers()) > 1.5).astype(int)
    types = ["c", "q"]
    matrix = xgboost.DMatrix(table, label, feature_types=types, enable_categorical=True)
    model = xgboost.train({"objective": "binary:logistic", "nthread": 1}, matrix, 15)
    explained = mlflow_cf.wrap(model, pd.DataFrame(table, columns=["count", "price"]), target=1)
    assert explained.opened.structure is not None, explained.opened.note


def test_thresholds_around_zero_in_lightgbm():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.choice([-1.0, -1e-30, 0.0, 1e-30, 1.0], 500), "y": rng.normal(size=500)})
    wanted = ((data["x"] >= 0) ^ (data["y"] > 0)).astype(int)
    for zeros in (False, True):
        model = lightgbm.LGBMClassifier(zero_as_missing=zeros, **LGB).fit(data, wanted)
        explained = wrapped(model, data, wanted)
        tiny = float(np.float32(1e-35))
        near = [0.0, -0.0, tiny, -tiny, np.nextafter(tiny, 1), np.nextafter(-tiny, -1), 5e-324, 1e-36, -1e-36, np.nan]
        agree(model, explained, data.assign(x=np.resize(near, len(data))))
