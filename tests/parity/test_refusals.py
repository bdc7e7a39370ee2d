"""What cannot be opened is named in `describe()`, and explained through scoring."""

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from agreement import applications, goals, wrapped
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA, FastICA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostRegressor,
    GradientBoostingClassifier,
    RandomForestRegressor,
    StackingClassifier,
)
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf


def root(values):
    return np.sqrt(np.abs(values))


def square(values):
    return np.square(values)


FEW = {"n_estimators": 20, "n_jobs": 1}
TREE = DecisionTreeClassifier(random_state=0)


def year(moments):
    return moments.apply(lambda column: column.dt.year).to_numpy(dtype=float)


def own_loss(label, scores):
    return scores - label, np.ones_like(scores)


REASONS = {
    "DecisionTreeClassifier behind PCA, which mixes columns": make_pipeline(StandardScaler(), PCA(2), TREE),
    "the step FastICA": make_pipeline(StandardScaler(), FastICA(2, random_state=0), LogisticRegression()),
    "PolynomialFeatures that multiplies several features": make_pipeline(PolynomialFeatures(), TREE),
    "the step KNNImputer": make_pipeline(KNNImputer(), TREE),
    "the step FunctionTransformer": make_pipeline(FunctionTransformer(np.abs), TREE),
    "a SimpleImputer of 20": make_pipeline(SimpleImputer(missing_values=20), TREE),
    "a ColumnTransformer with weights": make_pipeline(
        make_column_transformer(("passthrough", ["age", "debt"]), n_jobs=1).set_params(
            transformer_weights={"passthrough": 2.0}
        ),
        TREE,
    ),
    "the estimator QuadraticDiscriminantAnalysis": QuadraticDiscriminantAnalysis(),
    "SVC with the kernel rbf": make_pipeline(StandardScaler(), SVC()),
    "AdaBoostRegressor of others than single trees": AdaBoostRegressor(LinearRegression(), n_estimators=5),
    "inverse function that is not known to rise": TransformedTargetRegressor(
        LinearRegression(), func=root, inverse_func=square
    ),
    "a stacked KNeighborsClassifier": StackingClassifier([("a", LogisticRegression())], KNeighborsClassifier(), cv=2),
    "XGBoost's objective binary:logitraw": xgboost.XGBClassifier(objective="binary:logitraw", **FEW),
    "modified_huber loss": make_pipeline(StandardScaler(), SGDClassifier(loss="modified_huber", random_state=0)),
    "starts from GaussianNB": GradientBoostingClassifier(init=GaussianNB(), n_estimators=3),
    "XGBoost with missing=20": xgboost.XGBClassifier(missing=20, **FEW),
    "XGBoost with missing=30": make_pipeline(StandardScaler(), xgboost.XGBClassifier(missing=30, **FEW)),
    "LightGBM's linear trees": lightgbm.LGBMRegressor(linear_tree=True, verbose=-1, **FEW),
    "LightGBM's objective multiclassova": lightgbm.LGBMClassifier(objective="multiclassova", verbose=-1, **FEW),
    "an own objective": lightgbm.LGBMRegressor(objective=own_loss, verbose=-1, **FEW),
}


@pytest.mark.filterwarnings("ignore:Parameters. { .n_estimators|:UserWarning")
@pytest.mark.parametrize(("reason", "model"), REASONS.items(), ids=REASONS)
def test_the_reason_is_named_and_rows_are_still_explained(reason, model):
    data = applications()[["age", "debt"]]
    wanted = (goals(applications())["two"] == "yes").astype(int)
    if "multiclassova" in reason:
        wanted = goals(applications())["three"].astype("category").cat.codes
    model.fit(data, wanted)
    predicted = pd.Series(model.predict(data))
    if hasattr(model, "classes_"):
        target, missed = int(predicted.mode()[0]), predicted != predicted.mode()[0]
    else:
        target, missed = mlflow_cf.Target(low=float(predicted.median())), predicted < predicted.median()
    explained = mlflow_cf.wrap(model, data, target=target)
    assert explained.opened.structure is None
    assert reason in explained.describe()["structure"]
    found = explained.explain(data[missed][:5], max_evaluations=2000)
    assert {one.status for one in found} == {"found"}


def test_levels_and_dates_that_reach_what_cannot_read_them():
    data = applications()[["age", "debt"]].assign(since=pd.date_range("2020-01-01", periods=400))
    wanted = goals(applications())["two"]
    steps = make_column_transformer((FunctionTransformer(year), ["since"]), remainder="passthrough")
    model = make_pipeline(steps, TREE).fit(data, wanted)
    assert "the step FunctionTransformer" in wrapped(model, data, wanted).describe()["structure"]
    encoded = make_pipeline(make_column_transformer((OneHotEncoder(), ["since"])), TREE)
    encoded.fit(data, wanted)
    assert "the date since" in wrapped(encoded, data, wanted).describe()["structure"]


def test_several_outputs_are_refused():
    data = applications()[["age", "debt"]]
    model = RandomForestRegressor(n_estimators=3).fit(data, data)
    with pytest.raises(mlflow_cf.InputError, match="wrap one model per output"):
        mlflow_cf.wrap(model, data, target=mlflow_cf.Target(low=1))


def test_a_label_that_is_not_that_of_the_largest_score():
    class Careful(DecisionTreeClassifier):
        def predict(self, X):
            return (self.predict_proba(X)[:, 1] > 0.9).astype(int)

    data = applications()[["age", "debt"]]
    model = Careful(max_depth=3, random_state=0).fit(data, (goals(applications())["two"] == "yes").astype(int))
    structure = mlflow_cf.wrap(model, data, target=1).describe()["structure"]
    assert "its label is not that of the largest score" in structure
