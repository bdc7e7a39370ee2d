"""The n-th call of the model or look at the clock fails: a clean status or refusal, and every place comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import small_loans
from mlflow.exceptions import MlflowException

import mlflow_cf
from mlflow_cf.artifact.served import ServedModel
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.words.result import Status
from mlflow_cf.wrapping import assemble

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
ASKED = small_loans.rejected(TABLE, 2)
QUOTED = "quoted 97.53124"
FAULTS: list[Callable[[], BaseException]] = [
    lambda: ValueError(QUOTED),
    lambda: MemoryError(QUOTED),
    lambda: OSError(28, QUOTED),
    lambda: ZeroDivisionError(QUOTED),
]
STATUSES = set(get_args(Status))


class Failing:
    """Fails once, when it is called for the n-th time."""

    def __init__(self) -> None:
        self.left, self.fault = -1, FAULTS[0]

    def arm(self, number: int) -> None:
        """Fail at the call with this number, in one way after the other."""
        self.left, self.fault = number, FAULTS[number % len(FAULTS)]

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.fault()


def free_places(explained: ExplainedModel) -> int:
    with explained.admission.more(explained.admission.places) as free:
        return free


def answered(explained: ExplainedModel, query: dict[str, object]) -> list[str]:
    """Return the statuses of a reply; none where it was refused, in words that quote nothing."""
    try:
        reply = ServedModel(explained, within_s=30.0).predict(ASKED, {"counterfactual": query})
    except MlflowException as refused:
        clean = isinstance(refused, InputError) or "could not answer" in refused.message
        if QUOTED in str(refused) or not clean:
            raise
        return []
    finally:
        assert free_places(explained) == explained.admission.places
    assert QUOTED not in reply.to_json()
    assert set(reply["status"]) <= STATUSES
    return list(reply["status"])


@pytest.mark.parametrize(("count", "calls"), [(1, range(1, 51)), (3, range(1, 51, 3))])
def test_the_model_fails_once(count: int, calls: range) -> None:
    query = {"max_evaluations": 300, "count": count}
    failing = Failing()

    def decide(rows: pd.DataFrame) -> np.ndarray:
        failing()
        return MODEL.predict(rows)

    explained = assemble(OpenModel("test", ("bad", "good"), decide), TABLE, None, WrapOptions(target="good"))
    explained.warm_up()
    whole = answered(explained, query)
    for number in calls:
        failing.arm(number)
        statuses = answered(explained, query)
        assert len(statuses) == len(ASKED)  # rows that the model fails for together are asked one by one
    failing.arm(-1)
    assert answered(explained, query) == whole


def test_the_judge_of_an_opened_model_fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing()
    explained = mlflow_cf.wrap(MODEL, TABLE, target="good")
    explained.warm_up()
    whole = answered(explained, {"certify": True})
    verdict = type(explained.judge).verdict

    def moody(judge: object, rows: pd.DataFrame) -> object:
        failing()
        return verdict(judge, rows)

    monkeypatch.setattr(type(explained.judge), "verdict", moody)
    for number in range(1, 51):
        failing.arm(number)
        assert len(answered(explained, {"certify": True})) == len(ASKED)
    failing.arm(-1)
    assert answered(explained, {"certify": True}) == whole


def test_a_look_at_the_clock_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failing, look = Failing(), time.perf_counter
    explained = mlflow_cf.wrap(MODEL, TABLE, target="good")
    explained.warm_up()
    whole = answered(explained, {"certify": True})

    def moody() -> float:
        failing()
        return look()

    monkeypatch.setattr(time, "perf_counter", moody)
    for number in range(1, 51):
        failing.arm(number)
        answered(explained, {"certify": True})
    failing.arm(-1)
    assert answered(explained, {"certify": True}) == whole
