"""Requests narrow the policy's actions: what is left was allowed before, leads to the same, and costs no less."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.constraints import Constraints
from mlflow_cf.constraints.actions import read_actions
from mlflow_cf.errors import InputError, InputErrors
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.cscf import CSCF
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.walk import cheapest_plan, compiled
from mlflow_cf.policy import Distance, Privacy
from mlflow_cf.problem import BoundPolicy

PEOPLE = pd.DataFrame(
    {
        "age": [20, 31, 40, 50, 60],
        "income": [10.0, 20.5, 13.25, 40.0, 77.125],
        "job": ["clerk", "cook", "judge", "nurse", "spy"],
        "since": pd.to_datetime(["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01", "2024-05-01"]),
    }
)


def dear(before: dict[str, Any], after: dict[str, Any]) -> float:
    return 100 / (before["age"] - 31) + abs(after["income"] - before["income"])


POLICY: dict[str, Any] = {
    "actions": [
        {
            "name": "earn",
            "feature": "income",
            "low": -20,
            "high": 30,
            "effects": {"age": "x.age + 1"},
            "effort": "(x_cf.income - x.income) / 10",
        },
        {"name": "train", "feature": "job", "kind": "choose", "levels": ["cook", "judge", "nurse"]},
        {"name": "wait", "feature": "age", "kind": "set", "low": 25, "effort": lambda *_: 2, "before": ["x.age < 50"]},
        {"name": "move", "feature": "since", "low": 0, "high": 90},
    ],
    "relationships": [{"from": "job", "to": "income", "cases": [["x.job == 'judge'", 0.5]]}],
}
NAMES = {action["name"]: action for action in POLICY["actions"]}


def bound_policy(policy: dict[str, Any] = POLICY) -> BoundPolicy:
    space = FeatureSpace.infer(PEOPLE)
    return BoundPolicy.build(space, space.encode(PEOPLE), Constraints.read(policy), Distance(), "continuous")


SETTING = bound_policy()
REQUESTS = SETTING.for_requests(Privacy())  # as requests see it


def course_of(built: BoundPolicy) -> ActionModel:
    assert built.action_model is not None
    return built.action_model


OWN = course_of(SETTING)


def narrowed(*actions: dict[str, Any], of: BoundPolicy = SETTING) -> ActionModel:
    return course_of(of.tightened(Constraints.read({"actions": actions})))


def entry(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "feature": NAMES[name]["feature"], **keys}


def plain(*names: str) -> list[dict[str, Any]]:
    return [entry(name) for name in names]


efforts = st.sampled_from(["0", "3", "0 - 5", "x.age / 10", "1 / (x.age - 31)", "x_cf.income - 20", dear])
befores = st.lists(st.sampled_from(["x.age > 30", "x.job != 'spy'", lambda state: state["income"] < 50]), max_size=2)
afters = st.lists(st.sampled_from(["x_cf.income > x.income", lambda before, _: before["age"] > 25]), max_size=2)
ends = {
    "earn": st.tuples(st.sampled_from([None, -20, -5, 0]), st.sampled_from([None, 1, 30])),
    "wait": st.tuples(st.sampled_from([None, 25, 30]), st.sampled_from([None, 40, 99])),
    "move": st.tuples(st.sampled_from([None, 0, 10.5]), st.sampled_from([None, 11, 90])),
}
levels = st.lists(st.sampled_from(["cook", "judge", "nurse"]), min_size=1, unique=True)


@st.composite
def entries(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return a request's actions, each narrowed at random."""
    asked = []
    for name in draw(st.lists(st.sampled_from(list(NAMES)), min_size=1, unique=True)):
        one = entry(name)
        if name in ends:
            one |= dict(zip(("low", "high"), draw(ends[name]), strict=True))
        elif draw(st.booleans()):
            one |= {"kind": "choose", "levels": draw(levels)}
        for key, texts in (("before", befores), ("after", afters)):
            one[key] = draw(texts)
        if draw(st.booleans()):
            one["effort"] = draw(efforts)
        asked.append(one)
    return asked


states = st.tuples(
    st.integers(18, 70).map(float),
    st.sampled_from([np.nan, 5.0, 20.5, 45.0, 80.0]),
    st.sampled_from([np.nan, 0.0, 1.0, 2.0, 3.0, 4.0]),
    st.sampled_from([np.nan, 19_800.0, 19_850.0]),
)
VALUES = {"earn": np.arange(-22.0, 33.0, 2.5), "train": np.arange(5.0), "wait": np.arange(20.0, 70.0, 3.5)}
ROWS = 60


