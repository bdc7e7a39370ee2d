"""A real ``mlflow models serve`` process as the model: Adult rows explained in few calls, and the process killed."""

import os
import signal
from contextlib import suppress
from threading import Timer

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from laws import many
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, Schema
from served import serving
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import mlflow_cf

BACKGROUND, FITTED = 3_000, 12_000
ROWS = many(12, 50)
MOST_CALLS, MOST_ROWS = 40, 4_000
FOUND, DISTANCE = 0.95, 1.3


@pytest.fixture(scope="module")
def world(data_file, tmp_path_factory):
    """Return a server of a model of Adult, the model itself, background, refused rows, and the options of wrapping."""
    table = pd.read_csv(data_file("adult.csv")).drop(columns=["fnlwgt", "education"])
    constraints = yaml.safe_load(data_file("constraints/adult.yaml").read_text(encoding="utf-8"))
    features, labels = table.iloc[:, :-1], table.iloc[:, -1]
    some = features.sample(FITTED, random_state=0)
    levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encode = make_column_transformer(
        (levels, make_column_selector(dtype_exclude="number")),
        ("passthrough", make_column_selector(dtype_include="number")),
    )
    model = make_pipeline(encode, HistGradientBoostingClassifier(random_state=0)).fit(some, labels[some.index])
    others = features.drop(some.index).sample(1_000, random_state=1)
    refused = others[model.predict(others) == 0].head(ROWS).reset_index(drop=True)
    mlflow.set_experiment("endpoint")
    kinds = {name: "long" if pd.api.types.is_numeric_dtype(some[name]) else "string" for name in some}
    signature = ModelSignature(Schema([ColSpec(kind, name) for name, kind in kinds.items()]))
    logged = mlflow.sklearn.log_model(
        model, name="adult", signature=signature, serialization_format="cloudpickle", pip_requirements=[]
    )
    options = {"target": 1, "constraints": constraints}
    background = some.head(BACKGROUND).reset_index(drop=True)
    with serving(logged.model_uri, tmp_path_factory.mktemp("adult") / "output.txt") as server:
        yield server, model, background, refused, options


def test_adult_is_explained_in_few_calls_until_the_server_is_killed(world, tmp_path):
    server, model, background, refused, options = world
    best = mlflow_cf.wrap(model, background, **options).explain(refused, certify=True, time_limit_s=60)
    mlflow_cf.save_model(server.url, tmp_path / "explained", background, **options)
    explained = mlflow_cf.load_model(tmp_path / "explained")
    found = [explained.explain(refused.iloc[[place]])[0] for place in range(len(refused))]
    for one in found:
        assert one.judge_calls == one.diagnostics["judge_calls"] <= MOST_CALLS
        assert one.diagnostics["judge_rows"] <= MOST_ROWS
        for answer in one.counterfactuals:
            assert model.predict(pd.DataFrame([answer.row]))[0] == 1
    pairs = [(one, other) for one, other in zip(found, best, strict=True) if other.status == "found"]
    assert np.mean([one.status == "found" for one, _ in pairs]) >= FOUND
    near = [(a.counterfactuals[0].distance, b.counterfactuals[0].distance) for a, b in pairs if a.counterfactuals]
    ratio = np.mean([one for one, _ in near]) / np.mean([other for _, other in near])
    assert ratio <= DISTANCE

    def kill():
        with suppress(ProcessLookupError):
            os.killpg(server.group, signal.SIGKILL)

    Timer(0.3, kill).start()  # while rows are searched
    answers = explained.explain(refused)
    assert {one.status for one in answers} <= {"found", "budget"}
    assert "budget" in {one.status for one in answers}
    answers = explained.explain(refused)
    assert {(one.status, one.prediction) for one in answers} == {("budget", None)}
    assert all("endpoint" in one.reason for one in answers)
