"""CSCF in requests: seeds, budgets, rows and models of all kinds, what is dropped, and plans that are refused."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from plan_worlds import TABLE, check_plan
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf import CSCF
from mlflow_cf.explainers import Candidates
from mlflow_cf.plans.plan import Plan
from mlflow_cf.plans.walk import Walker
from mlflow_cf.problem import Budget, Problem

SIZES: dict[str, Any] = {"population": 30, "offspring": 20, "mutants": 10, "generations": 6}
SMALL = CSCF(**SIZES)
START = {"a": 0, "b": 1, "c": 0, "d": 2}
ROW = pd.DataFrame([START])


def choose(name: str, levels: Any = (0, 1, 2, 3), **keys: Any) -> dict[str, Any]:
    action = {"name": f"set {name}", "feature": name, "kind": "choose", "levels": list(levels)}
    return {**action, "effort": f"abs(x_cf.{name} - x.{name})", **keys}


def change(name: str, low: float = -3, high: float = 3, **keys: Any) -> dict[str, Any]:
    action = {"name": f"change {name}", "feature": name, "kind": "change", "low": low, "high": high}
    return {**action, "effort": f"abs(x_cf.{name} - x.{name})", **keys}


TOLD: dict[str, Any] = {
    "actions": [choose("a"), choose("b", before=["x.a > 0"]), choose("c")],
    "relationships": [{"from": "a", "to": "b", "factor": "1 - x.a / 6"}],
}


def accepts(X: pd.DataFrame) -> np.ndarray[Any, Any]:
    return (X[["a", "b", "c"]].sum(axis=1) >= 5).to_numpy().astype(int)


def wrapped(told: Any = TOLD, model: Any = accepts, data: pd.DataFrame = TABLE, **options: Any) -> Any:
    return mlflow_cf.wrap(
        model, data, constraints=told, **{"target": 1, "output": "label", "explainer": SMALL, **options}
    )


def test_a_seed_gives_one_answer() -> None:
    explained = wrapped()
    first, again = (explained.explain(ROW, seed=3, count=3)[0].to_dict() for _ in range(2))
    assert first == again
    assert first["status"] == "found"


def test_a_budget_that_ends_is_told() -> None:
    (answer,) = wrapped().explain(ROW, seed=0, max_evaluations=1)
    assert answer.status == "budget"
    (answer,) = wrapped().explain(ROW, seed=0, max_evaluations=40, count=2)
    assert answer.evaluations <= 40
    assert answer.status in ("budget", "found")


def test_no_time_is_a_status() -> None:
    (answer,) = wrapped().explain(ROW, seed=0, time_limit_s=1e-9)
    assert answer.status == "budget"
    assert answer.prediction == 0


def test_every_answer_holds_when_it_is_followed_by_its_texts() -> None:
    told = {**TOLD, "actions": [change("a"), change("b", effects={"c": "x.c + 1"}), change("c", before=["x.c < 2"])]}
    (answer,) = wrapped(told, values="continuous").explain(ROW, seed=0, count=4)
    costs = answer.diagnostics["costs"]
    assert costs == sorted(costs)
    for found, cost in zip(answer.counterfactuals, costs, strict=True):
        assert check_plan(told, START, found.plan, cost) == found.row
        assert accepts(pd.DataFrame([found.row]))[0] == 1


def test_what_is_dropped_is_told() -> None:
    told = {
        "actions": [
            choose("a"),
            choose("b"),
            choose("c", effects={"d": "x.d"}),
            {**choose("a", [0]), "name": "stay"},
            {**change("c", 5, 9), "name": "too much"},
        ],
        "immutable": ["b", "d"],
        "ranges": {"a": [0, 3]},
    }
    (answer,) = wrapped(told, lambda X: (X["a"] >= 2).to_numpy().astype(int), values="grid").explain(ROW, seed=0)
    assert answer.diagnostics["dropped"]["set b"] == "b cannot change"
    assert answer.diagnostics["dropped"]["set c"] == "d cannot change"
    assert answer.diagnostics["dropped"]["stay"] == "a is that already"
    (alone,) = wrapped(
        {"actions": [choose("a"), change("c", 5, 9)]}, lambda X: (X["a"] >= 2).to_numpy().astype(int), values="grid"
    ).explain(ROW, seed=0)
    assert alone.diagnostics["dropped"] == {"change c": "no value of c is left"}


def test_where_all_is_dropped_there_is_no_plan() -> None:
    (answer,) = wrapped({"actions": [choose("a", [0])]}).explain(ROW, seed=0)
    assert answer.status == "not_found"
    assert answer.diagnostics["dropped"] == {"set a": "a is that already"}


def test_without_actions_every_mutable_feature_has_one() -> None:
    distance = mlflow_cf.Distance(0.5, 0.5, 0.0, weights={"a": 3})
    (answer,) = wrapped({"immutable": ["b"]}, distance=distance, values="grid").explain(ROW, seed=0)
    assert answer.diagnostics["actions"] == ["change a", "change c", "change d"]
    efforts = {step.action: step.effort for step in answer.counterfactuals[0].plan}
    assert efforts["change c"] / answer.counterfactuals[0].row["c"] == pytest.approx(1 / 3, abs=1e-4)
    assert efforts["change a"] / answer.counterfactuals[0].row["a"] == pytest.approx(
        3 * efforts["change c"] / answer.counterfactuals[0].row["c"], abs=1e-3
    )


def test_scf_knows_no_discounts() -> None:
    explained = wrapped()
    (with_help,) = explained.explain(ROW, seed=0)
    (without,) = explained.explain(ROW, seed=0, explainer=mlflow_cf.SCF(**SIZES))
    assert {step.discount for found in without.counterfactuals for step in found.plan} == {1.0}
    assert without.diagnostics["costs"][0] > with_help.diagnostics["costs"][0]


def test_no_plan_leads_there() -> None:
    (answer,) = wrapped(model=lambda X: (X["d"] > 2).to_numpy().astype(int)).explain(ROW, seed=0)
    assert answer.status in ("not_found", "infeasible")
    assert answer.counterfactuals == ()


def test_missing_values_and_levels_of_no_data() -> None:
    data = TABLE.assign(e=np.where(TABLE["d"] == 0, np.nan, TABLE["d"] * 1.0), town=np.tile(["u", "v"], 128))
    rows = pd.DataFrame([{**START, "e": np.nan, "town": "elsewhere"}])
    told = {"actions": [*TOLD["actions"], {**change("e", 0, 3), "kind": "set"}]}
    (answer,) = wrapped(told, data=data, values="continuous").explain(rows, seed=0)
    assert answer.status == "found"
    for step in answer.counterfactuals[0].plan:
        assert step.row["town"] == "elsewhere"
        assert step.row["e"] is None


def test_observed_values_suit_choices_and_warn_of_the_rest() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wrapped().explain(ROW, seed=0)[0].status == "found"
    with pytest.warns(UserWarning, match="values='observed' leaves cscf few plans") as told:
        wrapped({"actions": [change("a"), change("c")]})
    assert len(told) == 1


@dataclass(frozen=True)
class Spoiling:
    """Hands over one plan of CSCF's that was spoilt."""

    spoil: Callable[[Plan], Plan]
    name: ClassVar[str] = "spoiling"
    polish: ClassVar[bool] = False

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Search as CSCF does."""
        found = SMALL.search(problem, budget, rng)
        assert found.plans is not None
        at = next(at for at, plan in enumerate(found.plans) if len(plan) == 2)
        plan = self.spoil(found.plans[at])
        return Candidates(plan[-1].row[None], plans=(plan,), action_model=found.action_model)


@pytest.mark.parametrize(
    ("spoil", "holds"),
    [
        (lambda plan: plan, True),
        (lambda plan: (replace(plan[0], effort=plan[0].effort + 1), plan[1]), False),
        (lambda plan: (plan[0], replace(plan[1], discount=plan[1].discount / 2)), False),
        (lambda plan: (replace(plan[0], row=plan[0].row + np.eye(4)[3]), plan[1]), False),
        (lambda plan: (replace(plan[0], action="wish"), plan[1]), False),
        (lambda plan: (plan[0], replace(plan[1], action=plan[0].action)), False),
        (lambda plan: plan[1:], False),
    ],
)
def test_plans_of_others_are_followed(spoil: Callable[[Plan], Plan], *, holds: bool) -> None:
    (answer,) = wrapped(explainer=Spoiling(spoil)).explain(ROW, seed=0)
    assert answer.prediction == 0
    assert answer.status == ("found" if holds else "invalid")
    assert len(answer.counterfactuals) == holds


def test_a_plan_that_is_refused_ends_no_other_row() -> None:
    explained = wrapped(explainer=Spoiling(lambda plan: plan[1:]))
    rows = pd.DataFrame([START, {"a": 3, "b": 3, "c": 3, "d": 0}])
    for certify in (False, True):
        answers = explained.explain(rows, seed=0, certify=certify)
        assert [(answer.prediction, answer.status) for answer in answers] == [(0, "invalid"), (1, "already")]
    assert explained.predict(rows)["prediction"].tolist() == [0, 1]


@dataclass(frozen=True)
class Handing:
    """Hands over one plan of the policy's actions, by their numbers and values, and asks no model."""

    actions: tuple[int, ...]
    values: tuple[float, ...]
    name: ClassVar[str] = "handing"
    polish: ClassVar[bool] = False

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Return the plan."""
        del budget, rng
        assert problem.action_model is not None
        plan = Walker(problem.action_model, problem.x0).plan(np.array(self.actions), np.array(self.values))
        return Candidates(plan[-1].row[None], plans=(plan,), action_model=problem.action_model)


ROWS = pd.DataFrame([START, {**START, "d": 3}])


class TestProbabilities:
    def test_are_the_models_own(self) -> None:
        model = LogisticRegression().fit(TABLE, accepts(TABLE))
        explained = mlflow_cf.wrap(model, TABLE, target=1, constraints=TOLD, explainer=SMALL)
        several = 0
        for answer in explained.explain(ROWS, seed=0, count=3):
            for found in answer.counterfactuals:
                rows = pd.DataFrame([step.row for step in found.plan])[list(TABLE)]
                likely = [step.probability for step in found.plan]
                assert likely == pytest.approx(model.predict_proba(rows)[:, 1].tolist(), abs=1e-9)
                assert likely[-1] == found.probability
                several += len(likely) > 1
        assert several

    def test_are_none_for_a_model_of_labels(self) -> None:
        (answer,) = wrapped().explain(ROW, seed=0)
        assert [step.probability for step in answer.counterfactuals[0].plan] == [None, None]

    def test_take_one_call_more_for_all_rows(self) -> None:
        calls = []

        def watched(X: pd.DataFrame) -> np.ndarray[Any, Any]:
            calls.append(X.reset_index(drop=True))
            return accepts(X)

        answers = wrapped(model=watched).explain(ROWS, seed=0)
        between = [step.row for one in answers for found in one.counterfactuals for step in found.plan[:-1]]
        assert len(between) >= 2
        pd.testing.assert_frame_equal(calls[-1], pd.DataFrame(between)[list(TABLE)], check_dtype=False)

    def test_a_model_that_fails_on_the_way_leaves_the_answer(self) -> None:
        told = {"actions": [choose("a", [1, 2, 3], effects={"d": "9"}), choose("d", [1], before=["x.d > 3"])]}

        def fragile(X: pd.DataFrame) -> np.ndarray[Any, Any]:
            if (X["d"] > 3).any():
                raise ValueError("no such d")
            return ((X["a"] >= 2) * 0.8).to_numpy()

        explained = wrapped(told, fragile, output="score", explainer=Handing((0, 1), (2.0, 1.0)))
        (answer,) = explained.explain(ROW, seed=0)
        assert answer.status == "found"
        (found,) = answer.counterfactuals
        assert [step.probability for step in found.plan] == [None, found.probability]
