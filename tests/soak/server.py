"""A real server under attack and under load, beside the bare model's under the same predictions; prints figures.

    python tests/soak/server.py [seconds of load, default 60] [requests for the memory, default 10000]

Ends with 1 where a promise is broken: predictions take more than twice the bare model's time, an attack is anything
but a 400, a server error, growing memory, or work that goes on after the last reply.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import requests
import small_loans
from attacks import ATTACKS
from served import Server, serving

import mlflow_cf

CLIENTS, PREDICTING = 64, 8  # of the clients, so many ask for predictions alone
LIMIT_S = 5.0
ROUNDS = 4
TABLE = small_loans.table()
ROWS = {"dataframe_records": small_loans.rejected(TABLE, 1).to_dict("records")}
MANY = {"dataframe_records": small_loans.rejected(TABLE, 20).to_dict("records")}
WORST = {
    "count": 10,
    "certify": True,
    "time_limit_s": LIMIT_S,
    "constraints": {"rules": ["x_cf.age + x_cf.income < 90"]},
}


@dataclass
class Load:
    """What clients saw: seconds of predictions, of replies that were busy, and how often which status code came."""

    predicted: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Load) -> Self:
        self.predicted += other.predicted
        self.busy += other.busy
        self.codes += other.codes
        self.statuses += other.statuses
        return self


def timed(server: Server, body: dict[str, Any], options: dict[str, Any] | None) -> tuple[float, requests.Response]:
    """Return the seconds of a request, and its reply."""
    payload = body if options is None else {**body, "params": {"counterfactual": options}}
    text = json.dumps(payload)
    started = time.perf_counter()
    reply = requests.post(server.url, data=text, headers={"Content-Type": "application/json"}, timeout=120)
    return time.perf_counter() - started, reply


def under_load(server: Server, seconds: float, *, explaining: bool) -> Load:
    """Have some clients ask for predictions for so long, and others send tables; with the worst options, if wanted."""
    load, end = Load(), time.monotonic() + seconds

    def predict() -> None:
        while time.monotonic() < end:
            took, reply = timed(server, ROWS, {"explain": "none"} if explaining else None)
            load.predicted.append(took)
            load.codes[reply.status_code] += 1

    def explain() -> None:
        while time.monotonic() < end:
            took, reply = timed(server, MANY, WORST if explaining else None)
            load.codes[reply.status_code] += 1
            found = [row["status"] for row in reply.json().get("predictions", [])] if explaining else []
            load.statuses.update(found)
            if "busy" in found:
                load.busy.append(took)

    clients = [predict] * PREDICTING + [explain] * (CLIENTS - PREDICTING)
    with ThreadPoolExecutor(len(clients)) as pool:
        for client in [pool.submit(client) for client in clients]:
            client.result()
    return load


def used(server: Server) -> tuple[float, float]:
    """Return the CPU seconds and the megabytes of all processes of a server."""
    cpu, pages, tick = 0.0, 0, os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            if folder.name.isdigit() and int(stat[2]) == server.group:
                cpu += (int(stat[11]) + int(stat[12])) / tick
                pages += int((folder / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return cpu, pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def idle_share(server: Server) -> float:
    """Return the share of a core that a server uses, once the time limit and half a second are over."""
    time.sleep(LIMIT_S + 0.5)
    before = used(server)[0]
    time.sleep(2.0)
    return (used(server)[0] - before) / 2.0


def worst_attack(server: Server, *, explaining: bool) -> tuple[float, float, list[str]]:
    """Return the longest refusal and the longest prediction meanwhile, in seconds, and what was not refused."""
    accepted, refusals, predictions, done = [], [], [], threading.Event()

    def predict() -> None:
        while not done.is_set():
            predictions.append(timed(server, ROWS, {"explain": "none"} if explaining else None)[0])

    with ThreadPoolExecutor(1) as pool:
        predicting = pool.submit(predict)
        for name, attack in ATTACKS.items():
            for explain in ("none", "all"):
                took, reply = timed(server, ROWS, {"explain": explain, **attack()})
                refusals.append(took)
                if reply.status_code != 400:
                    accepted.append(name)
        done.set()
        predicting.result()
    return max(refusals), max(predictions), accepted


@contextmanager
def both(folder: Path, workers: int) -> Iterator[tuple[Server, Server]]:
    """Serve a model, and the same model explained."""
    options = {"target": "good", "limits": {"time_limit_s": LIMIT_S}}
    mlflow_cf.save_model(small_loans.fitted(TABLE), folder / "explained", TABLE, **options)
    with (
        serving(str(folder / "explained" / "model"), folder / "bare.txt", workers) as bare,
        serving(str(folder / "explained"), folder / "explained.txt", workers) as explained,
    ):
        yield bare, explained


def p99(seconds: list[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return 1e3 * float(np.percentile(seconds, 99))


def main(seconds: float, requested: int, workers: int) -> list[str]:
    """Measure with so many worker processes, print, and return the promises that are broken."""
    broken: list[str] = []
    print(f"{workers} worker{'s' * (workers > 1)}", flush=True)

    def promise(words: str, *, kept: bool) -> None:
        print("kept  " if kept else "BROKEN", words, flush=True)
        if not kept:
            broken.append(words)

    with tempfile.TemporaryDirectory() as scratch, both(Path(scratch), workers) as (bare, explained):
        refusal, prediction, accepted = worst_attack(explained, explaining=True)
        other, usual, _ = worst_attack(bare, explaining=False)  # which ignores all of it, once it is parsed
        promise(f"attacks that were not refused: {accepted}", kept=not accepted)
        words = f"longest prediction under attack {1e3 * prediction:.0f} ms, of the bare model {1e3 * usual:.0f} ms"
        promise(words, kept=prediction <= 2 * usual)
        print(f"longest refusal {1e3 * refusal:.0f} ms; the bare model parses and answers it in {1e3 * other:.0f} ms")
        alone, load = Load(), Load()
        for _ in range(ROUNDS):  # by turns, so that whatever else the machine does weighs on both
            alone += under_load(bare, seconds / 2 / ROUNDS, explaining=False)
            load += under_load(explained, seconds / ROUNDS, explaining=True)
        promise(f"status codes {dict(load.codes)}", kept=not any(code >= 500 for code in load.codes))
        words = f"predictions' p99 {p99(load.predicted):.0f} ms, of the bare model {p99(alone.predicted):.0f} ms"
        promise(words, kept=p99(load.predicted) <= 2 * p99(alone.predicted))
        print(f"busy replies' median {1e3 * float(np.median(load.busy or [0.0])):.0f} ms; {dict(load.statuses)}")
        share = idle_share(explained)
        promise(f"after the last reply {share:.1%} of a core", kept=share < 0.05)
        before = used(explained)[1]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: timed(explained, ROWS, {"max_evaluations": 200}), range(requested)))
        grown = used(explained)[1] - before
        promise(f"{requested:,} requests: {grown:+.1f} MB", kept=grown <= 20 * max(requested / 10_000, 1))
    return broken


if __name__ == "__main__":
    arguments = [float(argument) for argument in sys.argv[1:]]
    asked = (arguments[0] if arguments else 60.0, int(arguments[1]) if len(arguments) > 1 else 10_000)
    found = main(*asked, workers=1) + main(*asked, workers=2)
    sys.exit(bool(found))
