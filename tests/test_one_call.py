"""The model is asked about rows and candidates in one call where it is opened, and replies are those of two calls."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import Target
from mlflow_cf.engine.best_first import BestFirst
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import Candidates
from mlflow_cf.model.judge import Judge
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.request import expected
from mlflow_cf.words.explanations import Explanations, Interrupted

RNG = np.random.default_rng(5)
FRAME = pd.DataFrame(RNG.normal(size=(200, 5)).round(2), columns=list("abcde"))
VALUE = FRAME.to_numpy() @ np.array([1.0, -2.0, 0.5, 1.5, 0.0])
LABEL = (VALUE > 0.5).astype(int)
THREE = np.digitize(VALUE, [-1.0, 1.0])
FEW_TREES = {"n_estimators": 8, "max_depth": 3, "random_state": 0}


def tree(**options: Any) -> ExplainedModel:
    return mlflow_cf.wrap(DecisionTreeClassifier(max_depth=4, random_state=0).fit(FRAME, LABEL), FRAME, **options)


def boosting(**options: Any) -> ExplainedModel:
    return mlflow_cf.wrap(GradientBoostingClassifier(**FEW_TREES).fit(FRAME, LABEL), FRAME, **options)


def missing(explained: ExplainedModel, rows: int) -> pd.DataFrame:
    """Return rows that the model finds unfavourable."""
    return FRAME[np.array(explained.judge.predict(FRAME)[0]) == 0].head(rows)


@contextmanager
def asked_first() -> Iterator[None]:
    """Let the model be asked about all rows before any is searched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected, "_expected", lambda *_: [])
        yield


