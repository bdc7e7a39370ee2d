"""What a reply to one row costs besides the model's own calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from rivals.turns import WARM

from mlflow_cf import ExplainedModel
from mlflow_cf.model import OpenModel


@dataclass(frozen=True)
class OwnShare:
    """A reply with one row, as medians.

    Attributes:
        own_ms: CPU milliseconds besides the model's own calls.
        model_calls: how often the model was asked.
    """

    own_ms: float
    model_calls: float


def measure(explained: ExplainedModel, rows: pd.DataFrame) -> OwnShare:
    """Let a model reply to `rows` (m, d) one by one, as a server asks it, with its calls timed."""
    calls: list[float] = []
    timed = watched(explained, calls)
    for position in range(min(WARM, len(rows))):
        timed.predict(rows.iloc[[position]])
    own, asked = [], []
    for position in range(len(rows)):
        calls.clear()
        row = rows.iloc[[position]]
        start = time.process_time()
        timed.predict(row)
        own.append(1_000 * (time.process_time() - start - sum(calls)))
        asked.append(len(calls))
    return OwnShare(float(np.median(own)), float(np.median(asked)))


def watched(explained: ExplainedModel, calls: list[float]) -> ExplainedModel:
    """Return the same whose model adds the CPU seconds of each of its calls to `calls`."""
    return replace(explained, judge=replace(explained.judge, model=_timed(explained.judge.model, calls)))


def _timed(model: OpenModel, calls: list[float]) -> OpenModel:
    """Return a model whose calls note their CPU seconds."""

    def timed(call: Callable[[pd.DataFrame], Any]) -> Callable[[pd.DataFrame], Any]:
        def ask(rows: pd.DataFrame) -> Any:
            start = time.process_time()
            answer = call(rows)
            calls.append(time.process_time() - start)
            return answer

        return ask

    score = None if model.score is None else timed(model.score)
    both = None if model.both is None else timed(model.both)
    return replace(model, decide=timed(model.decide), score=score, both=both)
