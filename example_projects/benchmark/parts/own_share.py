"""What a reply to one row costs besides the model's own calls."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from rivals.turns import WARM

from mlflow_cf import ExplainedModel
from mlflow_cf.model import CodedCalls


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
    judge = explained.judge
    model = replace(
        judge.model,
        decide=_timed(judge.model.decide, calls),
        score=_timed(judge.model.score, calls),
        both=_timed(judge.model.both, calls),
    )
    coded = judge.coded
    if coded is not None and coded.model is judge.model:
        told, score = coded.calls
        coded = coded._replace(model=model, calls=CodedCalls(_timed(told, calls), _timed(score, calls)))
    return replace(explained, judge=replace(judge, model=model, coded=coded))


def _timed(call: Any, calls: list[float]) -> Any:
    """Return a call that notes its CPU seconds; None, if there is none."""

    def ask(rows: Any) -> Any:
        start = time.process_time()
        answer = call(rows)
        calls.append(time.process_time() - start)
        return answer

    return None if call is None else ask
