"""A server with more to explain than it can: how long predictions take meanwhile, and what runs on afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import requests
from cases.data_sets import FAVOURABLE, Case
from parts.gates import Gate
from parts.serving import Server, serving

import mlflow_cf

CLIENTS = 8  # that ask for explanations, and as many that ask for predictions
LOAD_S = 10.0
ROWS = 50  # of a request for explanations: enough to keep a core busy until the time limit
PAUSE_S = {"explain": 0.3, "predict": 0.05}  # of a client between two requests
OPTIONS: dict[str, dict[str, Any]] = {
    "explain": {"count": 5, "time_limit_s": 1.0, "max_evaluations": 1_000_000},
    "predict": {"explain": "none"},
}
MOST_MS, MOST_LEFT = 1_000.0, 0.05


@dataclass(frozen=True)
class Load:
    """What came of it.

    Attributes:
        seconds: (n,) what each prediction took.
        statuses: of the rows that were to be explained.
        refused: replies that were none.
        left: seconds of CPU in the second after all clients had left, and their requests were over.
    """

    seconds: np.ndarray
    statuses: Sequence[str]
    refused: int
    left: float

    def gates(self) -> list[Gate]:
        """Return what is promised."""
        return [
            Gate("ms of 99 % of the predictions", 1e3 * float(np.quantile(self.seconds, 0.99)), MOST_MS, most=True),
            Gate("CPU s in a second after all clients left", self.left, MOST_LEFT, most=True),
        ]

    def figures(self) -> dict[str, float]:
        """Return the figures of a table's line."""
        share = pd.Series(self.statuses).value_counts(normalize=True)
        quantiles = {"median ms": 0.5, "p99 ms": 0.99, "longest ms": 1.0}
        return {
            "predictions": len(self.seconds),
            **{name: 1e3 * float(np.quantile(self.seconds, at)) for name, at in quantiles.items()},
            **{status: float(share.get(status, 0.0)) for status in ("found", "busy", "budget")},
            "CPU s after": self.left,
        }


def run(case: Case) -> Load:
    """Serve a case and ask more of it than it can do, for some seconds."""
    with TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        mlflow_cf.save_model(case.model, model, case.background, constraints=case.constraints, target=FAVOURABLE)
        with serving(str(model), Path(folder) / "server.log") as server:
            return _asked(server, case.rejected)


def _asked(server: Server, rejected: pd.DataFrame) -> Load:
    bodies = {
        "explain": pd.concat([rejected] * (ROWS // len(rejected) + 1)).head(ROWS),
        "predict": rejected.head(1),
    }
    records = {kind: {"dataframe_split": rows.to_dict("split", index=False)} for kind, rows in bodies.items()}
    end = time.perf_counter() + LOAD_S

    def ask(kind: str) -> Iterator[tuple[float, requests.Response]]:
        while time.perf_counter() < end:
            start = time.perf_counter()
            reply = server.ask(records[kind], OPTIONS[kind])
            yield time.perf_counter() - start, reply
            time.sleep(PAUSE_S[kind])

    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        clients = {kind: [pool.submit(lambda k=kind: list(ask(k))) for _ in range(CLIENTS)] for kind in records}
    replies = {kind: [reply for client in asked for reply in client.result()] for kind, asked in clients.items()}
    answers = [reply for _, reply in replies["explain"] if reply.ok]
    return Load(
        seconds=np.array([seconds for seconds, _ in replies["predict"]]),
        statuses=[row["status"] for reply in answers for row in reply.json()["predictions"]],
        refused=sum(not reply.ok for kind in replies.values() for _, reply in kind),
        left=_left(server, records["explain"]),
    )


def _left(server: Server, records: dict[str, Any]) -> float:
    """Return the CPU of a second after clients that did not wait for their answers."""
    for _ in range(CLIENTS):
        with suppress(requests.Timeout):
            server.ask(records, OPTIONS["explain"], timeout_s=0.1)
    time.sleep(OPTIONS["explain"]["time_limit_s"] + 1.0)
    before = server.cpu_s()
    time.sleep(1.0)
    return server.cpu_s() - before
