"""The action cascade (GeCo section 3.4): repaired until all rules hold, or rejected; GeCo's own tests with rules."""

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import bind

from mlflow_cf.constraints import Constraints
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import GeCo
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy, Codes, Group, Problem
from mlflow_cf.search.cascade import Cascade, _distinct, with_draws
from mlflow_cf.wrapping import assemble


def bound(frame: pd.DataFrame, constraints: Any, x: dict[str, Any], values: Any = "observed") -> Problem:
    space = FeatureSpace.infer(frame)
    built = BoundPolicy.build(space, space.encode(frame), Constraints.read(constraints), Distance(), values)
    row = pd.DataFrame({name: pd.Series([x[name]], dtype=frame[name].dtype) for name in frame})
    return bind(built, row)


def group_of(problem: Problem, name: str) -> Group:
    column = problem.space.index[name]
    return next(group for group in problem.groups if column in group.columns)


def codes_of(problem: Problem, *rows: dict[str, Any]) -> Codes:
    """Return the codes of moves of the query row, each given by what changes."""
    codes = np.tile(problem.own, (len(rows), 1))
    for line, moves in zip(codes, rows, strict=True):
        Z = problem.x0.copy()
        for name, value in moves.items():
            Z[problem.space.index[name]] = problem.space[name].code(value)
        for number, group in enumerate(problem.groups):
            line[number] = np.flatnonzero(
                [np.array_equal(t, Z[list(group.columns)], equal_nan=True) for t in group.actions]
            )[0]
    return codes


def repaired(problem: Problem, *rows: dict[str, Any], seed: int = 0) -> list[dict[str, Any]]:
    """Return what becomes of moves of the query row, each by what it changes in the end."""
    own = problem.space.values(problem.x0)
    Z = problem.rows(Cascade(problem, np.random.default_rng(seed)).repair(codes_of(problem, *rows)))
    assert problem.check(Z).all()
    return [{name: value for name, value in problem.space.values(z).items() if value != own[name]} for z in Z]


class TestPapersExample:
    """GeCo section 3.3, word for word."""

    TEXT = """
        GROUP education, income
        PLAF x_cf.gender == x.gender
        PLAF x_cf.age >= x.age
        PLAF IF x_cf.education > x.education THEN x_cf.age > x.age + 4
    """
    PEOPLE = pd.DataFrame(
        {
            "gender": ["female", "male", "female", "male", "female", "male"],
            "age": [22, 20, 26, 30, 28, 40],
            "education": [3, 3, 4, 4, 2, 4],
            "income": [80000, 50000, 90000, 80000, 50000, 90000],
        }
    )
    X: ClassVar = {"gender": "female", "age": 22, "education": 3, "income": 80000}

    def problem(self, people: pd.DataFrame | None = None) -> Problem:
        return bound(self.PEOPLE if people is None else people, self.TEXT, self.X)

    def test_sample_spaces(self) -> None:
        problem = self.problem()
        assert group_of(problem, "gender").proposals == 0  # {female}, and empty without x's own value
        assert group_of(problem, "age").actions[:, 0].tolist() == [22, 26, 28, 30, 40]
        pairs = group_of(problem, "education")
        assert list(map(tuple, pairs.actions.tolist())) == [(2, 50000), (3, 50000), (3, 80000), (4, 80000), (4, 90000)]
        assert pairs.own == 2

    def test_age_is_resampled(self) -> None:
        problem = self.problem()
        for seed in range(20):
            (moved,) = repaired(problem, {"education": 4, "income": 80000}, seed=seed)
            assert moved["education"] == 4
            assert moved["age"] in (28, 30, 40)  # > 26

    def test_what_holds_is_left_alone(self) -> None:
        move = {"age": 30, "education": 4, "income": 80000}
        assert repaired(self.problem(), move, {"age": 26}) == [
            {"age": 30, "education": 4},
            {"age": 26},
        ]

    def test_nobody_old_enough(self) -> None:
        young = self.PEOPLE.assign(age=[22, 20, 26, 24, 26, 21])
        assert repaired(self.problem(young), {"education": 4, "income": 80000}, {"age": 24}) == [{"age": 24}]

    def test_the_row_itself_is_dropped(self) -> None:
        assert repaired(self.problem(), {}) == []


