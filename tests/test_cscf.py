"""CSCF: worked examples of its note, laws of genes, fronts and answers, and the cheapest plan against all sequences."""

from dataclasses import replace
from itertools import permutations
from random import Random
from types import SimpleNamespace
from typing import Any

import moocore
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_worlds import NAMES, TABLE, accepting, check_plan, random_told, sequences
from searched import bound
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf import CSCF, SCF
from mlflow_cf.constraints.actions import read_actions, read_relationships
from mlflow_cf.explainers.cscf.cscf import PLANS, _handed_over, diverse, elites
from mlflow_cf.explainers.cscf.evaluation import Evaluated, Evaluator, front, unbeaten
from mlflow_cf.explainers.cscf.possible import Ordered, Possible, decoded, encoded, possible
from mlflow_cf.explainers.cscf.refine import TRIES, Refining, reordered
from mlflow_cf.features import FeatureSpace
from mlflow_cf.plans.action_model import ActionModel, Declared
from mlflow_cf.plans.walk import Walker
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance, Budget

SIZES: dict[str, Any] = {"population": 30, "offspring": 20, "mutants": 10, "generations": 6}
SMALL = CSCF(**SIZES)
ROW = {"a": 0, "b": 1, "c": 0, "d": 2}


def action_model(table: pd.DataFrame, actions: Any, relationships: Any = ()) -> ActionModel:
    space = FeatureSpace.infer(table)
    declared = Declared(read_actions(actions), read_relationships(relationships))
    return ActionModel.bind(declared, space, BoundDistance.bind(Distance(), space))


class TestGenes:
    FIGURE = Possible(
        action_model(
            pd.DataFrame({"p": [0.0, 170.5], "q": [0, 3], "r": [6.0, 56.5]}),
            [
                {"name": "a1", "feature": "p", "kind": "set", "low": 0, "high": 170},
                {"name": "a2", "feature": "q", "kind": "choose", "levels": [0, 1, 2, 3]},
                {"name": "a3", "feature": "r", "kind": "set", "low": 6, "high": 56},
            ],
        ),
        {},
    )

    def decode(self, keys: list[float], shares: list[float], most: int = 3) -> list[tuple[int, float]]:
        found = decoded(np.array([[*keys, *shares]]), self.FIGURE, most)
        return [(a, v) for a, v in zip(found.actions[0].tolist(), found.values[0].tolist(), strict=True) if a >= 0]

    def test_the_papers_figure_3(self) -> None:
        steps = self.decode([0.70, 0.45, 0.02], [0.12, 0.80, 0.68])
        assert [action for action, _ in steps] == [2, 1]
        assert [value for _, value in steps] == pytest.approx([40, 3])
        assert self.decode([0.02, 0.9, 0.9], [0.12, 0, 0])[0][1] == pytest.approx(20.4)

    def test_ties_run_by_number_and_a_half_is_active(self) -> None:
        assert [action for action, _ in self.decode([0.5, 0.5, 0.5], [0, 0, 0])] == [0, 1, 2]
        assert [action for action, _ in self.decode([0.5, np.nextafter(0.5, 1), 0.3], [0, 0, 0])] == [2, 0]

    def test_many_ties_stay_in_order(self) -> None:
        names = [f"f{n}" for n in range(40)]
        many = Possible(
            action_model(
                pd.DataFrame({name: [0.0, 1.5] for name in names}),
                [{"name": name, "feature": name, "kind": "set", "low": 0, "high": 1} for name in names],
            ),
            {},
        )
        keys = np.tile([0.3, 0.2], 20)
        found = decoded(np.concatenate([keys, np.zeros(40)])[None], many, 40)
        assert found.actions[0].tolist() == [*range(1, 40, 2), *range(0, 40, 2)]

    def test_the_ends_of_values(self) -> None:
        assert self.decode([0.9, 0.1, 0.2], [0, 1.0, 1.0]) == [(1, 3.0), (2, 56.0)]

    def test_no_active_action_is_an_empty_sequence(self) -> None:
        assert self.decode([0.51, 0.6, 1.0], [0, 0, 0]) == []

    def test_of_too_many_steps_the_first_are_done(self) -> None:
        assert [action for action, _ in self.decode([0.3, 0.2, 0.1], [0, 0, 0], most=2)] == [2, 1]

    @given(st.permutations(range(3)), st.integers(0, 3), st.lists(st.floats(0, 1), min_size=3, max_size=3))
    def test_what_is_encoded_is_decoded(self, order: list[int], length: int, shares: list[float]) -> None:
        actions = np.array([[*order[:length], *[-1] * (3 - length)]])
        values = np.where(actions >= 0, self.FIGURE.values(actions, np.array([shares])), 0.0)
        again = decoded(encoded(Ordered(actions, values), self.FIGURE), self.FIGURE, 3)
        assert (again.actions == actions).all()
        assert again.values == pytest.approx(values, abs=1e-9)


