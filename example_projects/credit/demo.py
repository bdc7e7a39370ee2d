"""The whole story in one minute: train, log, register, serve, ask. What `make demo` runs."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

from progress import end_on_signals

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run both entry points one after the other against the store of the demo; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        epilog="All other options go to train.py, for example: demo.py --data german.csv --constraints german.yaml",
    )
    parser.add_argument("--store", default=str(HERE / ".demo"), metavar="FOLDER", help="keep runs and models there")
    parser.add_argument(
        "--registered-name", default="credit", metavar="NAME", help="registered model (default: credit)"
    )
    chosen, train_options = parser.parse_known_args()
    start = time.monotonic()
    common = ["--store", chosen.store, "--registered-name", chosen.registered_name]
    for script, options in (("train.py", train_options), ("serve_and_ask.py", [])):
        print(f"\n=== {shlex.join([script, *options])} (starting takes a few seconds)", flush=True)
        code = _run(script, [*common, *options])
        if code:
            print(f"\nThe demo failed in {script}; the message above says why.", file=sys.stderr)
            return code
    print(f"\nThe demo took {time.monotonic() - start:.0f} s.")
    return 0


def _run(script: str, options: list[str]) -> int:
    """Run a script of this folder and return its exit code; it never outlives this process."""
    with subprocess.Popen([sys.executable, str(HERE / script), *options]) as process:
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
