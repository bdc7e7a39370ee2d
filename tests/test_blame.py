"""Why nothing exists: the constraints named, as few as possible, and never without a proof."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlflow_cf.constraints.rules import Rule
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.problem import Group, Problem
from mlflow_cf.why_not import blame
from mlflow_cf.words.result import Explanation
from mlflow_cf.wrapping import assemble

FRAME = pd.DataFrame(
    {
        "age": [20, 25, 30, 35, 40],
        "income": [1.0, 2.0, np.nan, 4.0, 5.0],
        "degree": ["none", "bachelor", "master", "master", "none"],
        "rooms": [1, 2, 3, 4, 5],
    }
)
X = {"age": 30, "income": 2.0, "degree": "bachelor", "rooms": 3}


def wrapped(constraints: Any, good: Any = None, **options: Any) -> ExplainedModel:
    def decide(rows: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(rows), dtype=int) if good is None else np.asarray(good(rows)).astype(int)

    return assemble(
        OpenModel("test", (0, 1), decide), FRAME, None, WrapOptions(target=1, constraints=constraints, **options)
    )


def explain(constraints: Any, request: Any = None, **x: Any) -> Explanation:
    (found,) = wrapped(constraints).explain(pd.DataFrame([{**X, **x}]), constraints=request)
    return found


def reason(constraints: Any, request: Any = None, **x: Any) -> str:
    found = explain(constraints, request, **x)
    assert found.status == "infeasible"
    assert found.counterfactuals == ()
    return found.reason


class TestOneGroup:
    @pytest.mark.parametrize(
        ("constraints", "expected"),
        [
            ({"rules": ["x_cf.age <= 19"]}, "age must change, but constraints.rules[0] leaves no value for it"),
            ({"ranges": {"age": [41, 60]}}, "age must change, but constraints.ranges.age leaves no value for it"),
            (
                {"rules": ["x_cf.age <= 25", "x_cf.age >= 35"]},
                "age must change, but constraints.rules[0] and constraints.rules[1] leave no value for it",
            ),
            (
                {"immutable": ["age"], "ranges": {"age": [35, None]}},
                "age must change, but constraints.immutable.age and constraints.ranges.age leave no value for it",
            ),
            (
                {"increasing": ["age"], "levels": {"age": [20, 25]}},
                "age must change, but constraints.increasing.age and constraints.levels.age leave no value for it",
            ),
            (
                {"forbidden": {"age": [[30, 35]]}, "rules": ["x_cf.age = 35"]},
                "age must change, but constraints.forbidden.age[0] and constraints.rules[0] leave no value for it",
            ),
            ({"rules": ["x_cf.age / 0 = 1"]}, "age must change, but constraints.rules[0] leaves no value for it"),
        ],
        ids=str,
    )
    def test_the_fewest_are_named(self, constraints: Any, expected: str) -> None:
        assert reason(constraints) == expected

    def test_bystanders_are_not_named(self) -> None:
        rules = ["x_cf.age != 20", "x_cf.age <= 25", "x_cf.age != 40", "x_cf.age >= 35"]
        assert reason({"rules": rules, "increasing": ["rooms"]}) == (
            "age must change, but constraints.rules[1] and constraints.rules[3] leave no value for it"
        )

    def test_three_that_only_together_leave_nothing(self) -> None:
        rules = ["x_cf.degree != 'none'", "x_cf.degree != 'bachelor'", "x_cf.degree != 'master'"]
        found = reason({"rules": rules})
        assert found == "degree must change, but 3 of constraints.rules ([0], [1], [2]) leave no value for it"

    def test_groups_are_named_whole(self) -> None:
        found = reason({"groups": [["age", "rooms"]], "rules": ["x_cf.age + x_cf.rooms < 20"]})
        assert found == "age and rooms must change, but constraints.rules[0] leaves no value for it"

    def test_missing_parts_are_never_a_way_out(self) -> None:
        """income has 1, 2, 4, 5 and missing in the background; only missing would suit."""
        found = reason({"rules": ["IF x_cf.income > 0 THEN 1 = 2"]})
        assert found == "income must change, but constraints.rules[0] leaves no value for it"
        assert explain({"rules": ["IF x_cf.income > 0 THEN 1 = 2"]}, income=None).status == "not_found"

    def test_nothing_may_change(self) -> None:
        found = reason({"immutable": list(FRAME)})
        assert found == "no feature may change: 4 features of constraints.immutable (age, income, degree, rooms)"

    def test_no_background_value_may_be_proposed(self) -> None:
        """Not a constraint but the background leaves nothing to propose."""
        frame = pd.DataFrame({"a": [1, 1], "b": ["u", "u"]})
        declared = {"a": {"low": 0, "high": 5}, "b": {"levels": ["u", "v"], "kind": "category"}}
        model = OpenModel("test", (0, 1), lambda rows: np.zeros(len(rows), dtype=int))
        explained = assemble(model, frame, None, WrapOptions(target=1, features=declared))
        (found,) = explained.explain(frame.head(1))
        assert (found.status, found.reason) == ("infeasible", "no feature may change: the background's values")

    def test_more_groups_must_change_than_may(self) -> None:
        constraints = {"rules": ["x_cf.age > 30", "x_cf.rooms > 3"], "max_changes": 1}
        assert reason(constraints) == (
            "2 groups must change, more than constraints.max_changes allows: "
            "constraints.rules[0] and constraints.rules[1]"
        )
        assert explain({**constraints, "max_changes": 2}).status == "not_found"


class TestNever:
    @pytest.mark.parametrize(
        ("rule", "text"),
        [
            ("1 = 2", "1 == 2"),
            ("IF x.age = 30 THEN 1 = 2", "IF x.age == 30 THEN 1 == 2"),
            ("x.age > 30", "x.age > 30"),
            ("IF x.degree = 'bachelor' and x.rooms = 3 THEN x.age < 0", None),
            ("x.age / 0 = x.age / 0", "(x.age / 0) == (x.age / 0)"),
        ],
    )
    def test_a_rule_about_the_query_row_alone(self, rule: str, text: str | None) -> None:
        found = explain({"rules": ["x_cf.age >= 0", rule]})
        assert found.evaluations == 0
        assert found.status == "infeasible"
        assert found.reason.startswith("constraints.rules[1] cannot hold for this row (")
        assert text is None or found.reason == f"constraints.rules[1] cannot hold for this row ({text})"

    def test_other_rows_are_not_concerned(self) -> None:
        explained = wrapped({"rules": ["IF x.age = 30 THEN 1 = 2"]}, lambda rows: rows["rooms"] > 4)
        found = explained.explain(pd.DataFrame([X, {**X, "age": 35}]))
        assert [answer.status for answer in found] == ["infeasible", "found"]


class TestSeveralGroups:
    @pytest.mark.parametrize(
        ("rules", "expected"),
        [
            (["x_cf.age < x_cf.rooms"], "constraints.rules[0] cannot hold for this row (x_cf.age < x_cf.rooms)"),
            (
                ["x_cf.age + x_cf.rooms < 0"],
                "constraints.rules[0] cannot hold for this row ((x_cf.age + x_cf.rooms) < 0)",
            ),
            (
                ["x_cf.age + x_cf.rooms <= 25", "x_cf.age - x_cf.rooms >= 30"],
                "constraints.rules[0] and constraints.rules[1] contradict each other",
            ),
            (
                ["IF x_cf.age >= 20 THEN x_cf.rooms = 5", "x_cf.rooms <= 4"],
                "constraints.rules[0] and constraints.rules[1] contradict each other",
            ),
            (
                ["x_cf.income != 9", "IF x_cf.age > 0 THEN x_cf.rooms > 3", "x_cf.rooms > 0", "x_cf.rooms < 4"],
                "constraints.rules[1] and constraints.rules[3] contradict each other",
            ),
        ],
        ids=str,
    )
    def test_the_pair_is_named(self, rules: list[str], expected: str) -> None:
        assert reason({"rules": rules}) == expected

    def test_with_other_constraints(self) -> None:
        found = reason({"immutable": ["age"], "rules": ["IF x_cf.rooms > 0 THEN x_cf.age > 30"]})
        assert found == "constraints.rules[0] and constraints.immutable.age contradict each other"

    def test_three_are_named_if_two_are_not_enough(self) -> None:
        rules = [
            "IF x_cf.age > 0 THEN x_cf.rooms >= 4",
            "IF x_cf.degree = 'none' THEN x_cf.rooms < 4",
            "x_cf.degree = 'none'",
        ]
        found = reason({"rules": rules})
        assert found == "3 of constraints.rules ([0], [1], [2]) contradict each other"

    def test_no_pair_no_proof(self) -> None:
        """Every two of the three rules agree somewhere; all three nowhere. That is not proved, so not claimed."""
        rules = ["x_cf.age - 20 = 5 * x_cf.rooms - 5", "x_cf.rooms = x_cf.income * 1", "x_cf.age = 41 - x_cf.income"]
        found = explain({"rules": rules})
        assert found.status == "not_found"

    def test_a_continuous_feature_proves_nothing(self) -> None:
        frame = FRAME.assign(income=[0.5, 1.5, 2.5, 3.5, 4.5])
        model = OpenModel("test", (0, 1), lambda rows: np.zeros(len(rows), dtype=int))
        rules = {"rules": ["x_cf.income + x_cf.rooms < 1.2"]}
        for values, status in (("observed", "infeasible"), ("continuous", "not_found")):
            explained = assemble(model, frame, None, WrapOptions(target=1, constraints=rules, values=values))
            assert explained.explain(pd.DataFrame([X]))[0].status == status

    def test_many_rules_do_not_cost_all_their_pairs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All pairs would be a billion combinations."""
        tried = []

        def counted(problem: Problem, rules: Sequence[Rule], groups: Sequence[Group]) -> bool:
            tried.append(prod(len(group.actions) for group in groups))
            return never_together(problem, rules, groups)

        never_together = blame._never_together
        monkeypatch.setattr(blame, "_never_together", counted)
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({name: rng.permutation(400) for name in "abc"})
        model = OpenModel("test", (0, 1), lambda rows: np.zeros(len(rows), dtype=int))
        rules = [f"x_cf.{one} + x_cf.{two} != {n}" for n in range(60) for one, two in ("ab", "bc", "ca")]
        explained = assemble(
            model, frame, None, WrapOptions(target=1, constraints={"rules": rules}, explainer="nearest_row")
        )
        tried.clear()  # wrapping looks at a row, too
        (found,) = explained.explain(frame.head(1))
        assert found.status == "not_found"
        assert blame.MOST_WORK / 2 < sum(tried) <= blame.MOST_WORK

    def test_rules_over_too_many_combinations_do_not_hide_the_others(self) -> None:
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({name: rng.permutation(3_000) for name in "abcdef"}).assign(
            g=[0, 1] * 1_500, h=[0, 1] * 1_500
        )
        model = OpenModel("test", (0, 1), lambda rows: np.zeros(len(rows), dtype=int))
        rules = ["x_cf.a < x_cf.b + 1", "x_cf.c != x_cf.d", "x_cf.e != x_cf.f", "x_cf.g + x_cf.h > 2"]
        explained = assemble(
            model, frame, None, WrapOptions(target=1, constraints={"rules": rules}, explainer="nearest_row")
        )
        (found,) = explained.explain(frame.head(1))
        assert found.reason == "constraints.rules[3] cannot hold for this row ((x_cf.g + x_cf.h) > 2)"