def test_the_papers_figure_1b() -> None:
    """Hours are changed by two actions, and age by the effect of studying."""
    people = pd.DataFrame(
        {
            "age": [20, 21, 90, 90],
            "job": ["u", "v", "u", "v"],
            "edu": [1, 2, 16, 16],
            "hours": [1, 2, 80, 80],
            "location": ["here", "there", "here", "there"],
        }
    )
    of = action_model(
        people,
        [
            {"name": "work less", "feature": "hours", "low": -40, "high": 40, "effort": "1"},
            {"name": "study", "feature": "edu", "low": 0, "high": 5, "effort": "1",
             "effects": {"age": "x.age + x_cf.edu - x.edu"}},
            {"name": "move", "feature": "location", "kind": "choose", "levels": ["there"], "effort": "1"},
            {"name": "job", "feature": "job", "kind": "choose", "levels": ["v"], "effort": "1"},
            {"name": "work more", "feature": "hours", "low": -40, "high": 40, "effort": "1"},
        ],
    )  # fmt: skip
    ends = Walker(of, np.array([30.0, 0, 9, 40, 0])).walk(np.array([range(5)]), np.array([[-30.0, 4, 1, 1, 30]]))
    assert ends.valid.all()
    assert ends.often[0].tolist() == [1, 1, 1, 2, 1]
    assert ends.states[0].tolist() == [34, 1, 13, 40, 1]


def test_discounts_are_those_of_the_state_before_the_step() -> None:
    """By hand: a step moves what helps it, b from 1 to 3; its share is 1 / 4 and not 3 / 4."""
    told = {
        "actions": [choose("a", [2], effects={"b": "3"}, effort="8")],
        "relationships": [{"from": "b", "to": "a", "factor": "x.b / 4"}],
    }
    found = evaluator(told, lambda Z: Z[:, 0] > 1).evaluate(Ordered(np.array([[0]]), np.array([[2.0]])))
    assert found.cost.tolist() == [2.0]
    assert found.states[0].tolist() == [2, 3, 0, 2]


def test_features_that_nothing_helps_are_left_out_of_the_mean() -> None:
    told = {
        "actions": [choose("a", [2], effects={"b": "3"}, effort="8")],
        "relationships": [{"from": "c", "to": "a", "factor": "0.5"}, {"from": "d", "to": "a", "factor": "x.d / 8"}],
    }
    found = evaluator(told, lambda Z: Z[:, 0] > 1).evaluate(Ordered(np.array([[0]]), np.array([[2.0]])))
    assert found.cost.tolist() == [3.0]


def evaluator(told: dict[str, Any], favourable: Any, *, rounded: bool = True, most: int = 10**6) -> Evaluator:
    problem = bound(TABLE, favourable, row=tuple(ROW.values()), constraints=told)
    return Evaluator(problem, possible(problem, {}, discounts=True), Budget(most), rounded)


def choose(name: str, levels: Any = (0, 1, 2, 3), **keys: Any) -> dict[str, Any]:
    action = {"name": f"set {name}", "feature": name, "kind": "choose", "levels": list(levels)}
    return {**action, "effort": f"abs(x_cf.{name} - x.{name})", **keys}


