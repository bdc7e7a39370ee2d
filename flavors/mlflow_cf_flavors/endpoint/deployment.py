"""Rows sent through MLflow's deployments client, which finds the server and has its credentials.

Such a client takes no time limit, so that each call has a thread of its own, which is left behind when the time is
over; only so many may be left at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, LifoQueue, Queue
from threading import BoundedSemaphore, Thread
from typing import Any, Final

import numpy as np
import pandas as pd
import requests
from mlflow.deployments import BaseDeploymentClient
from mlflow.exceptions import MlflowException

from mlflow_cf.model.endpoint import Endpoint
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.endpoint.body import ReplyError, answers_of, split_of
from mlflow_cf_flavors.endpoint.transport import LEAST_S, FailedError, check_size, check_status

MOST_WAITING: Final = 16  # calls that were not answered yet
MOST_IDLE: Final = 8  # clients that are kept


class Deployment:
    """Asks the model behind a name of a deployments target."""

    def __init__(self, endpoint: Endpoint, kind: str, name: str) -> None:
        """Set up for ``endpoints`` or ``deployments`` of this name; nothing is sent, and no client is made."""
        self._endpoint, self._kind, self._name = endpoint, kind, name
        self._idle: LifoQueue[BaseDeploymentClient] = LifoQueue(MOST_IDLE)
        self._places = BoundedSemaphore(MOST_WAITING)

    def send(self, columns: Sequence[Any], rows: Sequence[Sequence[Any]], end: float) -> list[Any]:
        """Return one answer per row; see `Transport`."""
        if not self._places.acquire(blocking=False):
            raise FailedError(f"{MOST_WAITING} calls without any answer yet")
        told: Queue[object] = Queue(1)
        Thread(target=self._run, args=(columns, rows, told), name="mlflow_cf endpoint", daemon=True).start()
        try:
            reply = told.get(timeout=max(end - time.perf_counter(), LEAST_S))
        except Empty:
            raise FailedError("no answer in time", late=True) from None
        if isinstance(reply, Exception):
            raise _failure(reply) from reply
        text = _text(reply)
        check_size(len(text), self._endpoint.reply_bytes)
        return answers_of(text, len(rows))

    def _run(self, columns: Sequence[Any], rows: Sequence[Sequence[Any]], told: Queue[object]) -> None:
        """Put the reply into a queue, or what went wrong."""
        try:
            told.put(self._reply(columns, rows))
        except Exception as error:  # noqa: BLE001  any plugin, any error
            told.put(error)
        finally:
            self._places.release()

    def _reply(self, columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> object:
        try:
            client = self._idle.get_nowait()
        except Empty:
            client = self._client()
        if self._kind == "endpoints":
            reply = client.predict(endpoint=self._name, inputs={"dataframe_split": split_of(columns, rows)})
        else:
            table = pd.DataFrame(list(rows), columns=list(columns))
            reply = client.predict(deployment_name=self._name, inputs=table)
        with suppress(Exception):
            self._idle.put_nowait(client)
        return reply

    def _client(self) -> BaseDeploymentClient:
        """Return a new client of the target.

        Raises:
            UnavailableError: there is no target, or nothing installed knows it.
        """
        import mlflow.deployments

        try:
            client: BaseDeploymentClient | None = mlflow.deployments.get_deploy_client(self._endpoint.target)
        except Exception as error:
            raise UnavailableError(say("endpoint_client", kind=type(error).__name__)) from error
        if client is None:
            raise UnavailableError(say("endpoint_target"))
        return client


def _failure(error: Exception) -> Exception:
    """Return what a client's error means; its text may hold rows or secrets, so that none of it is told."""
    if isinstance(error, UnavailableError):
        return error
    if isinstance(error, requests.Timeout | TimeoutError):
        return FailedError("no answer in time")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None and isinstance(error, MlflowException):
        status = error.get_http_status_code()
    if isinstance(status, int) and status != 200:
        try:
            check_status(status)
        except Exception as meant:  # noqa: BLE001  raised by the caller
            return meant
    if isinstance(error, OSError):  # requests' own errors, too
        return FailedError("no connection")
    return FailedError(type(error).__name__)


def _text(reply: object) -> bytes:
    """Return what a client returned as the JSON of a model server's reply."""
    if isinstance(reply, pd.DataFrame):
        reply = {"predictions": reply.to_dict("records")}
    elif not isinstance(reply, Mapping):
        reply = {"predictions": reply}
    try:
        return json.dumps(dict(reply), allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ReplyError("no JSON") from error


def _plain(value: object) -> object:
    """Return arrays, columns and their values as JSON has them."""
    if isinstance(value, np.ndarray | np.generic | pd.Series):
        return value.tolist()
    raise TypeError(type(value).__name__)
