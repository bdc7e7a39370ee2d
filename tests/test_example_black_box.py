"""The example of a model that is only a function, as a user runs it, with a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

BLACK_BOX = Path(__file__).resolve().parent.parent / "example_projects" / "black_box"
pytestmark = pytest.mark.system


def test_a_black_box_answers_within_few_calls(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = subprocess.run(
        [sys.executable, str(BLACK_BOX / "black_box.py"), "--rows", "800", "--customers", "8"],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": store},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "its structure: scored through the model itself" in run.stdout
    promised = re.findall(r"(\d+) of (\d+) answers", run.stdout)
    assert len(promised) == 3
    assert all(held == asked and int(asked) > 0 for held, asked in promised)
    assert re.search(r"Not promised: (\d+) of \1 might have a nearer one", run.stdout)
    assert "not certified: the model could not be opened" in run.stdout
    assert run.stdout.count("  may be paid by invoice: 0") == 2
    assert "proof none" in run.stdout
    client = MlflowClient(tracking_uri=store)
    (logged,) = client.search_runs([client.get_experiment_by_name("black_box").experiment_id])
    assert 3 < logged.data.metrics["calls_per_order"] < 60
    assert logged.data.metrics["cf/validity"] == 1