class TestViolations:
    TOLD: dict[str, Any] = {  # noqa: RUF012
        "actions": [choose("a"), choose("b", before=["x.a > 1"]), choose("c", after=["x_cf.c < 3"])],
        "ranges": {"a": [0, 2]},
    }

    def one(self, *steps: tuple[int, float]) -> Evaluated:
        actions, values = np.full((1, 3), -1), np.zeros((1, 3))
        for place, (action, value) in enumerate(steps):
            actions[0, place], values[0, place] = action, value
        return evaluator(self.TOLD, lambda Z: Z[:, 0] >= 2).evaluate(Ordered(actions, values), all_of_them=True)

    @pytest.mark.parametrize(
        ("steps", "violations"),
        [
            ([], 2),  # nothing is done, and it is not accepted
            ([(0, 2)], 0),
            ([(0, 1)], 1),  # not accepted
            ([(0, 3)], 1),  # accepted, but out of its range
            ([(1, 3)], 2),  # its condition does not hold, and it is not accepted
            ([(0, 2), (1, 3)], 0),
            ([(0, 2), (2, 3)], 1),  # stops where it is accepted
            ([(2, 0)], 2),  # changes nothing
        ],
    )
    def test_are_counted(self, steps: list[tuple[int, float]], violations: int) -> None:
        found = self.one(*steps)
        assert found.violations.tolist() == [violations]
        broken = not steps or steps in ([(1, 3)], [(0, 2), (2, 3)], [(2, 0)])
        assert np.isinf(found.objectives).all() == broken
        assert np.isfinite(found.objectives).all() != broken

    def test_the_least_wrong_are_elite_while_nothing_is_a_plan(self) -> None:
        found = Evaluated.together([self.one((1, 3)), self.one((0, 1)), self.one(), self.one((0, 3))])
        assert found.violations.tolist() == [2, 1, 2, 1]
        assert elites(found).tolist() == [1]  # a by 1 is cheaper than by 3, and nearer
        assert not len(front(found))

    def test_all_of_the_first_front_are_elite(self) -> None:
        found = Evaluated.together([self.one((0, 2)), self.one((0, 2), (1, 3)), self.one((0, 2)), self.one((0, 1))])
        assert elites(found).tolist() == [0, 2]
        assert len(front(found)) == 1


def test_objectives_are_rounded_only_if_wanted() -> None:
    told = {"actions": [choose("a", effort="abs(x_cf.a - x.a) / 7")]}
    sequence = Ordered(np.array([[0]]), np.array([[1.0]]))
    rounded = evaluator(told, lambda Z: Z[:, 0] > 0).evaluate(sequence)
    exact = evaluator(told, lambda Z: Z[:, 0] > 0, rounded=False).evaluate(sequence)
    assert rounded.objectives[0, :2] == pytest.approx([0.1429, 0.08], abs=1e-12)
    assert exact.objectives[0, :2] == pytest.approx([1 / 7, 1 / 12], abs=1e-12)


