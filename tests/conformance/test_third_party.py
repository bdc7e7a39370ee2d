"""Explainers that other distributions bring through their entry points pass the same tests, unchanged."""

import json
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import small_loans
from laws import SOME, THOROUGH, kinds

import mlflow_cf
from mlflow_cf import InputError
from mlflow_cf.explainers.registry import explainer_of
from mlflow_cf.testing import ExplainerSuite

FOLDER = Path(__file__).parent / "third_party"  # as pip would leave it: modules, and their dist-info
ROWS = pd.DataFrame({"age": [20, 30, 40, 50], "income": [1.0, 2.0, 3.0, 4.0]})


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


# Both are there to show that suites run from outside: usually each has half of the problems.
HALF = SOME if THOROUGH else SOME[::2]
OTHER_HALF = SOME if THOROUGH else tuple(one for one in SOME if one not in HALF or one.demands == "none")


class TestSingleChanges(ExplainerSuite):
    scenarios = HALF
    kinds = kinds("sklearn")

    def explainer(self):
        return explainer_of("single_changes")


class TestSteppingStones(ExplainerSuite):
    """It learns, makes plans and ranks by their costs."""

    scenarios = OTHER_HALF
    kinds = kinds("xgboost", "pyfunc")

    def explainer(self):
        return explainer_of("stepping_stones")


def older_than_35(rows):
    return np.where(rows["age"] > 35, "yes", "no")


def test_it_is_called_by_its_name():
    explained = mlflow_cf.wrap(older_than_35, ROWS, target="yes", explainer="single_changes", output="label")
    (answer,) = explained.explain(ROWS.iloc[:1])
    assert (answer.explainer, answer.status) == ("single_changes", "found")
    assert answer.counterfactuals[0].row == {"age": 40, "income": 1.0}
    assert explained.describe()["explainer"] == {"name": "single_changes", "options": {}}


def test_a_request_names_it():
    privacy = {"explainers": ["single_changes"]}
    explained = mlflow_cf.wrap(older_than_35, ROWS, target="yes", output="label", privacy=privacy)
    asked = explained.predict(ROWS.iloc[:1], {"counterfactual": {"explainer": "single_changes"}})
    assert asked["explainer"].tolist() == ["single_changes"]
    assert asked["status"].tolist() == ["found"]


def test_it_has_no_options_to_ask_for():
    explained = mlflow_cf.wrap(older_than_35, ROWS, target="yes", output="label")
    with pytest.raises(InputError, match=r"explainer\.options\.size: not an option of single_changes that a request"):
        explained.explain(ROWS, explainer={"name": "single_changes", "options": {"size": 3}})


def test_where_it_is_not_installed_it_is_not_known(monkeypatch):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(FOLDER)])
    with pytest.raises(InputError, match="no explainer is called 'single_changes'"):
        explainer_of("single_changes")


@pytest.mark.system
def test_another_process_finds_it_without_being_told():
    code = "from mlflow_cf.explainers.registry import explainer_of; print(repr(explainer_of('single_changes')))"
    paths = [str(FOLDER), *sys.path]
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path = {paths!r}; {code}"], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "SingleChanges()"


def test_a_learner_is_logged_loaded_and_served_with_plans(monkeypatch):
    data = small_loans.table()
    model, asked = small_loans.fitted(data), small_loans.rejected(data, 3)
    options = {"target": "good", "constraints": small_loans.CONSTRAINTS}
    with mlflow.start_run():
        info = mlflow_cf.log_model(model, "loans", data, explainer="stepping_stones", **options)

    def learn(*_):
        raise AssertionError("loading must not learn")

    monkeypatch.setattr("stepping_stones.SteppingStones.learn", learn)
    served = mlflow.pyfunc.load_model(info.model_uri)
    folder = Path(mlflow.artifacts.download_artifacts(info.model_uri)) / "counterfactual"
    assert {"learned.npz", "learned.json"} <= {path.name for path in folder.iterdir()}
    reply = served.predict(asked, params={"counterfactual": {"count": 3}}).to_dict("records")
    assert json.loads(json.dumps(reply, allow_nan=False)) == reply
    assert "found" in {row["status"] for row in reply}
    for row in reply:
        for found in row["counterfactuals"]:
            assert found["plan"][-1]["row"] == found["row"]
            assert [step["step"] for step in found["plan"]] == list(range(1, len(found["plan"]) + 1))
            kinds = [{name: type(value) for name, value in step["row"].items()} for step in found["plan"]]
            assert kinds == [{name: type(value) for name, value in found["row"].items()}] * len(kinds)
