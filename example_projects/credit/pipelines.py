"""Four usual scikit-learn classifiers behind the same preparation of the columns."""

from __future__ import annotations

import warnings
from importlib.metadata import version

import mlflow
import pandas as pd
import skops.io
from mlflow.models import infer_signature
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

MODELS = ("logistic", "tree", "forest", "boosting")


def build_pipeline(model: str, rows: pd.DataFrame, seed: int) -> Pipeline:
    """Return an unfitted pipeline for the columns of `rows` (n, d) that ends in the classifier named `model`."""
    return make_pipeline(_preparation(rows), _classifier(model, seed))


def _classifier(
    model: str, seed: int
) -> LogisticRegression | DecisionTreeClassifier | RandomForestClassifier | HistGradientBoostingClassifier:
    match model:
        case "logistic":
            return LogisticRegression(max_iter=1000)
        case "tree":
            return DecisionTreeClassifier(max_depth=7, min_samples_leaf=20, random_state=seed)
        case "forest":
            return RandomForestClassifier(100, min_samples_leaf=5, random_state=seed)
        case "boosting":
            return HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=seed)
        case _:
            raise ValueError(f"model {model!r} is none of {MODELS}")


def _preparation(rows: pd.DataFrame) -> ColumnTransformer:
    """Impute and scale numbers, rank ordered levels, spread the other levels over columns of their own."""
    dtypes = rows.dtypes
    ordinal = [name for name in rows if isinstance(dtypes[name], pd.CategoricalDtype) and dtypes[name].ordered]
    numbers = [name for name in rows.select_dtypes("number") if name not in ordinal]
    nominal = [name for name in rows if name not in {*ordinal, *numbers}]
    levels = [rows[name].cat.categories.tolist() for name in ordinal]
    ranks = OrdinalEncoder(categories=levels, handle_unknown="use_encoded_value", unknown_value=-1)
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            ("ordinal", make_pipeline(ranks, StandardScaler()), ordinal),
            ("nominal", OneHotEncoder(handle_unknown="ignore", sparse_output=False), nominal),
        ]
    )


def log_plain(pipeline: Pipeline, rows: pd.DataFrame) -> None:
    """Log the pipeline as it is, as a usual scikit-learn model without explanations, in the active run.

    `rows` (m, d) show its input; requirements are named, because MLflow needs ten seconds to find them out.
    """
    with warnings.catch_warnings():
        # Counts, such as dependants, have no gaps in these tables.
        warnings.filterwarnings("ignore", message=".*integer column.*", category=UserWarning)
        signature = infer_signature(rows, pipeline.predict(rows))
    mlflow.sklearn.log_model(
        pipeline,
        name="plain",
        signature=signature,
        pip_requirements=[f"{name}=={version(name)}" for name in ("mlflow", "pandas", "scikit-learn", "skops")],
        # Whatever the pipeline holds has just been fitted here.
        skops_trusted_types=skops.io.get_untrusted_types(data=skops.io.dumps(pipeline)),
    )