def ahead(costs: np.ndarray[Any, Any], plans: Any, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return cost, Gower's distance, and how often each feature changes, of plans without Gower's rounding."""
    start = np.array(list(ROW.values()), dtype=float)
    often = []
    for plan in plans:
        states = np.array([start, *[step.row for step in plan]])
        often.append((np.diff(states, axis=0) != 0).sum(axis=0))
    return np.column_stack([costs, (np.abs(rows - start) / 3).mean(axis=1), np.array(often)])


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.integers(3, 4))
def test_fronts_are_fronts(seed: int, count: int) -> None:
    rng = Random(seed)
    told, weights = random_told(rng, count), np.array([rng.randint(0, 2) for _ in NAMES])
    explainer = replace(SMALL, round_objectives=False)
    problem = bound(TABLE, lambda Z: Z @ weights >= 5, row=tuple(ROW.values()), constraints=told)
    found = explainer.search(problem, Budget(10**6), np.random.default_rng(0))
    if not len(found.rows):
        return
    assert found.plans is not None
    assert found.costs is not None
    objectives = ahead(found.costs, found.plans, found.rows)
    lengths = [len(plan) for plan in found.plans]
    changed = (found.rows != np.array(list(ROW.values()))).sum(axis=1)
    short = moocore.is_nondominated(np.column_stack([found.costs.round(9), lengths, changed]))
    assert (moocore.is_nondominated(objectives.round(9)) | short).all()  # of equal ones the first alone
    assert len(np.unique(found.rows, axis=0)) == len(found.rows)
    order = np.lexsort((lengths, objectives[:, 1].round(9), objectives[:, 0].round(9)))
    assert (order == np.arange(len(order))).all()
    known = [(cost, end) for _, cost, end in sequences(told, ROW, 2) if set(end.values()) <= set(range(4))]
    best = min((cost for cost, end in known if np.dot(list(end.values()), weights) >= 5), default=np.inf)
    assert found.costs[0] <= best + 2e-4  # efforts are rounded there


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(3, 4), st.integers(1, 3), st.sampled_from([CSCF, SCF]))
def test_no_sequence_of_so_many_steps_is_cheaper(seed: int, count: int, most: int, method: Any) -> None:
    rng = Random(seed)
    told = random_told(rng, count)
    weights = np.array([rng.randint(0, 2) for _ in NAMES]) + np.eye(4)[rng.randint(0, count - 1)]
    least = np.dot(list(ROW.values()), weights) + rng.randint(1, 3)  # the row itself is never accepted
    accepts = accepting(weights, least)
    row = pd.DataFrame([ROW])
    limit = rng.choice([{}, {"max_changes": 2}, {"immutable": ["d"]}])
    explained = mlflow_cf.wrap(accepts, TABLE, target=1, output="label", constraints={**told, **limit})
    explainer = method(**SIZES, max_steps=most)
    (answer,) = explained.explain(row, explainer=explainer, seed=0, count=3)
    if method is SCF:
        told["relationships"] = []
    fixed = limit.get("immutable", [])
    told["actions"] = [
        action for action in told["actions"] if not {action["feature"], *action.get("effects", {})} & set(fixed)
    ]

    def plan(end: dict[str, Any]) -> bool:
        known = set(end.values()) <= set(range(4))
        changed = sum(end[name] != ROW[name] for name in NAMES)
        return known and changed <= limit.get("max_changes", 4) and np.dot(list(end.values()), weights) >= least

    best = min((cost for _, cost, end in sequences(told, ROW, most) if plan(end)), default=None)
    if best is None:
        assert not answer.counterfactuals
        return
    assert answer.status == "found"
    costs = answer.diagnostics["costs"]
    assert costs[0] == pytest.approx(best, abs=1e-9)
    for found, cost in zip(answer.counterfactuals, costs, strict=True):
        assert len(found.plan) <= most
        assert check_plan(told, ROW, found.plan, cost) == found.row
        assert plan(found.row)


def small_world(seed: int, count: int) -> tuple[dict[str, Any], Any, Any]:
    """Return actions, a model that does not accept the row, and whether an end is a plan's."""
    rng = Random(seed)
    told = random_told(rng, count)
    weights = np.array([rng.randint(0, 2) for _ in NAMES]) + np.eye(4)[rng.randint(0, count - 1)]
    least = min(np.dot(list(ROW.values()), weights) + rng.randint(1, 3), 3 * weights.sum())

    def plan(end: dict[str, Any]) -> bool:
        return set(end.values()) <= set(range(4)) and bool(np.dot(list(end.values()), weights) >= least)

    return told, accepting(weights, least), plan


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(3, 4))
def test_the_cheapest_plan_of_few_steps_is_among_the_answers(seed: int, count: int) -> None:
    """Unless a longer one is cheaper and ends at the same row, which no two answers do."""
    told, accepts, plan = small_world(seed, count)
    explained = mlflow_cf.wrap(accepts, TABLE, target=1, output="label", constraints=told)
    (answer,) = explained.explain(pd.DataFrame([ROW]), explainer=SMALL, seed=0, count=count)
    known = [(length, cost, tuple(end.values())) for length, cost, end in sequences(told, ROW, 3) if plan(end)]
    cheapest = dict[Any, float]()
    for _, cost, end in known:
        cheapest[end] = min(cost, cheapest.get(end, np.inf))
    found = [(len(cf.plan), cost) for cf, cost in zip(answer.counterfactuals, told_costs(answer), strict=True)]
    for most in (1, 2, 3):
        best = min((cost for length, cost, end in known if length <= most and cost <= cheapest[end]), default=np.inf)
        assert min((cost for length, cost in found if length <= most), default=np.inf) <= best + 1e-9


def told_costs(answer: mlflow_cf.Explanation) -> list[float]:
    costs: list[float] = answer.diagnostics.get("costs", [])
    return costs


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(3, 4))
def test_of_few_steps_every_order_is_tried(seed: int, count: int) -> None:
    rng = Random(seed)
    told = random_told(rng, count)
    several = evaluator(told, lambda Z: Z.sum(axis=1) >= 0, most=10**7)
    number = len(several.possible)
    if not number:
        return
    order = rng.sample(range(number), number)
    choices = [several.possible.actions[at].choices for at in order]
    tweaks = [float(rng.choice(some.tolist())) for some in choices if some is not None]
    plan = several.evaluate(Ordered(np.array([order]), np.array([tweaks])))
    costs = [plan.worth[0]]
    for way in permutations(range(number)):
        tried = Ordered(np.array([order])[:, way], np.array([tweaks])[:, way])
        costs.append(several.evaluate(tried).worth[0])
    cheaper = reordered(several, plan)
    assert len(cheaper) == (min(costs) < plan.worth[0])
    assert cheaper.worth.tolist() == [min(costs)][: len(cheaper)]


