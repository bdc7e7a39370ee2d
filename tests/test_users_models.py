"""What users are told about models that cannot be taken as they are, or have less to say than others."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.words.description import description

FRAME = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) % 7})


def of_library(library: str, name: str, **methods: Any) -> Any:
    """Return a fitted model as a library that is not installed would make it."""
    return type(name, (), {"__module__": f"{library}.core", **methods})()


@pytest.mark.parametrize(
    ("library", "name", "module"),
    [
        ("paddle", "Model", "paddle"),
        ("statsmodels", "BinaryResultsWrapper", "statsmodels"),
        ("torch", "Linear", "pytorch"),
        ("keras", "Sequential", "keras"),
        ("pyspark", "PipelineModel", "spark"),
        ("onnx", "ModelProto", "onnx"),
    ],
)
def test_a_model_that_only_mlflow_can_read_is_to_be_logged_first(library: str, name: str, module: str) -> None:
    model = of_library(library, name, __call__=lambda _, rows: rows)
    with pytest.raises(mlflow_cf.InputError) as error:
        mlflow_cf.wrap(model, FRAME)
    assert str(error.value) == (
        f"model: a {name} can be taken from MLflow alone; "
        f"log it with mlflow.{module}.log_model and pass the model_uri of what it returns"
    )


def test_a_class_of_the_users_own_counts_as_its_library() -> None:
    network = type("Net", (type(of_library("torch", "Module")),), {"__module__": "__main__"})()
    with pytest.raises(mlflow_cf.InputError, match=r"mlflow\.pytorch\.log_model"):
        mlflow_cf.wrap(network, FRAME)


def test_anything_else_is_no_model() -> None:
    with pytest.raises(mlflow_cf.InputError, match="model: module is not a kind of model known here; pass a fitted"):
        mlflow_cf.wrap(ModuleType("model"), FRAME)


def test_a_model_that_votes_has_no_scores() -> None:
    parts = [("linear", LogisticRegression()), ("tree", DecisionTreeClassifier())]
    model = VotingClassifier(parts, voting="hard").fit(FRAME, (FRAME["a"] > 9).astype(int))
    told = description(mlflow_cf.wrap(model, FRAME).describe())
    assert "scored through the model itself: it has labels only, no scores" in told
    assert "largest score" not in told
