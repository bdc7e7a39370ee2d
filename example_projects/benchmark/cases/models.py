"""The models to explain, as a user would write them: preparation and estimator in one scikit-learn pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

Estimator = Callable[[int], object]

# Name on the command line -> estimator for a seed.
MODELS: Mapping[str, Estimator] = {
    "tree": lambda seed: DecisionTreeClassifier(max_depth=10, random_state=seed),
    "xgboost": lambda seed: XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1, random_state=seed),
    "histgb": lambda seed: HistGradientBoostingClassifier(max_iter=100, early_stopping=False, random_state=seed),
    "forest": lambda seed: RandomForestClassifier(n_estimators=100, max_depth=10, n_jobs=1, random_state=seed),
    # 20 passes are not the optimum, and near enough to it: what is measured is the time of the explanations
    "mlp": lambda seed: MLPClassifier(hidden_layer_sizes=(100,), max_iter=20, random_state=seed),
    "logistic": lambda seed: LogisticRegression(max_iter=1_000, random_state=seed),
}
# Where a proof costs most; for the exact part alone, unless named.
LARGE: Mapping[str, Estimator] = {
    "mlp_deep": lambda seed: MLPClassifier(hidden_layer_sizes=(100, 100), max_iter=20, random_state=seed),
    "forest_500": lambda seed: RandomForestClassifier(n_estimators=500, max_depth=10, n_jobs=1, random_state=seed),
}


def fitted(name: str, rows: pd.DataFrame, labels: pd.Series[int], seed: int) -> Pipeline:
    """Return one of MODELS or LARGE fitted to `rows` (n, d): levels spread over columns, numbers scaled."""
    model = make_pipeline(_preparation(rows, StandardScaler()), {**MODELS, **LARGE}[name](seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # see "mlp"
        return model.fit(rows, labels)


def unopened(rows: pd.DataFrame, labels: pd.Series[int]) -> Pipeline:
    """Return a fitted model that cannot be opened, so that every candidate goes through scikit-learn."""
    last = QuadraticDiscriminantAnalysis(reg_param=0.1)
    return make_pipeline(_preparation(rows, StandardScaler()), last).fit(rows, labels)


def as_published(rows: pd.DataFrame, seed: int) -> Pipeline:
    """Return GeCo's paper's model, unfitted: a decision tree with scikit-learn's own settings."""
    return make_pipeline(_preparation(rows, "passthrough"), DecisionTreeClassifier(random_state=seed))


def _preparation(rows: pd.DataFrame, numbers: object) -> ColumnTransformer:
    levels = list(rows.select_dtypes(exclude="number"))
    spread = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    others = [column for column in rows if column not in levels]
    return ColumnTransformer([("levels", spread, levels), ("numbers", numbers, others)])
