"""What a worker of a server has done so far, as a text page for Prometheus and as a log line per request; no values."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from mlflow_cf.errors import InputError

PORT: Final = "MLFLOW_CF_METRICS_PORT"
LINES: Final = "MLFLOW_CF_LOG_REQUESTS"
YES: Final = ("1", "true", "yes", "on")
NO: Final = ("", "0", "false", "no", "off")
MOST_WORKERS: Final = 32  # on one machine: each takes the next port that is free
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)  # seconds of a request
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK: Final = "127.0.0.1"

_logger = logging.getLogger(__name__)
requests_logger = logging.getLogger("mlflow_cf.requests")


@dataclass
class RequestNotes:
    """What is counted of one request; whoever answers it fills this in.

    Attributes:
        rows: how many rows there are of each status.
        seconds: that each part took.
        outcome: ``answered``, ``refused``, if it asks for what cannot be given, or ``failed``.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    outcome: str = "failed"

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Note the seconds of a `with` block as those of a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def move(self, seconds: float, source: str, goal: str) -> None:
        """Say that so many of a part's seconds were those of another one."""
        moved = min(seconds, self.seconds.get(source, 0.0))
        self.seconds |= {source: self.seconds.get(source, 0.0) - moved, goal: self.seconds.get(goal, 0.0) + moved}


class Counters:
    """Counts requests, rows and seconds; threads may share it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._requests, self._rows, self._seconds = Counter[str](), Counter[str](), Counter[str]()
        self._buckets, self._whole_s = [0] * (len(BUCKETS) + 1), 0.0
        self._in_flight = 0

    @contextmanager
    def request(self) -> Iterator[RequestNotes]:
        """Count a request for the time of a `with` block, which fills in what is to be noted of it."""
        notes, started = RequestNotes(), time.perf_counter()
        with self._lock:
            self._in_flight += 1
        try:
            yield notes
        finally:
            self._count(notes, time.perf_counter() - started)

    def _count(self, notes: RequestNotes, seconds: float) -> None:
        with self._lock:
            self._in_flight -= 1
            self._requests[notes.outcome] += 1
            self._rows.update(notes.rows)
            self._seconds.update(notes.seconds)
            self._buckets[bisect_left(BUCKETS, seconds)] += 1
            self._whole_s += seconds
        if requests_logger.isEnabledFor(logging.INFO):
            parts = {part: round(s, 6) for part, s in sorted(notes.seconds.items())}
            told = {"outcome": notes.outcome, "rows": dict(sorted(notes.rows.items())), "seconds": round(seconds, 6)}
            requests_logger.info("%s", json.dumps({"event": "request", **told, "parts": parts}))

    def page(self) -> str:
        """Return everything in the text format of Prometheus, version 0.0.4."""
        with self._lock:
            requests, rows, seconds = dict(self._requests), dict(self._rows), dict(self._seconds)
            buckets, whole_s, in_flight = list(self._buckets), self._whole_s, self._in_flight
        parts = [
            *_family("requests_total", "counter", "Requests by how they ended.", "outcome", requests),
            *_family("rows_total", "counter", "Rows by the status of their explanation.", "status", rows),
            *_family("seconds_total", "counter", "Seconds by what they were spent on.", "part", seconds),
            *_family("requests_in_flight", "gauge", "Requests that are being answered.", "", {"": in_flight}),
            "# HELP mlflow_cf_request_seconds Seconds of a request.",
            "# TYPE mlflow_cf_request_seconds histogram",
        ]
        below = 0
        for bound, count in zip((*(f"{bound:g}" for bound in BUCKETS), "+Inf"), buckets, strict=True):
            below += count
            parts.append(f'mlflow_cf_request_seconds_bucket{{le="{bound}"}} {below}')
        parts += [f"mlflow_cf_request_seconds_sum {whole_s:.6f}", f"mlflow_cf_request_seconds_count {below}"]
        return "\n".join([*parts, ""])


def _family(name: str, kind: str, told: str, label: str, values: Mapping[str, float]) -> Iterable[str]:
    """Yield the lines of one family of figures."""
    yield f"# HELP mlflow_cf_{name} {told}"
    yield f"# TYPE mlflow_cf_{name} {kind}"
    for key, value in sorted(values.items()):
        written = f"{value:.6f}" if isinstance(value, float) else str(value)
        yield f'mlflow_cf_{name}{{{label}="{key}"}} {written}' if label else f"mlflow_cf_{name} {written}"


def counters_of_environment() -> Counters | None:
    """Return counters where the environment asks for a page or for log lines, and begin with both; else None.

    Raises:
        InputError: a port that is none.
    """
    port, lines = os.environ.get(PORT, ""), _asks_for_lines()
    if not port and not lines:
        return None
    counters = Counters()
    if lines:
        _write_lines()
    if port:
        if not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InputError(PORT, f"{port!r} is no port", "set a number from 1 to 65535")
        try:
            page = serve_page(counters, int(port))
        except InputError as error:  # predictions matter more
            _logger.error("counters of this worker have no page: %s", error.message)  # noqa: TRY400  no stack trace
        else:
            _logger.warning("counters of this worker: http://%s:%d/metrics", LOOPBACK, page.server_port)
    return counters


def _asks_for_lines() -> bool:
    """Return whether the environment asks for log lines; a word that is neither yes nor no is told of, and is no."""
    word = os.environ.get(LINES, "").strip().lower()
    if word not in (*YES, *NO):
        _logger.warning("%s: %r is neither yes nor no, and no line is logged; set 'true' or 'false'", LINES, word)
    return word in YES


def serve_page(counters: Counters, port: int) -> ThreadingHTTPServer:
    """Serve the page of counters on loopback in a thread, at the first free port from this one on.

    Raises:
        InputError: none of `MOST_WORKERS` ports is free.
    """

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(self._begun())

        def do_HEAD(self) -> None:
            self._begun()

        def _begun(self) -> bytes:
            """Send the headers of a reply; return its body."""
            body = counters.page().encode() if self.path.partition("?")[0] == "/metrics" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return body

        def log_message(self, *_: object) -> None:
            """Say nothing: a page is read every few seconds."""

    for number in range(port, min(port + MOST_WORKERS, 2**16)):
        try:
            server = _Server((LOOPBACK, number), Page)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            continue
        threading.Thread(target=server.serve_forever, name="mlflow-cf metrics", daemon=True).start()
        return server
    raise InputError(PORT, f"no port from {port} to {port + MOST_WORKERS - 1} is free", "set another one")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False  # where two workers could have one port, only one of them would be read


def _write_lines() -> None:
    """Write the log lines of requests to standard error, once per process."""
    if not requests_logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        requests_logger.addHandler(handler)
    requests_logger.setLevel(logging.INFO)
    requests_logger.propagate = False
