"""Python functions in actions and relationships: what they are shown, what they may say, what happens if they fail."""

import copy
import json
import logging
import math
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.constraints import Constraints
from mlflow_cf.constraints.actions import read_actions, read_relationships
from mlflow_cf.errors import InputError
from mlflow_cf.explainers.cscf import CSCF
from mlflow_cf.features import FeatureSpace
from mlflow_cf.plans.action_model import ActionModel, Declared, Stepped
from mlflow_cf.plans.functions import FAILED, counted
from mlflow_cf.plans.walk import compiled
from mlflow_cf.policy import Distance, Query
from mlflow_cf.problem import BoundDistance

PEOPLE = pd.DataFrame(
    {
        "age": [20, 30, 41, 50],
        "income": [10.0, 20.5, np.nan, 40.0],
        "job": ["a", "b", None, "c"],
        "owner": [True, False, True, False],
        "since": pd.to_datetime(["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"]),
    }
)
CANARY = 40.123
STATE = [30.0, CANARY, 1.0, 0.0, 19_800.0]


def action_model(actions: Sequence[Any], relationships: Any = ()) -> ActionModel:
    space = FeatureSpace.infer(PEOPLE)
    declared = Declared(read_actions(actions), read_relationships(relationships))
    return ActionModel.bind(declared, space, BoundDistance.bind(Distance(), space))


def action(**keys: Any) -> dict[str, Any]:
    return {"name": "earn", "feature": "income", "low": -50, "high": 50, **keys}


def stepped(of: ActionModel, outcome: float = 50.0, state: Sequence[float] = STATE) -> Stepped:
    return of.step(0, np.array([state]), np.array([outcome]))


def raising(*_: Any) -> Any:
    raise KeyError(CANARY)


class TestLikeTexts:
    """A function that says what a text says makes the same steps."""

    TEXTS = action(
        effects={"age": "x.age + floor((x_cf.income - x.income) / 10)", "job": "'c'"},
        effort="abs(x_cf.income - x.income) * 0.5 + x_cf.age - x.age",
        before=["x.income < 45", "x.job != 'a'"],
        after=["x_cf.age >= x.age", "x_cf.income > 5"],
    )
    FUNCTIONS = action(
        effects={
            "age": lambda before, after: before["age"] + math.floor((after["income"] - before["income"]) / 10),
            "job": lambda _, after: "c" if after["age"] else 0,
        },
        effort=lambda before, after: abs(after["income"] - before["income"]) * 0.5 + after["age"] - before["age"],
        before=[lambda state: state["income"] < 45, lambda state: state["job"] != "a"],
        after=[lambda before, after: after["age"] >= before["age"], lambda _, after: after["income"] > 5],
    )
    FACTOR = "1 - x.age / 60"

    @given(
        st.lists(
            st.tuples(
                st.integers(15, 60),
                st.sampled_from([math.nan, 0.0, 10.0, 44.5, 60.0]),
                st.sampled_from([math.nan, 0.0, 1.0, 2.0]),
                st.sampled_from([0.0, 1.0]),
                st.sampled_from([math.nan, 19_800.0]),
                st.sampled_from([math.nan, -20.0, 3.0, 10.0, 44.5, 70.0]),
            ),
            min_size=1,
            max_size=9,
        )
    )
    def test_steps_are_the_same(self, rows: list[tuple[float, ...]]) -> None:
        states, outcome = np.array(rows)[:, :5], np.array(rows)[:, 5]
        one = action_model([self.TEXTS], [{"from": "age", "to": "income", "factor": self.FACTOR}])
        other = action_model([self.FUNCTIONS], {("age", "income"): lambda state: 1 - state["age"] / 60})
        first, second = (each.step(0, states, outcome) for each in (one, other))
        np.testing.assert_array_equal(first.valid, second.valid)
        for name in ("states", "effort", "discount"):
            np.testing.assert_array_equal(getattr(first, name)[first.valid], getattr(second, name)[first.valid])

    def test_a_course_knows_that_it_needs_python(self) -> None:
        told = [{"from": "age", "to": "income", "factor": self.FACTOR}]
        assert compiled(action_model([self.TEXTS], told)) is not None
        assert compiled(action_model([self.FUNCTIONS])) is None
        assert compiled(action_model([self.TEXTS], {("age", "income"): lambda _: 1.0})) is None


