"""Train a small network on careers and log it with what people can do, what that costs, and who makes the plans."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pandas as pd
from careers import TARGET
from mlflow.models.model import ModelInfo
from sklearn.compose import make_column_transformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlflow_cf

POLICY = Path(__file__).resolve().parent / "policy.yaml"
NOMINAL = ["region", "job"]


def fitted(table: pd.DataFrame, seed: int) -> Pipeline:
    """Return a network with two hidden layers, fitted on a table of careers (n, 8)."""
    numbers = [name for name in table if name not in {*NOMINAL, TARGET}]
    columns = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(sparse_output=False), NOMINAL))
    network = MLPClassifier((16, 8), alpha=1e-3, learning_rate_init=0.01, early_stopping=True, random_state=seed)
    return make_pipeline(columns, network).fit(table.drop(columns=TARGET), table[TARGET])


def log(pipeline: Pipeline, table: pd.DataFrame, seed: int) -> ModelInfo:
    """Log the network in the active run, explained by CSCF under the policy."""
    return mlflow_cf.log_model(
        pipeline,
        "careers",
        table.drop(columns=TARGET),
        table[TARGET],
        target=1,
        constraints=str(POLICY),
        explainer="cscf",
        values="continuous",  # what actions lead to is rarely a number that somebody in the table has
        seed=seed,
    )


def log_figures(told: list[mlflow_cf.Explanation], folder: str) -> None:
    """Log both figures of plans to the active run."""
    mlflow.log_figure(mlflow_cf.plots.sequence_flow(told), f"{folder}/sequence_flow.png")
    mlflow.log_figure(mlflow_cf.plots.position_effect(told), f"{folder}/position_effect.png")
