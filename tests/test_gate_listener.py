"""What the listener takes: signed, fresh, once; and what becomes of versions that it was told of."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pytest
import requests
import uvicorn
from fastapi import FastAPI
from mlflow import MlflowClient

from mlflow_cf import GateRules, InputError, Verdict
from mlflow_cf.gating.deliveries import MOST_BYTES, Deliveries, RefusedError
from mlflow_cf.gating.listener import Gatekeeper, listener
from mlflow_cf.gating.registry import UndecidedError

SECRET = "between us"  # noqa: S105  of these tests
RULES = {"loans": GateRules(rows="rows.parquet", thresholds=("cf/coverage>=0.5",))}
EVENT = {"entity": "model_version", "action": "created", "data": {"name": "loans", "version": "1"}}


def signed(body: bytes, delivery: str = "1", at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    """Return the headers of a delivery as MLflow sends them."""
    sent = f"{time.time() if at is None else at:.0f}"
    digest = hmac.new(secret.encode(), f"{delivery}.{sent}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"X-MLflow-Signature": signature, "X-MLflow-Delivery-Id": delivery, "X-MLflow-Timestamp": sent}


class Client:
    """Asks a listener at an address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, body: bytes, headers: dict[str, str] | None = None) -> requests.Response:
        return requests.post(self.url, data=body, headers=headers, timeout=60)

    def health(self) -> dict[str, Any]:
        told: dict[str, Any] = requests.get(f"{self.url}health", timeout=60).json()
        return told


@contextmanager
def running(app: FastAPI) -> Iterator[Client]:
    """Serve an application in a thread for the time of a `with` block."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    yield Client(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/")
    server.should_exit = True
    thread.join()


class Deciding:
    """Stands for a gate: notes what it is asked, and fails as it is told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails: list[Exception] = []
        self.done = threading.Event()

    def __call__(self, name: str, version: str, rules: GateRules) -> Verdict:
        assert rules == RULES[name]
        self.asked.append(version)
        if self.fails:
            raise self.fails.pop(0)
        self.done.set()
        return Verdict(name, version, None, passed=True)