def test_states_are_plain_values() -> None:
    shown: list[dict[str, Any]] = []

    def effort(before: dict[str, Any], after: dict[str, Any]) -> float:
        shown.extend([before, after])
        before.clear()  # of nobody's concern: each call gets its own
        return 1.0

    done = stepped(action_model([action(effort=effort, after=[lambda before, _: bool(before)])]), 44.0)
    assert done.valid[0]
    assert shown[1] == {"age": 30, "income": 44.0, "job": "b", "owner": False, "since": "2024-03-18"}
    assert [type(value) for value in shown[1].values()] == [int, float, str, bool, str]
    stepped(action_model([action(effort=effort)]), 44.0, [30.0, math.nan, math.nan, 1.0, math.nan])
    assert [shown[3][name] for name in ("job", "owner", "since")] == [None, True, None]


@given(
    st.lists(
        st.tuples(
            st.integers(-5, 99),
            st.sampled_from([math.nan, 0.0, -0.5, 1e100]),
            st.sampled_from([math.nan, 0, 1, 2]),
            st.sampled_from([0, 1]),
            st.sampled_from([math.nan, -719_000.0, 0.25, 19_800.0, 2_932_000.0]),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_many_states_are_shown_as_each_alone(rows: list[tuple[float, ...]]) -> None:
    shown: list[Any] = []
    of, states = action_model([action(before=[lambda state: bool(shown.append(state))])]), np.array(rows)
    of.step(0, states, np.full(len(rows), 44.0))
    assert shown == [of.space.values(state) for state in states]


def test_what_no_date_can_be_is_not_shown() -> None:
    far = [[*STATE[:4], days] for days in (1e100, -1e100, 3e6, -8e5)]
    asked: list[Any] = []
    action_model([action(before=[asked.append])]).step(0, np.array(far), np.full(4, 44.0))
    assert not asked


@pytest.mark.parametrize(
    ("column", "answer", "code"),
    [
        ("age", 41, 41.0),
        ("age", np.int64(41), 41.0),
        ("age", 41.0, 41.0),
        ("job", "c", 2.0),
        ("job", np.str_("c"), 2.0),
        ("owner", True, 1.0),
        ("owner", np.bool_(True), 1.0),
        ("since", "2024-03-19", 19_801.0),
        ("since", date(2024, 3, 19), 19_801.0),
        ("since", pd.Timestamp("2024-03-19"), 19_801.0),
        ("since", np.datetime64("2024-03-19", "ns"), 19_801.0),
    ],
)
def test_effects_are_values_of_their_feature(column: str, answer: Any, code: float) -> None:
    bound = action_model([action(effects={column: lambda *_: answer})])
    done = stepped(bound)
    assert done.valid[0]
    assert done.states[0, bound.space.index[column]] == code


@pytest.mark.parametrize("answer", [1, 1.5, np.float32(1.5), np.int8(1), 0, 1e100])
def test_efforts_are_numbers(answer: Any) -> None:
    assert stepped(action_model([action(effort=lambda *_: answer)])).effort[0] == float(answer)


FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "effort raises": ({"effort": raising}, "the effort of action 'earn' raised KeyError"),
    "effort of None": ({"effort": lambda *_: None}, "the effort of action 'earn' returned no number of 0 or more"),
    "effort of NaN": ({"effort": lambda *_: math.nan}, "returned no number of 0 or more"),
    "infinite effort": ({"effort": lambda *_: math.inf}, "returned no number of 0 or more"),
    "negative effort": ({"effort": lambda *_: -1e-9}, "returned no number of 0 or more"),
    "effort of a text": ({"effort": lambda *_: "1"}, "returned no number of 0 or more"),
    "effort of a truth": ({"effort": lambda *_: True}, "returned no number of 0 or more"),
    "huge effort": ({"effort": lambda *_: 10**400}, "returned no number of 0 or more"),
    "effort of an array": ({"effort": lambda *_: np.ones(3)}, "returned no number of 0 or more"),
    "effect raises": ({"effects": {"age": raising}}, "the effect of action 'earn' on age raised KeyError"),
    "unknown level": ({"effects": {"job": lambda *_: "z"}}, "effect of action 'earn' on job returned no value of job"),
    "missing": ({"effects": {"job": lambda *_: None}}, "returned no value of job"),
    "a truth as number": ({"effects": {"age": lambda *_: True}}, "returned no value of age"),
    "a number as truth": ({"effects": {"owner": lambda *_: 1}}, "returned no value of owner"),
    "no date": ({"effects": {"since": lambda *_: "soon"}}, "returned no value of since"),
    "NaN": ({"effects": {"age": lambda *_: math.nan}}, "returned no value of age"),
    "not a list": ({"effects": {"job": lambda *_: []}}, "returned no value of job"),
    "condition raises": ({"before": ["x.age > 0", raising]}, "before[1] of action 'earn' raised KeyError"),
    "condition of None": ({"after": [lambda *_: None]}, "after[0] of action 'earn' returned no truth value"),
    "condition of 1": ({"after": [lambda *_: 1]}, "after[0] of action 'earn' returned no truth value"),
}


@pytest.mark.parametrize(("keys", "failure"), FAILING.values(), ids=FAILING)
def test_what_fails_cannot_be_done(keys: dict[str, Any], failure: str, caplog: pytest.LogCaptureFixture) -> None:
    of = action_model([action(**keys)])
    with caplog.at_level(logging.WARNING), counted() as failures:
        done = of.step(0, np.array([STATE] * 3), np.array([41.0, 42.0, 43.0]))
        stepped(of)
    assert not done.valid.any()
    ((told, times),) = failures.items()
    assert failure in told
    assert times == 4
    assert [record.message for record in caplog.records] == [told]  # once, whatever the number of steps
    assert str(CANARY) not in caplog.text


@pytest.mark.parametrize("answer", [None, math.nan, "0.5", True], ids=str)
def test_a_factor_that_fails_counts_as_one(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    done = stepped(action_model([action()], {("age", "income"): lambda _: answer}))
    assert done.valid[0]
    assert done.discount[0] == 1.0
    assert "the factor of age -> income returned no number" in caplog.text
    raised = stepped(action_model([action()], {("age", "income"): raising}))
    assert raised.discount[0] == 1.0


@pytest.mark.parametrize(("answer", "share"), [(0.25, 0.25), (-3, 0.0), (7, 1.0)])
def test_a_factor_beyond_its_range_counts_as_the_nearest(answer: float, share: float) -> None:
    assert stepped(action_model([action()], {("age", "income"): lambda _: answer})).discount[0] == share


def test_nothing_is_asked_about_steps_that_cannot_be_done() -> None:
    ages: list[int] = []

    def effort(before: dict[str, Any], _: dict[str, Any]) -> float:
        ages.append(before["age"])
        return 1 / (before["age"] - 20)

    guarded = action(
        before=["x.age > 20"], after=["x_cf.income > 20"], effort=effort, effects={"owner": lambda *_: True}
    )
    states = np.array([[20.0, *STATE[1:]], [21.0, *STATE[1:]], [22.0, *STATE[1:]]])
    with counted() as failures:
        done = action_model([guarded], {("age", "income"): effort_free}).step(0, states, np.array([50.0, 50.0, 5.0]))
    assert done.valid.tolist() == [False, True, False]
    assert ages == [21]
    assert not failures


def effort_free(state: dict[str, Any]) -> float:
    return 1 / (state["age"] - 20)


def test_a_level_that_another_part_has_spoilt_is_not_shown() -> None:
    shown: list[Any] = []
    keys = {"effects": {"job": lambda *_: "z", "age": lambda _, after: shown.append(after["job"])}}
    assert not stepped(action_model([action(**keys)])).valid[0]
    assert not shown


def test_failures_are_counted_by_thread() -> None:
    of, others = action_model([action(effort=raising)]), list[int]()

    def elsewhere() -> None:
        with counted() as failures:
            stepped(of)
        others.append(failures.total())

    with counted() as failures:
        threads = [threading.Thread(target=elsewhere) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        stepped(of)
    assert (failures.total(), others) == (1, [1, 1, 1])
    stepped(of)  # where nobody counts


def test_levels_that_the_data_never_had() -> None:
    of = action_model([action(before=[lambda state: state["job"] == "z"])])
    features = tuple(f.with_unseen(("z",)) if f.name == "job" else f for f in of.space.features)
    wider = of.covering(FeatureSpace(features))
    assert stepped(wider, state=[30.0, 10.0, 3.0, 0.0, 19_800.0]).valid[0]
    assert not stepped(wider).valid[0]
    assert compiled(wider) is None


class TestReading:
    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ({"effort": 3}, "actions[0].effort: must be a PLAF text, or in Python a function, got 3"),
            ({"effort": ["1"]}, "actions[0].effort: must be a PLAF text, or in Python a function"),
            ({"effects": {"age": None}}, "actions[0].effects.age: must be a PLAF text"),
            ({"before": [1]}, "actions[0].before[0]: must be a PLAF text"),
            ({"effort": {"function": "f"}}, "actions[0].effort: only names a function, pass the function itself or"),
            ({"after": [{"function": "f"}]}, "actions[0].after[0]: only names a function"),
        ],
        ids=str,
    )
    def test_neither_text_nor_function(self, keys: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            action_model([action(**keys)])
        assert str(error.value).startswith(message)

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ({"effort": lambda _: 1}, "actions[0].effort: cannot be called with (before, after); define it with"),
            ({"effects": {"age": lambda: 1}}, "actions[0].effects.age: cannot be called with (before, after)"),
            ({"before": [lambda _, __: True]}, "actions[0].before[0]: cannot be called with (state)"),
            ({"after": [lambda _: True]}, "actions[0].after[0]: cannot be called with (before, after)"),
        ],
    )
    def test_other_arguments(self, keys: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            action_model([action(**keys)])
        assert str(error.value).startswith(message)

    def test_whatever_can_be_called(self) -> None:
        class Effort:
            def __call__(self, before: dict[str, Any], after: dict[str, Any]) -> float:
                return float(after["income"] - before["income"])

        for effort in (Effort(), partial(lambda rate, *_: rate, 2.0), max):  # of C, without a signature
            action_model([action(effort=effort)])

    @pytest.mark.parametrize("key", ["income", ("a", "b", "c"), 3])
    def test_pairs(self, key: Any) -> None:
        with pytest.raises(InputError, match=r"^relationships: .* is no pair \(from, to\); write a list of objects"):
            read_relationships({key: "1"})
        with pytest.raises(InputError, match=r"^constraints\.relationships: .* is no pair"):
            Constraints.read({"relationships": {key: "1"}})

    def test_pairs_in_constraints(self) -> None:
        read = Constraints.read({"relationships": {("age", "income"): raising, ("income", "age"): "0.5"}})
        assert [edge.factor for edge in read.relationships] == [raising, "0.5"]

    def test_among_plain_values_they_are_named(self) -> None:
        read = Constraints.read(
            {
                "actions": [action(effort=raising, effects={"age": "1"}, before=["x.age > 1", raising])],
                "relationships": {("age", "income"): partial(raising)},
            }
        )
        plain = read.to_dict()
        assert plain["actions"][0]["effort"] == {"function": "raising"}
        assert plain["actions"][0]["before"] == ["x.age > 1", {"function": "raising"}]
        assert plain["relationships"][0]["factor"] == {"function": "partial"}
        with pytest.raises(InputError, match=r"actions\[0\]\.effort: only names a function"):
            Constraints.read(json.loads(json.dumps(plain)))

    def test_requests_have_texts_alone(self) -> None:
        schema = Query.model_json_schema()["$defs"]
        assert schema["Action"]["properties"]["effort"]["anyOf"][0] == {"type": "string"}
        assert schema["Relationship"]["properties"]["factor"]["anyOf"][0] == {"type": "string"}


def accepts(rows: pd.DataFrame) -> Any:
    return ((rows["income"] > 50) & (rows["debt"] < 20)).to_numpy().astype(int)


def effort_of_income(before: dict[str, Any], after: dict[str, Any]) -> float:
    return float(after["income"] - before["income"]) / 10


def can_pay(state: dict[str, Any]) -> bool:
    return bool(state["income"] >= 50)


ACTIONS = (
    {"name": "earn", "feature": "income", "low": 0, "high": 80, "effort": effort_of_income},
    {"name": "pay", "feature": "debt", "low": -50, "high": 0, "effort": "x.debt - x_cf.debt", "before": [can_pay]},
)
ROW = pd.DataFrame({"income": [20], "debt": [45]})


def wrapped(actions: Sequence[Any] = ACTIONS) -> mlflow_cf.ExplainedModel:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"income": rng.integers(10, 90, 200), "debt": rng.integers(0, 50, 200)})
    return mlflow_cf.wrap(accepts, data, target=1, output="label", constraints={"actions": actions})


