"""A kind of model that another distribution brings through its entry point passes the same tests as ours."""

import os
import sys
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from served import serving

import mlflow_cf
from mlflow_cf.model.flavors import flavor_named, flavor_names
from mlflow_cf.testing import Kind, ModelSuite
from mlflow_cf.testing.checker import Ruler, plain_rows, table_of

FOLDER = Path(__file__).parent / "third_party"  # as pip would leave it: modules, and their dist-info


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


def fit(goal, rows, values):
    return import_module("fit_scorecards").fit(goal, rows, values)  # found once its folder is on the path


class TestScorecards(ModelSuite):
    kind = Kind(fit, probabilities=False, opened=True, n_labels=(0, 2))


LOANS = pd.DataFrame(
    {
        "age": [22, 31, 44, 58, 63, 39],
        "income": [12.5, 48.0, 30.25, np.nan, 21.0, 75.5],
        "home": ["rent", "own", "rent", "free", "own", "rent"],
    }
)


@pytest.fixture
def card(installed):
    Scorecard = import_module("scorecard").Scorecard  # found once its folder is on the path
    bins = {"age": ([30.0, 50.0], [0.0, 10.0, 15.0, 0.0]), "income": ([20.0, 40.0], [0.0, 15.0, 35.0, 5.0])}
    return Scorecard(bins, {"home": [("own", 20.0), ("rent", 5.0), ("boat", 60.0)]}, 44.0, ("refused", "granted"))


def nearest_by_trying(card, background, query):
    """Return the distance of the nearest granted row among all that the background's values make."""
    tried = product(*({*background[name].dropna().tolist(), value} for name, value in query.items()))
    rows = [dict(zip(query, values, strict=True)) for values in tried]
    granted = card.predict(table_of(rows, background)) == "granted"
    return min(Ruler(background).distance(query, rows[place]) for place in np.flatnonzero(granted))


def test_a_scorecard_is_opened_and_certified(card):
    explained = mlflow_cf.wrap(card, LOANS, target="granted")
    described = explained.describe()
    assert (described["flavor"], described["opened"]) == ("scorecard", True)
    assert described["structure"] == "linear; same as the model on 18 rows"
    refused = LOANS[card.predict(LOANS) == "refused"]
    assert len(refused) > 2
    for query, answer in zip(plain_rows(refused), explained.explain(refused, certify=True), strict=True):
        (found,) = answer.counterfactuals
        assert (answer.status, found.proof, found.prediction) == ("found", "optimal", "granted")
        assert found.distance == pytest.approx(nearest_by_trying(card, LOANS, query), abs=1e-12)


def test_points_per_bin_are_certified_between_observed_values_too(card):
    explained = mlflow_cf.wrap(card, LOANS, target="granted", values="continuous", explainer="exact")
    (answer,) = explained.explain(LOANS.iloc[[2]])
    (found,) = answer.counterfactuals
    assert found.proof == "optimal"
    assert found.row == {"age": 44, "income": np.nextafter(40.0, 41.0), "home": "rent"}


def test_a_level_that_the_background_lacks_is_the_models_to_know(card):
    # the structure gives it no points: by it alone, much more than a little income would be asked for
    strict = replace(card, threshold=66.0)
    explained = mlflow_cf.wrap(strict, LOANS, target="granted")
    assert explained.describe()["opened"]
    query = LOANS.iloc[[0]].assign(home="boat")
    assert strict.predict(pd.concat([query, query.assign(income=21.0)])).tolist() == ["refused", "granted"]
    (answer,) = explained.explain(query, certify=True)
    (found,) = answer.counterfactuals
    assert [(change.feature, change.new) for change in found.changes] == [("income", 21.0)]


@pytest.mark.system
def test_a_stored_scorecard_is_json_and_serves(card, tmp_path, monkeypatch):
    info = mlflow_cf.log_model(card, "scorecard", LOANS, target="granted", explainer="exact")
    explained = mlflow_cf.load_model(info.model_uri)
    expected = [answer.to_dict() for answer in explained.explain(LOANS)]
    folder = Path(mlflow.artifacts.download_artifacts(info.model_uri, dst_path=str(tmp_path / "m")))
    assert not [file for file in folder.rglob("*") if file.suffix in (".pkl", ".pickle", ".joblib", ".cloudpickle")]
    assert (folder / "model" / "scorecard.json").is_file()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER), *sys.path]))
    body = {"dataframe_split": LOANS.astype(object).where(LOANS.notna(), None).to_dict("split")}
    with serving(str(folder), tmp_path / "log") as server:
        status, reply = server.ask(body)
    assert status == 200
    assert [row["status"] for row in reply["predictions"]] == [row["status"] for row in expected]
    assert [row["counterfactuals"] for row in reply["predictions"]] == [row["counterfactuals"] for row in expected]


def test_where_the_flavor_is_not_installed_it_is_not_known(monkeypatch):
    assert flavor_named("scorecard").MLFLOW_FLAVOR == "scorecard"
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(FOLDER)])
    assert "scorecard" not in flavor_names()
