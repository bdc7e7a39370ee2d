"""Long tables: other processes explain parts of them, and whatever happens there, every row gets the same answer."""

import os
import sys
import time
from concurrent.futures import Future, wait
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import parent_process
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.request import explain_table, helpers
from mlflow_cf.request.admission import Admission
from mlflow_cf.words.explanations import Explanations, Interrupted

ROWS = pd.DataFrame({"x": np.arange(30) % 10, "y": np.arange(30) % 7, "z": np.arange(30) % 3 / 2}).set_index(
    pd.Index(np.arange(30) + 1000)
)


def decide(rows: pd.DataFrame) -> np.ndarray:
    return ((rows["x"] + rows["y"]) > 10).astype(int).to_numpy()


def decide_or_die(rows: pd.DataFrame) -> np.ndarray:
    if parent_process() is not None:
        os._exit(1)
    return decide(rows)


def every_part_is_worth_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "WORTH_S", 1e-9)
    monkeypatch.setattr(explain_table, "PART_S", 1e-9)
    monkeypatch.setattr(explain_table, "FEW", 0)
    started = helpers._started
    monkeypatch.setattr(helpers, "_started", lambda *work: awaited(started(*work)))


def awaited(future: Future[Any]) -> Future[Any]:
    """Return a future once it is done: the tables here are so short that no helper would have started in time."""
    wait([future])
    return future


class Held:
    """A model that lives in one process alone."""

    def __init__(self) -> None:
        self.lock = Lock()

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        with self.lock:
            return decide(rows)


def explained_by_two(model: object, monkeypatch: pytest.MonkeyPatch) -> tuple[Explanations, Explanations]:
    """Return what one process says of the table, and what comes of it where every row is worth a helper."""
    made = mlflow_cf.wrap(model, ROWS, target=1, output="label")
    alone = made.explain(ROWS)
    every_part_is_worth_a_helper(monkeypatch)
    return alone, replace(made, admission=Admission(2)).explain(ROWS)


def assert_same(alone: Explanations, together: Explanations) -> None:
    assert together.index.equals(alone.index)
    assert together.to_dict() == alone.to_dict()


