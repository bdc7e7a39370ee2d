"""The tour shows what its stored notebook shows, and the comparison notices where it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from mlflow import MlflowClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "example_projects" / "notebook"
TOUR = NOTEBOOK / "tour.ipynb"
pytestmark = pytest.mark.system


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("nbclient")
    monkeypatch.setattr(sys, "path", [str(NOTEBOOK), *sys.path])
    module = __import__("run")
    for name in ("run", "borrowed", "store"):
        sys.modules.pop(name, None)
    return module


def test_a_run_shows_what_is_stored(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=store)
    experiment = client.create_experiment("tours", artifact_location=(tmp_path / "artifacts").as_uri())
    run_id = client.create_run(experiment).info.run_id  # as `mlflow run` does
    done = subprocess.run(
        [sys.executable, str(NOTEBOOK / "run.py")],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": store, "MLFLOW_RUN_ID": run_id, "MLFLOW_EXPERIMENT_ID": experiment},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cells show what is stored" in done.stdout
    assert [file.path for file in client.list_artifacts(run_id)] == ["tour.ipynb"]


def test_other_words_are_a_difference_and_other_times_are_none(runner: ModuleType) -> None:
    import nbformat  # noqa: PLC0415  of the development tools

    stored = nbformat.read(TOUR, as_version=4)
    lines = runner.shown(stored)
    text = json.dumps(stored).replace("proved nearest", "checked")
    assert runner.shown(nbformat.from_dict(json.loads(text))) != lines
    printed = nbformat.v4.new_output(
        "stream", name="stdout", text="it took 1.3 seconds, run 0123456789abcdef0123456789abcdef"
    )
    cell = nbformat.v4.new_code_cell("", outputs=[printed])
    assert runner.shown(nbformat.v4.new_notebook(cells=[cell])) == ["[0] it took TIME, run ID"]


def test_the_stored_notebook_was_run_whole_and_is_small() -> None:
    cells = [cell for cell in json.loads(TOUR.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert {"text/html", "image/png"} <= {
        kind for cell in cells for output in cell["outputs"] for kind in output.get("data", ())
    }
    assert not any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
    assert TOUR.stat().st_size < 300_000
