"""A real ``mlflow models serve`` process for tests: started, asked, watched and stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

READY_S = 120


@dataclass(frozen=True)
class Server:
    """A running server: where it is asked, the file of its output, and its process group."""

    url: str
    log: Path
    group: int

    def ask(self, body: dict[str, Any], timeout_s: float = 60, **options: Any) -> tuple[int, Any]:
        """Return status and reply; every reply must be strict JSON."""
        reply = self.post(body, timeout_s, **options)
        return reply.status_code, json.loads(reply.text, parse_constant=pytest.fail)

    def post(self, body: dict[str, Any], timeout_s: float = 60, **options: Any) -> requests.Response:
        """Send rows with the options of a request."""
        payload = {**body, "params": {"counterfactual": options}} if options else body
        headers = {"Content-Type": "application/json"}
        return requests.post(self.url, data=json.dumps(payload), headers=headers, timeout=timeout_s)


@contextmanager
def serving(model_uri: str, log: Path, workers: int = 1) -> Iterator[Server]:
    """Serve the model at `model_uri`, output going to the file `log`, for the time of a `with` block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["mlflow", "models", "serve", "-m", model_uri, "-h", "127.0.0.1", "-p", str(port), "-w", str(workers)]
    # MLflow starts uvicorn by its bare name.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "--env-manager", "local"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path},
            start_new_session=True,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/ping", process, log)
            yield Server(f"http://127.0.0.1:{port}/invocations", log, process.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(url, timeout=5).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text()}")


def near(reply: Any) -> Any:
    """Return what equals this reply but for the last bits of its numbers: processors add up in their own order."""
    if isinstance(reply, dict):
        return {key: near(value) for key, value in reply.items()}
    if isinstance(reply, list):
        return [near(value) for value in reply]
    return pytest.approx(reply, rel=1e-9) if isinstance(reply, float) else reply