def steps(explained: mlflow_cf.ExplainedModel) -> list[tuple[str, float]]:
    (answer,) = explained.explain(ROW, seed=0)
    return [(step.action, step.effort) for step in answer.counterfactuals[0].plan]


class TestAnswers:
    def test_carry_plans(self) -> None:
        explained = wrapped()
        (earn, effort), (pay, _) = steps(explained)
        assert (earn, pay) == ("earn", "pay")
        assert effort == (explained.explain(ROW, seed=0)[0].counterfactuals[0].row["income"] - 20) / 10
        json.dumps(explained.describe())

    def test_say_what_failed(self) -> None:
        (answer,) = wrapped([{**ACTIONS[0], "effort": raising}, ACTIONS[1]]).explain(ROW, seed=0)
        assert answer.status == "found"
        assert answer.counterfactuals[0].plan == ()
        assert list(answer.diagnostics[FAILED]) == ["the effort of action 'earn' raised KeyError"]
        (answer,) = wrapped().explain(ROW, seed=0)
        assert FAILED not in answer.diagnostics

    def test_of_searches_over_plans_say_it_too(self) -> None:
        data = wrapped().background
        options = {"target": 1, "output": "label", "values": "grid", "explainer": CSCF(generations=9)}
        failing = {"actions": [{**ACTIONS[0], "effort": raising}, ACTIONS[1]]}
        (answer,) = mlflow_cf.wrap(accepts, data, constraints=failing, **options).explain(ROW, seed=0)
        assert answer.status == "not_found"
        assert list(answer.diagnostics[FAILED]) == ["the effort of action 'earn' raised KeyError"]
        (answer,) = mlflow_cf.wrap(accepts, data, constraints={"actions": ACTIONS}, **options).explain(ROW, seed=0)
        assert [step.action for step in answer.counterfactuals[0].plan] == ["earn", "pay"]
        assert FAILED not in answer.diagnostics

    @pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301
    def test_are_those_of_copies(self, again: Callable[[Any], Any]) -> None:
        explained = wrapped()
        assert steps(again(explained)) == steps(explained)

    def test_can_be_ordered_by_functions(self) -> None:
        found = wrapped(()).explain(ROW, seed=0)[0].counterfactuals[0]
        told = mlflow_cf.order(found, ACTIONS, {("income", "debt"): lambda state: 0.5 if can_pay(state) else 1.0})
        assert [(step.action, step.discount) for step in told] == [("earn", 1.0), ("pay", 0.5)]


def test_least_changes_stay() -> None:
    """What an action model was given beside its declaration stays when it covers more levels."""
    of = replace(action_model([action(effort=lambda *_: 1.0)]), least_change={"income": 5.0})
    features = tuple(f.with_unseen(("z",)) if f.name == "job" else f for f in of.space.features)
    wider = of.covering(FeatureSpace(features))
    assert not stepped(wider, CANARY + 4).valid[0]
    assert stepped(wider, CANARY + 6).valid[0]
