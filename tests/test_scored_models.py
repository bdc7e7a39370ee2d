"""Models of libraries that nobody opens are scored through their pyfunc, and `describe` says so."""

import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import infer_signature

import mlflow_cf

RNG = np.random.default_rng(0)
LOANS = pd.DataFrame({"income": RNG.integers(10, 90, 60) * 1.0, "debts": RNG.integers(0, 40, 60) * 1.0})
VALUE = LOANS["income"] - LOANS["debts"] + RNG.normal(size=60)


def check_scored(model: Any, folder: Path, low: float) -> None:
    """Explain some rows of a logged model of values, log it as an explained one, and compare."""
    explained = mlflow_cf.wrap(str(folder), LOANS, output="value", target=mlflow_cf.Target(low=low))
    described = explained.describe()
    assert not described["opened"]
    assert "scored through the model itself" in described["structure"]
    (step,) = described["steps"]
    assert (step["opened"], step["kind"]) == (False, "python_function")
    assert step["fix"]
    refused = LOANS[np.asarray(model.predict(LOANS), dtype=float) < low][:2]
    assert len(refused) == 2
    for answer in explained.explain(refused, max_evaluations=300, count=1):
        assert answer.status == "found"
        row = pd.DataFrame([answer.counterfactuals[0].row]).astype(float)
        assert float(np.asarray(model.predict(row), dtype=float)[0]) >= low


def test_any_pyfunc(tmp_path):
    class Balance(mlflow.pyfunc.PythonModel):
        def predict(self, context: Any, model_input: pd.DataFrame) -> Any:  # noqa: ARG002  the signature is MLflow's
            return (model_input["income"] - model_input["debts"]).to_numpy()

    folder = tmp_path / "model"
    mlflow.pyfunc.save_model(str(folder), python_model=Balance(), input_example=LOANS.head(2), pip_requirements=[])
    check_scored(mlflow.pyfunc.load_model(str(folder)), folder, 30.0)


def test_a_linear_model_of_statsmodels(tmp_path):
    statsmodels = pytest.importorskip("statsmodels.api")
    fitted = statsmodels.OLS(VALUE, LOANS).fit()
    folder = tmp_path / "model"
    mlflow.statsmodels.save_model(fitted, str(folder), signature=infer_signature(LOANS, VALUE.to_numpy()))
    check_scored(mlflow.pyfunc.load_model(str(folder)), folder, 30.0)


@pytest.mark.system
def test_a_pipeline_of_spark(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "ps1", "", raising=False)  # pyspark ends a process that looks like its own doctests
    ml = pytest.importorskip("pyspark.ml")
    feature, regression = pytest.importorskip("pyspark.ml.feature"), pytest.importorskip("pyspark.ml.regression")
    assembled = feature.VectorAssembler(inputCols=list(LOANS), outputCol="features")
    tree = regression.DecisionTreeRegressor(featuresCol="features", labelCol="value", maxDepth=3, seed=0)
    fitted = ml.Pipeline(stages=[assembled, tree]).fit(spark.createDataFrame(LOANS.assign(value=VALUE)))
    folder = tmp_path / "model"
    mlflow.spark.save_model(
        fitted, str(folder), dfs_tmpdir=str(tmp_path / "dfs"), signature=infer_signature(LOANS, VALUE.to_numpy()),
        pip_requirements=["pyspark"],
    )  # fmt: skip
    check_scored(mlflow.pyfunc.load_model(str(folder)), folder, 30.0)
