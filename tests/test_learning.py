"""Explainers that learn: once, for all threads, on the clock of the request, and never when loaded."""

import copy
import pickle
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from pydantic import StrictInt

from mlflow_cf import ArtifactError, InputError, NearestRow
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import EXPLAINERS, Candidates, Facts, Learned, Search
from mlflow_cf.explainers import searches as module
from mlflow_cf.explainers.explainer import Learning, steps_of
from mlflow_cf.explainers.searches import Lesson, Searches
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.request.admission import Admission
from mlflow_cf.stepwise import finished
from mlflow_cf.testing.watched import Clock
from mlflow_cf.words.reasons import still_learning
from mlflow_cf.wrapping import assemble

FRAME = pd.DataFrame({"a": range(10), "b": range(0, 100, 10)})
LESSONS: list[Any] = []


@dataclass(frozen=True)
class Diligent:
    """Learns the largest row of the background, and proposes it."""

    pause_s: float = 0.0
    needs_labels: bool = False
    fails: bool = False
    times: Any = 1

    name: ClassVar[str] = "diligent"
    polish: ClassVar[bool] = False
    by_request: ClassVar[Mapping[str, Any]] = {"times": StrictInt}

    def learn(self, facts: Facts) -> Learned:
        LESSONS.append(self)
        time.sleep(self.pause_s)
        if self.needs_labels and facts.labels is None:
            raise InputError("labels", "there are none", "pass labels")
        if self.fails:
            raise ZeroDivisionError
        return Learned({"best": facts.background.max(axis=0)}, {"seed": facts.seed})

    def bound(self, learned: Learned) -> Search:
        return lambda *_: Candidates(learned.arrays["best"][None, :])


@pytest.fixture(autouse=True)
def lessons(monkeypatch):
    LESSONS.clear()
    monkeypatch.setitem(EXPLAINERS, "diligent", Diligent)


def wrapped(explainer: Any = "diligent", labels: Any = None, **options: Any) -> ExplainedModel:
    model = OpenModel("test", (0, 1), lambda rows: (rows["a"] > 4).to_numpy().astype(int))
    return assemble(model, FRAME, labels, WrapOptions(explainer=explainer, **options))


def status(explained: ExplainedModel, **options: Any) -> str:
    return explained.explain(FRAME[:1], **options)[0].status


