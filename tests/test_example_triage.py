"""The example of three lists of patients, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

TRIAGE = Path(__file__).resolve().parent.parent / "example_projects" / "triage"
pytestmark = pytest.mark.system


def test_changes_lead_to_the_lists_they_should(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = subprocess.run(
        [sys.executable, str(TRIAGE / "triage.py"), "--patients", "8"],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": store},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("proved nearest") == 3
    assert "urgent         0     8       0" in run.stdout  # an urgent patient's nearest other list is the next one
    assert "any other list is not a better one" in run.stdout
    assert "8 rows:" in run.stdout
    client = MlflowClient(tracking_uri=store)
    (logged,) = client.search_runs([client.get_experiment_by_name("triage").experiment_id])
    assert 0.5 < logged.data.metrics["accuracy"] < 0.7
    assert logged.data.metrics["cf/validity"] == 1
    assert logged.data.metrics["cf/constraint_satisfaction"] == 1
    assert logged.data.metrics["cf/proved/optimal"] == 1
    assert "where_changes_lead.png" in [file.path for file in client.list_artifacts(logged.info.run_id)]


def test_the_data_are_as_the_rules_say() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TRIAGE)
        module = __import__("patients")
        sys.modules.pop("patients", None)
    rows, lists = module.patients()
    assert rows.shape == (442, 9)
    assert set(lists) == set(module.LISTS)
    assert (rows["ldl"] + rows["hdl"] <= rows["cholesterol"] - 5).all()
