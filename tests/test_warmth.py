"""Nothing that happens once, such as compiling, counts against the clock of a request."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import GeCo
from mlflow_cf.explainers.explainer import Candidates
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.request import warmth
from mlflow_cf.testing.watched import Clock

X = pd.DataFrame({"x": np.arange(60.0) % 10, "y": np.arange(60.0) % 7})
MODEL = DecisionTreeClassifier(random_state=0).fit(X, X["x"] > 5)


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    """Have all kernels ready, whatever ran before."""
    mlflow_cf.wrap(MODEL, X, target=1).warm_up()
    mlflow_cf.wrap(MODEL, X, target=1).explain(X[X["x"] <= 5].iloc[:1], certify=True)


@dataclass
class SlowAtFirst:
    """GeCo, whose first search takes a minute: as if it were compiled."""

    clock: Clock
    searched: list[float] = field(default_factory=list)

    name: ClassVar[str] = "slow_at_first"
    polish: ClassVar[bool] = True

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        if not self.searched:
            self.clock.now += 60.0
        self.searched.append(self.clock.now)
        return GeCo().search(problem, budget, rng)


@pytest.mark.parametrize("way", ["explain", "predict"])
def test_the_first_request_has_all_its_time(clock: Clock, way: str) -> None:
    explainer = SlowAtFirst(clock)
    made = mlflow_cf.wrap(MODEL, X, target=1, explainer=explainer)
    rows = X[X["x"] <= 5].iloc[:3]
    if way == "predict":
        statuses = list(made.predict(rows, {"counterfactual": {"time_limit_s": 1.0}})["status"])
    else:
        statuses = [one.status for one in made.explain(rows, time_limit_s=1.0)]
    assert statuses == ["found"] * 3
    assert len(explainer.searched) == 1 + 3
    made.explain(rows, time_limit_s=1.0)
    assert len(explainer.searched) == 1 + 3 + 3


def test_each_explainer_and_certificate_is_tried_once(clock: Clock) -> None:
    made = mlflow_cf.wrap(MODEL, X, target=1)
    explainer = SlowAtFirst(clock)
    rows = X[X["x"] <= 5].iloc[:1]
    found = [
        made.explain(rows, explainer=explainer, time_limit_s=1.0, certify=each) for each in (False, False, True, True)
    ]
    assert [answer.status for (answer,) in found] == [
        "budget",
        "found",
        "found",
        "found",
    ]  # the first trial takes a minute
    assert len(explainer.searched) == 3 + 2


def test_a_trial_that_compiled_something_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes longer than a trial may: what comes after it was not reached."""
    kernels = iter([0, 2, 2, 3, 3, 3])
    monkeypatch.setattr(warmth, "ready", lambda: next(kernels))
    trials: list[int] = []
    memory = warmth.Warmth()
    for _ in range(2):
        memory.once(("geco", False), lambda _: trials.append(1))
    assert len(trials) == 3


def test_a_trial_has_a_clock_of_its_own(clock: Clock) -> None:
    """Of a model with a thousand columns the whole of it takes seconds."""
    explainer = SlowAtFirst(clock)
    mlflow_cf.wrap(MODEL, X, target=1, explainer=explainer).warm_up()
    assert len(explainer.searched) == 1
    assert clock.now - explainer.searched[0] < 1


def test_without_a_clock_nothing_is_tried(clock: Clock) -> None:
    explainer = SlowAtFirst(clock)
    made = mlflow_cf.wrap(MODEL, X, target=1, explainer=explainer)
    made.explain(X[X["x"] <= 5].iloc[:1])
    assert len(explainer.searched) == 1


def test_an_explainer_that_a_request_names_is_tried_within_its_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = iter(range(1000))
    monkeypatch.setattr(warmth, "ready", lambda: next(kernels))

    @dataclass
    class Loading(SlowAtFirst):
        """Loads something in every search, which takes a while."""

        def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
            self.clock.now += 0.2
            return GeCo().search(problem, budget, rng)

    made, row = mlflow_cf.wrap(MODEL, X, target=1), X[X["x"] <= 5].iloc[:1]
    for _ in range(3):
        started = clock.now
        made.explain(row, explainer=Loading(clock), time_limit_s=1.0)
        assert clock.now - started < 1.0 + 0.2


@pytest.mark.parametrize("asked", [{"count": 2}, {"constraints": {"groups": [["x", "y"]]}}], ids=str)
def test_what_few_rows_need_is_tried_before_a_request_that_may_need_it(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, object]
) -> None:
    """A row that one change turns compiles nothing of what proofs, reasons and groups need."""
    tried: list[str] = []
    once = warmth.Warmth.once
    monkeypatch.setattr(
        warmth.Warmth, "once", lambda self, what, *trial: (tried.append(str(what)), once(self, what, *trial))
    )
    made = mlflow_cf.wrap(MODEL, X, target=1)
    rows = X[X["x"] <= 5].iloc[:1]
    made.predict(rows)
    assert "proofs" not in tried
    made.predict(rows, {"counterfactual": asked})
    assert tried[-1] == "proofs"


def test_the_hardest_row_is_the_farthest_that_misses() -> None:
    made = mlflow_cf.wrap(LogisticRegression().fit(X, X["x"] > 5), X, target=1)
    hardest = warmth.hardest_row(made._trials._target, made.outcome)
    assert X["x"][hardest] == 0