class TestOnce:
    def test_when_wrapping(self) -> None:
        explained = wrapped(seed=7)
        assert (len(LESSONS), explained.learned.plain) == (1, {"seed": 7})
        assert [cf.row for row in explained.explain(FRAME[:3]) for cf in row.counterfactuals] == [{"a": 9, "b": 90}] * 3
        assert status(explained, explainer="diligent") == "found"
        assert len(LESSONS) == 1

    def test_when_a_request_names_it(self) -> None:
        explained = wrapped("nearest_row")
        assert not LESSONS
        assert explained.learned is None
        assert [status(explained, explainer=source) for source in ("diligent", Diligent())] == ["found"] * 2
        assert status(explained, explainer="diligent", seed=3, count=5) == "found"
        assert len(LESSONS) == 1

    def test_for_each_choice_of_options(self) -> None:
        explained = wrapped()
        for times in (1, 2, 3, 2, 1):
            assert status(explained, explainer={"name": "diligent", "options": {"times": times}}) == "found"
        assert [lesson.times for lesson in LESSONS] == [1, 2, 3]

    def test_objects_whose_options_are_no_json_share_nothing(self) -> None:
        explained, first, second = wrapped("nearest_row"), Diligent(times=print), Diligent(times=print)
        for explainer in (first, second, first, second):
            assert status(explained, explainer=explainer) == "found"
        assert [first, second] == LESSONS

    def test_for_all_threads(self) -> None:
        explained = wrapped("nearest_row")
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(lambda _: status(explained, explainer=Diligent(pause_s=0.05)), range(8)))
        assert (told, len(LESSONS)) == (["found"] * 8, 1)

    def test_few_stay_in_memory(self, monkeypatch) -> None:
        monkeypatch.setattr(module, "MOST_LEARNED", 2)
        explained = wrapped("nearest_row")
        for times in (1, 2, 1, 3, 1, 2):
            assert status(explained, explainer=Diligent(times=times)) == "found"
        assert [lesson.times for lesson in LESSONS] == [1, 2, 3, 2]

    @pytest.mark.parametrize("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])  # noqa: S301
    def test_copies_know_what_was_learned(self, again) -> None:
        explained = wrapped()
        searches = Searches(
            replace(explained.searches.facts, bound_policy=None, target=None), Diligent(), explained.learned
        )
        assert again(searches).own.learned.arrays["best"].tolist() == [9, 90]
        assert len(LESSONS) == 1


class TestOnTheClock:
    def test_rows_have_what_is_left(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
        explained = wrapped("nearest_row")
        (found,) = explained.explain(FRAME[:1], explainer=Diligent(pause_s=0.2), time_limit_s=0.1)
        assert (found.status, found.reason) == ("budget", "stopped by the time limit after 0 evaluations")
        assert status(explained, explainer=Diligent(pause_s=0.2), time_limit_s=0.1) == "found"

    def test_nobody_waits_beyond_the_deadline_for_another_to_learn(self) -> None:
        explained, started, done = wrapped("nearest_row"), threading.Event(), threading.Event()

        @dataclass(frozen=True)
        class Slow(Diligent):
            def learn(self, facts: Facts) -> Learned:
                started.set()
                assert done.wait(30)
                return super().learn(facts)

        explained = replace(explained, admission=Admission(2))
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(status, explained, explainer=Slow())
            assert started.wait(30)
            (found,) = explained.explain(FRAME[:1], explainer=Slow(), time_limit_s=0.05)
            done.set()
            assert first.result() == "found"
        assert (found.status, found.prediction) == ("budget", 0)
        assert found.reason == still_learning("diligent")
        assert len(LESSONS) == 1


@dataclass(frozen=True)
class Patient(Diligent):
    """Learns the same in five steps, each of which takes a second by the clock of the test."""

    clock: Any = None
    learned_by: ClassVar[tuple[str, ...]] = ("pause_s",)

    def learn(self, facts: Facts) -> Learning:
        for _ in range(5):
            self.clock.now += 1.0
            LESSONS.append(self)
            yield
        return super().learn(facts)


class TestStepByStep:
    def test_learning_ends_with_the_clock_and_the_next_request_goes_on(self, clock: Clock) -> None:
        explained, explainer = wrapped("nearest_row"), Patient(clock=clock)
        for steps in (2, 4):
            (found,) = explained.explain(FRAME[:1], explainer=explainer, time_limit_s=2.0)
            assert (found.status, found.reason) == ("budget", still_learning("diligent"))
            assert (found.prediction, len(LESSONS)) == (0, steps)
        assert status(explained, explainer=explainer, time_limit_s=2.0) == "found"
        assert status(explained, explainer=replace(explainer, times=7)) == "found"
        assert len(LESSONS) == 6

    def test_whoever_wraps_takes_all_steps(self, clock: Clock) -> None:
        assert status(wrapped(Patient(clock=clock))) == "found"
        assert len(LESSONS) == 6

    def test_it_gives_way_between_steps(self, clock: Clock) -> None:
        pauses: list[float] = []
        searches = wrapped("nearest_row").searches
        assert searches.of(Patient(clock=clock), None, lambda: pauses.append(clock.now))
        assert len(pauses) == 6

    @pytest.mark.parametrize("explainer", ["ufce", "face", "mdpso"])
    def test_what_takes_longer_with_every_column_is_learned_step_by_step(self, explainer: str) -> None:
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.normal(size=(600, 60)), columns=[f"c{at}" for at in range(60)])
        frame["level"] = rng.choice(["u", "v"], 600)
        model = OpenModel("test", (0, 1), lambda rows: (rows["c0"] > 0).to_numpy().astype(int))
        facts = assemble(model, frame, None, WrapOptions(explainer="nearest_row")).searches.facts
        lesson, turns = Lesson(EXPLAINERS[explainer](), facts), 0

        def turn() -> None:
            nonlocal turns
            turns += 1

        ready = lesson.taught(None, turn)
        assert ready
        again = finished(steps_of(ready.explainer.learn(facts)))
        assert turns > 5
        assert all((array == again.arrays[name]).all() for name, array in ready.learned.arrays.items())


class TestFailure:
    def test_what_cannot_be_learned_is_said_when_wrapping(self) -> None:
        with pytest.raises(InputError, match="labels: there are none; pass labels"):
            wrapped(Diligent(needs_labels=True))
        assert wrapped(Diligent(needs_labels=True), labels=range(10)).learned is not None

    def test_or_ends_the_request(self) -> None:
        explained = wrapped("nearest_row")
        for _ in range(2):
            with pytest.raises(InputError, match="labels: there are none; pass labels"):
                explained.explain(FRAME[:1], explainer=Diligent(needs_labels=True))
        assert len(LESSONS) == 2

    def test_other_errors_leave_the_predictions(self) -> None:
        found = wrapped("nearest_row").explain(FRAME, explainer=Diligent(fails=True))
        assert [each.prediction for each in found] == [0] * 5 + [1] * 5
        assert [each.status for each in found] == ["invalid"] * 5 + ["already"] * 5
        assert found[0].reason == "the explanation failed (ZeroDivisionError)"

    def test_what_another_version_has_learned_is_not_learned_anew(self) -> None:
        facts = wrapped("nearest_row").searches.facts

        @dataclass(frozen=True)
        class Renamed(Diligent):
            def bound(self, learned: Learned) -> Search:
                return super().bound(Learned({"best": learned.arrays["row"]}))

        with pytest.raises(
            ArtifactError, match=r"explainer: 'diligent' cannot use what was stored as learned \(KeyErr"
        ):
            Searches(facts, Renamed(), Learned({"best": facts.background[-1]}))
        assert not LESSONS


class TestLearned:
    def test_it_is_a_copy_that_nobody_changes(self) -> None:
        array = np.arange(6.0).reshape(2, 3)
        learned = Learned({"x": array.T})
        array[:] = 0
        assert learned.arrays["x"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert learned.arrays["x"].flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            learned.arrays["x"][0] = 1

    def test_plain_values_are_as_json_has_them(self) -> None:
        assert Learned(plain={"pairs": [(1, 2.5)], "none": None}).plain == {"pairs": [[1, 2.5]], "none": None}

    @pytest.mark.parametrize(
        ("arrays", "plain"),
        [
            ({"x": np.array([{}], dtype=object)}, {}),
            ({"x": np.array([1j])}, {}),
            ({"x": np.zeros(1, dtype=[("f", "f8")])}, {}),
            ({"../x": np.zeros(1)}, {}),
            ({"x.npy": np.zeros(1)}, {}),
            ({"": np.zeros(1)}, {}),
            ({}, {"x": float("nan")}),
            ({}, {"x": np.zeros(1)}),
            ({}, {"x": {1, 2}}),
        ],
        ids=str,
    )
    def test_what_cannot_be_stored_is_refused(self, arrays: dict[str, Any], plain: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"array|JSON"):
            Learned(arrays, plain)


def test_nearest_row_learns_nothing() -> None:
    assert wrapped(NearestRow()).learned is None