LINE = pd.DataFrame({"a": range(10), "b": range(10), "c": range(10)})


class TestRepair:
    def test_the_rows_own_value_is_preferred(self) -> None:
        """b = 9 breaks the rule for a = 2; b's own 5 satisfies it, and so does 6: back to 5, always."""
        problem = bound(LINE, {"rules": ["x_cf.b <= x_cf.a + 4"]}, {"a": 1, "b": 5, "c": 0})
        assert repaired(problem, *[{"a": 2, "b": 9}] * 30) == [{"a": 2}] * 30

    def test_the_rows_own_value_is_not_forced_back(self) -> None:
        problem = bound(LINE, {"rules": ["x_cf.b <= x_cf.a + 4"]}, {"a": 1, "b": 5, "c": 0})
        assert repaired(problem, {"a": 2, "b": 6}) == [{"a": 2, "b": 6}]

    def test_all_rules_of_a_group_hold_together(self) -> None:
        rules = ["IF x_cf.a > x.a THEN x_cf.b > x_cf.a", "IF x_cf.a > x.a THEN x_cf.b < x_cf.a + 3"]
        problem = bound(LINE, {"rules": rules}, {"a": 1, "b": 1, "c": 0})
        moved = repaired(problem, *[{"a": 4}] * 60)
        assert {row["b"] for row in moved} == {5, 6}
        assert repaired(problem, {"a": 9}) == []  # 10 and 11 are not there

    def test_repairing_one_rule_may_not_break_another(self) -> None:
        """Both rules define b; the value that mends the first would switch the second one on."""
        rules = ["IF x_cf.a > 5 THEN x_cf.b > 3", "IF x_cf.b > 6 THEN x_cf.b = 9"]
        problem = bound(LINE, {"rules": rules}, {"a": 0, "b": 0, "c": 0})
        assert {row["b"] for row in repaired(problem, *[{"a": 7}] * 80)} == {4, 5, 6, 9}

    def test_the_group_just_changed_may_be_repaired(self) -> None:
        problem = bound(LINE, {"rules": ["x_cf.b >= x_cf.a"]}, {"a": 5, "b": 7, "c": 0})
        assert repaired(problem, {"b": 2, "c": 1}) == [{"c": 1}]
        assert repaired(problem, {"b": 2}) == []  # nothing is left of it

    def test_chains_are_repaired_in_order(self) -> None:
        rules = ["IF x_cf.b > x.b THEN x_cf.a > x_cf.b", "IF x_cf.c > x.c THEN x_cf.b > x_cf.c"]  # c, then b, then a
        problem = bound(LINE, {"rules": rules}, {"a": 0, "b": 0, "c": 0})
        assert [problem.groups[number].columns for number in problem.order] == [(2,), (1,), (0,)]
        moved = repaired(problem, *[{"c": 4}] * 40)
        assert len(moved) > 20  # all but those that drew b = 9
        assert all(row["c"] == 4 < row["b"] < row["a"] for row in moved)
        assert repaired(problem, {"c": 8}) == []  # only b = 9 is above, and nothing above that

    def test_conditions_are_repaired_by_the_consequent(self) -> None:
        problem = bound(LINE, {"rules": ["IF x_cf.a > 5 and x_cf.b > 5 THEN x_cf.c = 9"]}, {"a": 0, "b": 0, "c": 0})
        assert repaired(problem, {"a": 6, "b": 6}, {"a": 6}) == [{"a": 6, "b": 6, "c": 9}, {"a": 6}]

    @pytest.mark.parametrize(
        "rule", ["x_cf.a + x_cf.b <= 10", "IF x_cf.a > 5 and x_cf.b > 4 THEN 1 = 2", "10 - x_cf.a >= x_cf.b + 0"]
    )
    def test_rejection_rules_are_never_repaired(self, rule: str) -> None:
        problem = bound(LINE, {"rules": [rule]}, {"a": 1, "b": 1, "c": 0})
        assert repaired(problem, {"a": 6, "b": 5}, {"a": 5, "b": 4}, {"a": 9, "b": 6}) == [{"a": 5, "b": 4}]

    def test_a_group_is_repaired_as_a_whole(self) -> None:
        frame = pd.DataFrame({"a": [0, 1, 2, 3], "b": [0, 10, 20, 30], "c": [0, 1, 2, 3]})
        constraints = {"groups": [["a", "b"]], "rules": ["IF x_cf.c > x.c THEN x_cf.b > 10"]}
        problem = bound(frame, constraints, {"a": 0, "b": 0, "c": 0})
        assert {tuple(row.items()) for row in repaired(problem, *[{"c": 1}] * 40)} == {
            (("a", 2), ("b", 20), ("c", 1)),
            (("a", 3), ("b", 30), ("c", 1)),
        }

    def test_two_rules_defining_two_features_of_one_group(self) -> None:
        """The paper repairs one rule after the other, which could never find the pair that suits both."""
        frame = pd.DataFrame({"a": [0, 1, 2, 3, 3], "b": [0, 3, 2, 3, 0], "c": [0, 1, 2, 3, 4]})
        rules = ["IF x_cf.c > x.c THEN x_cf.a >= 2", "IF x_cf.c > x.c THEN x_cf.b >= 3"]
        problem = bound(frame, {"groups": [["a", "b"]], "rules": rules}, {"a": 0, "b": 0, "c": 0})
        assert repaired(problem, *[{"c": 1}] * 20) == [{"a": 3, "b": 3, "c": 1}] * 20

    def test_rules_inside_one_group_filter_its_tuples(self) -> None:
        constraints = {"groups": [["a", "b"]], "rules": ["x_cf.a < x_cf.b"]}
        frame = pd.DataFrame({"a": [0, 1, 2, 3], "b": [1, 1, 3, 0], "c": [0, 1, 0, 1]})
        problem = bound(frame, constraints, {"a": 0, "b": 1, "c": 0})
        assert problem.joint_rules == ()
        assert group_of(problem, "a").actions.tolist() == [[0, 1], [2, 3]]

    def test_max_changes_counts_what_repairs_change(self) -> None:
        constraints = {"rules": ["IF x_cf.a > x.a THEN x_cf.b > x.b"], "max_changes": 1}
        problem = bound(LINE, constraints, {"a": 0, "b": 0, "c": 0})
        assert repaired(problem, {"a": 3}, {"b": 3}, {"b": 3, "c": 1}) == [{"b": 3}]

    def test_missing_values_stay_or_are_filled_in(self) -> None:
        frame = LINE.assign(b=LINE["b"].where(LINE["b"] != 4).astype(float))
        problem = bound(frame, {"rules": ["IF x_cf.a > 5 THEN x_cf.b > 3"]}, {"a": 0, "b": np.nan, "c": 0})
        moved = repaired(problem, *[{"a": 7}] * 40)
        assert {row["b"] for row in moved} == {5, 6, 7, 8, 9}  # a missing b breaks the rule, and is not above 3
        fixed = bound(frame, {"rules": ["IF x_cf.a > 5 THEN x_cf.b = x.b"]}, {"a": 0, "b": np.nan, "c": 0})
        assert repaired(fixed, {"a": 7}) == [{"a": 7}]
        assert repaired(fixed, {"a": 7, "b": 2}) == [{"a": 7}]

    def test_the_input_is_left_alone(self) -> None:
        problem = bound(LINE, {"rules": ["IF x_cf.a > x.a THEN x_cf.b > x.b"]}, {"a": 0, "b": 0, "c": 0})
        codes = codes_of(problem, {"a": 3}, {"a": 4})
        before = codes.copy()
        Cascade(problem, np.random.default_rng(0)).repair(codes)
        assert np.array_equal(codes, before)


