"""Rows explained in blocks get the answers of rows explained one by one, whatever the size of a block."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import dear
from people import CONSTRAINTS, MODELS, people, surviving, wrapped
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from mlflow_cf.engine import thresholds
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace, plain_rows
from mlflow_cf.features import space as spaces
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.goal.targets import SumTarget
from mlflow_cf.model.judge import CountedJudge, Judge, OpenModel, Rows, table_of
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Target
from mlflow_cf.portfolio import listed, nearest, pairs
from mlflow_cf.request import answer, block_queue, explain_table, portfolio
from mlflow_cf.request import expected as expected_rows
from mlflow_cf.request.admission import Admission
from mlflow_cf.request.portfolio import DOUBT, Portfolio
from mlflow_cf.structures import Forest, NumberColumn, TreeEnsemble, score_rows
from mlflow_cf.structures.structure import TIE
from mlflow_cf.words.explanations import Explanations, Interrupted, LazyExplanations
from mlflow_cf.wrapping import assemble, wrap


@contextmanager
def in_blocks(size: int | None) -> Iterator[None]:
    """Explain in blocks of so many rows however few there are; None: row by row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer, "few_rows", lambda _: 0)
        if size is None:
            patch.setattr(Portfolio, "of", lambda *_: None)
        else:
            patch.setattr(explain_table, "BESIDE_BLOCKS", size)
            patch.setattr(block_queue, "EARLY", size)
            patch.setattr(block_queue, "ROWS_AT_ONCE", size)
            patch.setattr(block_queue, "LEAST_ROWS", size)
            patch.setattr(block_queue, "LEAST_OF_LAYERS", size)
            patch.setattr(block_queue, "ROWS_JUDGED", 3 * size)
            patch.setattr(block_queue, "LAYERS_JUDGED", 3 * size)
            patch.setattr(block_queue, "ROWS_LISTED", 2 * size)
            patch.setattr(block_queue, "LEAST_LISTED", size)
            patch.setattr(nearest, "MOST_ROWS", max(size // 2, 1))
            patch.setattr(listed, "ROWS_AT_ONCE", max(size // 2, 1))
            patch.setattr(listed, "AT_ONCE", 100 * size)
        yield


def told(found: Explanations) -> list[Any]:
    """Return what is said of every row, but for the seconds that it took."""
    counted = [{key: each for key, each in one.diagnostics.items() if not key.endswith(TIMED)} for one in found]
    return list(zip(counted, [one.to_dict() for one in found], strict=True))


PREDICT = CountedJudge.predict
TIMED = ("seconds", "judge_calls", "_s")


@pytest.mark.parametrize("count", [1, 2])
def test_a_table_of_levels_that_the_background_lacks(count: int) -> None:
    """No block has a row to settle then; such tables ended with a `TypeError`."""
    explained, rows = wrapped("boosting", 1, 0), people(101, 24).assign(town="elsewhere")
    with in_blocks(256):
        found = explained.explain(rows, count=count, why_not=False, n_jobs=1)
    with in_blocks(None):
        assert told(found) == told(explained.explain(rows, count=count, why_not=False, n_jobs=1))


@dear(5)
@example(kind="boosting", seed=0, constraints=2, size=1, most=600, certify=False)  # equally far from a missing number
@given(
    kind=st.sampled_from(sorted(MODELS)),
    seed=st.integers(0, 2),
    constraints=st.integers(0, len(CONSTRAINTS) - 1),
    size=st.sampled_from([1, 3, 256]),
    most=st.sampled_from([150, 600, 2_000]),
    certify=st.booleans(),
)
def test_blocks_answer_as_row_by_row(
    *, kind: str, seed: int, constraints: int, size: int, most: int, certify: bool
) -> None:
    explained = wrapped(kind, seed, constraints)
    certify &= explained.context.required.structure is not None
    rows = people(seed + 100, 30)
    rows.loc[3, "town"] = "a town that the background lacks"
    with in_blocks(None):
        expected = explained.explain(rows, certify=certify, max_evaluations=most, why_not=False)
    with in_blocks(size):
        found = explained.explain(rows, certify=certify, max_evaluations=most, why_not=False)
    assert told(found) == told(expected)
    objects = Explanations(tuple(found), found.index, found.space)  # what arrays tell, and what explanations tell
    for one in (expected, objects):
        pd.testing.assert_frame_equal(found.to_frame(), one.to_frame(), check_exact=True)
        pd.testing.assert_frame_equal(found.to_records(), one.to_records(), check_exact=True)
    assert found.statuses == [one.status for one in found]


@dear(5)
@given(
    kind=st.sampled_from(["tree", "forest", "boosting", "tree value", "logistic"]),
    world=st.tuples(st.integers(0, 2), st.integers(0, len(CONSTRAINTS) - 1), st.integers(0, 1)),
    linf=st.sampled_from([0.0, 0.2]),
    size=st.sampled_from([1, 3, 256]),
    asked=st.sampled_from([{}, *({"certify": sure} for sure in (True, False)), {"explainer": "exact"}, {"count": 2}]),
    bounds=st.sampled_from([100, 2**20]),
    most=st.sampled_from([300, 2_000]),
)
def test_blocks_answer_as_row_by_row_what_several_models_must_accept(
    *, kind: str, world: tuple[int, int, int], linf: float, size: int, asked: dict[str, Any], bounds: int, most: int
) -> None:
    explained, rows = surviving(kind, *world, linf), people(world[0] + 100, 24)
    rows.loc[3, "town"] = "a town that the background lacks"
    with in_blocks(None):
        expected = explained.explain(rows, max_evaluations=most, why_not=False, **asked)
    with pytest.MonkeyPatch.context() as patch, in_blocks(size):
        patch.setattr(listed, "MOST_BOUNDS", bounds)
        found = explained.explain(rows, max_evaluations=most, why_not=False, **asked)
    assert told(found) == told(expected)
    pd.testing.assert_frame_equal(found.to_frame(), expected.to_frame(), check_exact=True)
    pd.testing.assert_frame_equal(found.to_records(), expected.to_records(), check_exact=True)


@dear(3)
@given(
    kind=st.sampled_from(["tree", "forest", "boosting", "tree value", "logistic", "network", "network value", "deep"]),
    seed=st.integers(0, 2),
    constraints=st.integers(0, len(CONSTRAINTS) - 1),
    size=st.sampled_from([1, 7, 256]),
    most=st.sampled_from([150, 600, 2_000]),
    count=st.sampled_from([2, 3, 5, 10]),
    first=st.sampled_from([0, 50, 2**21]),
)
def test_blocks_give_the_same_several_answers(
    *, kind: str, seed: int, constraints: int, size: int, most: int, count: int, first: int
) -> None:
    explained, rows = wrapped(kind, seed, constraints), people(seed + 200, 24)
    rows.loc[3, "town"] = "a town that the background lacks"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "PAIRED_FIRST", first)
        with in_blocks(None):
            expected = explained.explain(rows, count=count, max_evaluations=most, why_not=False)
        with in_blocks(size):
            found = explained.explain(rows, count=count, max_evaluations=most, why_not=False)
    assert told(found) == told(expected)
    pd.testing.assert_frame_equal(found.to_frame(), expected.to_frame())
    pd.testing.assert_frame_equal(found.to_records(), expected.to_records())


@dear(6)
@given(
    model=st.tuples(st.just(wrapped), st.sampled_from(sorted(MODELS)))
    | st.tuples(st.just(partial(surviving, misses=0)), st.sampled_from(["tree", "forest", "boosting"])),
    constraints=st.integers(0, len(CONSTRAINTS) - 1),
    jobs=st.integers(2, 4),
    predicted=st.sampled_from([7, 40]),
)
def test_threads_answer_as_one(model: tuple[Any, str], constraints: int, jobs: int, predicted: int) -> None:
    """Blocks are as small as threads need them, and each calls the model; the same threads call it as often again."""
    make, kind = model
    explained, rows = replace(make(kind, 1, constraints), admission=Admission(4)), people(9, 40)
    with in_blocks(3), pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected_rows, "MOST_PREDICTED", predicted)
        expected = explained.explain(rows, max_evaluations=2_000, why_not=False, n_jobs=1)
        found, again = (explained.explain(rows, max_evaluations=2_000, why_not=False, n_jobs=jobs) for _ in range(2))
    assert told(found) == told(expected)
    assert [one.diagnostics.get("judge_calls") for one in found] == [
        one.diagnostics.get("judge_calls") for one in again
    ]
    pd.testing.assert_frame_equal(found.to_frame(), expected.to_frame())


@pytest.mark.parametrize("early", [1, 5, 100])
@pytest.mark.parametrize("kind", ["forest", "logistic", "tree value"])
def test_rows_predicted_in_parts_get_the_same_answers(kind: str, early: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explained, rows = replace(wrapped(kind, 0, 1), admission=Admission(2)), people(11, 80)
    rows.loc[3, "town"] = "a town that the background lacks"
    expected = explained.explain(rows, why_not=False)
    calls = []
    monkeypatch.setattr(block_queue, "EARLY", early)
    monkeypatch.setattr(expected_rows, "MOST_PREDICTED", 7)
    monkeypatch.setattr(CountedJudge, "predict", lambda judge, some: calls.append(len(some)) or PREDICT(judge, some))
    found = explained.explain(rows, why_not=False)
    assert sorted(calls) == [6] * 4 + [7] * 8
    for one, whole in zip(found, expected, strict=True):
        assert one.counterfactuals == whole.counterfactuals
        assert one.probability == pytest.approx(whole.probability, abs=1e-12)


@pytest.mark.parametrize("jobs", [1, 2])
def test_rows_are_settled_while_others_are_predicted(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explained, rows, steps = replace(wrapped("forest", 0, 1), admission=Admission(2)), people(11, 400), list[str]()
    settled, block = Event(), Portfolio.block

    def predict(judge: CountedJudge, some: Rows) -> Any:
        steps.append("predict")
        if jobs == 2 and steps.count("predict") == 10:
            assert settled.wait(60)  # the other thread may begin late
        return PREDICT(judge, some)

    def settle(*given: Any) -> Any:
        steps.append("settle")
        settled.set()
        return block(*given)

    monkeypatch.setattr(block_queue, "EARLY", 4)
    monkeypatch.setattr(block_queue, "ROWS_JUDGED", 4)
    monkeypatch.setattr(expected_rows, "MOST_PREDICTED", 20)
    monkeypatch.setattr(CountedJudge, "predict", predict)
    monkeypatch.setattr(Portfolio, "block", settle)
    explained.explain(rows, why_not=False, n_jobs=jobs)
    assert steps.count("predict") == 20
    assert ("predict" in steps[steps.index("settle") :]) == (jobs == 2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_to_interrupt_predictions_leaves_nothing_to_tell(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explained, rows, calls = replace(wrapped("forest", 0, 1), admission=Admission(2)), people(11, 400), list[int]()

    def ask(judge: CountedJudge, some: Rows) -> Any:
        calls.append(len(some))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return PREDICT(judge, some)

    monkeypatch.setattr(expected_rows, "MOST_PREDICTED", 20)
    monkeypatch.setattr(CountedJudge, "predict", ask)
    with pytest.raises(KeyboardInterrupt) as stopped:
        explained.explain(rows, why_not=False, n_jobs=jobs)
    assert not isinstance(stopped.value, Interrupted)
    assert len(calls) < 8


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_fails_in_a_block_is_raised(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explained, rows = replace(wrapped("forest", 0, 1), admission=Admission(2)), people(11, 400)

    def fail(*_: Any) -> Any:
        raise ArithmeticError("a block")

    monkeypatch.setattr(expected_rows, "MOST_PREDICTED", 20)
    monkeypatch.setattr(Portfolio, "block", fail)
    with pytest.raises(ArithmeticError, match="a block"):
        explained.explain(rows, why_not=False, n_jobs=jobs)
    with explained.admission.entered(0.0) as admitted, explained.admission.more(5) as more:
        assert (admitted, more) == (True, 1)  # every place is free again


def test_a_row_that_fails_costs_its_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    explained, rows = wrapped("forest", 0, 1), people(11, 80)
    expected = explained.explain(rows, why_not=False)
    calls = []

    def ask(judge: CountedJudge, some: Rows) -> Any:
        calls.append(len(some))
        if (table_of(some)["debt"] == rows["debt"][30]).any():
            raise ValueError("a row that nobody can predict")
        return PREDICT(judge, some)

    monkeypatch.setattr(expected_rows, "MOST_PREDICTED", 20)
    monkeypatch.setattr(CountedJudge, "predict", ask)
    found = explained.explain(rows, why_not=False)
    assert sorted(calls) == [*[1] * 20, *[20] * 4]
    assert found[30].status == "invalid"
    assert found[30].reason == "the model cannot predict this row (ValueError)"
    others = [at for at in range(len(rows)) if rows["debt"][at] != rows["debt"][30]]
    assert [found[at].to_dict() for at in others] == [expected[at].to_dict() for at in others]


@pytest.mark.parametrize("jobs", [1, 2])
def test_rows_that_cannot_be_read_leave_the_others_alone(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long tables of numbers are read when they are predicted."""
    rows = people(0, 400)[["income", "debt"]].astype(float).fillna(0.0)
    explained = wrap(LogisticRegression().fit(rows, rows["income"] > rows["income"].median()), rows, target=True)
    explained = replace(explained, admission=Admission(2))
    expected = explained.explain(rows, why_not=False)
    bad = rows.copy()
    unread = [0, 7, 8, *range(120, 160), 399]  # of a part all
    bad.iloc[unread, 1] = np.inf
    monkeypatch.setattr(answer, "few_rows", lambda _: 0)
    monkeypatch.setattr(spaces, "READ_AT_ONCE", 16)
    monkeypatch.setattr(plain_rows, "READ_AT_ONCE", 16)
    monkeypatch.setattr(expected_rows, "MOST_PREDICTED", 20)
    found = explained.explain(bad, why_not=False, n_jobs=jobs)
    assert [at for at, one in enumerate(found) if one.status == "invalid"] == unread
    assert found[0].reason == "debt: inf is no finite number of type float64"
    others = np.delete(np.arange(len(rows)), unread).tolist()
    assert [found[at].to_dict() for at in others] == [expected[at].to_dict() for at in others]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_rows_that_are_the_same_are_searched_once(kind: str, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explained, rows = wrapped(kind, 0, 1), people(11, 40)
    expected = explained.explain(rows, why_not=False, n_jobs=1)
    searched, explaining = list[int](), explain_table.Explaining

    def noted(request: Any, search: Any, predictions: Any, some: Any, *rest: Any) -> Any:
        searched.extend(some)
        return explaining(request, search, predictions, some, *rest)

    monkeypatch.setattr(explain_table, "Explaining", noted)
    monkeypatch.setattr(Portfolio, "block", lambda *_: [])  # nothing is settled
    found = explained.explain(pd.concat([rows] * 3, ignore_index=True), why_not=False, n_jobs=jobs)
    assert [one.to_dict() for one in found] == [one.to_dict() for one in expected] * 3
    assert sorted(searched) == [at for at, one in enumerate(expected) if one.status != "already"]
    assert all(found[at].diagnostics["seconds"] > 0 for at in searched)
    assert all(found[at + 40].diagnostics["seconds"] == 0 for at in searched)


@dear(5)
@given(kind=st.sampled_from(["tree", "forest", "boosting"]), constraints=st.integers(0, len(CONSTRAINTS) - 1))
def test_a_row_is_answered_as_alone(kind: str, constraints: int) -> None:
    explained, rows = wrapped(kind, 1, constraints), people(7, 80)
    together = explained.explain(rows, why_not=False, max_evaluations=2_000)
    for at in range(0, len(rows), 9):
        (alone,) = explained.explain(rows.iloc[[at]], why_not=False, max_evaluations=2_000)
        assert together[at].to_dict() == alone.to_dict()


def test_long_tables_in_german_are_told_as_row_by_row() -> None:
    explained, rows = wrapped("tree", 1, 2), people(7, 80)
    rows.loc[3, "skill"] = 2**60  # no code holds it
    found = explained.explain(rows, why_not=False, language="de")
    assert isinstance(found.items, LazyExplanations)
    with in_blocks(None):
        expected = explained.explain(rows, why_not=False, language="de")
    assert found.to_records().to_dict("records") == expected.to_dict()["predictions"]
    assert told(found) == told(expected)
    assert found[3].status == "invalid"
    assert "liegt jenseits" in found[3].reason
    assert any("die Vorhersage wird" in one.counterfactuals[0].text for one in found if one.counterfactuals)


def explained_in_blocks(explained: ExplainedModel, rows: pd.DataFrame, **asked: Any) -> tuple[Explanations, set[int]]:
    """Return explanations, and the numbers of the rows that blocks have settled."""
    settled: set[int] = set()

    class Watched(Portfolio):
        def block(self, numbers: Any) -> Any:
            found = super().block(numbers)
            settled.update(number for part in found for number in part.numbers.tolist())
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain_table, "Portfolio", Watched)
        return explained.explain(rows, **asked), settled


@pytest.mark.parametrize("kind", ["tree", "forest", "boosting", "logistic", "network", "tree value"])
def test_blocks_settle_most_rows(kind: str) -> None:
    found, settled = explained_in_blocks(wrapped(kind, 0, 0), people(5, 600))
    assert len(settled) > 0.5 * sum(one.status != "already" for one in found)


@pytest.mark.parametrize(
    ("kind", "share", "changes"), [("tree", 0.8, 2), ("forest", 0.8, 2), ("boosting", 0.8, 1), ("tree value", 0.5, 1)]
)
@pytest.mark.parametrize("misses", [0, 1])
def test_blocks_settle_most_rows_that_several_models_must_accept(
    kind: str, share: float, changes: int, misses: int
) -> None:
    found, settled = explained_in_blocks(surviving(kind, 0, 4, misses), people(5, 200), why_not=False)
    answered = [n for n, one in enumerate(found) if one.counterfactuals]
    assert len(settled.intersection(answered)) > share * len(
        answered
    )  # of missing numbers, too many others are as near
    answers = [answer for n in settled for answer in found[n].counterfactuals]
    assert {answer.survival.models for answer in answers} == {4}
    assert max(answer.n_changed for answer in answers) >= changes


@pytest.mark.parametrize("kind", ["forest", "boosting", "tree", "tree value"])
def test_blocks_settle_rows_with_two_changes(kind: str) -> None:
    found, settled = explained_in_blocks(wrapped(kind, 0, 2), people(5, 300))
    two = [n for n, one in enumerate(found) if one.counterfactuals and one.counterfactuals[0].n_changed == 2]
    assert len(settled.intersection(two)) > 0.3 * len(two) > 0  # ties and missing numbers are left


def test_blocks_look_on_where_the_nearest_pairs_do_not_do_what_is_expected() -> None:
    """Either of a and b brings 0.5, and both bring no more; c brings 0.4 beside them and costs more; 0.8 is wanted."""
    forest = Forest(
        roots=np.array([0, 5], dtype=np.int32),
        outputs=np.zeros(2, dtype=np.int32),
        column=np.array([0, 1, -1, -1, -1, 2, -1, -1], dtype=np.int32),
        threshold=np.full(8, 0.5),
        missing_left=np.zeros(8, dtype=np.bool_),
        left=np.array([1, 2, 2, 3, 4, 6, 6, 7], dtype=np.int32),
        right=np.array([4, 3, 2, 3, 4, 7, 6, 7], dtype=np.int32),
        value=np.array([0, 0, 0, 0.5, 0.5, 0, 0, 0.4])[:, None],
        rule="<= float64",
        base=np.array([-0.8]),
        link="sigmoid",
    )
    data = pd.DataFrame({"a": [0.0, 1.0, 100.0], "b": [0.0, 2.0, 100.0], "c": [0.0, 50.0, 100.0]})
    space = FeatureSpace.infer(data)
    trees = TreeEnsemble.compile(forest, [NumberColumn(column) for column in range(3)], space)

    def score(rows: pd.DataFrame) -> Any:
        return score_rows(trees, space.encode(rows))

    def decide(rows: pd.DataFrame) -> Any:
        return score(rows).argmax(axis=1)

    model = OpenModel("trees", (0, 1), decide, score, "probability", compile=lambda *_: trees)
    explained = assemble(model, data, None, WrapOptions(target=1))
    found, settled = explained_in_blocks(explained, data.iloc[np.zeros(100, dtype=int)])
    assert settled == set(range(100))
    assert {tuple(change.feature for change in one.counterfactuals[0].changes) for one in found} == {("a", "c")}


@pytest.mark.parametrize(
    ("kind", "share", "changes"),
    [("tree", 0.6, 3), ("forest", 0.7, 3), ("boosting", 0.1, 3), ("logistic", 0.4, 2), ("network", 0.4, 2)],
)
def test_blocks_settle_rows_with_several_answers(kind: str, share: float, changes: int) -> None:
    rows = people(5, 600 if kind == "network" else 100)  # most of which it accepts
    found, settled = explained_in_blocks(wrapped(kind, 0, 0), rows, count=3, why_not=False)
    wanted = [n for n, one in enumerate(found) if one.status != "already"]
    assert len(settled.intersection(wanted)) > share * len(wanted)
    some = [found[n] for n in sorted(settled)]
    assert {len(one.counterfactuals) for one in some} == {3}
    assert {answer.n_changed for one in some for answer in one.counterfactuals} == set(range(1, changes + 1))
    assert {answer.proof for one in some for answer in one.counterfactuals} == {"none"}


@pytest.mark.parametrize("asked", [{"certify": True}, {"diversity": "near"}, {"explainer": "exact"}])
def test_blocks_leave_several_answers_that_need_a_search(asked: dict[str, Any]) -> None:
    explained, rows = wrapped("tree", 0, 0), people(5, 70)
    _, settled = explained_in_blocks(explained, rows, count=2, max_evaluations=200, why_not=False, **asked)
    assert not settled


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_room_for_trees_grows(kind: str, count: int) -> None:
    explained, rows = wrapped(kind, 0, 2), people(5, 100)
    expected = explained.explain(rows, count=count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "EXPECTED", 0)
        assert told(explained.explain(rows, count=count)) == told(expected)


links = st.sampled_from(["share", "sigmoid", "softmax", "identity"])


@given(link=links, column=st.sampled_from([0, 1]), least=st.sampled_from([0.0, 0.5, 0.7]), data=st.data())
def test_what_is_certain_in_blocks_is_certain_to_the_search(link: Any, column: int, least: float, data: Any) -> None:
    outputs = 1 if link == "share" else 2 if link in ("softmax", "identity") else 1
    target = SumTarget(link, 0, outputs, 2, "label", column, least, -np.inf, np.inf, 1.0, margins=False)
    check_decisions(target, outputs, data)


@given(end=st.floats(-50, 50), below=st.booleans(), data=st.data())
def test_the_same_of_values(end: float, below: bool, data: Any) -> None:  # noqa: FBT001  drawn
    low, high = (-np.inf, end) if below else (end, np.inf)
    check_decisions(SumTarget("identity", 0, 1, 1, "interval", 0, 0.0, low, high, 1.0, margins=False), 1, data, end)


def check_decisions(target: SumTarget, outputs: int, data: Any, end: float = 0.0) -> None:
    """Compare what the decision score tells with what the search of a row decides, near the threshold above all."""
    decision = DecisionScore.of([target], DOUBT)
    if decision is None:
        return
    sums = np.array(data.draw(st.lists(st.floats(-3, 3), min_size=4 * outputs, max_size=4 * outputs))).reshape(4, -1)
    near = np.linspace(-1, 1, 41)[:, None] * data.draw(st.sampled_from([1e-5, 1e-3, 1e-2]))
    sums = np.concatenate([sums, np.repeat(near, outputs, axis=1) * np.arange(1, outputs + 1) + near_of(target, end)])
    may, sure = scorer_of(target).decisions(sums, portfolio.CLOSE + portfolio.SWEPT)
    score = sums @ decision.weights
    assert not (may & (score < decision.may)).any()
    assert sure[score >= decision.sure].all()


def near_of(target: SumTarget, end: float) -> float:
    """Return a raw score at which the target begins to be met."""
    if target.kind == "interval":
        return end
    return max(target.least, 0.5) if target.link == "share" else 0.0


def scorer_of(target: SumTarget) -> Any:
    """Return a scorer of this target alone; only its targets are asked."""
    return Scorer(None, None, (target,))  # type: ignore[arg-type]


def next_to_decisions(model: Any, rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows of which `model` cannot tell with single precision whether another value of `a` turns them."""
    other = rows.assign(a=rng.permutation(rows["a"]))
    low, high = np.full(len(rows), -30.0), np.full(len(rows), 30.0)
    rises = model.predict(other.assign(c=high)) == 1
    for _ in range(50):
        middle = (low + high) / 2
        above = (model.predict(other.assign(c=middle)) == 1) == rises
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return rows.assign(c=high + rng.uniform(-1e-6, 1e-6, len(rows)))


@dear(3)
@given(
    kind=st.sampled_from(["logistic", "network", "boosting"]),
    seed=st.integers(0, 5),
    most=st.sampled_from([40, 600]),
    linked=st.booleans(),
    fine=st.booleans(),
)
def test_changes_in_doubt_are_scored_as_the_search_of_a_row_does(
    *, kind: str, seed: int, most: int, linked: bool, fine: bool
) -> None:
    """Of values that lie close together, some bring the score so near to the threshold that the row must tell.

    Of those that lie closer, the logged model must.
    """
    rng = np.random.default_rng(seed)
    step = 2e-7 if fine else 1e-5
    data = pd.DataFrame(rng.integers(0, 40, (400, 3)) / 10 + rng.integers(0, 60, (400, 3)) * step, columns=list("abc"))
    labels = (data @ [1.0, 2.0, -1.0] > 4).astype(int)
    models = {
        "logistic": LogisticRegression(C=1e3, max_iter=1000),
        "network": MLPClassifier((5,), max_iter=300, random_state=seed),
        "boosting": GradientBoostingClassifier(n_estimators=15, random_state=seed),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = models[kind].fit(data, labels)
    constraints = {"rules": ["x_cf.a - x_cf.b <= 3"]} if linked else {}
    explained = wrap(model, data, target=1, seed=0, why_not=False, constraints=constraints)
    rows = data.iloc[:100]  # enough to be predicted by the logged model first
    rows = next_to_decisions(model, rows, rng) if fine else rows
    with in_blocks(None):
        expected = explained.explain(rows, max_evaluations=most)
    with in_blocks(32):
        found = explained.explain(rows, max_evaluations=most)
    assert told(found) == told(expected)


@dear(3)
@given(seed=st.integers(0, 20), linked=st.booleans(), most=st.sampled_from([60, 600]))
def test_values_that_trees_do_not_tell_apart_are_in_doubt_together(*, seed: int, linked: bool, most: int) -> None:
    """A cell holds many more values than blocks note, and its score is the least that is wanted."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.integers(0, 600, (600, 3)) / 10, columns=list("abc"))
    labels = (data @ [1.0, 2.0, -1.0] + rng.normal(0, 20, 600) > 60).astype(int)
    model = GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=seed).fit(data, labels)
    scores = np.unique(model.predict_proba(data)[:, 1])
    target = Target(label=1, min_probability=float(rng.choice(scores[len(scores) // 2 :])))
    constraints = {"rules": ["x_cf.a - x_cf.b <= 30"]} if linked else {}
    explained = wrap(model, data, target=target, seed=0, why_not=False, constraints=constraints)
    rows = data.iloc[:100]
    with in_blocks(None):
        expected = explained.explain(rows, max_evaluations=most)
    with in_blocks(32):
        found = explained.explain(rows, max_evaluations=most)
    assert told(found) == told(expected)


@pytest.mark.parametrize(("beyond", "alone"), [(1e-8, 0), (1e-13, 2)])
def test_only_what_rounding_may_turn_is_asked_alone(beyond: float, alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models whose scores depend on the rows beside; in blocks and row by row."""
    model = LogisticRegression().fit(pd.DataFrame({"a": [0.0, 1.0]}), [0, 1])
    model.coef_, model.intercept_ = np.array([[1.0]]), np.array([0.0])
    background = pd.DataFrame({"a": [-2.0, -1.0, beyond, 1.0]})
    explained, calls, verdict = wrap(model, background, target=1), list[int](), Judge.verdict
    monkeypatch.setattr(Judge, "verdict", lambda judge, some: calls.append(len(some)) or verdict(judge, some))
    for size in (None, 8):
        calls.clear()
        with in_blocks(size):
            found = explained.explain(background.head(2), why_not=False)
        assert [one.counterfactuals[0].row["a"] for one in found] == [beyond] * 2
        assert calls.count(1) == alone


def test_scores_are_as_near_as_they_were_compared() -> None:
    opened = wrapped("logistic", 0, 0).context.model.opened
    assert opened.worst < 1e-14
    assert opened.rounding(1e-6) == TIE
    assert replace(opened, worst=1e-12).rounding(1e-6) == pytest.approx(1e-9)
    assert replace(opened, worst=1e-8).rounding(1e-6) == 1e-6
    assert replace(opened, rows=0).rounding(1e-6) == 1e-6  # never compared
    assert opened.rounding(1e-5) == 1e-5  # in float32
