"""Models behind MLflow's deployments client: the same bounds and statuses as behind an address, and no credentials."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow.deployments
import numpy as np
import pandas as pd
import pytest
import requests
import small_loans
from endpoints import Served, endpoint
from mlflow.deployments import BaseDeploymentClient, PredictionsResponse
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, TEMPORARILY_UNAVAILABLE

import mlflow_cf
from mlflow_cf import Endpoint, InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf_flavors.endpoint import deployment

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
REJECTED = small_loans.rejected(TABLE, 3)
QUICK: dict[str, Any] = {"backoff_s": 0.001, "timeout_s": 2.0, "pause_s": 60.0}
KEPT = {"constraints": small_loans.CONSTRAINTS}
TOKEN = "s3cr3t-of-the-owner"  # noqa: S105  a fiction


class Loopback(BaseDeploymentClient):
    """A client as plugins of MLflow have one, of a server on loopback: its target is the address.

    Attributes:
        fails: raised instead of asking; returns: what a reply becomes.
    """

    fails: Exception | None = None
    returns: Any = staticmethod(PredictionsResponse)

    def predict(self, deployment_name: Any = None, inputs: Any = None, endpoint: Any = None) -> Any:
        if self.fails is not None:
            raise self.fails
        if endpoint is None:
            assert deployment_name == "loans"
            inputs = {"dataframe_split": json.loads(inputs.to_json(orient="split", index=False))}
        else:
            assert (deployment_name, endpoint) == (None, "loans")
        reply = requests.post(self.target_uri, json=inputs, timeout=30, allow_redirects=False)
        reply.raise_for_status()
        return type(self).returns(reply.json())

    def _none(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError

    create_deployment = update_deployment = delete_deployment = list_deployments = get_deployment = _none
    create_endpoint = update_endpoint = delete_endpoint = list_endpoints = get_endpoint = _none


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with endpoint(MODEL.predict) as running:
        yield running


@pytest.fixture
def client(shared: Served, monkeypatch: pytest.MonkeyPatch) -> type[Loopback]:
    """Let MLflow find a client of the server for every target, as an installed plugin would."""

    class Own(Loopback):
        pass

    def found(target_uri: str | None = None) -> Loopback | None:
        return None if target_uri is None else Own(shared.url)

    monkeypatch.setattr(mlflow.deployments, "get_deploy_client", found)
    shared.status, shared.delay_s, shared.spoil = (lambda _: 200), 0.0, None
    return Own


def wrapped(url: str = "endpoints:/loans", **asked: Any) -> ExplainedModel:
    model = Endpoint(url, **{"target": "loopback", **QUICK, **asked})
    return mlflow_cf.wrap(model, TABLE, target="good", **KEPT)


def outcomes(explained: ExplainedModel) -> set[tuple[str, Any]]:
    return {(one.status, one.prediction) for one in explained.explain(REJECTED.iloc[[0]])}


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("url", ["endpoints:/loans", "deployments:/loans"])
def test_the_same_answers_as_behind_the_address(shared: Served, url: str) -> None:
    direct = mlflow_cf.wrap(Endpoint(shared.url, **QUICK), TABLE, target="good", **KEPT)
    answers = wrapped(url).explain(REJECTED)
    assert [one.to_dict() for one in answers] == [one.to_dict() for one in direct.explain(REJECTED)]
    assert {one.status for one in answers} == {"found"}


@pytest.mark.parametrize(
    "returns",
    [
        lambda reply: np.array(reply["predictions"], dtype=object),
        lambda reply: pd.Series(reply["predictions"]),
        lambda reply: pd.DataFrame({"label": reply["predictions"]}),
        lambda reply: reply["predictions"],
        lambda reply: {"predictions": np.array(reply["predictions"], dtype=object)},
    ],
)
def test_replies_in_every_form_that_clients_return(client: type[Loopback], returns: Any) -> None:
    client.returns = staticmethod(returns)
    assert outcomes(wrapped()) == {("found", "bad")}


def refused(status: int) -> Exception:
    reply = requests.Response()
    reply.status_code = status
    return requests.HTTPError(f"rows and {TOKEN}", response=reply)


FAILURES = [
    (requests.ConnectionError(TOKEN), "budget", "no connection"),
    (requests.Timeout(TOKEN), "budget", "no answer in time"),
    (refused(503), "budget", "status 503"),
    (refused(403), "budget", "status 403"),
    (refused(307), "budget", "redirect"),
    (MlflowException(TOKEN, TEMPORARILY_UNAVAILABLE), "budget", "status 503"),
    (MlflowException(TOKEN), "budget", "status 500"),
    (RuntimeError(TOKEN), "budget", "RuntimeError"),
]


@pytest.mark.parametrize(("failure", "status", "told"), FAILURES)
def test_what_fails_has_a_status_and_no_prediction(
    client: type[Loopback], failure: Exception, status: str, told: str
) -> None:
    explained = wrapped()
    client.fails = failure
    (answer,) = explained.explain(REJECTED.iloc[[0]])
    assert (answer.status, answer.prediction) == (status, None)
    assert told in answer.reason
    assert TOKEN not in answer.reason
    client.fails = None
    assert outcomes(wrapped()) == {("found", "bad")}


@pytest.mark.parametrize("failure", [MlflowException("rows", BAD_REQUEST), refused(422)])
def test_rows_that_are_refused_are_refused(client: type[Loopback], failure: Exception) -> None:
    explained = wrapped(failures=1)
    client.fails = failure
    with pytest.raises(InputError, match="the model can predict none of them"):
        explained.explain(REJECTED.iloc[[0]])
    client.fails = None
    assert outcomes(explained) == {("found", "bad")}  # who refuses rows is there


@pytest.mark.parametrize(
    "reply", [None, 3, {}, {"predictions": []}, {"predictions": [object()]}, [float("nan")], ["a"] * 9]
)
def test_what_is_no_prediction_is_no_prediction(client: type[Loopback], reply: Any) -> None:
    explained = wrapped()
    client.returns = staticmethod(lambda _: reply)
    assert outcomes(explained) == {("budget", None)}


def test_a_reply_may_be_only_so_large(client: type[Loopback]) -> None:
    explained = wrapped(reply_bytes=8_192)
    client.returns = staticmethod(lambda reply: {**reply, "more": "x" * 9_000})
    assert outcomes(explained) == {("budget", None)}


@pytest.mark.usefixtures("client")
def test_a_client_is_waited_for_no_longer_than_it_may_take(shared: Served) -> None:
    explained = wrapped(timeout_s=0.1, retries=0)
    shared.delay_s = 0.5
    began = time.perf_counter()
    assert outcomes(explained) == {("budget", None)}
    assert time.perf_counter() - began < 0.45


def test_calls_without_an_answer_are_few(client: type[Loopback], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "MOST_WAITING", 2)
    explained, go_on = wrapped(timeout_s=0.4, retries=0, failures=100), threading.Event()
    client.returns = staticmethod(lambda reply: go_on.wait(10) and reply)
    running = threading.active_count()
    reasons = [explained.explain(REJECTED.iloc[[0]])[0].reason for _ in range(3)]
    try:
        assert sum(thread.name == "mlflow_cf endpoint" for thread in threading.enumerate()) <= 2
        assert "without any answer" in reasons[-1]
    finally:
        go_on.set()
    while threading.active_count() > running:
        time.sleep(0.01)
    client.returns = Loopback.returns
    assert outcomes(wrapped()) == {("found", "bad")}


def test_after_failures_the_client_is_left_alone(client: type[Loopback]) -> None:
    explained = wrapped(failures=2, retries=0)
    client.fails = OSError()
    assert [outcomes(explained) for _ in range(3)] == [{("budget", None)}] * 3
    client.fails = None
    assert "not asked for a while" in explained.explain(REJECTED.iloc[[0]])[0].reason


@pytest.mark.usefixtures("client")
def test_another_model_is_noticed(shared: Served) -> None:
    explained = wrapped(probe_every_s=0.0)
    shared.spoil = lambda _, answers: ["good" if one == "bad" else "bad" for one in answers]
    approved = TABLE[MODEL.predict(TABLE) == "good"].head(1)
    (answer,) = explained.explain(approved)
    assert (answer.status, answer.prediction) == ("budget", "bad")
    assert "another model" in answer.reason


@pytest.mark.usefixtures("client")
def test_without_a_target_the_variable_is_named() -> None:
    with pytest.raises(InputError, match="MLFLOW_DEPLOYMENTS_TARGET"):
        wrapped(target=None)


def test_a_target_that_nothing_installed_knows() -> None:
    with pytest.raises(InputError, match="no client for this deployments target"):
        wrapped(target="nowhere")


def test_the_client_of_databricks_asks_and_its_token_is_stored_nowhere(
    shared: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DATABRICKS_HOST": shared.url.removesuffix("/invocations"),
        "DATABRICKS_TOKEN": TOKEN,
        "MLFLOW_ENABLE_DB_SDK": "false",  # which would look for metadata of the host first
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_DEPLOYMENTS_TARGET": "databricks",
    }.items():
        monkeypatch.setenv(name, value)
    shared.status, shared.delay_s, shared.spoil = (lambda _: 200), 0.0, None
    mlflow_cf.save_model("endpoints:/loans", tmp_path / "model", TABLE, target="good", **KEPT)
    for file in (tmp_path / "model").rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()
    calls = shared.calls
    explained = mlflow_cf.load_model(tmp_path / "model")
    assert shared.calls == calls
    assert outcomes(explained) == {("found", "bad")}
    assert TOKEN in shared.seen[-1].headers["Authorization"]
    shared.status = lambda _: 503
    assert outcomes(explained) == {("budget", None)}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"url": "endpoints:/a/b"}, "address"),
    ({"url": "endpoints:/.."}, "address"),
    ({"url": "endpoints:/"}, "address"),
    ({"url": "endpoints:/loans", "headers": {"X-Tenant": "loans"}}, "headers"),
    ({"url": "https://example.org/invocations", "target": "databricks"}, "target"),
    ({"url": "endpoints:/loans", "target": "https://user:word@example.org"}, "without user"),
    ({"url": "endpoints:/loans", "target": "https://example.org/?key=1"}, "without user"),
    ({"url": "endpoints:/loans", "target": "http://example.org"}, "https"),
    ({"url": "endpoints:/loans", "target": ""}, "target"),
]


@pytest.mark.parametrize(("options", "fact"), REFUSED)
def test_what_cannot_be_an_endpoint(options: dict[str, Any], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        Endpoint(**options)


@pytest.mark.parametrize("target", ["databricks", "databricks://profile", "sagemaker:/us-east-1/arn:aws:123:role/own"])
def test_targets_of_clients(target: str) -> None:
    assert Endpoint("endpoints:/loans", target=target).target == target
