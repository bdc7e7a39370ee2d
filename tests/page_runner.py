"""Runs Python scripts, each in a process of its own that has imported what all of them import.

It reads lines ``{"script": path, "folder": path, "variables": {name: value}}``, and writes for each the exit code and
what the script has printed, as JSON. A page of documentation takes a third of the time that a new interpreter takes.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf


def main() -> None:
    """Run what is asked for, until there is nothing more."""
    warm()
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        output = Path(asked["folder"]) / "output.txt"
        child = os.fork()
        if child == 0:
            be_the_script(Path(asked["script"]), output, asked["variables"])
            return
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(json.dumps([code, output.read_text(encoding="utf-8", errors="replace")]) + "\n")
        sys.stdout.flush()


def be_the_script(script: Path, output: Path, variables: dict[str, str]) -> None:
    """Go on as Python does that was started with a script."""
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID"):  # of an earlier test in the process that started this one
        os.environ.pop(name, None)
    os.environ.update(variables)
    os.chdir(output.parent)
    sys.argv, sys.path[0] = [str(script)], str(script.parent)
    runpy.run_path(str(script), run_name="__main__")


def warm() -> None:
    """Load what explaining a row needs; nothing is written, and no store of MLflow is touched."""
    assert mlflow.active_run() is None
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, (rows["a"] > 0).astype(int))
    mlflow_cf.wrap(model, rows, target=1).explain(rows.head(3))


if __name__ == "__main__":
    main()