class TestMustChange:
    def test_a_group_whose_own_value_is_refused_gets_another(self) -> None:
        problem = bound(LINE, {"rules": ["x_cf.b <= 3"]}, {"a": 0, "b": 7, "c": 0})
        moved = repaired(problem, *[{"a": 3}] * 60)
        assert len(moved) == 60
        assert {row["b"] for row in moved} == {0, 1, 2, 3}
        assert all(row["a"] == 3 for row in moved)

    def test_the_row_itself_repaired_is_a_candidate(self) -> None:
        problem = bound(LINE, {"ranges": {"b": [None, 3]}, "rules": ["IF x_cf.b < 4 THEN x_cf.c > 7"]},
                        {"a": 0, "b": 7, "c": 0})  # fmt: skip
        moved = repaired(problem, *[{}] * 20)
        assert len(moved) == 20
        assert all(row["b"] <= 3 and row["c"] >= 8 and "a" not in row for row in moved)

    @pytest.mark.parametrize("graded", [True, False])
    @pytest.mark.parametrize("seed", range(4))
    def test_several_that_must_change_find_the_values_that_go_together(self, *, graded: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame({name: rng.integers(0, 12, 300) for name in "abcde"})
        wanted = rng.integers(0, 9, 3)

        def share(rows: pd.DataFrame) -> np.ndarray:
            off = np.abs(rows[["a", "b", "c"]].to_numpy() - wanted).sum(axis=1)
            return np.clip(1 - (off + 0.3 * np.abs(rows[["d", "e"]].to_numpy() - 5).sum(axis=1)) / 20, 0, 1)

        def decide(rows: pd.DataFrame) -> np.ndarray:
            return (share(rows) >= 1 - 1.5 / 20).astype(int)

        def score(rows: pd.DataFrame) -> np.ndarray:
            return np.column_stack([1 - share(rows), share(rows)])

        model = OpenModel("test", (0, 1), decide, score if graded else None, "probability" if graded else "none")
        limits = {"rules": [f"x_cf.{name} <= 8" for name in "abc"]}
        explained = assemble(model, frame, None, WrapOptions(target=1, constraints=limits))
        (found,) = explained.explain(pd.DataFrame({"a": [11], "b": [10], "c": [9], "d": [5], "e": [5]}))
        assert found.status == "found"
        assert decide(pd.DataFrame([found.counterfactuals[0].row]))[0] == 1

    def test_own_values_that_single_rules_refuse_are_no_way_back(self) -> None:
        """b's own 7 would mend the rule across groups, but its range refuses it."""
        problem = bound(LINE, {"ranges": {"b": [None, 5]}, "rules": ["x_cf.b >= x_cf.a"]}, {"a": 0, "b": 7, "c": 0})
        assert {row["b"] for row in repaired(problem, *[{"a": 4, "b": 1}] * 30)} == {4, 5}
        assert repaired(problem, {"a": 6}) == []

    def test_hours_70_under_a_limit_of_60(self) -> None:
        """GeCo section 10: every answer changes the hours."""
        frame = pd.DataFrame({"hours": [20, 40, 50, 60, 70, 80], "gain": [0, 1, 2, 3, 4, 5]})
        found = geco(frame, lambda rows: rows["gain"] >= 3, {"rules": ["x_cf.hours <= 60"]})
        (answer,) = found.explain(pd.DataFrame({"hours": [70], "gain": [0]}), count=4)
        assert answer.status == "found"
        assert all(cf.row["hours"] <= 60 for cf in answer.counterfactuals)
        assert answer.counterfactuals[0].row == {"hours": 60, "gain": 3}

    def test_a_continuous_feature_without_any_allowed_draw(self) -> None:
        frame = pd.DataFrame({"a": [0.0, 0.5, 1.25], "b": [1, 2, 3]})
        problem = bound(frame, {"rules": ["x_cf.a > 2"]}, {"a": 0.5, "b": 1}, "continuous")
        drawn = with_draws(problem, np.random.default_rng(0))
        assert len(Cascade(drawn, np.random.default_rng(0)).repair(np.array([[drawn.groups[0].own, 1]]))) == 0


class TestDraws:
    """Replacements are drawn by how often they occur in the background."""

    def test_frequencies(self) -> None:
        frame = pd.DataFrame({"a": [0, 1] * 50, "b": [0] * 40 + [5] * 30 + [6] * 20 + [7] * 9 + [2]})
        problem = bound(frame, {"rules": ["IF x_cf.a = 1 THEN x_cf.b >= 5"]}, {"a": 0, "b": 0})
        drawn = Counter(row["b"] for row in repaired(problem, *[{"a": 1}] * 20_000))
        assert set(drawn) == {5, 6, 7}
        for value, weight in ((5, 30), (6, 20), (7, 9)):
            assert drawn[value] / 20_000 == pytest.approx(weight / 59, abs=0.015)  # more than 4 standard deviations

    def test_frequencies_beside_different_contexts(self) -> None:
        """Each candidate draws from what its own other groups allow."""
        frame = pd.DataFrame({"a": [0, 1, 2] * 20, "b": [0] * 10 + [1] * 20 + [2] * 20 + [3] * 10})
        problem = bound(frame, {"rules": ["IF x_cf.a > 0 THEN x_cf.b > x_cf.a"]}, {"a": 0, "b": 0})
        moved = repaired(problem, *[{"a": 1}, {"a": 2}] * 6_000)
        ones = Counter(row["b"] for row in moved if row["a"] == 1)
        assert set(ones) == {2, 3}
        assert ones[2] / 6_000 == pytest.approx(2 / 3, abs=0.03)
        assert {row["b"] for row in moved if row["a"] == 2} == {3}

    def test_frequencies_of_groups_that_must_change(self) -> None:
        frame = pd.DataFrame({"a": [0, 1] * 50, "b": [9] * 10 + [1] * 60 + [2] * 30})
        problem = bound(frame, {"rules": ["x_cf.b < 5"]}, {"a": 0, "b": 9})
        drawn = Counter(row["b"] for row in repaired(problem, *[{"a": 1}] * 10_000))
        assert drawn[1] / 10_000 == pytest.approx(2 / 3, abs=0.02)

    def test_same_seed_same_repair(self) -> None:
        problem = bound(LINE, {"rules": ["IF x_cf.a > x.a THEN x_cf.b > x.b"]}, {"a": 0, "b": 0, "c": 0})
        moves = [{"a": 3}] * 50
        assert repaired(problem, *moves, seed=1) == repaired(problem, *moves, seed=1)
        assert repaired(problem, *moves, seed=1) != repaired(problem, *moves, seed=2)


def geco(frame: pd.DataFrame, good: Any, constraints: Any, **options: Any) -> ExplainedModel:
    model = OpenModel("test", (0, 1), lambda rows: np.asarray(good(rows)).astype(int))
    return assemble(model, frame, None, WrapOptions(target=1, constraints=constraints, **options))


class TestGeCo:
    """GeCo section 10."""

    def test_one_threshold(self) -> None:
        """The best answer is the largest active-domain value <= 100."""
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"debt": rng.integers(0, 400, 800), "age": rng.integers(18, 80, 800)})
        best = frame["debt"][frame["debt"] <= 100].max()
        explained = geco(frame, lambda rows: rows["debt"] <= 100, None, distance=(0.0, 1.0, 0.0))
        for debt in (101, 250, 399):
            (found,) = explained.explain(pd.DataFrame({"debt": [debt], "age": [40]}))
            assert found.counterfactuals[0].row == {"debt": best, "age": 40}

    def test_empty_feasible_space(self) -> None:
        explained = geco(LINE, lambda rows: rows["a"] > 5, "PLAF x_cf.b > 3 PLAF x_cf.b < 3")
        (found,) = explained.explain(pd.DataFrame({"a": [0], "b": [0], "c": [0]}))
        assert (found.status, found.counterfactuals, found.evaluations) == ("infeasible", (), 0)
        assert found.reason == "b must change, but constraints.rules[0] and constraints.rules[1] leave no value for it"

    def test_a_missing_immutable_value_stays(self) -> None:
        frame = LINE.assign(b=LINE["b"].where(LINE["b"] != 4).astype(float))
        explained = geco(frame, lambda rows: rows["a"] > 5, {"rules": ["x_cf.b = x.b"]})
        (found,) = explained.explain(pd.DataFrame({"a": [0], "b": [np.nan], "c": [0]}), count=3)
        assert found.status == "found"
        assert all(answer.row["b"] is None for answer in found.counterfactuals)

    def test_same_seed_same_answer(self) -> None:
        rules = {"rules": ["IF x_cf.a > x.a THEN x_cf.b > x.b", "x_cf.c + x_cf.b <= 12"]}
        explained = geco(LINE, lambda rows: rows["a"] * rows["b"] - rows["c"] > 20, rules)
        x = pd.DataFrame({"a": [1], "b": [2], "c": [3]})
        first = explained.explain(x, count=4, seed=5)[0]
        assert first.status == "found"
        assert first.to_dict() == explained.explain(x, count=4, seed=5)[0].to_dict()

    @pytest.mark.parametrize("explainer", [GeCo(), GeCo(q=8, m_init=2, m_mut=1), "nearest_row"])
    def test_every_answer_obeys_and_every_tuple_occurs(self, explainer: Any) -> None:
        rng = np.random.default_rng(1)
        frame = pd.DataFrame({name: rng.integers(0, 30, 60) for name in "abcdef"})
        text = """
            GROUP a, b
            PLAF IF x_cf.a > x.a THEN x_cf.c > x.c
            PLAF IF x_cf.c > x.c && x_cf.d < 20 THEN x_cf.e >= x_cf.d
            PLAF x_cf.e - x_cf.f < 25
        """
        explained = geco(frame, lambda rows: rows.sum(axis=1) > 110, text, explainer=explainer)
        pairs = set(zip(frame["a"], frame["b"], strict=True))
        for at in range(10):
            x = frame.iloc[[at]]
            (found,) = explained.explain(x, count=3)
            own = x.iloc[0]
            for answer in found.counterfactuals:
                row = answer.row
                assert (row["a"], row["b"]) in pairs
                assert row["a"] <= own["a"] or row["c"] > own["c"]
                assert not (row["c"] > own["c"] and row["d"] < 20) or row["e"] >= row["d"]
                assert row["e"] - row["f"] < 25
                assert sum(row.values()) > 110


