"""A model server for tests, in a thread of this process: it answers as MLflow's, or misbehaves as it is told to."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pandas as pd


@dataclass
class Seen:
    """One call as the server saw it."""

    headers: dict[str, str]
    rows: int


@dataclass
class Served:
    """A server: where it is, how it answers, and what it was asked.

    Attributes:
        predict: a table -> predictions.
        spoil: number of the call, answers as JSON has them -> other answers; None: as they are.
        status: number of the call -> status of the reply; delay_s: seconds before it.
        raw: sent in place of the answers, if there is any.
    """

    predict: Callable[[pd.DataFrame], Any]
    url: str = ""
    spoil: Callable[[int, list[Any]], Any] | None = None
    status: Callable[[int], int] = lambda _: 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    raw: bytes | None = None
    seen: list[Seen] = field(default_factory=list)
    stopped: bool = False
    stop: Callable[[], None] = lambda: None

    @property
    def calls(self) -> int:
        return len(self.seen)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.seen)


def plain(answers: Any) -> list[Any]:
    if isinstance(answers, pd.DataFrame):
        return answers.to_dict("records")
    return np.asarray(answers).tolist()


@contextmanager
def endpoint(predict: Callable[[pd.DataFrame], Any]) -> Iterator[Served]:
    """Serve a function of a table on loopback for the time of a `with` block."""
    served = Served(predict)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            if served.stopped:
                self.close_connection = True
                return
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["dataframe_split"]
            table = pd.DataFrame(asked["data"], columns=asked["columns"])
            number = served.calls
            served.seen.append(Seen(dict(self.headers), len(table)))
            status = served.status(number)
            time.sleep(served.delay_s)
            body = b"{}"
            if status == 200:
                answers = plain(served.predict(table))
                spoiled = answers if served.spoil is None else served.spoil(number, answers)
                body = json.dumps({"predictions": spoiled}).encode() if served.raw is None else served.raw
            self.send_response(status)
            for name, value in served.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *told: Any) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *told: Any) -> None:
            """Say nothing: callers may have gone."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}/invocations"
        running = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        running.start()

        def stop() -> None:
            served.stopped = True
            server.shutdown()
            server.server_close()

        served.stop = stop
        try:
            yield served
        finally:
            stop()
            running.join()