def test_answers_are_the_same(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere: list[int] = []
    submitted = helpers.ProcessPoolExecutor.submit

    def submit(pool: object, work: object, *rows: pd.DataFrame) -> object:
        elsewhere.extend(label for some in rows for label in some.index)
        return submitted(pool, work, *rows)

    monkeypatch.setattr(helpers.ProcessPoolExecutor, "submit", submit)
    alone, together = explained_by_two(decide, monkeypatch)
    assert elsewhere
    assert not caplog.records
    assert {one.status for one in together} == {"found", "already"}
    assert_same(alone, together)


def test_rows_of_a_process_that_dies_are_explained_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alone, together = explained_by_two(decide_or_die, monkeypatch)
    assert "a helper process failed" in caplog.text
    assert_same(alone, together)


def test_a_model_that_cannot_be_handed_over_is_asked_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alone, together = explained_by_two(Held(), monkeypatch)
    assert "a helper process failed with TypeError; explaining without" in caplog.text
    assert_same(alone, together)


def test_helpers_that_start_too_late_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    every_part_is_worth_a_helper(monkeypatch)
    starting: Future[Any] = Future()
    monkeypatch.setattr(helpers, "_started", lambda *_: starting)
    made = replace(mlflow_cf.wrap(decide, ROWS, target=1, output="label"), admission=Admission(2))
    assert len(made.explain(ROWS)) == len(ROWS)
    stopped = []
    starting.set_result(SimpleNamespace(shutdown=lambda **how: stopped.append(how)))
    assert stopped == [{"wait": True, "kill_workers": True}]


def test_a_core_alone_takes_no_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    every_part_is_worth_a_helper(monkeypatch)
    monkeypatch.setattr(helpers, "ProcessPoolExecutor", None)
    made = replace(mlflow_cf.wrap(decide, ROWS, target=1, output="label"), admission=Admission(1))
    assert len(made.explain(ROWS)) == len(ROWS)


def test_one_job_takes_no_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    every_part_is_worth_a_helper(monkeypatch)
    monkeypatch.setattr(helpers, "ProcessPoolExecutor", None)
    made = replace(mlflow_cf.wrap(decide, ROWS, target=1, output="label"), admission=Admission(2))
    assert len(made.explain(ROWS, n_jobs=1)) == len(ROWS)


@pytest.mark.parametrize("jobs", [0, -2, 1.5, True, "2"])
def test_what_is_no_number_of_cores_is_refused(jobs: Any) -> None:
    made = mlflow_cf.wrap(decide, ROWS, target=1, output="label")
    with pytest.raises(
        InputError, match=r"^n_jobs: .* is no number of cores; give 1 or more, or None for all that are free"
    ):
        made.explain(ROWS, n_jobs=jobs)


def test_a_limit_for_all_rows_takes_no_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    every_part_is_worth_a_helper(monkeypatch)
    monkeypatch.setattr(helpers, "ProcessPoolExecutor", None)
    made = replace(mlflow_cf.wrap(decide, ROWS, target=1, output="label"), admission=Admission(2))
    assert len(made.explain(ROWS, time_limit_s=60)) == len(ROWS)


class TestPlaces:
    def test_a_task_of_spark_has_none_beside_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyspark.daemon", sys)
        with Admission(3).more(8) as more:
            assert more == 0

    def test_only_free_ones_are_taken(self) -> None:
        admission = Admission(3)
        with admission.entered(None), admission.more(8) as more, admission.entered(0.0) as late:
            assert more == 2
            assert not late

    def test_they_come_back(self) -> None:
        admission = Admission(2)
        with admission.more(1) as more:
            assert more == 1
        with admission.more(8) as more:
            assert more == 2


class TestShared:
    @pytest.mark.parametrize(("places", "threads"), [(1, 1), (2, 2), (3, 3), (9, 4)])
    def test_no_more_threads_work_than_there_are_places(self, places: int, threads: int) -> None:
        most, at_work, lock = 0, 0, Lock()

        def work(part: int) -> int:
            nonlocal most, at_work
            with lock:
                at_work += 1
                most = max(most, at_work)
            time.sleep(0.02)
            with lock:
                at_work -= 1
            return part

        for placed in (False, True):
            admission, most = Admission(places), 0
            with admission.entered(None) if placed else nullcontext():
                assert list(admission.shared(work, range(12), 3, placed=placed)) == list(range(12))
            assert most == threads
            with admission.more(99) as free:
                assert free == places


class TestInterrupted:
    @pytest.mark.parametrize("limit", [None, 60.0])
    def test_what_was_found_is_said(self, limit: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(explain_table, "FEW", 0)
        asked = [0]

        def slow(rows: pd.DataFrame) -> np.ndarray:
            asked[0] += 1
            if asked[0] == stop:
                raise KeyboardInterrupt
            return decide(rows)

        stop = -1
        made = mlflow_cf.wrap(slow, ROWS, target=1, output="label")
        everything = made.explain(ROWS, time_limit_s=limit)
        stop, asked[0] = asked[0] // 2, 0
        with pytest.raises(
            Interrupted, match=r"^\d+ of \d+ rows were explained; they are the `explanations`"
        ) as stopped:
            made.explain(ROWS, time_limit_s=limit)
        found = stopped.value.explanations
        assert found.index.equals(everything.index)
        statuses = {one.status for one in found}
        assert statuses == {"found", "already", "budget"}
        for one, whole in zip(found, everything, strict=True):
            if one.status == "budget":
                assert one.reason == "interrupted before this row was searched"
                assert one.prediction == whole.prediction
            else:
                assert one.counterfactuals == whole.counterfactuals