def records(found: Explanations) -> list[dict[str, Any]]:
    return [one.to_dict() for one in found]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every question to a model."""
    noted: list[int] = []
    predict = Judge.predict

    def noting(judge: Judge, rows: pd.DataFrame) -> Any:
        noted.append(len(rows))
        return predict(judge, rows)

    monkeypatch.setattr(Judge, "predict", noting)
    return noted


@dataclass(frozen=True)
class Ends:
    """An explainer whose search ends with an error."""

    error: type[BaseException]

    name: ClassVar[str] = "ends"
    polish: ClassVar[bool] = True

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        del problem, budget, rng
        raise self.error


@dataclass(frozen=True)
class FindsNothing:
    """An explainer that leaves everything to a certificate."""

    name: ClassVar[str] = "finds_nothing"
    polish: ClassVar[bool] = True

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        del budget, rng
        return Candidates(problem.background[:0])


class TestHowOftenTheModelIsAsked:
    @pytest.mark.parametrize("rows", [1, 7])
    @pytest.mark.parametrize("explainer", ["geco", "nearest_row"])
    def test_once_where_it_is_opened(self, calls: list[int], rows: int, explainer: str) -> None:
        explained = tree(target=1, explainer=explainer)
        table = missing(explained, rows)
        calls.clear()
        found = explained.explain(table)
        assert len(calls) == 1
        assert calls[0] > rows
        assert [one.status for one in found] == ["found"] * rows
        assert [one.diagnostics["judge_calls"] for one in found] == [1] * rows
        assert all(0 < one.diagnostics["judge_seconds"] < 60 for one in found)

    def test_once_more_for_all_answers_that_a_certificate_adds(self, calls: list[int]) -> None:
        explained = boosting(target=1)
        table = missing(explained, 1)
        (best,) = explained.explain(table, count=4, certify=True)
        calls.clear()
        (found,) = explained.explain(table, count=4, certify=True, explainer=FindsNothing())
        assert len(calls) == 2
        assert [one.proof for one in found.counterfactuals] == ["optimal"] * 4
        assert found.to_dict()["counterfactuals"] == best.to_dict()["counterfactuals"]

    def test_a_certificate_that_is_cut_asks_about_what_it_has_found(
        self, calls: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        explained = boosting(target=1)
        table = missing(explained, 1)
        (best,) = explained.explain(table, count=4, certify=True)
        after = BestFirst.next

        def cut_after_two(search: BestFirst) -> Any:
            search.__dict__["passed"] = search.__dict__.get("passed", 0) + 1
            search.cut |= search.__dict__["passed"] > 2
            return after(search)

        monkeypatch.setattr(BestFirst, "next", cut_after_two)
        calls.clear()
        (found,) = explained.explain(table, count=4, certify=True, explainer=FindsNothing())
        assert len(calls) == 2
        some = found.counterfactuals[:2]
        assert [one.proof for one in some] == ["optimal"] * 2
        assert [one.to_dict() for one in some] == [one.to_dict() for one in best.counterfactuals[:2]]

    def test_once_where_a_request_is_served(self, calls: list[int]) -> None:
        explained = tree(target=1)
        explained.predict(FRAME.head(3))  # whose trial is a call, too
        table = missing(explained, 2)
        calls.clear()
        explained.predict(table, within_s=60)
        assert len(calls) == 1

    def test_first_about_the_rows_where_it_is_not_opened(self) -> None:
        model, asked = KNeighborsClassifier(5).fit(FRAME, LABEL), list[int]()

        def noting(rows: pd.DataFrame) -> Any:
            asked.append(len(rows))
            return model.predict_proba(rows)

        explained = mlflow_cf.wrap(noting, FRAME, output="score", target=1)
        table = missing(explained, 1)
        asked.clear()
        (found,) = explained.explain(table)
        assert asked[0] == asked[-1] == 1  # the row, and the answer alone
        assert found.diagnostics["judge_calls"] == len(asked) > 3  # also those of the search

    def test_once_where_no_row_is_searched(self, calls: list[int]) -> None:
        explained = tree(target=1)
        calls.clear()
        found = explained.explain(FRAME[LABEL == 1].head(1))
        explained.explain(FRAME.head(3), explain="none")
        assert calls == [1, 3]
        assert [one.status for one in found] == ["already"]

    @pytest.mark.parametrize("fail", [RuntimeError, InputError])
    def test_once_where_the_search_fails(self, calls: list[int], fail: type[Exception]) -> None:
        explained = tree(target=1)
        table = missing(explained, 2)
        calls.clear()
        found = explained.explain(table, explainer=Ends(fail))
        assert calls == [2]
        assert [(one.status, one.prediction) for one in found] == [("invalid", 0)] * 2

    def test_once_where_the_time_is_over(self, calls: list[int]) -> None:
        explained = tree(target=1)
        explained.predict(FRAME.head(3))  # whose trial is a call, too
        table = missing(explained, 20)
        calls.clear()
        found = explained.explain(table, time_limit_s=1e-9)
        assert calls == [20]
        assert [(one.status, one.prediction) for one in found] == [("budget", 0)] * 20
        with asked_first():
            assert records(explained.explain(table, time_limit_s=1e-9)) == records(found)

    def test_each_of_several_models_once(self, calls: list[int]) -> None:
        other = DecisionTreeClassifier(max_depth=3, random_state=1).fit(FRAME, LABEL)
        explained = tree(target=1, robust_to=[other])
        table = missing(explained, 2)
        calls.clear()
        found = explained.explain(table)
        assert len(calls) == 2
        with asked_first():
            assert records(explained.explain(table)) == records(found)

    def test_first_about_the_rows_where_others_hold_all_places(self, calls: list[int]) -> None:
        explained = tree(target=1)
        explained.predict(FRAME.head(3))  # whose trial is a call, too
        table = missing(explained, 2)
        calls.clear()
        with explained.admission.more(explained.admission.places):
            busy = explained.request(table)
        assert calls == [2]
        assert [(one.status, one.prediction) for one in busy] == [("busy", 0)] * 2


class TestWhatTheModelContradicts:
    def wrong(self, explained: ExplainedModel, row: pd.Series) -> None:
        """Let the model say the opposite of what was opened of one row."""
        model = explained.judge.model

        def score(rows: pd.DataFrame) -> np.ndarray:
            assert model.score is not None
            here = (rows == row).all(axis=1).to_numpy()[:, None]
            scores = model.score(rows)
            return np.where(here, scores[:, ::-1], scores)

        lies = replace(model, decide=lambda rows: score(rows).argmax(axis=1), score=score, both=None)
        object.__setattr__(explained.judge, "model", lies)

    def test_a_favourable_row_that_was_searched_is_none(self, caplog: pytest.LogCaptureFixture) -> None:
        explained = tree(target=1)
        table = missing(explained, 4)
        self.wrong(explained, table.iloc[2])
        found = explained.explain(table)
        assert [one.status for one in found] == ["found", "found", "already", "found"]
        assert [one.prediction for one in found] == [0, 0, 1, 0]
        assert "disagree about 1 rows" in caplog.text
        with asked_first():
            assert records(explained.explain(table)) == records(found)

    def test_a_row_that_misses_the_target_after_all_is_searched(self) -> None:
        explained = tree(target=1)
        table = pd.concat([missing(explained, 2), FRAME[LABEL == 1].head(1)])
        self.wrong(explained, table.iloc[2])
        found = explained.explain(table)
        assert [one.prediction for one in found] == [0, 0, 0]
        assert found[2].status == "found"
        with asked_first():
            assert records(explained.explain(table)) == records(found)

    def test_with_any_other_label_as_target(self) -> None:
        explained = tree(target=Target.other())
        table = FRAME.head(3)
        self.wrong(explained, table.iloc[1])
        found = explained.explain(table)
        with asked_first():
            assert records(explained.explain(table)) == records(found)


def test_a_model_that_fails_with_candidates_has_predicted_the_rows() -> None:
    explained = tree(target=1)
    table = missing(explained, 3)
    model = explained.judge.model

    def decide(rows: pd.DataFrame) -> np.ndarray:
        if not rows.isin(table.to_numpy().ravel().tolist()).all(axis=None):
            raise RuntimeError
        return model.decide(rows)

    object.__setattr__(explained.judge, "model", replace(model, decide=decide, both=None))
    found = explained.explain(table)
    assert [(one.status, one.prediction) for one in found] == [("invalid", 0)] * 3
    with asked_first():
        assert records(explained.explain(table)) == records(found)


def test_an_interrupted_call_holds_the_predictions(calls: list[int]) -> None:
    explained = tree(target=1)
    table = missing(explained, 2)
    calls.clear()
    with pytest.raises(Interrupted) as caught:
        explained.explain(table, explainer=Ends(KeyboardInterrupt))
    assert calls == [2]
    assert [(one.status, one.prediction) for one in caught.value.explanations] == [("budget", 0)] * 2


def test_rows_in_doubt_are_asked_about_first(calls: list[int]) -> None:
    line = LogisticRegression().fit(FRAME[["a", "b"]], LABEL)
    line.coef_, line.intercept_ = np.array([[1.0, 0.0]]), np.zeros(1)
    explained = mlflow_cf.wrap(line, FRAME[["a", "b"]], target=1)
    calls.clear()
    explained.explain(pd.DataFrame({"a": [-1.0, 1e-9], "b": [0.0, 0.0]}))
    assert calls[0] == 2


NAMED = np.array(["no", "yes"])[LABEL]
OPENED: dict[str, tuple[Any, Any, Any]] = {
    "tree": (DecisionTreeClassifier(max_depth=4, random_state=0), LABEL, 1),
    "boosting": (GradientBoostingClassifier(**FEW_TREES), LABEL, Target(label=1, min_probability=0.7)),
    "three": (GradientBoostingClassifier(**FEW_TREES), THREE, Target.other()),
    "named": (DecisionTreeClassifier(max_depth=4, random_state=0), NAMED, "yes"),
    "flags": (DecisionTreeClassifier(max_depth=4, random_state=0), LABEL == 1, True),
    "values": (RandomForestRegressor(**FEW_TREES), VALUE, Target(low=1.0)),
    "line": (LinearRegression(), VALUE, Target(low=1.0, high=2.0)),
}
WRAPPED = {
    name: mlflow_cf.wrap(model.fit(FRAME, said), FRAME, target=target) for name, (model, said, target) in OPENED.items()
}
wide = st.floats(-4, 4) | st.sampled_from(FRAME.to_numpy().ravel().tolist()) | st.just(np.nan)


@given(
    st.sampled_from(sorted(WRAPPED)),
    st.lists(st.lists(wide, min_size=5, max_size=5), min_size=1, max_size=5),
    st.fixed_dictionaries({"count": st.integers(1, 3), "certify": st.booleans(), "seed": st.integers(0, 3)}),
)
def test_replies_are_those_of_two_calls(name: str, rows: list[list[float]], options: dict[str, Any]) -> None:
    explained, table = WRAPPED[name], pd.DataFrame(rows, columns=FRAME.columns)

    def answered() -> Explanations | str:
        try:
            return explained.explain(table, max_evaluations=2000, **options)
        except InputError as error:  # no row can be predicted
            return str(error)

    once = answered()
    with asked_first():
        two = answered()
    if isinstance(once, str) or isinstance(two, str):
        assert once == two
        return
    assert records(once) == records(two)
    assert [type(one.prediction) for one in once] == [type(one.prediction) for one in two]


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("model", [LogisticRegression(), MLPClassifier((20,), max_iter=60, random_state=0)], ids=str)
def test_a_reply_does_not_depend_on_the_rows_beside(model: Any) -> None:
    """Products of matrices are rounded by the shape of the table."""
    explained = mlflow_cf.wrap(model.fit(FRAME, LABEL), FRAME, target=1)
    table = FRAME.head(12)
    together = records(explained.explain(table, max_evaluations=2000))
    for position, record in enumerate(together):
        row = table.iloc[[position]]
        assert records(explained.explain(row, max_evaluations=2000)) == [record]
        assert record["probability"] == pytest.approx(model.predict_proba(row)[0, 1], rel=1e-12)


def test_what_the_model_cost_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    explained = tree(target=1)
    table = missing(explained, 4)
    model = explained.judge.model

    def both(rows: pd.DataFrame) -> Any:
        time.sleep(0.04)
        assert model.both is not None
        return model.both(rows)

    object.__setattr__(explained.judge, "model", replace(model, both=both))
    for one in explained.explain(table):
        assert 0.01 <= one.diagnostics["judge_seconds"] <= one.diagnostics["seconds"]
