"""Models behind an address of this machine beside certified optima: calls, rows, and how much farther answers are."""

from __future__ import annotations

import json
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pandas as pd
from cases.data_sets import VIEWS, Case, constraints_for, split
from cases.models import fitted
from parts import runs
from parts.gates import Gate, told

import mlflow_cf
from mlflow_cf import Endpoint, ExplainedModel

ROWS = 50
BACKGROUND = 3_000  # rows that the endpoint is asked about when it is wrapped
MODELS = ("histgb", "xgboost", "forest", "mlp")
PROOF_S = 10.0  # of the opened model, a row
MOST_CALLS, MOST_ROWS = 40, 4_000  # of a row
FOUND, DISTANCE = 0.95, 1.3


@dataclass
class Server:
    """A server that answers as MLflow's, and the seconds of the model in it."""

    url: str
    seconds: float = 0.0


@contextmanager
def serving(predict: Callable[[pd.DataFrame], Any]) -> Iterator[Server]:
    """Serve the labels of a model on loopback, from a thread of this process."""
    server = Server("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["dataframe_split"]
            started = time.perf_counter()
            labels = np.asarray(predict(pd.DataFrame(asked["data"], columns=asked["columns"]))).tolist()
            server.seconds += time.perf_counter() - started
            body = json.dumps({"predictions": labels}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

    with Quiet(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}/invocations"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()


@dataclass(frozen=True)
class Line:
    """Rows of one model behind an address.

    Attributes:
        rows: that were explained; found: share of those that have a counterfactual.
        calls, scored: mean calls and rows in them, of a row; most_calls, most_scored: largest.
        guided: share of the rows whose answer the surrogate led to.
        certified: share of the answers of the opened model that are proved to be the nearest.
        distance: mean distance beside that of the opened model's, over rows that both answer.
        valid: share of the answers that the model itself, asked again, finds favourable.
        ms: median wall clock of a row without the model's own time; model_ms: its mean.
    """

    rows: int
    found: float
    calls: float
    most_calls: float
    scored: float
    most_scored: float
    guided: float
    certified: float
    distance: float
    valid: float
    ms: float
    model_ms: float

    def gates(self) -> list[Gate]:
        """Return what is promised."""
        return [
            Gate("valid", self.valid, 1.0),
            Gate("calls of a row", self.most_calls, MOST_CALLS, most=True),
            Gate("rows scored for a row", self.most_scored, MOST_ROWS, most=True),
            Gate("found", self.found, FOUND),
            Gate("distance / optimum", self.distance, DISTANCE, most=True),
        ]


def run(case: Case, seed: int) -> Line:
    """Explain the rejected rows by the opened model with certificates, then by labels that a server answers."""
    case = replace(case, background=case.background.head(BACKGROUND), labels=case.labels.head(BACKGROUND))
    best = case.wrapped(seed).explain(case.rejected, certify=True, time_limit_s=PROOF_S * len(case.rejected))
    with serving(case.model.predict) as server:
        explained = _wrapped(case, server.url, seed)
        explained.explain(case.rejected.head(1))  # compiled
        found, own_s, model_s = [], [], []
        for place in range(len(case.rejected)):
            started, before = time.perf_counter(), server.seconds
            found.append(explained.explain(case.rejected.iloc[[place]])[0])
            model_s.append(server.seconds - before)
            own_s.append(time.perf_counter() - started - model_s[-1])
    pairs = [(ours, optimum) for ours, optimum in zip(found, best, strict=True) if optimum.counterfactuals]
    near = [
        (ours.counterfactuals[0].distance, optimum.counterfactuals[0].distance)
        for ours, optimum in pairs
        if ours.counterfactuals
    ]
    mine, theirs = np.array(near).reshape(-1, 2).mean(axis=0)
    answers = pd.DataFrame([one.counterfactuals[0].row for one in found if one.counterfactuals])
    return Line(
        rows=len(found),
        found=len(near) / max(len(pairs), 1),
        calls=float(np.mean([one.judge_calls for one in found])),
        most_calls=float(max(one.judge_calls for one in found)),
        scored=float(np.mean([one.judged_rows for one in found])),
        most_scored=float(max(one.judged_rows for one in found)),
        guided=float(np.mean([bool(one.diagnostics.get("guided")) for one in found])),
        certified=float(np.mean([optimum.counterfactuals[0].proof == "optimal" for _, optimum in pairs])),
        distance=float(mine / theirs),
        valid=float(np.mean(case.model.predict(answers[list(case.background)]) == 1)),
        ms=1e3 * float(np.median(own_s)),
        model_ms=1e3 * float(np.mean(model_s)),
    )


def _wrapped(case: Case, url: str, seed: int) -> ExplainedModel:
    options: dict[str, Any] = {"constraints": case.constraints, "target": 1, "seed": seed}
    return mlflow_cf.wrap(Endpoint(url, timeout_s=60.0), case.background, **options)


def run_endpoint(chosen: Namespace) -> list[str]:
    """Explain models behind an address; return the promises that were broken, but for those about distance."""
    lines: dict[str, Line] = {}
    for name in chosen.data_sets:
        parts = split(name, chosen.seed, VIEWS[name])
        constraints = constraints_for(name, parts.X, rules=True)
        for model in chosen.models or MODELS:
            pipeline = fitted(model, parts.X, parts.y, chosen.seed)
            lines[f"{name} / {model}"] = run(parts.case(pipeline, chosen.rows or ROWS, constraints), chosen.seed)
    runs.log_figures({f"endpoint {name}": vars(line) for name, line in lines.items()})
    promised = [(name, gate) for name, line in lines.items() for gate in line.gates()]
    print(f"\n=== Models behind an address, beside certified optima\n\n{table(lines)}\n{told(promised)}")
    return [f"BROKEN {gate} ({name})" for name, gate in promised if gate.what == "valid" and not gate.kept]


def table(lines: Mapping[str, Line]) -> str:
    """Return all lines as a table."""
    return pd.DataFrame({name: vars(line) for name, line in lines.items()}).T.to_string(float_format="{:.3g}".format)