def test_of_many_steps_what_helps_comes_before_what_it_helps() -> None:
    table = pd.DataFrame({name: [0, 1, 3] for name in "abcdef"})
    helps = [{"from": of, "to": to, "factor": f"1 - x.{of} / 4"} for of, to in zip("abcde", "bcdef", strict=True)]
    told = {"actions": [choose(name, [3]) for name in "abcdef"], "relationships": helps}
    problem = bound(table, lambda Z: Z.sum(axis=1) > 17, row=(0,) * 6, constraints=told)
    several = Evaluator(problem, possible(problem, {}, discounts=True), Budget(10**6), rounded=True)
    dearest = several.evaluate(Ordered(np.array([[5, 4, 3, 2, 1, 0]]), np.full((1, 6), 3.0)))
    cheaper = reordered(several, dearest)
    assert dearest.cost.tolist() == [18.0]
    assert cheaper.sequences.actions.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert cheaper.cost.tolist() == [3 + 5 * 0.75]


def test_orders_are_tried_only_where_they_matter_and_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at either, thirty features without declared actions took minutes."""
    table = pd.DataFrame({name: [0, 1, 3] for name in "abcdef"})
    steps = Ordered(np.array([[5, 4, 3, 2, 1, 0]]), np.full((1, 6), 3.0))
    for helps in ([], [{"from": "a", "to": "b", "factor": "1 - x.a / 4"}]):
        actions = [{key: said for key, said in choose(name, [3]).items() if key != "effort"} for name in "abcdef"]
        told = {"actions": actions, "relationships": helps}
        problem = bound(table, lambda Z: Z.sum(axis=1) > 17, row=(0,) * 6, constraints=told)
        several = Evaluator(problem, possible(problem, {}, discounts=True), Budget(10**6), rounded=True)
        plan = several.evaluate(steps)
        walked: list[int] = []
        walk = several.walker.walk
        several.walker = SimpleNamespace(walk=lambda *way, walk=walk, walked=walked: walked.append(1) or walk(*way))
        assert len(reordered(several, plan)) == bool(helps)
        assert bool(walked) == bool(helps)
        walked.clear()
        monkeypatch.setattr(Evaluator, "cut", True)
        assert len(reordered(several, plan)) == 0
        assert not walked
        monkeypatch.undo()


def test_values_are_refined_a_few_plans_at_a_time_until_the_clock_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 300 columns, what nobody reached any more was written out as rows, some .1 s past the clock."""
    table = pd.DataFrame({"a": [0.0, 10.5], "b": [0.0, 10.5]})
    problem = bound(table, lambda Z: Z.sum(axis=1) > 6, row=(0, 0), values="continuous")
    steps = Ordered(np.array([[0, 1]] * 5), np.linspace(8, 10, 10).reshape(5, 2))

    def refined(at_once: int, rounds: int) -> tuple[Evaluated, list[int]]:
        evaluator, sizes = Evaluator(problem, possible(problem, {}, discounts=True), Budget(10**6), rounded=False), []
        plans, evaluate = evaluator.evaluate(steps), evaluator.evaluate
        monkeypatch.setattr(Evaluator, "at_once", at_once)
        monkeypatch.setattr(Evaluator, "cut", property(lambda _: len(sizes) >= rounds))
        monkeypatch.setattr(evaluator, "evaluate", lambda tried: sizes.append(len(tried)) or evaluate(tried))
        return Refining(evaluator, np.random.default_rng(0)).run(plans, any_distance=True), sizes

    whole, sizes = refined(10**6, 3)
    assert sizes == [5 * TRIES] * 3
    parts, sizes = refined(2 * TRIES, 9)
    assert sizes == [2 * TRIES, 2 * TRIES, TRIES] * 3
    np.testing.assert_array_equal(parts.sequences.values, whole.sequences.values)
    begun, sizes = refined(2 * TRIES, 2)
    assert sizes == [2 * TRIES] * 2
    assert (begun.sequences.values[:4] != steps.values[:4]).any()
    np.testing.assert_array_equal(begun.sequences.values[4], steps.values[4])


