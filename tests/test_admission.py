"""Few requests are explained at once: the others get their predictions and are told to come back."""

import copy
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import GeCo
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.problem import Budget
from mlflow_cf.request.admission import GIVE_WAY, GIVE_WAY_S, Admission
from mlflow_cf.wrapping import assemble

FRAME = pd.DataFrame({"income": np.arange(10.0, 90.0), "age": np.arange(80) % 40 + 20})
POOR, RICH = FRAME.iloc[[3]], FRAME.iloc[[70]]


class Gate:
    """A labels-only model; searches, which ask about more than one row, wait until the gate is open."""

    def __init__(self) -> None:
        self.open, self.waiting = threading.Event(), threading.Event()
        self.open.set()

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        if len(rows) > 1:
            self.waiting.set()
            assert self.open.wait(20)
        return (rows["income"] > 50).to_numpy().astype(int)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def loan(gate: Gate) -> ExplainedModel:
    explained = assemble(OpenModel("test", (0, 1), gate), FRAME, None, WrapOptions())
    return replace(explained, admission=Admission(1))


@pytest.fixture
def full(loan: ExplainedModel, gate: Gate) -> Iterator[None]:
    """Another request is inside, and stays there until the gate opens."""
    gate.open.clear()
    gate.waiting.clear()
    with ThreadPoolExecutor(1) as pool:
        inside = pool.submit(loan.predict, POOR)
        try:
            assert gate.waiting.wait(20)
            yield
        finally:
            gate.open.set()
        assert list(inside.result()["status"]) == ["found"]


@pytest.mark.usefixtures("full")
class TestNoRoom:
    def test_the_row_gets_its_prediction_and_is_told_what_to_do(self, loan: ExplainedModel) -> None:
        (record,) = loan.predict(POOR).to_dict("records")
        assert (record["prediction"], record["status"], record["counterfactuals"]) == (0, "busy", [])
        assert record["reason"] == (
            "all places for explanations (1) are taken; the prediction stands, ask again in a moment"
        )
        json.dumps(record, allow_nan=False)

    def test_rows_that_need_no_search_are_answered_as_ever(self, loan: ExplainedModel) -> None:
        assert list(loan.predict(RICH)["status"]) == ["already"]
        assert list(loan.predict(POOR, {"counterfactual": {"explain": "none"}})["status"]) == ["skipped"]

    def test_wrong_options_are_refused_as_ever(self, loan: ExplainedModel) -> None:
        with pytest.raises(InputError, match="cuont"):
            loan.predict(POOR, {"counterfactual": {"cuont": 1}})

    def test_python_waits_for_its_place(self, loan: ExplainedModel, gate: Gate) -> None:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(loan.explain, POOR)
            gate.open.set()
            assert [found.status for found in waiting.result()] == ["found"]

    def test_python_waits_no_longer_than_its_time_limit(self, loan: ExplainedModel) -> None:
        (answer,) = loan.explain(POOR, time_limit_s=0.01)
        assert (answer.prediction, answer.status) == (0, "busy")


def test_one_request_after_the_other_always_has_room(loan: ExplainedModel) -> None:
    assert {status for _ in range(20) for status in loan.predict(POOR)["status"]} == {"found"}


def test_many_threads_of_python_all_get_answers(loan: ExplainedModel) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: loan.explain(POOR)[0].to_dict(), range(24)))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["status"] == "found"


def test_a_request_that_fails_leaves_its_place(loan: ExplainedModel) -> None:
    small = replace(loan, explainer=GeCo(q=6))
    for _ in range(3):
        with pytest.raises(InputError, match="survivors"):
            small.explain(POOR, count=8)
    assert list(loan.predict(POOR)["status"]) == ["found"]


def test_every_model_has_places_of_its_own(loan: ExplainedModel) -> None:
    other = assemble(loan.model, FRAME, None, WrapOptions())
    with other.admission.entered(0) as one, loan.admission.entered(0) as two:
        assert (one, two) == (True, True)


