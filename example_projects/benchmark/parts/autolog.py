"""What autolog costs: a training call alone, with MLflow's own autolog, and with an explained model beside."""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import lightgbm
import mlflow
import numpy as np
import pandas as pd
import xgboost
from parts import runs
from parts.gates import Gate, told
from sklearn.ensemble import RandomForestClassifier

import mlflow_cf

ROWS: Final = 5_000
FEATURES: Final = 12
ROUNDS: Final = 3
SLOWER: Final = 1.25  # of a training call with our hook in place, which it does not pass; clocks differ by as much
SHARE: Final = 1.0  # of the seconds that MLflow's own autolog adds
MODELS: Mapping[str, Callable[[int], Any]] = {
    "sklearn": lambda seed: RandomForestClassifier(100, random_state=seed, n_jobs=1),
    "xgboost": lambda seed: xgboost.XGBClassifier(n_estimators=100, max_depth=4, random_state=seed, n_jobs=1),
    "lightgbm": lambda seed: lightgbm.LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1),
}


@dataclass(frozen=True)
class Line:
    """Seconds of one training call in a run, medians.

    Attributes:
        alone: without any autolog; hooked: the same with ours on, while nothing is logged.
        logged: with MLflow's autolog, which logs the model; explained: with ours, too.
        cpu: of ours, CPU seconds of this process.
    """

    alone: float
    hooked: float
    logged: float
    explained: float
    cpu: float

    @property
    def added(self) -> float:
        """Seconds that ours adds."""
        return self.explained - self.logged

    def gates(self) -> list[Gate]:
        """Return what is promised."""
        more = self.logged - self.alone
        return [
            Gate("training call with ours on / off", self.hooked / self.alone, SLOWER, most=True),
            Gate("seconds added by ours / by MLflow's autolog", self.added / more, SHARE, most=True),
        ]


def run_autolog(chosen: Namespace) -> list[str]:
    """Measure every flavor; return the promises that were broken: none is about speed."""
    X, y = _table(chosen.rows or ROWS, chosen.seed)
    lines = {flavor: _measured(flavor, X, y, chosen.seed) for flavor in MODELS}
    runs.log_figures({f"autolog {flavor}": {**vars(line), "added": line.added} for flavor, line in lines.items()})
    table = pd.DataFrame({flavor: {**vars(line), "added": line.added} for flavor, line in lines.items()}).T
    print(f"\n=== Autolog: seconds of a training call in a run, {len(X):,} rows\n\n{table.round(2).to_string()}")
    print(told([(flavor, gate) for flavor, line in lines.items() for gate in line.gates()]))
    return []


def _table(rows: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, FEATURES)), columns=[f"x{number}" for number in range(FEATURES)])
    return X, (X["x0"] + X["x1"] * X["x2"] + 0.5 * X["x3"] > 0).astype(int)


def _measured(flavor: str, X: pd.DataFrame, y: pd.Series, seed: int) -> Line:
    def fit() -> None:
        MODELS[flavor](seed).fit(X, y)

    alone, _ = _seconds(fit)
    with _ours():
        hooked, _ = _seconds(fit)
    with _mlflows(flavor):
        logged, cpu_logged = _seconds(fit)
        with _ours():
            explained, cpu_explained = _seconds(fit)
    return Line(alone, hooked, logged, explained, cpu_explained - cpu_logged)


def _seconds(fit: Callable[[], None]) -> tuple[float, float]:
    """Return median seconds and CPU seconds of a training call in a run of its own; the first one is not counted."""
    seconds, cpu = [], []
    for _ in range(ROUNDS + 1):
        with mlflow.start_run(nested=True):
            started, used = time.perf_counter(), time.process_time()
            fit()
            seconds.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
    return median(seconds[1:]), median(cpu[1:])


@contextmanager
def _ours() -> Iterator[None]:
    mlflow_cf.autolog(target=1)
    try:
        yield
    finally:
        mlflow_cf.autolog(disable=True)


@contextmanager
def _mlflows(flavor: str) -> Iterator[None]:
    logger = logging.getLogger("mlflow.sklearn")  # says of every model that it is pickled
    before = logger.level
    logger.setLevel(logging.ERROR)
    getattr(mlflow, flavor).autolog()
    try:
        yield
    finally:
        getattr(mlflow, flavor).autolog(disable=True)
        logger.setLevel(before)