def random_states(seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    columns = [[19, 26, 31, 32, 47, 55], [np.nan, 5, 20.5, 45, 80], [np.nan, *range(5)], [np.nan, 19_800, 19_850]]
    return np.column_stack([rng.choice(known, ROWS) for known in columns])


@given(entries(), st.integers(0, 2**32))
def test_what_is_left_was_allowed_and_costs_no_less(asked: list[dict[str, Any]], seed: int) -> None:
    before, left = random_states(seed), narrowed(*asked)
    for number, action in enumerate(left.actions):
        own = next(place for place, one in enumerate(OWN.actions) if one.name == action.name)
        tried_values = VALUES.get(action.name, np.arange(-2.0, 95.0, 3.25))
        outcome = action.outcome(before, np.random.default_rng(seed).choice(tried_values, ROWS))
        tried, known = left.step(number, before, outcome), OWN.step(own, before, outcome)
        done = tried.valid & action.allows(before, outcome, 0.0)
        assert known.valid[done].all()
        assert OWN.actions[own].allows(before, outcome, 0.0)[done].all()
        np.testing.assert_array_equal(tried.states[done], known.states[done])
        np.testing.assert_array_equal(tried.discount[done], known.discount[done])
        assert (tried.cost[done] >= known.cost[done]).all()


@given(entries(), states, states)
def test_no_plan_becomes_cheaper(asked: list[dict[str, Any]], start: Any, end: Any) -> None:
    x0, goal = np.array(start), np.array(end)
    own, left = (cheapest_plan(one, x0, goal) for one in (OWN, narrowed(*asked)))
    assert not left or (own and sum_of(left) >= sum_of(own) - 1e-9)


def sum_of(plan: Any) -> float:
    return float(sum(step.effort * step.discount for step in plan))


@given(st.permutations(list(NAMES)))
def test_what_narrows_nothing_is_the_very_same(names: Sequence[str]) -> None:
    again = SETTING.tightened(Constraints.read({"actions": plain(*names), "max_changes": 3}))
    assert again.action_model is SETTING.action_model


@pytest.mark.parametrize(
    "same",
    [
        entry("earn", low=-20, high=30.0, kind="change", effects={"age": "x.age + 1"}),
        entry("earn", low=None, effort=None),
        entry("train", kind="choose", levels=["nurse", "judge", "cook"]),
        entry("wait", kind="set", before=[], after=[]),
    ],
)
def test_what_repeats_the_policy_narrows_nothing(same: dict[str, Any]) -> None:
    others = [entry(name) for name in NAMES if name != same["name"]]
    assert narrowed(*others, same) is SETTING.action_model


def test_the_others_are_removed() -> None:
    left = narrowed(*plain("move", "earn"))
    assert [action.name for action in left.actions] == ["earn", "move"]
    assert all(any(action is own for own in OWN.actions) for action in left.actions)


def test_a_removed_action_is_not_replaced() -> None:
    x0, end = SETTING.background[0], SETTING.background[0].copy()
    end[[0, 1]] = 30.0
    assert [step.action for step in cheapest_plan(OWN, x0, end)] == ["earn", "wait"]
    assert cheapest_plan(narrowed(*plain("earn")), x0, end) == ()


def stepped(left: ActionModel, name: str, to: float, state: Floats) -> tuple[bool, float]:
    number = [action.name for action in left.actions].index(name)
    done = left.step(number, state[None], np.array([to]))
    return bool(done.valid[0]), float(done.effort[0])


def test_each_way_to_narrow_takes_effect() -> None:
    state = SETTING.background[1]  # 31 years, 20.5, a cook
    assert stepped(OWN, "earn", 40.5, state) == (True, 2.0)
    assert stepped(narrowed(entry("earn", effort="3")), "earn", 40.5, state) == (True, 3.0)
    assert stepped(narrowed(entry("earn", effort="1")), "earn", 40.5, state) == (True, 2.0)
    assert not stepped(narrowed(entry("earn", effort="5")), "earn", 10.5, state)[0]  # its own effort is below 0
    assert not stepped(narrowed(entry("earn", effort="1 / (x.age - 31)")), "earn", 40.5, state)[0]
    assert not stepped(narrowed(entry("earn", before=["x.age > 31"])), "earn", 40.5, state)[0]
    assert not stepped(narrowed(entry("earn", after=["x_cf.age < 32"])), "earn", 40.5, state)[0]
    assert stepped(OWN, "train", 2.0, state) == (True, 1.0)  # the change of a level
    assert stepped(narrowed(entry("train", effort="0.5")), "train", 2.0, state) == (True, 1.0)
    assert stepped(narrowed(entry("train", effort="1.5")), "train", 2.0, state) == (True, 1.5)
    assert stepped(narrowed(entry("wait", effort="7")), "wait", 33.0, state) == (True, 7.0)
    fewer = narrowed(entry("train", kind="choose", levels=["nurse", "cook"])).actions[0]
    assert fewer.choices is not None
    assert fewer.choices.tolist() == [1.0, 3.0]
    assert (narrowed(entry("move", high=30)).actions[0].low, narrowed(entry("move", high=30)).actions[0].high) == (
        0,
        30,
    )


def test_a_narrowed_course_covers_more_levels() -> None:
    left = narrowed(entry("earn", before=["x.job == 'pilot'"]), of=REQUESTS)
    features = tuple(f.with_unseen(("pilot",)) if f.name == "job" else f for f in left.space.features)
    wider = left.covering(FeatureSpace(features))
    assert [action.name for action in wider.actions] == ["earn"]
    assert stepped(wider, "earn", 40.5, np.array([31.0, 20.5, 5.0, 19_800.0]))[0]
    assert not stepped(wider, "earn", 40.5, np.array([31.0, 20.5, 1.0, 19_800.0]))[0]


def test_it_is_compiled_where_the_policys_is() -> None:
    policy = {"actions": [POLICY["actions"][0]], "relationships": POLICY["relationships"]}
    left = narrowed(entry("earn", high=20, effort="1 + x.age", before=["x.age > 20"]), of=bound_policy(policy))
    assert compiled(left) is not None
    assert compiled(narrowed(entry("earn", effort=dear), of=bound_policy(policy))) is None


REFUSED: list[tuple[Any, str]] = [
    ([], "constraints.actions: names no action; leave it out to keep all"),
    (
        [{"name": "earm", "feature": "income"}],
        "constraints.actions[0].name: 'earm' is no action of the policy; did you",
    ),
    ([{"name": "fly", "feature": "income"}], "actions[0].name: 'fly' is no action of the policy; actions: 'earn', 'tr"),
    ([*plain("earn"), entry("earn", low=0)], "constraints.actions[1].name: 'earn' is named twice; name it once"),
    ([{"name": "earn", "feature": "age"}], "actions[0].feature: 'age' is not what 'earn' is about; write 'income'"),
    ([entry("earn", kind="set")], "constraints.actions[0].kind: 'set' is not the policy's 'change'; leave it out"),
    ([entry("wait", kind="choose", levels=[30])], "constraints.actions[0].kind: 'choose' is not the policy's 'set'"),
    ([entry("earn", effects={})], "constraints.actions[0].effects: are not the policy's; leave them out"),
    ([entry("earn", effects={"age": "x.age"})], "constraints.actions[0].effects: are not the policy's"),
    ([entry("earn", low=-21)], "constraints.actions[0].low: -21 is below the policy's -20; stay inside it; null"),
    ([entry("earn", high=30.5)], "constraints.actions[0].high: 30.5 is above the policy's 30; stay inside it"),
    ([entry("earn", low=31)], "constraints.actions[0].low: 31 is not below high, 30; give a range"),
    ([entry("earn", low=5, high=5)], "constraints.actions[0].low: 5 is not below high, 5; give a range"),
    ([entry("earn", high="much")], "constraints.actions[0].high: 'much' is not a number"),
    ([entry("move", high=91)], "constraints.actions[0].high: 91 is above the policy's 90"),
    ([entry("train", low=1)], "actions[0].low: is of numbers, and this action chooses levels; leave it out"),
    ([entry("train", levels=["cook"])], "constraints.actions[0]: levels are for kind: choose"),
    ([entry("train", kind="choose", levels=["spy"])], "levels[0]: 'spy' is not among the policy's levels; name only"),
    ([entry("train", kind="choose", levels=["cook", "king"])], "levels[1]: 'king' is not among the policy's levels"),
    ([entry("earn", before=["x.ages > 3"])], "constraints.actions[0].before[0]: 'ages' is not a feature; did you mean"),
    ([entry("earn", before=["x_cf.age > 3"])], "constraints.actions[0].before[0]: speaks of x_cf.age, which is not"),
    ([entry("earn", after=["x.age >"])], "constraints.actions[0].after[0]: "),
    ([entry("earn", effort="x.job")], "constraints.actions[0].effort: a level is no number"),
    ([entry("earn", effort=3)], "constraints.actions[0].effort: must be a PLAF text"),
    ([entry("earn", effort={"function": "f"})], "constraints.actions[0].effort: only names a function"),
    ([entry("earn", before=["x.job > 'a'"])], "constraints.actions[0].before[0]: job >: a category has no order"),
    (
        [entry("earn", before=["x.job == 3"])],
        "constraints.actions[0].before[0]: compares job, a category, with a number",
    ),
]


@pytest.mark.parametrize(("asked", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
@pytest.mark.parametrize("served", [False, True])
def test_what_loosens_or_does_not_fit_is_refused(asked: Any, message: str, *, served: bool) -> None:
    with pytest.raises(InputError) as error:
        (REQUESTS if served else SETTING).tightened(Constraints.read({"actions": asked}))
    told = str(error.value)
    assert message in told
    if served:  # what was asked may be said again, and what the policy says, but nothing of the background
        ours = str(asked) + str(POLICY)
        secrets = [level for level in PEOPLE["job"] if level not in ours] + ["77.125", "13.25", "2024"]
        assert not [secret for secret in secrets if secret in told]


def test_all_that_is_wrong_at_once() -> None:
    with pytest.raises(InputErrors) as error:
        narrowed(
            entry("earn", low=-99), {"name": "fly", "feature": "age"}, entry("move", kind="set", effects={"age": "1"})
        )
    paths = ["[0].low", "[1].name", "[2].kind", "[2].effects"]
    found = [inner.path for one in error.value.errors for inner in getattr(one, "errors", (one,))]
    assert found == [f"constraints.actions{path}" for path in paths]


def test_a_level_that_nobody_has_is_told_to_no_request() -> None:
    """A request learns nothing of which levels there are; in Python a warning says so."""
    asked = entry("earn", before=["x.job == 'king'"])
    narrowed(asked, of=REQUESTS)
    with pytest.warns(UserWarning, match="'king' is not a level of job"):
        narrowed(asked)


@pytest.mark.parametrize("policy", [{}, {"relationships": POLICY["relationships"]}])
def test_a_policy_without_actions(policy: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"constraints\.actions: the policy declares none; leave it out"):
        narrowed(*plain("earn"), of=bound_policy(policy))


def test_the_policy_of_an_owner_may_name_no_actions() -> None:
    assert bound_policy({"actions": []}).action_model is None


def accepts(rows: pd.DataFrame) -> Any:
    return ((rows["income"] > 50) & (rows["debt"] < 20)).to_numpy().astype(int)


@pytest.fixture(scope="module")
def explained() -> ExplainedModel:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"income": rng.integers(10, 90, 200), "debt": rng.integers(0, 50, 200)})
    constraints, search = {"actions": TestAnswers.ACTIONS}, CSCF(generations=20)
    options = {"target": 1, "output": "label", "values": "grid"}
    return mlflow_cf.wrap(accepts, data, constraints=constraints, explainer=search, **options)


class TestAnswers:
    ACTIONS = (
        {"name": "earn", "feature": "income", "low": 0, "high": 80, "effort": "(x_cf.income - x.income) / 10"},
        {"name": "sell", "feature": "debt", "low": -50, "high": 0, "effort": "1"},
        {"name": "pay back", "feature": "debt", "low": -50, "high": 0, "effort": "(x.debt - x_cf.debt) / 5"},
    )
    ROW = pd.DataFrame({"income": [20], "debt": [45]})

    def asked(self, explained: ExplainedModel, *entries: dict[str, Any], explainer: str = "cscf") -> Any:
        query = {"explainer": explainer, "seed": 0, "constraints": {"actions": list(entries)}}
        (reply,) = explained.predict(self.ROW, {"counterfactual": query}).to_dict("records")
        return reply

    @pytest.mark.parametrize("explainer", ["cscf", "geco"])
    def test_are_plans_of_what_is_left(self, explained: ExplainedModel, explainer: str) -> None:
        own = explained.predict(self.ROW, {"counterfactual": {"explainer": explainer, "seed": 0}})
        before = own["counterfactuals"][0][0]["plan"]
        assert {step["action"] for step in before} == {"earn", "sell"}
        earn, pay = ({"name": "earn", "feature": "income"}, {"name": "pay back", "feature": "debt", "effort": "100"})
        after = self.asked(explained, earn, pay, explainer=explainer)["counterfactuals"][0]["plan"]
        assert {step["action"] for step in after} == {"earn", "pay back"}
        assert sum(step["effort"] for step in after) >= 100

    def test_say_where_none_is_left(self, explained: ExplainedModel) -> None:
        reply = self.asked(explained, {"name": "earn", "feature": "income"})
        assert (reply["status"], reply["counterfactuals"]) == ("not_found", [])

    def test_of_one_request_do_not_change_those_of_others(self, explained: ExplainedModel) -> None:
        before = explained.predict(self.ROW)
        self.asked(explained, {"name": "earn", "feature": "income"})
        pd.testing.assert_frame_equal(explained.predict(self.ROW), before)

    def test_in_python_functions_narrow_too(self, explained: ExplainedModel) -> None:
        asked = read_actions([{"name": "earn", "feature": "income", "effort": lambda *_: 77}, *self.ACTIONS[1:]])
        (answer,) = explained.explain(self.ROW, seed=0, constraints=Constraints(actions=asked))
        assert {step.action: step.effort for step in answer.counterfactuals[0].plan}["earn"] == 77
