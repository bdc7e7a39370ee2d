"""Actions, what makes them cheaper, and the order of changes that costs least (CSCF sections 1, 2 and 6)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.constraints.actions import read_actions, read_relationships
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.plaf import parse_expression, parse_rule, text_of
from mlflow_cf.plans.action_model import ActionModel, Declared
from mlflow_cf.plans.bound_actions import derived
from mlflow_cf.plans.walk import cheapest_order
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance
from mlflow_cf.words.changes import Change
from mlflow_cf.words.result import Counterfactual

# Figure 2 of the paper: a seller with a high school degree in Germany becomes a developer with a BSc in the US.
JOBS = pd.DataFrame(
    {
        "job": ["Seller", "Developer", "Seller", "Developer"],
        "education": [0, 4, 8, 2],
        "location": ["Germany", "US", "US", "Germany"],
    }
)
MOVES = (
    {"name": "job", "feature": "job", "kind": "choose", "levels": ["Developer"], "effort": "10"},
    {"name": "degree", "feature": "education", "kind": "set", "low": 0, "high": 8, "effort": "5"},
    {"name": "move", "feature": "location", "kind": "choose", "levels": ["US"], "effort": "15"},
)
HELP = (
    {"from": "location", "to": "education", "cases": [["x.location == 'US'", 1.0]], "otherwise": 0.5},
    {"from": "location", "to": "job", "cases": [["x.location == 'US'", 0.5]], "otherwise": 1.0},
    {"from": "education", "to": "job", "factor": "1 - 0.5 * min(1, floor(x.education / 4))"},
)
START, END = [1.0, 0.0, 0.0], [0.0, 4.0, 1.0]
COSTS = {"123": 27.5, "132": 30.0, "213": 25.0, "231": 22.5, "312": 27.5, "321": 25.0}


def action_model(table: pd.DataFrame, actions: Sequence[Any], relationships: Any = (), **options: Any) -> ActionModel:
    space = FeatureSpace.infer(table)
    declared = Declared(read_actions(actions), read_relationships(relationships))
    return replace(ActionModel.bind(declared, space, BoundDistance.bind(Distance(), space)), **options)


def cost(of: ActionModel, numbers: Sequence[int], x0: Sequence[float], end: Sequence[float]) -> float:
    """Return what the steps cost in this order; inf where one cannot be done."""
    state, total = np.array([x0]), 0.0
    for number in numbers:
        done = of.step(number, state, np.array([end[of.actions[number].column]]))
        if not done.valid[0]:
            return np.inf
        state, total = done.states, total + float(done.cost[0])
    return total


def found(row: dict[str, Any], changes: dict[str, tuple[Any, Any]], table: pd.DataFrame) -> Counterfactual:
    told = tuple(Change(name, old, new) for name, (old, new) in changes.items())
    new = {**row, **{name: new for name, (_, new) in changes.items()}}
    return Counterfactual(new, told, 1, None, 0.0, len(told), space=FeatureSpace.infer(table).bare)


class TestThePapersExample:
    @pytest.mark.parametrize(("order", "told"), COSTS.items())
    def test_every_order_costs_what_the_paper_says(self, order: str, told: float) -> None:
        assert cost(action_model(JOBS, MOVES, HELP), [int(one) - 1 for one in order], START, END) == told

    def test_without_relationships_all_orders_cost_the_same(self) -> None:
        plain = action_model(JOBS, MOVES)
        assert {cost(plain, order, START, END) for order in permutations(range(3))} == {30.0}

    def test_the_cheapest_order_is_found(self) -> None:
        way = cheapest_order(action_model(JOBS, MOVES, HELP), np.array(START), np.array(END))
        assert way is not None
        assert way.cost == 22.5
        assert way.actions == (1, 2, 0)

    def test_the_public_order_tells_steps(self) -> None:
        row = {"job": "Seller", "education": 0, "location": "Germany"}
        changes = {"job": ("Seller", "Developer"), "education": (0, 4), "location": ("Germany", "US")}
        steps = mlflow_cf.order(found(row, changes, JOBS), MOVES, HELP)
        assert [(step.step, step.action, step.effort, step.discount) for step in steps] == [
            (1, "degree", 5.0, 0.5),
            (2, "move", 15.0, 1.0),
            (3, "job", 10.0, 0.5),
        ]
        assert steps[0].row == {"job": "Seller", "education": 4, "location": "Germany"}
        assert steps[-1].row == {"job": "Developer", "education": 4, "location": "US"}


NUMBERS = ["a", "b", "c", "d"]
LINE = pd.DataFrame({name: [0.0, 1.2345678, *range(2, 11)] for name in NUMBERS} | {"level": list("pqpqpqpqpqp")})
FACTORS = ["1 - x.a / 10", "x.b / 20", "0.5", "exp(0 - x.c)", "max(x.a, x.d) / 10", "1 / x.a", "x.d - 3"]


@given(
    values=st.lists(st.floats(0, 10, width=16), min_size=8, max_size=8),
    edges=st.lists(
        st.tuples(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.sampled_from(FACTORS)),
        max_size=6,
        unique_by=lambda edge: edge[:2],
    ),
    effect=st.sampled_from(["", "x_cf.a + 1", "x.b + x_cf.a - x.a"]),
    limited=st.booleans(),
)
def test_no_order_is_cheaper(
    values: list[float], edges: list[tuple[str, str, str]], effect: str, *, limited: bool
) -> None:
    actions: list[dict[str, Any]] = [
        {"name": name, "feature": name, "kind": "set", "low": 0, "high": 10, "effort": f"abs(x_cf.{name} - x.{name})"}
        for name in NUMBERS
    ]
    if limited:
        actions[2]["before"] = ["x.a > 3"]
    if effect:
        actions[0]["effects"] = {"b": effect}
    of = action_model(LINE, actions, {edge[:2]: edge[2] for edge in edges})
    x0, end = np.array([*values[:4], 0.0]), np.array([*values[4:], 0.0])
    reached = [
        total
        for count in range(5)
        for numbers in permutations(range(4), count)
        if (total := _whole(of, numbers, x0, end)) < np.inf
    ]
    way = cheapest_order(of, x0, end)
    if not of.changed(x0[None], end[None]).any():
        return  # nothing changes, so there is no plan
    assert (way is None) == (not reached)
    if way is not None:
        assert way.cost == pytest.approx(min(reached), abs=1e-12)


def _whole(of: ActionModel, numbers: Sequence[int], x0: Floats, end: Floats) -> float:
    """Return what an order costs that ends where it shall, and does nothing needless; inf: it does not."""
    state, total = x0[None], 0.0
    for number in numbers:
        column = of.actions[number].column
        if not of.changed(state, end[None])[0, column]:
            return np.inf
        done = of.step(number, state, end[[column]])
        if not done.valid[0]:
            return np.inf
        state, total = done.states, total + float(done.cost[0])
    return np.inf if of.changed(state, end[None]).any() else total


class TestSteps:
    def one(self, action: dict[str, Any], states: list[list[float]], outcome: list[float], **options: Any) -> Any:
        whole = {"name": "it", "feature": "a", "kind": "set", **action}
        return action_model(LINE, [whole], **options).step(0, np.array(states), np.array(outcome))

    def test_effects_see_what_comes_before_them(self) -> None:
        action = {"effects": {"b": "x.b + 2 * (x_cf.a - x.a)", "c": "x_cf.b + 1", "level": "'q'"}}
        done = self.one(action, [[1.0, 2.0, 3.0, 4.0, 0.0]], [3.0])
        assert done.states.tolist() == [[3.0, 6.0, 7.0, 4.0, 1.0]]

    def test_a_step_without_an_effort_costs_its_share_of_the_range(self) -> None:
        assert self.one({}, [[1.0, 2.0, 3.0, 4.0, 0.0]], [3.0]).effort.tolist() == [0.2]

    @pytest.mark.parametrize(
        "action",
        [
            {"before": ["x.b > 5"]},
            {"after": ["x_cf.a < x.a"]},
            {"effort": "x.a - 5"},
            {"effort": "1 / (x.a - 1)"},
            {"effects": {"b": "1 / (x.a - 1)"}},
            {"effects": {"level": "'new'"}},
            {"effects": {"b": "exp(1000)"}},
        ],
    )
    @pytest.mark.filterwarnings("ignore:actions.*is not a level")
    def test_what_cannot_be_done_is_not_valid(self, action: dict[str, Any]) -> None:
        row = [1.0, 2.0, 3.0, 4.0, 0.0]
        assert self.one(action, [row], [3.0]).valid.tolist() == [False]
        assert self.one({}, [row], [3.0]).valid.tolist() == [True]

    def test_what_changes_nothing_is_no_step(self) -> None:
        rows = [[1.0, 2.0, 3.0, 4.0, 0.0]] * 3
        told = self.one({}, rows, [1.0, 1.0 + 1e-9, 1.05]).valid.tolist()
        assert told == [False, False, True]
        assert self.one({}, rows, [1.0, 1.0 + 1e-9, 1.05], least_change={"a": 0.1}).valid.tolist() == [False] * 3

    def test_a_missing_number_can_be_filled_in(self) -> None:
        done = self.one({"effort": "1"}, [[np.nan, 2.0, 3.0, 4.0, 0.0]], [3.0])
        assert done.valid.tolist() == [True]
        assert self.one({"effort": "x_cf.a - x.a"}, [[np.nan, 2.0, 3.0, 4.0, 0.0]], [3.0]).valid.tolist() == [False]

    def test_whole_numbers_stay_whole(self) -> None:
        table = pd.DataFrame({"years": [0, 1, 2, 5], "rate": [0.1, 0.7, 0.35, 0.2]})
        action = {"name": "wait", "feature": "years", "low": 0, "high": 5, "effects": {"rate": "x.rate / 3"}}
        done = action_model(table, [action]).step(0, np.array([[1.0, 0.9]]), np.array([2.6]))
        assert done.states.tolist() == [[3.0, 0.3]]


class TestRelationships:
    def test_a_share_that_is_undefined_or_beyond_counts_as_the_nearest(self) -> None:
        of = action_model(LINE, [], {("b", "a"): "1 / x.b"})
        states = np.array([[0.0, b, 0.0, 0.0, 0.0] for b in (0.0, 0.5, 4.0, -1.0, np.nan)])
        changed = np.zeros(states.shape, dtype=np.bool_)
        changed[:, 0] = True
        assert of.relations.discounts(states, changed).tolist() == [1.0, 1.0, 0.25, 0.0, 1.0]

    def test_only_changed_features_that_others_help_count(self) -> None:
        of = action_model(LINE, [], {("b", "a"): "0.5", ("c", "a"): "0.1", ("a", "d"): "0.2"})
        states = np.zeros((4, 5))
        changed = np.array([[1, 0, 0, 0, 1], [1, 0, 0, 1, 0], [0, 1, 1, 0, 1], [0, 0, 0, 1, 0]], dtype=np.bool_)
        assert of.relations.discounts(states, changed).tolist() == pytest.approx([0.3, 0.25, 1.0, 0.2])

    def test_the_first_case_that_holds_counts(self) -> None:
        cases = [["x.b < 2", 0.1], ["x.b < 4", 0.2], ["x.level == 'q'", 0.3]]
        of = action_model(LINE, [], [{"from": "b", "to": "a", "cases": cases, "otherwise": 0.9}])
        states = np.array([[0.0, b, 0.0, 0.0, level] for b, level in ((1, 1), (3, 1), (5, 1), (5, 0), (np.nan, 0))])
        changed = np.ones(states.shape, dtype=np.bool_)
        assert of.relations.discounts(states, changed).tolist() == [0.1, 0.2, 0.3, 0.9, 0.9]


class TestOrder:
    def test_features_without_an_action_are_set_in_steps_of_their_own(self) -> None:
        row = {**dict.fromkeys(NUMBERS, 0.0), "level": "p"}
        steps = mlflow_cf.order(found(row, {"a": (0.0, 5.0), "level": ("p", "q")}, LINE), (), {("level", "a"): "0.5"})
        assert [(step.action, step.effort, step.discount) for step in steps] == [
            ("change a", 0.5, 0.5),
            ("change level", 1.0, 1.0),
        ]

    def test_what_an_effect_moves_needs_no_step(self) -> None:
        row = {**dict.fromkeys(NUMBERS, 0.0), "level": "p"}
        study = {"name": "study", "feature": "a", "effects": {"b": "x.b + 2 * (x_cf.a - x.a)"}, "effort": "1"}
        steps = mlflow_cf.order(found(row, {"a": (0.0, 3.0), "b": (0.0, 6.0)}, LINE), [study])
        assert [step.action for step in steps] == ["study"]
        assert steps[-1].row["b"] == 6.0

    def test_no_order_is_an_empty_plan(self) -> None:
        row = {**dict.fromkeys(NUMBERS, 0.0), "level": "p"}
        never = {"name": "never", "feature": "a", "kind": "set", "before": ["x.b > 100"]}
        assert mlflow_cf.order(found(row, {"a": (0.0, 3.0)}, LINE), [never]) == ()
        short = {"name": "short", "feature": "a", "low": 0, "high": 2}
        assert mlflow_cf.order(found(row, {"a": (0.0, 3.0)}, LINE), [short]) == ()

    def test_levels_that_the_data_never_had_and_missing_values(self) -> None:
        row = {**dict.fromkeys(NUMBERS, 0.0), "level": "new"}
        steps = mlflow_cf.order(found({**row, "c": None}, {"c": (None, 3.0), "level": ("new", "q")}, LINE))
        assert {step.action for step in steps} == {"change c", "change level"}
        assert sum(step.effort for step in steps) == 2.0

    def test_nine_changes_are_ordered_too(self) -> None:
        wide = pd.DataFrame({f"n{number}": np.arange(11.0) for number in range(12)})
        chain = {(f"n{number}", f"n{number + 1}"): f"1 - x.n{number} / 20" for number in range(11)}
        changes = dict.fromkeys(reversed(wide.columns), (0.0, 10.0))
        steps = mlflow_cf.order(found(dict.fromkeys(wide, 0.0), changes, wide), (), chain)
        assert [step.action for step in steps] == [f"change n{number}" for number in range(12)]

    def test_answers_of_a_model_can_be_ordered(self) -> None:
        rng = np.random.default_rng(0)
        X = pd.DataFrame(
            {"income": rng.integers(10, 90, 300), "debt": rng.integers(0, 50, 300), "town": ["a", "b"] * 150}
        )
        explained = mlflow_cf.wrap(_accepts, X, target=1, output="label", explainer="geco")
        row = pd.DataFrame({"income": [20], "debt": [45], "town": ["z"]})
        (answer,) = explained.explain(row, seed=0)
        steps = mlflow_cf.order(answer.counterfactuals[0], (), {("income", "debt"): "1 - x.income / 100"})
        assert [step.action for step in steps] == ["change income", "change debt"]
        assert steps[-1].row == answer.counterfactuals[0].row


def _accepts(X: pd.DataFrame) -> np.ndarray[Any, Any]:
    return ((X["income"] > 50) & (X["debt"] < 20)).to_numpy().astype(int)


class TestBadInput:
    @pytest.mark.parametrize(
        ("action", "message"),
        [
            ({"feature": "aa"}, "actions[0].feature: 'aa' is not a feature; did you mean 'a'?"),
            ({"kind": "raise"}, "actions[0].kind: input should be"),
            ({"effects": {"bb": "1"}}, "actions[0].effects.bb: 'bb' is not a feature; did you mean 'b'?"),
            ({"effects": {"a": "1"}}, "actions[0].effects.a: is the action's own feature"),
            ({"effects": {"b": "x.level"}}, "sets b, a number, to a level"),
            ({"effects": {"level": "x.b"}}, "compares level, a category, with a number"),
            ({"effort": "x.level"}, "actions[0].effort: a level is no number"),
            ({"effort": "__import__('os')"}, "actions[0].effort: line 1, column 1: did not expect '__import__'"),
            ({"effort": "abs(x.a, x.b)"}, "abs() of 2; it takes one argument"),
            ({"effort": "min(x.a)"}, "min() of 1; it takes two arguments or more"),
            ({"effort": "log(x.a)"}, "did not expect 'log'"),
            (
                {"before": ["x_cf.a > 1"]},
                "before[0]: speaks of x_cf.a, which is not known yet; use x. alone",
            ),
            ({"after": ["x_cf.q > 1"]}, "actions[0].after[0]: 'q' is not a feature"),
            ({"low": 3, "high": 3}, "actions[0].low: 3 is not below high, 3; give a range"),
            ({"kind": "set", "low": 3, "high": 3}, "3 is not below high, 3; use kind: choose, with levels: [3]"),
            ({"low": "three"}, "actions[0].low: 'three' is not a number"),
            (
                {"feature": "level"},
                "actions[0].kind: level is a category, and no number; use kind: choose",
            ),
            ({"kind": "choose"}, "actions[0]: an action that chooses needs levels"),
            ({"kind": "choose", "levels": ["p"], "feature": "level", "low": 1}, "low and high are of numbers"),
            (
                {"kind": "choose", "levels": ["r"], "feature": "level"},
                "levels[0]: 'r' is not a level of level",
            ),
            ({"kind": "choose", "levels": ["p", "p"], "feature": "level"}, "'p' is named twice"),
            ({"levels": [1]}, "levels are for kind: choose"),
            ({"cost": 3}, "cost"),
        ],
    )
    def test_actions(self, action: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            action_model(LINE, [{"name": "it", "feature": "a", **action}])
        assert message in str(error.value)

    def test_names_are_given_once(self) -> None:
        with pytest.raises(InputError, match=r"actions\[1\].name: 'it' is the name of actions\[0\], too"):
            action_model(LINE, [{"name": "it", "feature": "a"}, {"name": "it", "feature": "b"}])

    @pytest.mark.parametrize(
        ("relationship", "message"),
        [
            ({"from": "aa", "factor": "1"}, "relationships[0].from: 'aa' is not a feature"),
            ({"to": "bb", "factor": "1"}, "relationships[0].to: 'bb' is not a feature"),
            ({}, "either a factor or cases"),
            ({"factor": "1", "cases": [["x.a > 1", 0.5]]}, "either a factor or cases"),
            ({"cases": [["x.a > 1", 1.5]]}, "less than or equal to 1"),
            ({"cases": [["x_cf.a > 1", 0.5]]}, "relationships[0].cases[0]: speaks of x_cf.a"),
            ({"factor": "x_cf.a"}, "relationships[0].factor: speaks of x_cf.a"),
            ({"factor": "'p'"}, "is no number"),
        ],
    )
    def test_relationships(self, relationship: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            action_model(LINE, [], [{"from": "a", "to": "b", **relationship}])
        assert message in str(error.value)

    def test_a_pair_is_named_once(self) -> None:
        twice = [{"from": "a", "to": "b", "factor": "1"}, {"from": "a", "to": "b", "factor": "0.5"}]
        with pytest.raises(InputError, match=r"relationships\[1\]: 'a' helps 'b' already"):
            action_model(LINE, [], twice)

    def test_a_counterfactual_of_no_model(self) -> None:
        with pytest.raises(InputError, match="counterfactual: does not come from a model"):
            mlflow_cf.order(Counterfactual({"a": 1}, (), 1, None, 0.0, 0))

    def test_rules_know_no_functions(self) -> None:
        with pytest.raises(InputError, match=r"rules know no abs\(\); functions are for actions and relationships"):
            parse_rule("abs(x_cf.a) < 3", "rules[0]")


@given(st.sampled_from(["abs(x.a - x_cf.a)", "min(x.a, x.b, 3)", "max(0 - x.a, floor(x.b / 2))", "exp(x.a) * 2"]))
def test_functions_are_written_as_they_are_read(text: str) -> None:
    node = parse_expression(text, "effort")
    assert parse_expression(text_of(node), "effort") == node


def test_derived_actions_reach_every_level() -> None:
    space = FeatureSpace.infer(LINE)
    number, level = derived(space, [0, 4])
    assert (number.kind, level.kind) == ("set", "choose")
    assert level.allows(np.zeros((3, 5)), np.array([0.0, 1.0, 2.0]), 0.0).tolist() == [True, True, False]
