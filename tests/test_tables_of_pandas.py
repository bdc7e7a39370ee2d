"""Tables with pandas' own types: what MLflow refuses of them, the cure that docs/limits.md names, that both agree."""

from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlflow_cf

RNG = np.random.default_rng(0)
PLAIN = pd.DataFrame(
    {
        "job": RNG.choice(["clerk", "cook", "nurse"], 80),
        "floor": RNG.integers(1, 4, 80),
        "visits": np.where(np.arange(80) == 3, np.nan, RNG.integers(0, 9, 80)),
        "income": RNG.integers(0, 90, 80),
    }
)
TYPED = PLAIN.astype({"job": "category", "floor": "category", "visits": "Int64"})
SIMPLE = {"job": object, "floor": "int64", "visits": "float64"}
ASKED = {"counterfactual": {"count": 2}}


def fitted(table: pd.DataFrame) -> Pipeline:
    columns = make_column_transformer((OneHotEncoder(), ["job", "floor"]), (StandardScaler(), ["income"]))
    return make_pipeline(columns, LogisticRegression()).fit(table, (table["income"] > 40).astype(int))


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typed") / "m"
    mlflow_cf.save_model(fitted(TYPED), folder, TYPED)
    return folder


ROWS = TYPED[(TYPED["income"] < 30) & TYPED["visits"].notna()].head(4)


@pytest.mark.parametrize("column", SIMPLE)
def test_mlflow_refuses_some_types_and_the_model_itself_takes_them(uri: Path, column: str) -> None:
    served = mlflow.pyfunc.load_model(str(uri))
    rows = ROWS.astype({name: kind for name, kind in SIMPLE.items() if name != column})
    with pytest.raises(MlflowException, match="Can not safely convert"):
        served.predict(rows, ASKED)
    found = served.get_raw_model().predict(rows, ASKED)
    assert set(found["status"]) == {"found"}
    pd.testing.assert_frame_equal(found, pd.DataFrame(served.predict(ROWS.astype(SIMPLE), ASKED)))


def test_so_does_a_model_that_is_loaded_as_ours(uri: Path) -> None:
    found = mlflow_cf.load_model(uri).predict(TYPED.loc[[3]], ASKED)  # the one with a missing value
    assert set(found["status"]) <= {"found", "already"}