@pytest.fixture
def deciding() -> Deciding:
    return Deciding()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a registry with two versions, to be copied: to make one takes seconds."""
    folder, before = tmp_path_factory.mktemp("listener"), mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    registry = MlflowClient()
    registry.create_registered_model("loans")
    for _ in range(2):
        registry.create_model_version("loans", str(folder))
    mlflow.set_tracking_uri(before)
    return folder / "mlflow.db"


@pytest.fixture
def client(store: Path, tmp_path: Path, deciding: Deciding) -> Iterator[Client]:
    """Return a client of a listener whose registry has two versions."""
    before = mlflow.get_tracking_uri()
    shutil.copy(store, tmp_path / "mlflow.db")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    with running(listener(Gatekeeper(RULES, deciding, retry_s=0.01), SECRET)) as client:
        yield client
    mlflow.set_tracking_uri(before)


def send(client: Client, event: Any = EVENT, **how: Any) -> tuple[int, Any]:
    body = json.dumps(event).encode()
    reply = client.post(body, signed(body, **how))
    return reply.status_code, reply.json()


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
    assert done()


def test_a_new_version_is_gated_once(client: Client, deciding: Deciding) -> None:
    assert send(client) == (202, {"taken": True})
    until(deciding.done.is_set)
    assert send(client) == (200, {"taken": False})  # the same delivery
    until(lambda: bool(client.health()["verdicts"]))
    assert client.health() == {
        "waiting": 0,
        "verdicts": ["version 1 of 'loans', which has no champion beside it: passes"],
    }
    assert deciding.asked == ["1"]
    assert MlflowClient().get_model_version("loans", "1").tags["cf.gate.state"] == "waiting"


@pytest.mark.parametrize(
    ("how", "event", "status"),
    [
        ({"secret": "guessed"}, EVENT, 401),
        ({"at": 1_000}, EVENT, 401),
        ({"at": time.time() + 10_000}, EVENT, 401),
        ({}, {**EVENT, "data": {"name": "loans"}}, 422),
        ({}, ["model_version"], 422),
        ({}, {**EVENT, "action": "deleted"}, 200),
        ({}, {"entity": "prompt", "action": "created", "data": {"name": "loans", "version": "1"}}, 200),
        ({}, {**EVENT, "data": {"name": "others", "version": "1"}}, 200),
        ({}, {**EVENT, "data": {"name": "loans", "version": "99"}}, 200),
        ({}, {**EVENT, "data": {"name": "loans", "version": "abc"}}, 200),
        ({}, {**EVENT, "more": "x" * MOST_BYTES}, 413),
    ],
)
def test_anything_else_moves_nothing(
    client: Client, deciding: Deciding, how: dict[str, Any], event: Any, status: int
) -> None:
    code, told = send(client, event, **how)
    assert code == status
    assert set(told) == {"taken" if status == 200 else "refused"}
    assert told.get("taken", False) is False
    assert deciding.asked == []


def test_a_delivery_without_signature_or_changed_on_its_way_is_refused(client: Client) -> None:
    body = json.dumps(EVENT).encode()
    assert client.post(body).status_code == 401
    assert client.post(body.replace(b"1", b"2"), signed(body)).status_code == 401
    assert client.post(body, {**signed(body), "X-MLflow-Delivery-Id": "2"}).status_code == 401
    assert client.post(body, {**signed(body), "X-MLflow-Timestamp": "now"}).status_code == 401


def test_what_could_not_be_decided_is_tried_again(client: Client, deciding: Deciding) -> None:
    deciding.fails = [UndecidedError("registry", "is down"), UndecidedError("registry", "is down")]
    send(client)
    until(deciding.done.is_set)
    assert deciding.asked == ["1"] * 3


def test_what_fails_is_told_and_the_next_one_is_gated(client: Client, deciding: Deciding) -> None:
    deciding.fails = [InputError("rows", "are gone"), ZeroDivisionError("a fault")]
    for number in range(3):
        send(client, {**EVENT, "data": {"name": "loans", "version": str(1 + number % 2)}}, delivery=str(number))
        until(lambda number=number: len(client.health()["verdicts"]) > number)
    passes, fault, gone = client.health()["verdicts"]
    assert "passes" in passes
    assert "the log says why" in fault
    assert "rows: are gone" in gone


def test_a_registry_that_is_down_lets_mlflow_send_it_again(
    client: Client, deciding: Deciding, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: Any) -> None:
        raise OSError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_model_version_tag", down)
        assert send(client)[0] == 503
    assert deciding.asked == []
    assert send(client)[0] == 202
    until(deciding.done.is_set)


def test_what_an_earlier_process_has_left_is_taken_up(client: Client, deciding: Deciding) -> None:
    MlflowClient().set_model_version_tag("loans", "2", "cf.gate.state", "running")
    MlflowClient().set_model_version_tag("loans", "1", "cf.gate.state", "passed")
    with running(listener(Gatekeeper(RULES, deciding, retry_s=0.01), SECRET)):
        until(deciding.done.is_set)
    assert deciding.asked == ["2"]


def test_without_a_secret_it_does_not_listen() -> None:
    with pytest.raises(InputError, match="secret"):
        listener(Gatekeeper(RULES), "")


def test_old_deliveries_are_forgotten_when_their_signatures_are_too_old_anyway() -> None:
    now = [1_000_000.0]
    deliveries, body = Deliveries(SECRET, lambda: now[0]), json.dumps(EVENT).encode()

    def read(delivery: str, at: float) -> Any:
        headers = {key.lower(): value for key, value in signed(body, delivery, at).items()}
        return deliveries.read(headers, body)

    assert read("1", now[0]) == ("loans", "1")
    now[0] += 299
    assert read("1", now[0] - 299) is None  # it was here before
    now[0] += 400
    assert read("2", now[0] + 299) == ("loans", "1")
    with pytest.raises(RefusedError, match="signed more than"):
        read("1", now[0] - 699)
