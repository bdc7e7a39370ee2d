"""A small server that MLflow's webhooks tell of new versions; it gates one after the other."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from mlflow_cf.errors import CounterfactualError, InputError
from mlflow_cf.gating.deliveries import DELIVERY, MOST_BYTES, Deliveries, RefusedError
from mlflow_cf.gating.gate import Verdict, gate
from mlflow_cf.gating.registry import Registry, UndecidedError
from mlflow_cf.gating.rules import GateRules

FIRST_RETRY_S, LAST_RETRY_S = 10.0, 600.0  # between tries at a version that could not be decided
LAST: Final = 20  # verdicts that are told
EVERY_VERSION: Final = ""  # in the place of a version: all that an earlier process has left

_logger = logging.getLogger(__name__)


@dataclass(order=True, frozen=True)
class _Turn:
    """A version to be gated.

    Attributes:
        due: when; number: of two that are due, the lower one is first.
        name, version: of the registered model; retry_s: how long to wait if it cannot be decided.
    """

    due: float
    number: int
    name: str = field(compare=False)
    version: str = field(compare=False)
    retry_s: float = field(compare=False)


class Gatekeeper:
    """Gates versions one after the other in a thread of its own; what could not be decided is tried again.

    Versions that were announced are tagged ``waiting`` in the registry, so that another process takes them up where
    this one ends before.
    """

    def __init__(
        self,
        rules: Mapping[str, GateRules],
        decide: Callable[[str, str, GateRules], Verdict] = gate,
        retry_s: float = FIRST_RETRY_S,
    ) -> None:
        """Set up for the registered models with rules; what cannot be decided is first tried again after `retry_s`."""
        self._rules, self._decide, self._retry_s = rules, decide, retry_s
        self._turns: list[_Turn] = []
        self._numbers = itertools.count()
        self._changed, self._stopped = threading.Condition(), False
        self._last: deque[str] = deque(maxlen=LAST)
        self._thread = threading.Thread(target=self._work, name="mlflow-cf gates", daemon=True)

    def start(self) -> None:
        """Begin with what an earlier process has left."""
        for name in self._rules:
            self._take(name, EVERY_VERSION)
        self._thread.start()

    def stop(self) -> None:
        """Begin no other version, and wait for the one that is being gated."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def announced(self, name: str, version: str) -> bool:
        """Take a version; return whether its model has rules, and the registry the version.

        Raises:
            UndecidedError: the registry cannot be reached.
        """
        if name not in self._rules:
            return False
        registry = Registry(name, self._rules[name].alias)
        try:
            registry.version(version)
        except InputError as error:
            _logger.warning("announced, but %s", error.message)
            return False
        registry.note(version, state="waiting")
        self._take(name, version)
        return True

    def told(self) -> dict[str, Any]:
        """Return how many versions wait, and the last verdicts, newest first."""
        with self._changed:
            return {"waiting": len(self._turns), "verdicts": list(reversed(self._last))}

    def _take(self, name: str, version: str, after_s: float = 0.0) -> None:
        with self._changed:
            if all((one.name, one.version) != (name, version) for one in self._turns):
                retry_s = min(2 * after_s, LAST_RETRY_S) or self._retry_s
                turn = _Turn(time.monotonic() + after_s, next(self._numbers), name, version, retry_s)
                heapq.heappush(self._turns, turn)
                self._changed.notify_all()

    def _work(self) -> None:
        while (turn := self._next()) is not None:
            try:
                self._gate(turn)
            except UndecidedError as error:
                _logger.warning("%s; tried again in %g s", error.message, turn.retry_s)
                self._take(turn.name, turn.version, turn.retry_s)
            except CounterfactualError as error:
                self._tell(f"version {turn.version} of {turn.name!r} could not be gated: {error.message}")
            except Exception:
                _logger.exception("version %s of %r could not be gated", turn.version, turn.name)
                self._tell(f"version {turn.version} of {turn.name!r} could not be gated; the log says why")

    def _gate(self, turn: _Turn) -> None:
        rules = self._rules[turn.name]
        if turn.version != EVERY_VERSION:
            self._tell(str(self._decide(turn.name, turn.version, rules)))
            return
        for version in Registry(turn.name, rules.alias).unfinished():
            self._take(turn.name, version)

    def _tell(self, verdict: str) -> None:
        _logger.info(verdict)
        with self._changed:
            self._last.append(verdict)

    def _next(self) -> _Turn | None:
        """Wait for the next version that is due and return it; None: the end."""
        with self._changed:
            while not self._stopped:
                wait_s = self._turns[0].due - time.monotonic() if self._turns else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._turns)
                self._changed.wait(wait_s)
        return None


def listener(keeper: Gatekeeper, secret: str) -> FastAPI:
    """Return an application with ``POST /`` for webhooks and ``GET /health``.

    Raises:
        InputError: no secret: anybody could move an alias then.
    """
    if not secret:
        raise InputError("secret", "is empty", "set the one that the webhook was created with")
    deliveries = Deliveries(secret)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        keeper.start()
        yield
        await run_in_threadpool(keeper.stop)

    app = FastAPI(title="mlflow-cf gate", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/")
    async def deliver(request: Request) -> JSONResponse:
        try:
            found = deliveries.read(request.headers, await _body(request))
            taken = found is not None and await run_in_threadpool(keeper.announced, *found)
        except RefusedError as error:
            return JSONResponse({"refused": str(error)}, error.status)
        except UndecidedError as error:  # MLflow sends it again
            deliveries.forget(request.headers.get(DELIVERY, ""))
            return JSONResponse({"refused": error.message}, 503)
        return JSONResponse({"taken": taken}, 202 if taken else 200)

    @app.get("/health")
    def health() -> dict[str, Any]:
        return keeper.told()

    return app


async def _body(request: Request) -> bytes:
    """Return the body, and no more than one byte too much."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            break
    return body