@pytest.mark.parametrize(("cores", "places"), [(1, 1), (2, 2), (64, 28)])
def test_one_place_per_core_and_some_threads_left_for_predictions(
    cores: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr("mlflow_cf.request.admission.CPU_QUOTA", Path("nowhere"))
    assert Admission().places == places


@pytest.mark.parametrize(
    ("quota", "places"), [("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("1000000 100000", 8), ("", 8)]
)
def test_a_containers_quota_counts(quota: str, places: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    monkeypatch.setattr("mlflow_cf.request.admission.CPU_QUOTA", tmp_path / "cpu.max")
    assert Admission().places == places


def test_systems_that_know_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr("mlflow_cf.request.admission.CPU_QUOTA", Path("nowhere"))
    for known, places in ((4, 4), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        assert Admission().places == places


def test_a_copy_has_as_many_places_all_of_them_free() -> None:
    admission = Admission(1)
    with admission.entered(0):
        for twin in (copy.deepcopy(admission), pickle.loads(pickle.dumps(admission))):  # noqa: S301  our own bytes
            with twin.entered(0) as admitted:
                assert (twin.places, admitted) == (1, True)


def test_no_more_wait_on_a_servers_threads_than_there_are_places() -> None:
    admission = Admission(1)

    def enter() -> bool:
        with admission.entered(20.0, served=True) as admitted:
            return admitted

    with ThreadPoolExecutor(1) as pool:
        with admission.entered(0.0, served=True) as first:
            waiting = pool.submit(enter)
            while admission._patient.acquire(blocking=False):  # until the other thread waits
                admission._patient.release()
            assert not enter()  # at once
            assert not waiting.done()
        assert first
        assert waiting.result(timeout=20)


class Noted(threading.Condition):
    """A condition that notes how long anybody would wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.longest: list[float | None] = []
        self.waiting = threading.Event()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        self.longest.append(timeout)
        self.waiting.set()
        return super().wait_for(predicate, timeout)


class TestGivingWay:
    @pytest.fixture
    def admission(self) -> Admission:
        admission = Admission(1)
        admission._changed = Noted()
        return admission

    def test_nobody_predicts(self, admission: Admission) -> None:
        admission.give_way()
        assert admission._changed.longest == []

    def test_a_search_goes_on_after_a_while_even_if_predictions_never_cease(self, admission: Admission) -> None:
        with admission.predicting():
            admission.give_way()
        assert admission._changed.longest == [GIVE_WAY_S]

    def test_a_search_goes_on_when_the_last_prediction_is_there(
        self, admission: Admission, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mlflow_cf.request.admission.GIVE_WAY_S", 1e6)  # as long as it takes
        with ThreadPoolExecutor(1) as pool:
            with admission.predicting():
                with admission.predicting():
                    paused = pool.submit(admission.give_way)
                    assert admission._changed.waiting.wait(20)
                assert not paused.done()
            paused.result(timeout=20)

    def test_a_pause_is_no_longer_than_a_few_times_the_work_since_the_last(
        self, admission: Admission, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = iter([100.0, 100.0, 100.01, 100.05, 100.0501])
        monkeypatch.setattr("mlflow_cf.request.admission.time.perf_counter", lambda: next(clock))
        with admission.predicting():
            for _ in range(3):  # from 100.0 on, after 10 ms of work, after next to none
                admission.give_way()
        assert admission._changed.longest == [GIVE_WAY_S, pytest.approx(GIVE_WAY * 0.01)]

    def test_a_budget_lets_predictions_go_first(self, admission: Admission) -> None:
        budget = Budget(10, pause=admission.give_way)
        with admission.predicting():
            assert budget.take(3) == 3
            assert budget.anew(2).take(3) == 2
        assert len(admission._changed.longest) == 1  # at once again there was nothing to make up for

    def test_a_prediction_that_fails_is_over(self, admission: Admission) -> None:
        with pytest.raises(ZeroDivisionError), admission.predicting():
            raise ZeroDivisionError
        admission.give_way()
        assert admission._changed.longest == []


class TestParts:
    """A work in parts is done by several threads, of which the one that reads it is one."""

    def test_it_is_read_in_order_while_the_reader_does_something_else(self) -> None:
        admission, seen = Admission(4), dict[int, str]()

        def work(part: int) -> int:
            seen[part] = threading.current_thread().name
            return part * part

        read = admission.shared(work, range(50), 3)
        assert next(read) == 0
        for _ in range(2_000):  # the others go on meanwhile
            if len(seen) == 50:
                break
            threading.Event().wait(0.01)
        assert len(seen) == 50
        assert list(read) == [part * part for part in range(1, 50)]

    def test_a_reader_helps_where_nobody_else_is_free(self) -> None:
        admission, entered, release = Admission(2), threading.Event(), threading.Event()

        def work(part: int) -> str:
            if threading.current_thread() is threading.main_thread():
                release.set()
            else:
                entered.set()
                assert release.wait(20)
            return threading.current_thread().name

        names = list(admission.shared(work, range(6), 1))
        assert "MainThread" in names

    def test_an_error_is_raised_where_its_part_is_read(self) -> None:
        read = Admission(3).shared(lambda part: 12 // (3 - part), range(6), 2)
        assert [next(read) for _ in range(3)] == [4, 6, 12]
        with pytest.raises(ZeroDivisionError):
            next(read)

    @pytest.mark.parametrize("further", [0, 2])
    def test_nothing_more_is_begun_after_an_interruption(self, further: int) -> None:
        begun = list[int]()

        def work(part: int) -> int:
            begun.append(part)
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            threading.Event().wait(0.002)
            return part

        with pytest.raises(KeyboardInterrupt):
            list(Admission(1 + further).shared(work, range(10_000), further))
        many = len(begun)
        threading.Event().wait(0.05)
        assert len(begun) == many < 10_000
