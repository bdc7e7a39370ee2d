"""Run the tour from top to bottom, log it, and say whether it shows what the stored notebook shows."""

from __future__ import annotations

import argparse
import difflib
import html
import os
import re
import sys
import tempfile
from pathlib import Path

import mlflow
import nbformat
from borrowed import use_store
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).resolve().parent
TOUR = HERE / "tour.ipynb"
TIMEOUT_S = 300
VOLATILE = (  # what differs from run to run
    (r"\b[0-9a-f]{32}\b|\bm-[0-9a-f]{32}\b", "ID"),
    (r"\b0x[0-9a-f]+", "ADDRESS"),
    (r"\b[\d.,]+ (ms|s|seconds)\b", "TIME"),
)


def main(arguments: list[str] | None = None) -> int:
    """Run the tour; return 1 if it shows something else than what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--write", action="store_true", help="store what it shows in tour.ipynb")
    chosen = parser.parse_args(arguments)
    stored, now = nbformat.read(TOUR, as_version=4), executed()
    if chosen.write:
        nbformat.write(now, TOUR)
    _log(now)
    differences = list(difflib.unified_diff(shown(stored), shown(now), "stored", "now", lineterm="", n=1))
    print("\n".join(differences) or f"all {len(stored.cells)} cells show what is stored in {TOUR.name}")
    return int(bool(differences) and not chosen.write)


def executed() -> NotebookNode:
    """Return the tour with what its cells show when they are run in a new kernel.

    Raises:
        CellExecutionError: a cell fails.
    """
    tour = nbformat.read(TOUR, as_version=4)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}  # its run is its own
    with tempfile.TemporaryDirectory() as folder:  # what the tour writes is no part of the project
        NotebookClient(
            tour,
            timeout=TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            record_timing=False,
            extra_arguments=["--Application.log_level=ERROR"],  # that a kernel listens on loopback is no surprise
        ).execute(env=ours)
    for cell in tour.cells:
        if "outputs" in cell:  # what is warned of depends on what else is installed
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return tour


def shown(notebook: NotebookNode) -> list[str]:
    """Return what readers see of all outputs, line by line, without what differs from run to run."""
    lines = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                lines += [f"[{number}] {line}" for line in _read(data["text/html"])]
            elif "image/png" in data:
                lines.append(f"[{number}] a picture")
            else:
                lines += [f"[{number}] {line}" for line in output.get("text", data.get("text/plain", "")).split("\n")]
    for pattern, word in VOLATILE:
        lines = [re.sub(pattern, word, line) for line in lines]
    return lines


def _read(page: str) -> list[str]:
    """Return the text of HTML, a line per element; styles and drawings left out."""
    text = re.sub(r"<style.*?</style>|<path[^>]*>|<!--.*?-->", "", page, flags=re.DOTALL)
    lines = (" ".join(html.unescape(line).split()) for line in re.sub(r"<[^>]+>", "\n", text).split("\n"))
    return [line for line in lines if line]


def _log(notebook: NotebookNode) -> None:
    """Keep the notebook with its outputs in a run; without MLFLOW_TRACKING_URI, in `.demo`."""
    store = "" if "MLFLOW_TRACKING_URI" in os.environ else str(HERE / ".demo")
    use_store(store, "" if "MLFLOW_RUN_ID" in os.environ else "notebook")
    with mlflow.start_run(run_name="notebook"):
        mlflow.log_text(nbformat.writes(notebook), "tour.ipynb")


if __name__ == "__main__":
    sys.exit(main())
