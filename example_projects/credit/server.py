"""MLflow's own scoring server as a child process: started, waited for, asked, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import requests
from progress import Progress

Reply = list[dict[str, Any]]


@contextmanager
def serving(model_uri: str, port: int, log: Path, timeout_s: float, progress: Progress) -> Iterator[str]:
    """Serve `model_uri` on this machine and yield the server's address once it answers; always stop it afterwards.

    Args:
        model_uri: what to serve.
        port: port to listen on; 0 picks a free one.
        log: file for what the server writes.
        timeout_s: how long it may take to start.
        progress: where to tell about it.

    Raises:
        SystemExit: the server ended or did not answer in time; with the end of its log.
    """
    port = port or _free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", model_uri, "--env-manager", "local"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    progress.step(f"Starting: mlflow {' '.join(command[3:])}")
    # MLflow starts uvicorn by name, which stands beside this Python also when no environment is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path, "MLFLOW_TRACKING_URI": mlflow.get_tracking_uri()}
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(server, address, log, timeout_s, progress)
        yield address
    finally:
        _stop(server)


def ask(address: str, body: dict[str, Any]) -> Reply:
    """POST `body` to the server's /invocations and return one record per row.

    Raises:
        SystemExit: the server refused; with its message.
    """
    with _session() as session:
        reply = session.post(f"{address}/invocations", json=body, timeout=60)
    if not reply.ok:
        raise SystemExit(f"The server answered {reply.status_code}: {reply.text}")
    answers: Reply = reply.json()["predictions"]
    return answers


def _wait(server: subprocess.Popen[bytes], address: str, log: Path, timeout_s: float, progress: Progress) -> None:
    start = time.monotonic()
    with _session() as session:
        while time.monotonic() - start < timeout_s:
            progress.wait("waiting for /ping")
            if server.poll() is not None:
                raise SystemExit(f"The server ended with code {server.returncode}. {_end_of(log)}")
            if _answers(session, f"{address}/ping"):
                progress.wait("/ping answers", over=True)
                return
            time.sleep(0.1)
    raise SystemExit(f"The server did not answer within {timeout_s:.0f} s. {_end_of(log)}")


def _answers(session: requests.Session, url: str) -> bool:
    try:
        return session.get(url, timeout=2).ok
    except requests.RequestException:  # nobody listens yet
        return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server with everything it has started."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, sent)
            server.wait(timeout=10)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
        else:
            break


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # a proxy knows nothing of this machine's own ports
    return session


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_of(log: Path) -> str:
    return f"The end of {log}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