class TestPolicyAndRequest:
    def test_it_is_told_whose_rule_is_whose(self) -> None:
        assert reason({"rules": ["x_cf.age > 30"]}, {"rules": ["x_cf.age <= 30"]}) == (
            "age must change, but policy.constraints.rules[0] and constraints.rules[0] leave no value for it"
        )
        assert reason({"rules": ["IF x_cf.rooms > 0 THEN x_cf.age > 30"]}, {"ranges": {"age": [None, 30]}}) == (
            "policy.constraints.rules[0] and constraints.ranges.age contradict each other"
        )

    def test_the_policys_own_fault(self) -> None:
        assert (
            reason({"rules": ["x_cf.age > 90"]}) == "age must change, but constraints.rules[0] leaves no value for it"
        )
        assert reason({"rules": ["x_cf.age > 90"]}, {"max_changes": 2}) == (
            "age must change, but policy.constraints.rules[0] leaves no value for it"
        )

    def test_the_requests_own_fault(self) -> None:
        assert (
            reason({}, {"rules": ["x_cf.age > 90"]})
            == "age must change, but constraints.rules[0] leaves no value for it"
        )


def test_many_rules_are_cut_short() -> None:
    rules = [f"x_cf.age != {age}" for age in FRAME["age"]] * 4
    found = reason({"rules": rules})
    assert found == "age must change, but 20 of constraints.rules ([0], [1], [2], 17 more) leave no value for it"


