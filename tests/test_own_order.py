"""Candidates with costs and plans: how they are ordered, verified and told."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import Candidates, PlannedStep
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.words.changes import Change, Step
from mlflow_cf.wrapping import assemble

FRAME = pd.DataFrame({"a": range(10), "b": range(0, 100, 10), "c": list("xyzxyzxyzx")})
QUERY = FRAME.iloc[[0]]
Codes = tuple[float, float, float]


def decide(rows: pd.DataFrame) -> np.ndarray:
    return ((rows["a"] >= 3) | (rows["b"] >= 40)).to_numpy().astype(int)


@dataclass(frozen=True)
class Ranked:
    """Hands over what it is told to, in its own order."""

    rows: tuple[Codes, ...]
    costs: tuple[float, ...] | None = None
    keeps_order: bool = True
    polish: bool = False
    planned: bool = False
    spoiled: dict[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "ranked"

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        del budget, rng
        rows = np.array(self.rows, dtype=np.float64)
        costs = None if self.costs is None else np.array(self.costs)
        plans = tuple(steps(problem.x0, row) for row in rows) if self.planned else None
        return replace(Candidates(rows, plans=plans, costs=costs), **self.spoiled)


def steps(x0: np.ndarray, row: np.ndarray) -> tuple[PlannedStep, ...]:
    """Return one step per changed column."""
    plan, at = [], x0
    for column in np.flatnonzero(x0 != row):
        at = np.where(np.arange(len(row)) == column, row, at)
        plan.append(PlannedStep(f"set {'abc'[column]}", 2.0, 0.5, at))
    return tuple(plan)


def wrapped(explainer: Ranked, **options: Any) -> ExplainedModel:
    return assemble(OpenModel("test", (0, 1), decide), FRAME, None, WrapOptions(explainer=explainer, **options))


def answers(explainer: Ranked, count: int = 10, **options: Any) -> list[Codes]:
    (found,) = wrapped(explainer, **options).explain(QUERY, count=count)
    return [(cf.row["a"], cf.row["b"], "xyz".index(cf.row["c"])) for cf in found.counterfactuals]


FAR, NEAR, BOTH, REFUSED = (9, 0, 0), (3, 0, 0), (3, 40, 0), (1, 0, 0)


class TestOrder:
    def test_distance_orders_those_that_do_not_say_otherwise(self) -> None:
        assert answers(Ranked((FAR, NEAR), keeps_order=False)) == [NEAR, FAR]

    def test_costs_alone_change_nothing(self) -> None:
        assert answers(Ranked((FAR, NEAR), costs=(1, 2), keeps_order=False)) == [NEAR, FAR]

    def test_its_own_order_is_that_of_its_rows(self) -> None:
        assert answers(Ranked((FAR, NEAR))) == [FAR, NEAR]

    def test_or_that_of_its_costs(self) -> None:
        assert answers(Ranked((FAR, NEAR, (4, 0, 0)), costs=(2, 2, 1))) == [(4, 0, 0), FAR, NEAR]

    def test_distinct_changed_sets_first(self) -> None:
        assert answers(Ranked((FAR, NEAR, BOTH))) == [FAR, BOTH, NEAR]
        assert answers(Ranked((FAR, NEAR, BOTH)), count=2) == [FAR, BOTH]

    def test_the_next_of_a_set_takes_the_place_of_one_that_is_refused(self) -> None:
        assert answers(Ranked((REFUSED, FAR, BOTH)), count=1) == [FAR]

    def test_also_where_other_sets_fill_the_first_batch(self) -> None:
        others = ((0, 40, 0), (0, 50, 1), (3, 40, 0), (3, 40, 1), (3, 0, 1))
        rows = (*((1, 0, 0),) * 40, FAR, *others)
        assert answers(Ranked(rows), count=1) == [FAR]
        assert answers(Ranked(rows), count=3) == [FAR, *others[:2]]

    def test_polished_rows_keep_their_place(self) -> None:
        assert answers(Ranked(((9, 0, 1), (0, 90, 1), NEAR), polish=True)) == [FAR, (0, 90, 0), NEAR]

    def test_no_certificate_replaces_them(self) -> None:
        (found,) = wrapped(Ranked((FAR, NEAR))).explain(QUERY, certify=True)
        assert found.reason == "not certified: the explainer ranks its answers in another way than by distance"
        assert found.counterfactuals[0].row["a"] == 9

    @given(
        st.lists(
            st.tuples(st.integers(0, 9), st.sampled_from(range(0, 100, 10)), st.integers(0, 2)), min_size=1, max_size=80
        ),
        st.integers(1, 6),
        st.data(),
    )
    def test_as_the_definition_says(self, rows: list[Codes], count: int, data: st.DataObject) -> None:
        costs = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
        ordered = [row for _, _, row in sorted((cost, number, rows[number]) for number, cost in enumerate(costs))]
        good = list(dict.fromkeys(row for row in ordered if row[0] >= 3 or row[1] >= 40))
        sets: dict[tuple[bool, ...], Codes] = {}
        for row in good:
            sets.setdefault(tuple(value != 0 for value in row), row)
        leaders = list(sets.values())
        expected = (leaders + [row for row in good if row not in leaders])[:count]
        assert answers(Ranked(tuple(rows), costs=tuple(costs)), count=count) == expected


class TestPlans:
    def test_they_reach_the_answer(self) -> None:
        (found,) = wrapped(Ranked((BOTH, NEAR), costs=(2, 1), planned=True)).explain(QUERY, count=2)
        near, both = found.counterfactuals
        row = {"a": 3, "b": 0, "c": "x"}
        assert near.plan == (Step(1, "set a", 2.0, 0.5, row, changes=(Change("a", 0, 3),)),)
        assert [step.row["b"] for step in both.plan] == [0, 40]
        assert both.to_dict()["plan"][1] == {
            "step": 2,
            "action": "set b",
            "changes": [{"feature": "b", "from": "0", "to": "40"}],
            "effort": 2.0,
            "discount": 0.5,
            "probability": None,
            "row": {"a": 3, "b": 40, "c": "x"},
        }
        assert found.diagnostics["costs"] == [1, 2]

    def test_what_has_a_plan_is_not_polished(self) -> None:
        (found,) = wrapped(Ranked((BOTH,), planned=True, polish=True)).explain(QUERY)
        assert [(cf.row["a"], cf.row["b"], len(cf.plan)) for cf in found.counterfactuals] == [(3, 40, 2)]

    def test_others_have_none(self) -> None:
        (found,) = wrapped(Ranked((NEAR,))).explain(QUERY)
        assert found.counterfactuals[0].to_dict()["plan"] == []
        assert "costs" not in found.diagnostics

    @pytest.mark.parametrize(
        "spoiled",
        [
            {"plans": ()},
            {"plans": ((),)},
            {"plans": ((PlannedStep("stop short", 1, 1, np.array([2.0, 0, 0])),),)},
            {
                "plans": (
                    (
                        PlannedStep("to no row", 1, 1, np.array([2.5, 0, 0])),
                        PlannedStep("set a", 1, 1, np.array([3.0, 0, 0])),
                    ),
                )
            },
            {"costs": np.array([1.0, 2.0])},
            {"costs": np.array([np.nan])},
        ],
        ids=str,
    )
    def test_what_does_not_fit_its_rows_ends_the_row_alone(self, spoiled: dict[str, Any]) -> None:
        (found,) = wrapped(Ranked((NEAR,), spoiled=spoiled)).explain(QUERY)
        assert (found.status, found.reason) == ("invalid", "the explanation failed (ValueError)")

    @pytest.mark.parametrize(
        ("effort", "discount"), [(-1, 1), (np.nan, 1), (np.inf, 1), (1, 1.1), (1, -0.1), (1, np.nan)]
    )
    def test_impossible_steps(self, effort: float, discount: float) -> None:
        with pytest.raises(ValueError, match="effort"):
            PlannedStep("anything", effort, discount, np.zeros(3))
