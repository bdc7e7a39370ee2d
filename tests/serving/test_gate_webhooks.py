"""A real MLflow server tells a real listener of new versions, and the alias goes where it should."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import requests
import small_loans
from mlflow import MlflowClient
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf

pytestmark = pytest.mark.system
SECRET = "between us"  # noqa: S105  of this test
READY_S = 120


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def process(words: list[str], health: str, log: Path, **variables: str) -> Iterator[None]:
    """Run a server for the time of a `with` block."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with log.open("wb") as output:
        running = subprocess.Popen(
            words, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "PATH": path, **variables}
        )
        try:
            until(lambda: running.poll() is not None or answers(health), log)
            assert running.poll() is None, log.read_text()
            yield
        finally:
            running.terminate()
            running.wait()


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False


def until(done: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + READY_S
    while not done() and time.monotonic() < end:
        time.sleep(0.2)
    assert done(), log.read_text()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Run an MLflow server whose webhooks may go to this machine."""
    url = f"http://127.0.0.1:{free_port()}"
    words = [sys.executable, "-m", "mlflow", "server", "--port", url.rpartition(":")[2], "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--artifacts-destination", str(tmp_path / "a")]
    allowed = {"MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http", "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true"}
    before = mlflow.get_tracking_uri()
    with process(words, f"{url}/health", tmp_path / "server.log", **allowed):
        mlflow.set_tracking_uri(url)
        mlflow.set_experiment("gate")  # another test may have left one of its own store
        yield url
    mlflow.set_tracking_uri(before)
    mlflow.set_experiment("Default")


def log_version(model: Any, data: pd.DataFrame) -> str:
    with mlflow.start_run():
        logged = mlflow_cf.log_model(model, "model", data, target="good", registered_model_name="loans")
    return str(logged.registered_model_version)


def state(version: str) -> str:
    return MlflowClient().get_model_version("loans", version).tags.get("cf.gate.state", "")


def test_one_version_passes_and_the_next_one_is_refused(server: str, tmp_path: Path) -> None:
    data = small_loans.table()
    small_loans.rejected(data, 12).to_parquet(tmp_path / "rows.parquet")
    rules = {"loans": {"rows": "rows.parquet", "thresholds": ["cf/coverage>=0.5", "cf/survival>=0.8"]}}
    (tmp_path / "gate.yaml").write_text(json.dumps(rules), encoding="utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    words = [sys.executable, "-c", "from mlflow_cf.cli import main; main()", "gate", "--listen"]
    words += ["--rules", str(tmp_path / "gate.yaml"), "--port", url.rpartition(":")[2]]
    log = tmp_path / "gate.log"
    with process(words, f"{url}/health", log, MLFLOW_CF_GATE_SECRET=SECRET, MLFLOW_TRACKING_URI=server):
        MlflowClient().create_webhook("gate", f"{url}/", ["model_version.created"], secret=SECRET)
        passes = log_version(small_loans.fitted(data), data)
        until(lambda: state(passes) in ("passed", "refused", "failed"), log)
        assert state(passes) == "passed", MlflowClient().get_model_version("loans", passes).tags
        until(
            lambda: answers(f"{url}/health") and bool(requests.get(f"{url}/health", timeout=5).json()["verdicts"]), log
        )
        assert str(MlflowClient().get_model_version_by_alias("loans", "champion").version) == passes
        hard = DecisionTreeClassifier(random_state=0).fit(data[["age"]], np.where(data["age"] == 18, "good", "bad"))
        refused = log_version(hard, data[["age"]])
        until(lambda: state(refused) in ("passed", "refused", "failed"), log)
    told = MlflowClient().get_model_version("loans", refused).tags
    assert told["cf.gate.state"] == "refused", told
    assert "cf/" in told["cf.gate.reason"]
    assert str(MlflowClient().get_model_version_by_alias("loans", "champion").version) == passes
    assert told["cf.gate.champion"] == passes
    page = Path(mlflow.artifacts.download_artifacts(told["cf.gate.report"])).read_text(encoding="utf-8")
    assert "<html" in page