def test_a_target_out_of_reach_is_no_contradiction() -> None:
    found = explain({"rules": ["x_cf.age >= x.age"]})
    assert found.status == "not_found"
    assert found.reason.startswith("no counterfactual among ")


class TestNoRow:
    """Explainers that start from favourable background rows say which constraint leaves none."""

    @pytest.mark.parametrize("explainer", ["nearest_row", "certifai", "face"])
    def test_the_constraint_is_named(self, explainer: str) -> None:
        made = wrapped({"ranges": {"rooms": [1, 4]}}, lambda rows: rows["age"] > 35, explainer=explainer)
        (found,) = made.explain(pd.DataFrame([{**X, "age": 20}]))
        told = "none of the background rows that are predicted as wanted meets constraints.ranges.rooms"
        assert (found.status, found.reason) == ("not_found", told)

    def test_two_that_only_together_leave_none(self) -> None:
        constraints = {"immutable": ["degree"], "max_changes": 3, "rules": ["x_cf.rooms > 3"]}
        made = wrapped(constraints, lambda rows: rows["age"] != 35, explainer="nearest_row")
        (found,) = made.explain(pd.DataFrame([{**X, "age": 35, "degree": "master"}]))
        told = "none of the background rows that are predicted as wanted meets constraints."
        assert found.reason == f"{told}immutable.degree and constraints.rules[0]"

    def test_a_model_that_wants_no_row(self) -> None:
        (found,) = wrapped({}, explainer="nearest_row").explain(pd.DataFrame([X]))
        assert found.reason == "no background row is predicted as wanted"