class TestWideTables:
    """numpy has no more than 64 dimensions; a rule may speak of more features."""

    NAMES = tuple(f"f{number}" for number in range(90))

    def explained(self, then: str, *, sealed: int) -> ExplainedModel:
        frame = pd.DataFrame(dict.fromkeys(self.NAMES, range(3)))
        conditions = " and ".join(f"x_cf.{name} >= 0" for name in self.NAMES[1:])
        constraints = {"immutable": list(self.NAMES[sealed:]), "rules": [f"IF {conditions} THEN {then}"]}
        return geco(frame, lambda rows: rows["f1"] == 2, constraints)

    def test_most_of_them_fixed(self) -> None:
        explained = self.explained("x_cf.f0 >= x_cf.f1", sealed=3)
        (found,) = explained.explain(explained.background.head(1))
        assert found.status == "found"
        assert (found.counterfactuals[0].row["f0"], found.counterfactuals[0].row["f1"]) == (2, 2)

    def test_most_of_them_free(self) -> None:
        explained = self.explained("x_cf.f0 >= x_cf.f1", sealed=80)
        (found,) = explained.explain(explained.background.head(1))
        assert found.counterfactuals[0].row["f0"] == 2

    def test_a_contradiction(self) -> None:
        explained = self.explained("x_cf.f0 > 5", sealed=3)
        (found,) = explained.explain(explained.background.head(1))
        assert found.status == "infeasible"
        assert found.reason.startswith("constraints.rules[0] and ")


pairs = st.lists(st.integers(0, 3), min_size=2, max_size=2)


@given(st.lists(pairs, min_size=1, max_size=20), st.sampled_from([1, 2**40]))
def test_distinct_rows_are_numbered_in_their_order(rows: list[list[int]], factor: int) -> None:
    """Few codes become one number, many are compared row by row."""
    codes = np.array(rows, dtype=np.intp) * factor
    _, first, which = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    found, numbers = _distinct(codes)
    assert (found.tolist(), numbers.tolist()) == (first.tolist(), which.ravel().tolist())