def test_answers_stand_in_their_cheapest_order() -> None:
    """Two generations of a few genes find such plans by chance; refinement alone moves values."""
    table = pd.DataFrame({name: [0, 1, 3] for name in "abcdef"})
    helps = [{"from": of, "to": to, "factor": f"1 - x.{of} / 4"} for of, to in zip("abcde", "bcdef", strict=True)]
    told = {"actions": [choose(name, [3]) for name in "abcdef"], "relationships": helps}
    explained = mlflow_cf.wrap(
        lambda X: (X.sum(axis=1) > 17).astype(int).to_numpy(),
        pd.concat([table, pd.DataFrame({name: [3] for name in "abcdef"})]),
        target=1, output="label", constraints=told,
    )  # fmt: skip
    (answer,) = explained.explain(table[:1], explainer=SMALL, seed=0)
    assert [step.action for step in answer.counterfactuals[0].plan] == [f"set {name}" for name in "abcdef"]


class TestPicks:
    TOLD: dict[str, Any] = {  # noqa: RUF012
        "actions": [choose("a"), choose("b", effort="2"), choose("c", effort="3"), choose("d", effort="9")]
    }

    def test_diverse_plans_are_those_that_differ_most(self) -> None:
        objectives = np.array(
            [[1, 0, 1, 0, 0], [2, 0, 2, 1, 0], [3, 0, 0, 1, 1], [4, 0, 0, 1, 2], [5, 0, 0, 0, 1]], dtype=float
        )
        none, flags = Ordered(np.zeros((5, 1), dtype=np.int64), np.zeros((5, 1))), np.zeros(5)
        plans = Evaluated(none, np.zeros((5, 3)), objectives, flags.astype(np.int64), flags)
        assert diverse(plans).tolist() == [0, 2, 1, 4, 3]

    def test_answers_stay_in_that_order(self) -> None:
        explained = mlflow_cf.wrap(
            lambda X: (X["a"] + X["b"] + X["c"] + X["d"] >= 5).astype(int).to_numpy(), TABLE, target=1,
            output="label", constraints=self.TOLD,
        )  # fmt: skip
        told = {}
        for pick in ("cheapest", "diverse"):
            (answer,) = explained.explain(pd.DataFrame([ROW]), count=4, explainer=CSCF(**SIZES, pick=pick), seed=0)
            sets = [{change.feature for change in found.changes} for found in answer.counterfactuals]
            told[pick] = answer.diagnostics["costs"], sets
            costs = [sum(step.effort * step.discount for step in found.plan) for found in answer.counterfactuals]
            assert costs == pytest.approx(told[pick][0])
        assert told["cheapest"][0] == sorted(told["cheapest"][0])
        assert told["diverse"][0][0] == told["cheapest"][0][0]
        first, second = told["diverse"][1][:2]
        assert not first & second


def test_many_objectives_and_features_that_nobody_changes() -> None:
    rng = np.random.default_rng(0)
    worth = rng.integers(0, 3, (40, 6)).astype(float)
    worth[rng.random(40) < 0.2] = np.inf
    expected = [not any((other <= one).all() and (other < one).any() for other in worth) for one in worth]
    padded = np.column_stack([worth, np.zeros((40, 300))])
    assert unbeaten(padded, keep_weakly=True).tolist() == expected
    assert unbeaten(rng.random((5, 300))).any()


def test_plans_are_handed_over_in_a_number_that_can_be_told() -> None:
    states = np.array([[float(at), 0.0] for at in range(1, 500)])
    problem = SimpleNamespace(count=1, changed=lambda Z: Z != 0)
    assert _handed_over(problem, states).tolist() == list(range(PLANS))
    states[400] = (0.0, 1.0)
    assert _handed_over(problem, states).tolist() == [*range(PLANS), 400]


def test_rows_of_very_many_features_have_plans() -> None:
    """More objectives than are compared at once end no search."""
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 260)), columns=[f"c{at}" for at in range(260)])
    model = LogisticRegression().fit(wide, wide["c0"] > 0)
    model.coef_[:, 1:] = 0.0
    explained = mlflow_cf.wrap(model, wide, target=True, explainer=CSCF(generations=1), values="continuous")
    rows = wide[~model.predict(wide)].head(1)
    (answer,) = explained.explain(rows, max_evaluations=40_000)
    assert answer.status == "found", answer.reason
