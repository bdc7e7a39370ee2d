"""What a worker counts of its requests: figures and log lines without a value, on loopback alone."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import requests
import small_loans

import mlflow_cf
from mlflow_cf import InputError
from mlflow_cf.artifact import served
from mlflow_cf.artifact.served import ServedModel
from mlflow_cf.audit import counters as counting
from mlflow_cf.audit.counters import BUCKETS, LINES, PORT, Counters, counters_of_environment, serve_page

TABLE = small_loans.table()


@pytest.fixture(scope="module")
def model() -> ServedModel:
    return ServedModel(mlflow_cf.wrap(small_loans.fitted(TABLE), TABLE, target="good"), within_s=30)


def figures(page: str) -> dict[str, float]:
    """Return the figures of a page by name; every line must be one of the format's."""
    lines = [line for line in page.splitlines() if not line.startswith(("# HELP mlflow_cf_", "# TYPE mlflow_cf_"))]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_requests_rows_and_seconds_are_counted(model: ServedModel) -> None:
    counters = Counters()
    counted = ServedModel(model.explained, model.within_s, counters=counters)
    refused = small_loans.rejected(TABLE, 3)
    replies = [counted.predict(refused), counted.predict(TABLE.head(5), {"counterfactual": {"explain": "none"}})]
    with pytest.raises(InputError):
        counted.predict(refused, {"counterfactual": {"count": 1_000}})
    with pytest.raises(InputError):
        counted.predict(refused.drop(columns="income"))
    found = figures(counters.page())
    assert found['mlflow_cf_requests_total{outcome="answered"}'] == 2
    assert found['mlflow_cf_requests_total{outcome="refused"}'] == 2
    assert found["mlflow_cf_requests_in_flight"] == 0
    for status, many in pd.concat(replies)["status"].value_counts().items():
        assert found[f'mlflow_cf_rows_total{{status="{status}"}}'] == many
    parts = {part: found[f'mlflow_cf_seconds_total{{part="{part}"}}'] for part in ("explaining", "model", "reply")}
    assert all(seconds > 0 for seconds in parts.values())
    assert sum(parts.values()) <= found["mlflow_cf_request_seconds_sum"]
    assert found['mlflow_cf_request_seconds_bucket{le="+Inf"}'] == found["mlflow_cf_request_seconds_count"] == 4
    buckets = [found[f'mlflow_cf_request_seconds_bucket{{le="{bound:g}"}}'] for bound in BUCKETS]
    assert buckets == sorted(buckets)


def test_what_fails_is_counted_and_told_without_its_values(model: ServedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = Counters()
    counted = ServedModel(model.explained, counters=counters)

    def fail(*_: Any, **__: Any) -> None:
        assert figures(counters.page())["mlflow_cf_requests_in_flight"] == 1
        raise ZeroDivisionError(small_loans.CANARY)

    monkeypatch.setattr(type(model.explained), "request", fail)
    with pytest.raises(mlflow_cf.errors.MlflowException, match="ZeroDivisionError"):
        counted.predict(TABLE.head(1))
    found = figures(counters.page())
    assert found['mlflow_cf_requests_total{outcome="failed"}'] == 1
    assert found["mlflow_cf_requests_in_flight"] == 0
    assert str(small_loans.CANARY) not in counters.page()


def test_a_log_line_per_request_is_json_without_values(model: ServedModel, caplog: pytest.LogCaptureFixture) -> None:
    counted = ServedModel(model.explained, counters=Counters())
    with caplog.at_level(logging.INFO, "mlflow_cf.requests"):
        counted.predict(TABLE.tail(2))
    (line,) = [record.message for record in caplog.records if record.name == "mlflow_cf.requests"]
    told = json.loads(line)
    assert set(told) == {"event", "outcome", "rows", "seconds", "parts"}
    assert (told["outcome"], sum(told["rows"].values())) == ("answered", 2)
    assert set(told["parts"]) == {"explaining", "model", "reply"}
    assert str(small_loans.CANARY) not in line


def test_threads_lose_no_request() -> None:
    counters = Counters()

    def ask() -> None:
        for _ in range(500):
            with counters.request() as notes:
                notes.rows, notes.outcome = {"found": 2}, "answered"

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = figures(counters.page())
    assert found['mlflow_cf_rows_total{status="found"}'] == 4_000
    assert found["mlflow_cf_request_seconds_count"] == 2_000


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port that is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield int(taken.getsockname()[1])


def test_the_page_is_on_loopback_at_the_first_free_port(port: int) -> None:
    counters = Counters()
    pages = [serve_page(counters, port) for _ in range(2)]
    assert port < pages[0].server_port < pages[1].server_port
    for page in pages:
        assert page.server_address[0] == "127.0.0.1"
        url = f"http://127.0.0.1:{page.server_port}"
        reply = requests.get(f"{url}/metrics", timeout=30)
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert reply.text == counters.page()
        assert requests.get(f"{url}/metrics?x=1", timeout=30).text == counters.page()
        head = requests.head(f"{url}/metrics", timeout=30)
        assert (head.status_code, head.text) == (200, "")
        assert int(head.headers["Content-Length"]) == len(reply.content)
        assert requests.get(f"{url}/", timeout=30).status_code == 404
        page.shutdown()
        page.server_close()


def test_the_environment_says_what_is_counted(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (PORT, LINES):
        monkeypatch.delenv(name, raising=False)
    assert counters_of_environment() is None
    for wrong in ("http", "0", "70000", "-1"):
        monkeypatch.setenv(PORT, wrong)
        with pytest.raises(InputError, match=f"{PORT}: '{wrong}' is no port"):
            counters_of_environment()
    monkeypatch.setenv(PORT, str(port))
    monkeypatch.setattr(counting, "MOST_WORKERS", 1)
    assert counters_of_environment() is not None
    assert "no port from" in caplog.text


@pytest.mark.parametrize(
    ("word", "counts"), [("yes", True), ("ON", True), (" true", True), ("1", True), ("no", False), ("off", False)]
)
def test_lines_are_asked_for_in_usual_words(
    word: str, *, counts: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(PORT, raising=False)
    monkeypatch.setattr(counting, "_write_lines", lambda: None)
    monkeypatch.setenv(LINES, word)
    assert (counters_of_environment() is not None) == counts
    assert not caplog.records
    monkeypatch.setenv(LINES, "always")
    assert counters_of_environment() is None
    assert f"{LINES}: 'always' is neither yes nor no" in caplog.text


def test_only_a_server_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: ServedModel) -> None:
    monkeypatch.setenv(PORT, "not read")
    mlflow_cf.save_model(small_loans.fitted(TABLE), tmp_path / "model", TABLE, target="good")
    assert served._load_pyfunc(str(tmp_path / "model")).counters is None
    assert model.counters is None
