"""An explainer that another distribution brings through its entry point passes the same tests, unchanged."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mlflow_cf
from mlflow_cf import InputError
from mlflow_cf.explainers.registry import explainer_of
from mlflow_cf.testing import ExplainerSuite

FOLDER = Path(__file__).parent / "third_party"  # as pip would leave it: a module, and its dist-info
ROWS = pd.DataFrame({"age": [20, 30, 40, 50], "income": [1.0, 2.0, 3.0, 4.0]})


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


class TestSingleChanges(ExplainerSuite):
    def explainer(self):
        return explainer_of("single_changes")


def older_than_35(rows):
    return np.where(rows["age"] > 35, "yes", "no")


def test_it_is_called_by_its_name():
    explained = mlflow_cf.wrap(older_than_35, ROWS, target="yes", explainer="single_changes", output="label")
    (answer,) = explained.explain(ROWS.iloc[:1])
    assert (answer.explainer, answer.status) == ("single_changes", "found")
    assert answer.counterfactuals[0].row == {"age": 40, "income": 1.0}
    assert explained.describe()["explainer"] == {"name": "single_changes", "options": {}}


def test_a_request_names_it():
    explained = mlflow_cf.wrap(older_than_35, ROWS, target="yes", output="label")
    asked = explained.predict(ROWS.iloc[:1], {"counterfactual": {"explainer": "single_changes"}})
    assert asked["explainer"].tolist() == ["single_changes"]
    assert asked["status"].tolist() == ["found"]


def test_where_it_is_not_installed_it_is_not_known(monkeypatch):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(FOLDER)])
    with pytest.raises(InputError, match="no explainer is called 'single_changes'"):
        explainer_of("single_changes")


def test_another_process_finds_it_without_being_told():
    code = "from mlflow_cf.explainers.registry import explainer_of; print(repr(explainer_of('single_changes')))"
    paths = [str(FOLDER), *sys.path]
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path = {paths!r}; {code}"], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "SingleChanges()"
