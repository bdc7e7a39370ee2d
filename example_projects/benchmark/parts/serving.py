"""MLflow's own scoring server as a child process: started, waited for, asked, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

READY_S = 120.0


@dataclass(frozen=True)
class Server:
    """A running server: its address, and the group of its processes."""

    address: str
    group: int

    def ask(self, rows: Mapping[str, Any], options: Mapping[str, Any], timeout_s: float = 60.0) -> requests.Response:
        """Send rows with the options of a request."""
        body = {**rows, "params": {"counterfactual": options}}
        return requests.post(f"{self.address}/invocations", json=body, timeout=timeout_s)

    def cpu_s(self) -> float:
        """Return the seconds of CPU its processes have used so far; 0 where the system does not tell (Linux does)."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # a process that just ended
                facts = stat.read_text().rpartition(")")[2].split()
                ticks += (int(facts[11]) + int(facts[12])) * (int(facts[2]) == self.group)
        return ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0


@contextmanager
def serving(model_uri: str, log: Path) -> Iterator[Server]:
    """Serve the model at `model_uri`, output going to the file `log`, for the time of a `with` block.

    Raises:
        SystemExit: the server did not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    host, port = address.split(":")
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", model_uri, "-h", host, "-p", port]
    # MLflow starts uvicorn by name, which stands beside this Python also when no environment is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--env-manager", "local"],
            stdout=output,
            stderr=output,
            env=os.environ | {"PATH": path},
            start_new_session=True,
        )
    try:
        _wait(f"http://{address}/ping", process, log)
        yield Server(f"http://{address}", process.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        with suppress(requests.RequestException):  # nobody listens yet
            if requests.get(url, timeout=5).ok:
                return
        time.sleep(0.2)
    raise SystemExit(f"The server did not start: {log.read_text(errors='replace')}")
