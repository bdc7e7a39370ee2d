"""Missing values of object columns reach the model as it knows them: NaN where it was trained on NaN, None on None."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import mlflow_cf
from mlflow_cf.features import FeatureSpace

COLUMNS = {
    "category": (["a", "b", "a", "c"], {}),
    "ordinal": (["low", "high", "low", "mid"], {"kind": "ordinal", "levels": ["low", "mid", "high"]}),
    "boolean": ([True, False, True, True], {}),
    "integer": ([1, 2, 3, 4], {}),
    "real": ([1.5, 2.0, 3.0, 4.0], {}),
    "date": (["2024-01-01", "2024-03-01", "2024-01-05", "2023-01-01"], {"kind": "date"}),
}


def frame_of(values, absent):
    return pd.DataFrame({"f": pd.Series([*values, absent, values[0]], dtype=object)})


@pytest.mark.parametrize("absent", [None, np.nan], ids=str)
@pytest.mark.parametrize("kind", COLUMNS)
def test_the_mark_comes_back(kind, absent):
    values, override = COLUMNS[kind]
    frame = frame_of(values, absent)
    space = FeatureSpace.infer(frame, {"f": override} if override else None)
    assert space["f"].kind == kind
    for known in (space, FeatureSpace.from_dict(space.to_dict())):
        decoded = known.decode(known.encode(frame))
        assert decoded["f"].dtype == object
        assert decoded["f"].tolist()[:4] == values
        assert isinstance(decoded["f"].iloc[4], float) == isinstance(absent, float)
        # a JSON null is None, whatever the model was trained on
        sent = known.decode(known.encode(frame_of(values, None)))
        assert isinstance(sent["f"].iloc[4], float) == isinstance(absent, float)


def test_spaces_written_before_the_mark_was_known_can_be_read():
    written = FeatureSpace.infer(frame_of(["a", "b"], None)).to_dict()
    del written["features"][0]["nan"]
    assert FeatureSpace.from_dict(written)["f"].nan is False


@pytest.mark.parametrize("absent", [None, np.nan], ids=str)
def test_a_model_that_tells_none_from_nan_is_asked_in_its_own_terms(absent):
    rng = np.random.default_rng(0)
    job = pd.Series([("a", "b", "c", absent)[drawn] for drawn in rng.integers(4, size=200)], dtype=object)
    rows = pd.DataFrame({"age": rng.integers(20, 60, 200), "job": job})
    wanted = (rows["age"] > 50) | job.isna()
    prepare = make_column_transformer((OneHotEncoder(handle_unknown="error"), ["job"]), remainder="passthrough")
    model = make_pipeline(prepare, LogisticRegression(max_iter=1000)).fit(rows, wanted.astype(int))
    explained = mlflow_cf.wrap(model, rows)
    answers = explained.explain(rows)
    assert [answer.prediction for answer in answers] == model.predict(rows).tolist()
    assert {answer.status for answer, lost in zip(answers, job.isna(), strict=True) if lost} == {"already"}
