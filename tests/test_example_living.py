"""The example that lives with advice for a year ends as it should, and leaves what it tells of in the registry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

LIVING = Path(__file__).resolve().parent.parent / "example_projects" / "living"


@pytest.mark.system
def test_the_story_ends_as_it_should(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = subprocess.run(
        [sys.executable, str(LIVING / "living.py"), "--registered-name", "lived"],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": store},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "after a retraining it holds with probability" in run.stdout
    assert "advice on debts" in run.stdout
    client = MlflowClient(tracking_uri=store, registry_uri=store)
    assert str(client.get_model_version_by_alias("lived", "champion").version) == "2"
    states = [client.get_model_version("lived", str(version)).tags["cf.gate.state"] for version in (1, 2, 3)]
    assert states == ["passed", "passed", "refused"]
    told = [
        assessment.name
        for trace in client.search_traces(locations=[client.get_experiment_by_name("living").experiment_id])
        for assessment in trace.info.assessments
    ]
    assert told.count("cf.outcome") > 10
