"""People with numbers and levels, models that accept about a third of them, and constraints: as many rows as wanted."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import mlflow_cf
from mlflow_cf import Target
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.policy.survival import confidence_of

JOBS, TOWNS = ("cook", "clerk", "smith", "none"), ("a", "b", "c", "d", "e")
MODELS: dict[str, Any] = {
    "tree": DecisionTreeClassifier(max_depth=5, random_state=0),
    "forest": RandomForestClassifier(12, max_depth=4, random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=12, early_stopping=False, random_state=0),
    "logistic": LogisticRegression(max_iter=1_000),
    "network": MLPClassifier((7,), max_iter=20, tol=1.0, random_state=0),
    "deep": MLPClassifier((5, 4), max_iter=20, tol=1.0, random_state=0),
    "unopened": KNeighborsClassifier(3),
    "tree value": DecisionTreeRegressor(max_depth=5, random_state=0),
    "network value": MLPRegressor(hidden_layer_sizes=(7,), max_iter=20, tol=1.0, random_state=0),
}
CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {},
    {"immutable": ["age", "town"], "increasing": ["skill"], "max_changes": 2},
    {"ranges": {"income": [10, 60]}, "decreasing": ["debt"], "forbidden": {"job": [["cook", "clerk"]]}},
    {"relative": {"income": {"up": 9, "down_percent": 10}}, "levels": {"job": ["cook", "smith"]}},
    {"rules": ["IF x_cf.skill > x.skill THEN x_cf.age >= x.age + 2"]},
    {"groups": [["job", "town"]]},
)


def people(seed: int, rows: int) -> pd.DataFrame:
    """Return rows with numbers, of which some are missing, and levels."""
    rng = np.random.default_rng(seed)
    income = rng.integers(5, 90, rows).astype(np.float64)
    income[rng.random(rows) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, rows),
            "income": income,
            "debt": rng.normal(10, 4, rows).round(1),
            "skill": rng.integers(0, 5, rows),
            "job": rng.choice(JOBS, rows),
            "town": rng.choice(TOWNS, rows),
        }
    )


@cache
def fitted(kind: str, seed: int) -> tuple[Pipeline, pd.DataFrame]:
    """Return a model and its background; about a third of the rows are accepted."""
    frame = people(seed, 120)
    value = frame["income"].fillna(30) - 2 * frame["debt"] + 6 * frame["skill"] + 5 * (frame["job"] == "smith")
    value += np.random.default_rng(seed).normal(0, 4, len(frame))
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    prepared = make_column_transformer((numbers, ["age", "income", "debt", "skill"]), (levels, ["job", "town"]))
    wanted = value / value.std() if "value" in kind else (value > value.quantile(0.6)).astype(int)
    return make_pipeline(prepared, clone(MODELS[kind])).fit(frame, wanted), frame


@cache
def wrapped(kind: str, seed: int, constraints: int) -> ExplainedModel:
    """Return a model with one of CONSTRAINTS."""
    model, frame = fitted(kind, seed)
    return mlflow_cf.wrap(model, frame, constraints=CONSTRAINTS[constraints], target=target_of(kind, seed))


def target_of(kind: str, seed: int) -> Any:
    """Return what is wanted of a model."""
    model, frame = fitted(kind, seed)
    return Target(low=float(np.quantile(model.predict(frame), 0.7))) if "value" in kind else 1


@cache
def surviving(kind: str, seed: int, constraints: int, misses: int, linf: float = 0.0) -> ExplainedModel:
    """Return the same model whose answers four others must accept, all but so many `misses`."""
    model, frame = fitted(kind, seed)
    sure = confidence_of(4 - misses, 4, 0.5) - 1e-9
    others = [fitted(kind, 10 * seed + other)[0] for other in range(1, 5)]
    return mlflow_cf.wrap(
        model,
        frame,
        constraints=CONSTRAINTS[constraints],
        target=target_of(kind, seed),
        survival={"holds": 0.5, "confidence": sure, "compared": 1, "models": others},
        distance=mlflow_cf.Distance(l0=0.4, l1=0.6 - linf, linf=linf),
    )
