"""What PLAF rules mean: names, types, missing and unseen values, grounding, order of repair, rules of a request."""

import warnings
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from properties.interpreter import rule_of
from rule_worlds import FEATURES, TABLE, background, coded, draw_rows

from mlflow_cf.constraints import Constraints, Origin, Rule, compile_rules
from mlflow_cf.constraints.expressions import Apply, Const, Ref
from mlflow_cf.constraints.rules import Atom, ground
from mlflow_cf.errors import InputError, InputErrors
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.wrapping import assemble

FRAME = background()
SPACE = FeatureSpace.infer(FRAME, FEATURES)
QUERY, *_ = draw_rows(3, 0)
QUERY = {**QUERY, "age": 21, "income": 0.5, "rooms": 2, "grade": "mid", "final grade": "low", "job": "b", "home": "b",
         "member": True, "if": False}  # fmt: skip


def bound_policy(*rules: str, **keys: Any) -> BoundPolicy:
    return BoundPolicy.build(
        SPACE, SPACE.encode(FRAME), Constraints.read({"rules": rules, **keys}), Distance(), "observed"
    )


def compiled(text: str) -> Rule:
    (rule,) = compile_rules(Constraints(rules=(text,)), SPACE)
    return rule


def holds(text: str, query: dict[str, Any] | None = None, **moves: Any) -> bool:
    """Whether a rule holds for a move of the query row; asserts that the slow interpreter agrees."""
    query = {**QUERY, **(query or {})}
    row = {**query, **moves}
    (rule,), codes = coded([text], [query, row], FRAME)
    found = bool(rule.holds(codes[1:], codes[0])[0])
    assert found == rule_of(text).holds(query, row, TABLE)
    return found


@pytest.mark.parametrize(("right", "fine"), [(2.0, True), (2.25, True), (1.7, True), (2.31, False), (np.nan, False)])
def test_equal_up_to_a_tolerance(right: float, *, fine: bool) -> None:
    atom = Atom(Ref("x_cf", 0), "==", Apply("+", (Ref("x", 0), Ref("x_cf", 1))), tolerance=0.3)
    Z, x0 = np.array([[3.0, right]]), np.array([1.0, 0.0])
    assert atom.holds(Z, x0).tolist() == [fine]
    assert replace(atom, tolerance=0.0).holds(Z, x0).tolist() == [right == 2.0]
    grounded = ground(Rule((), atom, Origin("policy", "rules", position=0), ""), x0)
    assert grounded is not None
    assert grounded.holds(Z, np.full(2, 9.0)).tolist() == [fine]


def refusal(*rules: str, **keys: Any) -> str:
    with pytest.raises(InputError) as error:
        bound_policy(*rules, **keys)
    return str(error.value)


class TestTypes:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x_cf.agee = 1", "'agee' is not a feature; did you mean 'age'?"),
            ("x.Income > 1", "'Income' is not a feature; did you mean 'income'?"),
            ("IF x.zzz = 1 THEN x_cf.age = 1", "'zzz' is not a feature; features: 'age', 'income', 'rooms', 'grade', "),
            ("x_cf.age = 'a'", "compares a number with 'a'; compare like with like"),
            ("x_cf.age >= true", "compares a number with true; compare like with like"),
            ("x_cf.job = 5", "compares job, a category, with a number; levels: 'a', 'b', 'c'"),
            ("5 = x_cf.job", "compares job, a category, with a number; levels: 'a', 'b', 'c'"),
            ("x_cf.job = x.age", "compares job, a category, with a number"),
            ("x_cf.job = x.start", "compares job, a category, with a date"),
            ("x_cf.grade > 2", "compares grade, an ordinal, with a number; levels: 'low', 'mid', 'high', 'top'"),
            ("x_cf.job > 'a'", "job >: a category has no order; declare it: features={'job': {'kind': 'ordinal', 'le"),
            ("'a' < x_cf.job", "job >: a category has no order; declare it:"),
            ("x_cf.job <= x.home", "job <=: a category has no order"),
            ("x_cf.member < true", "member <: a boolean has no order"),
            ("x_cf.member = 1", "compares member, a boolean, with a number; use true or false"),
            ("x_cf.member = 'true'", "compares member, a boolean, with 'true'; use true or false"),
            ("x_cf.job + 1 > 2", "a level + a number has no meaning; calculate with numbers"),
            ("x_cf.age > -x.job", "a number - a level has no meaning; calculate with numbers"),
            ("x_cf.grade >= x.grade + 1", "a level + a number has no meaning"),
            ("x_cf.member * 2 = 2", "a level * a number has no meaning"),
            ("x_cf.age = 1 + 'a'", "a number + 'a' has no meaning"),
            ("1 = 'a'", "compares a number with 'a'; compare like with like"),
            ("1 = true", "compares a number with true; compare like with like"),
            ("'true' = true", "cannot compare 'true' == true; name a feature"),
            ("'a' < 'b'", "cannot compare 'a' < 'b'; name a feature"),
            ("true >= false", "cannot compare true >= false; name a feature"),
            ("x_cf.start = 5", "compares a date with a number; compare like with like"),
            ("x_cf.start >= x.age", "compares a date with a number"),
            ("x_cf.start >= 'soon'", "'soon' is not a date; write it as '2024-12-31'"),
            ("x_cf.start >= 'today'", "'today' is not a date"),
            ("x_cf.start >= '03/04/2024'", "'03/04/2024' is not a date"),
            ("x_cf.start >= '2024-02-30'", "'2024-02-30' is not a date"),
            ("x_cf.start >= true", "true is not a date; write it as '2024-12-31'"),
            ("x_cf.start + x.start > x.start", "a date + a date has no meaning"),
            ("x_cf.start * 2 > x.start", "a date * a number has no meaning"),
            ("30 - x_cf.start > 1", "a number - a date has no meaning"),
            ("x_cf.start - '2024-01-01' > 5", "a date - '2024-01-01' has no meaning"),
            ("x_cf.start - x.start >= x.start", "compares a number with a date"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, text: str, message: str) -> None:
        assert f"constraints.rules[0]: {message}" in refusal(text)

    def test_ordinals_with_other_levels_have_no_common_order(self) -> None:
        frame = pd.DataFrame({"a": ["x", "y"], "b": ["y", "x"]})
        space = FeatureSpace.infer(
            frame,
            {"a": {"kind": "ordinal", "levels": ["x", "y"]}, "b": {"kind": "ordinal", "levels": ["y", "x"]}},
        )
        compile_rules(Constraints(rules=("x_cf.a = x.b",)), space)
        with pytest.raises(InputError, match=r"a and b have different levels; compare with == or !="):
            compile_rules(Constraints(rules=("x_cf.a < x.b",)), space)

    @pytest.mark.parametrize("text", ["x_cf.job = 'bb'", "'bb' != x_cf.job", "x_cf.grade < 'lower'", "x.home = 'zz'"])
    def test_an_unknown_level_is_warned_about(self, text: str) -> None:
        with pytest.warns(UserWarning, match=r"constraints\.rules\[0\]: '\w+' is not a level of \w+, so never equal"):
            compiled(text)

    def test_the_warning_helps(self) -> None:
        with pytest.warns(UserWarning, match=r"'hihg' is not a level of grade, so never equal; did you mean 'high'\?"):
            compiled("x_cf.grade = 'hihg'")

    def test_an_unknown_level_equals_nothing_not_even_itself(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            odd = {"job": "zz"}
            assert not holds("x_cf.job = 'zz'", odd)
            assert holds("x_cf.job != 'zz'", odd)
            assert not holds("x_cf.grade < 'zz'")
            assert not holds("x_cf.grade >= 'zz'")

    def test_levels_that_are_numbers(self) -> None:
        frame = pd.DataFrame({"zip": [100, 200, 100], "size": [3, 1, 2]})
        space = FeatureSpace.infer(
            frame, {"zip": {"kind": "category"}, "size": {"kind": "ordinal", "levels": [3, 1, 2]}}
        )
        codes = space.encode(frame)

        def met(text: str) -> list[bool]:
            (rule,) = compile_rules(Constraints(rules=(text,)), space)
            return rule.holds(codes, codes[0]).tolist()

        assert met("x_cf.zip = 100") == [True, False, True]
        assert met("x_cf.zip != 100.0") == [False, True, False]
        assert met("x_cf.size > 3") == [False, True, True]  # by declared rank: 3 is the smallest
        with pytest.raises(InputError, match="zip >: a category has no order"):
            met("x_cf.zip > 100")
        with pytest.warns(UserWarning, match=r"'100' is not a level of zip"):
            assert met("x_cf.zip = '100'") == [False] * 3

    @pytest.mark.parametrize(
        "constraints",
        [
            {"rules": ["x_cf.a = 0.1"]},
            {"rules": ["x_cf.a <= 0.1"]},
            {"rules": ["0.2 > x_cf.a"]},
            {"ranges": {"a": [None, 0.1]}},
            {"ranges": {"a": [0.1, 0.1]}},
            {"levels": {"a": [0.1]}},
            {"forbidden": {"a": [[0.7, 0.2]]}},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "Float32", "float32[pyarrow]"])
    def test_numbers_mean_what_the_column_can_hold(self, constraints: dict[str, Any], dtype: str) -> None:
        """0.1 is 0.10000000149 in a column of float32, which is not above 0.1."""
        frame = pd.DataFrame({"a": pd.Series([0.1, 0.2, 0.7], dtype=dtype)})
        space = FeatureSpace.infer(frame)
        prepared = BoundPolicy.build(space, space.encode(frame), Constraints.read(constraints), Distance(), "observed")
        codes = space.encode(frame)
        assert prepared.accepts(codes, codes[2]).tolist() == [True, False, False]

    def test_numbers_beyond_the_column_stay_what_they_are(self) -> None:
        frame = pd.DataFrame({"a": np.array([0.1, 0.2], dtype="float32")})
        space = FeatureSpace.infer(frame)
        codes = space.encode(frame)
        for text, fine in (("x_cf.a < 1e300", [True, True]), ("x_cf.a > 1e300", [False, False])):
            (rule,) = compile_rules(Constraints(rules=(text,)), space)
            assert rule.holds(codes, codes[0]).tolist() == fine

    def test_all_that_is_wrong_at_once(self) -> None:
        with pytest.raises(InputErrors) as error:
            bound_policy("x_cf.agee = 1", "x_cf.age >= x.age", "x_cf.job > 'a'", "IF x_cf.age THEN 1 = 2")
        assert [found.path for found in error.value.errors] == [f"constraints.rules[{n}]" for n in (0, 2, 3)]

    def test_messages_stay_short(self) -> None:
        for text in (f"x_cf.{'y' * 5000} = 1", f"x_cf.age = '{'y' * 5000}'"):
            assert len(refusal(text)) < 300


class TestMeaning:
    """One case after the other; `holds` compares each with the independent interpreter."""

    @pytest.mark.parametrize(
        ("text", "moves", "fine"),
        [
            ("x_cf.age >= x.age", {"age": 21}, True),
            ("x_cf.age >= x.age", {"age": 20}, False),
            ("x.age <= x_cf.age", {"age": 20}, False),
            ("x_cf.age > x.age + 4", {"age": 26}, True),
            ("x_cf.age > x.age + 4", {"age": 23}, False),
            ("x_cf.age = x_cf.rooms * 10 + x.rooms - 1", {}, True),
            ("x_cf.age = 84 / x_cf.rooms / x.rooms", {}, True),
            ("x_cf.age = 84 / (x_cf.rooms / x.rooms)", {}, False),
            ("-x_cf.age < -20", {}, True),
            ("IF x_cf.age > 21 THEN x_cf.income > 3", {}, True),
            ("IF x_cf.age > 20 THEN x_cf.income > 3", {}, False),
            ("IF x_cf.age > 20 and x_cf.rooms = 1 THEN x_cf.income > 3", {}, True),
            ("x_cf.grade > x.grade", {"grade": "high"}, True),
            ("x_cf.grade > x.grade", {"grade": "low"}, False),
            ("x_cf.grade >= x_cf.`final grade`", {}, True),
            ("x_cf.grade < 'top'", {"grade": "high"}, True),
            ("'high' <= x_cf.grade", {"grade": "mid"}, False),
            ("x_cf.job = 'a'", {"job": "a"}, True),
            ("x_cf.job != x.home", {"job": "a"}, True),
            ("x_cf.job = x_cf.home", {}, True),
            ("x_cf.job = x_cf.home", {"home": "c"}, False),
            ("x_cf.member = true", {}, True),
            ("x_cf.member != x.if", {}, True),
            ("x_cf.if = x.member", {"if": True}, True),
            ("1 = 2", {}, False),
            ("'a' = 'a'", {}, True),
            ("true != false", {}, True),
        ],
    )
    def test_plain(self, text: str, moves: dict[str, Any], *, fine: bool) -> None:
        assert holds(text, **moves) == fine

    @pytest.mark.parametrize(
        ("text", "fine"),
        [("x_cf.income = x.income", True), ("x_cf.income <= x.income", True), ("x_cf.income >= x.income", True),
         ("x_cf.income != x.income", False), ("x_cf.income < x.income", False), ("x_cf.income > x.income", False),
         ("x_cf.income = x.income + 0", False), ("x_cf.income >= x.income * 1", False),
         ("-x_cf.income = -x.income", False),
         ("x_cf.income != x.income + 1", False), ("x_cf.income + 1 != 5", False),
         ("x_cf.income = 5", False), ("x_cf.income != 5", True), ("x_cf.income < 5", False), ("5 != x_cf.income", True),
         ("x_cf.income != x.age", True), ("x_cf.income = x.age", False), ("x_cf.income <= x.age", False),
         ("x_cf.income = x.rooms", True), ("x_cf.income <= x.rooms", True), ("x_cf.income != x.rooms", False),
         ("IF x_cf.income > 0 THEN 1 = 2", True), ("IF x_cf.income <= 0 THEN 1 = 2", True),
         ("IF x_cf.income != 0 THEN 1 = 2", False)],
    )  # fmt: skip
    def test_missing_numbers(self, text: str, *, fine: bool) -> None:
        assert holds(text, {"income": None, "rooms": None}) == fine

    @pytest.mark.parametrize(
        ("text", "fine"),
        [("x_cf.income = x.income", False), ("x_cf.income >= x.income", False), ("x_cf.income <= x.income", False),
         ("x_cf.income != x.income", True), ("x_cf.income - x.income < 5", False),
         ("IF x.income < 9 THEN 1 = 2", True)],
    )  # fmt: skip
    def test_a_missing_number_that_is_filled_in(self, text: str, *, fine: bool) -> None:
        assert holds(text, {"income": None}, income=0.5) == fine

    @pytest.mark.parametrize(
        ("text", "fine"),
        [("x_cf.grade = x.grade", True), ("x_cf.grade >= x.grade", True), ("x_cf.grade != x.grade", False),
         ("x_cf.grade > x.grade", False), ("x_cf.grade = 'low'", False), ("x_cf.grade != 'low'", True),
         ("x_cf.grade >= 'low'", False), ("x_cf.grade <= 'top'", False), ("x_cf.grade < x.`final grade`", False)],
    )  # fmt: skip
    @pytest.mark.parametrize("grade", [None, "odd"])
    def test_missing_and_unseen_ranks_that_stay(self, text: str, grade: Any, *, fine: bool) -> None:
        assert holds(text, {"grade": grade}) == fine

    @pytest.mark.parametrize("grade", [None, "odd"])
    @pytest.mark.parametrize("sign", ["==", "<=", ">=", "<", ">"])
    def test_missing_and_unseen_ranks_that_go(self, grade: Any, sign: str) -> None:
        assert not holds(f"x_cf.grade {sign} x.grade", {"grade": grade}, grade="top")
        assert holds("x_cf.grade != x.grade", {"grade": grade}, grade="top")

    def test_missing_is_not_unseen(self) -> None:
        both = {"grade": None, "final grade": "odd"}
        assert not holds("x_cf.grade = x_cf.`final grade`", both)
        assert holds("x_cf.grade != x_cf.`final grade`", both)

    @pytest.mark.parametrize("home", ["a", "d", "z"])
    def test_the_same_level_is_equal_in_two_features_wherever_it_was_seen(self, home: str) -> None:
        # job knows a, b, c; home knows b, c, d: so "d" is unseen in one of them, "z" in both
        same = {"job": home, "home": home}
        assert holds("x_cf.job = x_cf.home", same)
        assert holds("x.home = x_cf.job", same)
        assert not holds("x_cf.job != x_cf.home", same)
        assert not holds("x_cf.job = x_cf.home", {"job": home, "home": "c"})

    def test_the_same_unseen_rank_in_two_ordinals(self) -> None:
        odd = {"grade": "odd", "final grade": "odd"}
        assert holds("x_cf.grade <= x_cf.`final grade`", odd)
        assert not holds("x_cf.grade < x_cf.`final grade`", odd)
        assert not holds("x_cf.grade <= x_cf.`final grade`", {**odd, "final grade": "even"})

    @pytest.mark.parametrize(
        ("text", "fine"),
        [("x_cf.age / 0 = 1", False), ("x_cf.age / 0 != 1", False), ("x_cf.age / 0 > 1", False), ("1 / 0 > 0", False),
         ("x_cf.age / x_cf.income > 1", False), ("0 / x_cf.income = 0", False), ("1 - 1 / x_cf.income < 1", False),
         ("IF x_cf.age / 0 = 1 THEN 1 = 2", True), ("x_cf.income / x_cf.age = 0", True), ("x_cf.age / -0 < 1", False)],
    )  # fmt: skip
    def test_division_by_zero_is_false(self, text: str, *, fine: bool) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert holds(text, {"income": 0.0}) == fine

    def test_negation_flips_what_is_missing(self) -> None:
        """Hence rules are never negated: neither this nor its opposite holds."""
        gone = {"income": None}
        assert not holds("x_cf.income < 1", gone)
        assert not holds("x_cf.income >= 1", gone)


class TestWhatIsDefined:
    """The consequent may be turned round; every other form only rejects (GeCo section 3.2)."""

    @pytest.mark.parametrize(
        ("text", "name", "text_of_atom"),
        [
            ("x_cf.age >= x.age", "age", (Ref("x_cf", 0), ">=", Ref("x", 0))),
            ("x.age <= x_cf.age", "age", (Ref("x_cf", 0), ">=", Ref("x", 0))),
            ("5 < x_cf.age", "age", (Ref("x_cf", 0), ">", Const(5.0))),
            ("5 = x_cf.age", "age", (Ref("x_cf", 0), "==", Const(5.0))),
            ("x.age + 1 != x_cf.age", "age", (Ref("x_cf", 0), "!=", Apply("+", (Ref("x", 0), Const(1.0))))),
            ("x_cf.age > x_cf.income", "age", (Ref("x_cf", 0), ">", Ref("x_cf", 1))),
            ("x_cf.income < x_cf.age", "income", (Ref("x_cf", 1), "<", Ref("x_cf", 0))),
            ("(x_cf.age) > 1", "age", (Ref("x_cf", 0), ">", Const(1.0))),
        ],
    )
    def test_a_feature(self, text: str, name: str, text_of_atom: Any) -> None:
        rule = compiled(text)
        assert rule.defines == SPACE.index[name]
        assert (rule.then.left, rule.then.sign, rule.then.right) == text_of_atom
        conditional = compiled(f"IF x_cf.rooms > 1 THEN {text}")
        assert (conditional.then, conditional.defines) == (rule.then, rule.defines)

    @pytest.mark.parametrize(
        "text",
        ["1 = 2", "x.age > 1", "x_cf.age <= x_cf.age", "x_cf.age > x_cf.age - 1", "x_cf.age + x_cf.income <= 10",
         "x_cf.age + 1 > x.age", "x_cf.age - x.age > 1", "-x_cf.age < 1", "x_cf.income + 1 < x_cf.age", "'a' = 'b'"],
    )  # fmt: skip
    def test_nothing(self, text: str) -> None:
        assert compiled(text).defines is None

    def test_rejection_rules_order_nothing(self) -> None:
        free = bound_policy().order
        assert (
            bound_policy(
                "x_cf.age + x_cf.income <= 10", "x_cf.rooms - x_cf.age > 1", "IF x_cf.if = true THEN 1 = 2"
            ).order
            == free
        )


class TestOrder:
    def test_what_is_mentioned_comes_first(self) -> None:
        names = list(FRAME.columns)
        order = [
            names[at] for at in bound_policy("x_cf.age > x_cf.rooms", "IF x_cf.member = true THEN x_cf.rooms > 1").order
        ]
        assert order.index("member") < order.index("rooms") < order.index("age")

    def test_ties_go_by_feature(self) -> None:
        assert bound_policy().order == tuple(range(len(FRAME.columns)))
        order = bound_policy("x_cf.age > x_cf.income").order
        assert order == (1, 0, *range(2, len(FRAME.columns)))
        order = bound_policy("x_cf.age >= x_cf.income + x_cf.rooms").order
        assert order == (1, 2, 0, *range(3, len(FRAME.columns)))

    def test_circles_are_printed_with_the_way_out(self) -> None:
        message = refusal(
            "IF x_cf.age > 1 THEN x_cf.income > 1",
            "IF x_cf.income > 1 THEN x_cf.rooms > 1",
            "x_cf.age <= x_cf.rooms",
        )
        assert message == (
            "constraints.rules: rules depend on each other: age -> rooms -> income -> age; "
            "rewrite one of them so that it defines nothing, e.g. IF ... THEN 1 = 2"
        )

    def test_a_if_b_and_b_if_a(self) -> None:
        message = refusal("IF x_cf.age > 1 THEN x_cf.income > 1", "IF x_cf.income > 1 THEN x_cf.age > 1")
        assert "rules depend on each other: age -> income -> age; rewrite one of them" in message

    def test_the_way_out_works(self) -> None:
        bound_policy("IF x_cf.age > 1 THEN x_cf.income > 1", "IF x_cf.income > 1 and x_cf.age <= 1 THEN 1 = 2")

    def test_circles_through_groups(self) -> None:
        rules = ("IF x_cf.age > 1 THEN x_cf.income > 1", "IF x_cf.rooms > 1 THEN x_cf.age > 1")
        bound_policy(*rules)
        assert "age -> income+rooms -> age" in refusal(*rules, groups=[["rooms", "income"]])

    def test_rules_inside_one_group_make_no_circle(self) -> None:
        rules = ("IF x_cf.age > 1 THEN x_cf.income > 1", "IF x_cf.income > 1 THEN x_cf.age > 1")
        order = bound_policy(*rules, groups=[["age", "income"]]).order
        assert order == tuple(range(len(FRAME.columns) - 1))

    def test_the_query_row_depends_on_nothing(self) -> None:
        bound_policy("IF x.age > 1 THEN x_cf.income > 1", "IF x.income > 1 THEN x_cf.age > 1")

    def test_a_request_may_not_close_a_circle(self) -> None:
        policy = bound_policy("IF x_cf.age > 1 THEN x_cf.income > 1")
        with pytest.raises(InputError, match=r"rules depend on each other: age -> income -> age"):
            policy.tightened(Constraints(rules=("IF x_cf.income > 1 THEN x_cf.age > 1",)))

    def test_overlapping_groups_name_the_feature(self) -> None:
        assert "constraints.groups[1].income: already in groups[0]" in refusal(
            groups=[["age", "income"], ["income", "rooms"]]
        )
        text = Constraints.read("GROUP age, income GROUP income, rooms")
        with pytest.raises(InputError, match=r"groups\[1\]\.income: already in groups\[0\]"):
            BoundPolicy.build(SPACE, SPACE.encode(FRAME), text, Distance(), "observed")


class TestPapersExample:
    """GeCo section 3.3: the graph, the grounded rules, the sample spaces."""

    TEXT = """
        GROUP education, income
        PLAF x_cf.gender == x.gender
        PLAF x_cf.age >= x.age
        PLAF IF x_cf.education > x.education THEN x_cf.age > x.age + 4
    """
    PEOPLE = pd.DataFrame(
        {
            "gender": ["female", "male", "female", "male", "female", "male"],
            "age": [22, 20, 24, 30, 28, 40],
            "education": [3, 3, 4, 4, 2, 4],
            "income": [80000, 50000, 90000, 80000, 50000, 90000],
        }
    )
    X: ClassVar = {"gender": "female", "age": 22, "education": 3, "income": 80000}

    def prepared(self) -> tuple[BoundPolicy, np.ndarray]:
        space = FeatureSpace.infer(self.PEOPLE)
        built = BoundPolicy.build(space, space.encode(self.PEOPLE), Constraints.read(self.TEXT), Distance(), "observed")
        return built, space.encode(pd.DataFrame([self.X]))[0]

    def test_graph(self) -> None:
        built, _ = self.prepared()
        assert [domain.columns for domain in built.domains] == [(0,), (1,), (2, 3)]
        assert built.order == (0, 2, 1)  # one edge: {education, income} -> {age}

    def test_grounded_rules(self) -> None:
        built, x0 = self.prepared()
        gender, age, degree = (ground(rule, x0) for rule in built.rules)
        assert gender is not None
        assert age is not None
        assert degree is not None
        assert gender.then == Atom(Ref("x_cf", 0), "==", Const(0.0), unknown_from=2.0)
        assert age.then == Atom(Ref("x_cf", 1), ">=", Const(22.0))
        assert degree.when == (Atom(Ref("x_cf", 2), ">", Const(3.0)),)
        assert degree.then == Atom(Ref("x_cf", 1), ">", Apply("+", (Const(22.0), Const(4.0))))

    def test_grounding_decides_what_speaks_of_the_query_row_alone(self) -> None:
        x0 = SPACE.encode(FRAME)[0]
        assert ground(compiled("x.age = 20"), x0) is None
        assert ground(compiled("IF x.age > 20 THEN x_cf.income > 1"), x0) is None
        grounded = ground(compiled("IF x.age = 20 THEN x_cf.income > 1"), x0)
        assert grounded is not None
        assert grounded.when == ()
        never = ground(compiled("IF x.age = 20 THEN 1 = 2"), x0)
        assert never is not None
        assert not never.columns("x_cf")
        rejection = ground(compiled("IF x_cf.age = 20 THEN 1 = 2"), x0)
        assert rejection is not None
        assert rejection.columns("x_cf")


def nobody(rows: pd.DataFrame) -> np.ndarray:
    return np.full(len(rows), "no")


def wrapped(decide: Any = nobody, **options: Any) -> Any:
    model = OpenModel("test", ("no", "yes"), decide)
    return assemble(model, FRAME, None, WrapOptions(target="yes", features=FEATURES, **options))


def test_levels_unseen_in_the_background_are_equal_end_to_end() -> None:
    """The row's own job and home are "z", which no background row has; the rule holds for them."""
    explained = wrapped(
        lambda rows: np.where(rows["age"] > 22, "yes", "no"), constraints={"rules": ["x_cf.job = x_cf.home"]}
    )
    x = pd.concat([FRAME.head(1).astype({"job": object}).assign(job="z", home=home) for home in ("z", "c")])
    same, other = explained.explain(x, count=3)
    assert {(cf.row["job"], cf.row["home"]) for cf in same.counterfactuals} >= {("z", "z")}
    assert {(cf.row["job"], cf.row["home"]) for cf in other.counterfactuals} <= {("b", "b"), ("c", "c")}
    joined = explained.explain(x, constraints={"groups": [["age", "rooms"]]})  # the policy's rules hold a second time
    assert [found.status for found in joined] == ["found", "found"]
    assert all(cf.row["job"] == cf.row["home"] for found in joined for cf in found.counterfactuals)


class TestRequests:
    """A request adds rules; it cannot take any away."""

    @staticmethod
    def rich(rows: pd.DataFrame) -> np.ndarray:
        return np.where(rows["age"] + 10 * rows["rooms"].fillna(0).astype(float) >= 40, "yes", "no")

    def found(self, policy: tuple[str, ...], request: tuple[str, ...] | None) -> Any:
        explained = wrapped(self.rich, constraints={"rules": policy})
        constraints = None if request is None else {"rules": request}
        return explained.explain(FRAME.head(1), constraints=constraints, count=3)[0]

    def test_both_hold(self) -> None:
        found = self.found(("x_cf.age <= 23",), ("x_cf.rooms != x.rooms", "x_cf.age > 20"))
        assert found.status == "found"
        for answer in found.counterfactuals:
            assert 20 < answer.row["age"] <= 23
            assert answer.row["rooms"] in (2, 4)

    @pytest.mark.parametrize("request_rules", [(), None])
    def test_nothing_takes_rules_away(self, request_rules: Any) -> None:
        plain = self.found(("x_cf.age <= 20",), None)
        assert self.found(("x_cf.age <= 20",), request_rules).to_dict() == plain.to_dict()

    def test_repeating_the_policys_rule_changes_nothing(self) -> None:
        rules = ("x_cf.age <= 23",)
        assert self.found(rules, rules).counterfactuals == self.found(rules, None).counterfactuals

    def test_over_http_they_are_one_more_key(self) -> None:
        explained = wrapped(self.rich, constraints={"rules": ["x_cf.age <= 23"]})
        reply = explained.predict(
            FRAME.head(1), {"counterfactual": {"constraints": {"rules": ["x_cf.age > 20"], "max_changes": 2}}}
        )
        assert 20 < reply["counterfactuals"].iloc[0][0]["row"]["age"] <= 23

    @pytest.mark.parametrize(
        ("rules", "message"),
        [
            (["x_cf.debt = 1"], "constraints.rules[0]: 'debt' is not a feature; features:"),
            (["x_cf.age >"], "constraints.rules[0]: at the end: did not expect the end; expected"),
            (["GROUP age, rooms"], "constraints.rules[0]: line 1, column 1: did not expect 'GROUP'"),
            (["x_cf.age = 'a'"], "constraints.rules[0]: compares a number with 'a'"),
            (["x_cf.age = 1", 5], "constraints.rules[1]: input should be a valid string, got 5"),
            ("x_cf.age = 1", "constraints.rules: must be a list, got 'x_cf.age = 1'; write [\"x_cf.age = 1\"]"),
        ],
        ids=str,
    )
    def test_bad_ones_name_their_path(self, rules: Any, message: str) -> None:
        with pytest.raises(InputError) as error:
            wrapped().predict(FRAME.head(1), {"counterfactual": {"constraints": {"rules": rules}}})
        assert message in str(error.value)

    def test_rules_groups_and_max_changes_together(self) -> None:
        frame = pd.DataFrame(
            {"a": [1, 2, 3, 4] * 3, "b": [1, 2, 3, 4] * 3, "c": [1, 1, 2, 2, 3, 3] * 2, "d": [1, 2] * 6}
        )

        def decide(rows: pd.DataFrame) -> np.ndarray:
            return np.where(rows["a"] * rows["b"] + rows["c"] + rows["d"] >= 11, "yes", "no")

        model = OpenModel("test", ("no", "yes"), decide)
        policy = {"groups": [["a", "b"]], "rules": ["IF x_cf.a > x.a THEN x_cf.c > x.c"], "max_changes": 2}
        explained = assemble(model, frame, None, WrapOptions(target="yes", constraints=policy))
        x = pd.DataFrame({"a": [1], "b": [1], "c": [1], "d": [1]})
        (found,) = explained.explain(x, count=5)
        assert found.status == "found"
        for answer in found.counterfactuals:
            assert answer.row["a"] == answer.row["b"]  # a pair that was observed
            assert answer.row["c"] > 1
            assert answer.row["d"] == 1  # the pair and c are two changes already
        (tighter,) = explained.explain(x, constraints={"max_changes": 1})
        assert tighter.status in ("not_found", "infeasible")
        joined = {"groups": [["c", "d"]], "rules": ["x_cf.d = 2"]}
        (three,) = explained.explain(x, constraints=joined)
        assert three.status != "found"  # the policy counts by its own groups: the pair, c and d
        wider = assemble(model, frame, None, WrapOptions(target="yes", constraints={**policy, "max_changes": 3}))
        row = wider.explain(x, constraints=joined)[0].counterfactuals[0].row
        assert (row["c"], row["d"]) in set(zip(frame["c"], frame["d"], strict=True))
        assert row["d"] == 2
