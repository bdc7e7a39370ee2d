"""PLAF as text: every line of its grammar, what it becomes, and errors that say where and what was expected."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import InputError, InputErrors
from mlflow_cf.features import FeatureSpace
from mlflow_cf.plaf import (
    MAX_LENGTH,
    Call,
    Compared,
    Constant,
    Reference,
    Statement,
    is_program,
    parse_program,
    parse_rule,
)
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy

AGE = Reference("x_cf", "age")
OLD = Reference("x", "age")


def rule(text: str) -> Statement:
    return parse_rule(text, "rules[0]")


def then(text: str) -> Compared:
    return rule(text).then


def right(text: str) -> Any:
    return then(f"x_cf.age = {text}").right


class TestStatements:
    def test_a_bare_comparison(self) -> None:
        assert rule("x_cf.age >= x.age") == Statement((), Compared(AGE, ">=", OLD))

    def test_conditions(self) -> None:
        found = rule("IF x_cf.age > x.age and x.age < 3 THEN x_cf.age = 5")
        assert found == Statement(
            (Compared(AGE, ">", OLD), Compared(OLD, "<", Constant(3.0))), Compared(AGE, "==", Constant(5.0))
        )

    @pytest.mark.parametrize(
        "text",
        [
            "IF x.age > 1 AND x.age < 9 THEN x_cf.age = 5",
            "if x.age > 1 and x.age < 9 then x_cf.age = 5",
            "If x.age > 1 aNd x.age < 9 tHeN x_cf.age = 5",
            "IF x.age > 1 && x.age < 9 THEN x_cf.age = 5",
            "IF x.age>1&&x.age<9 THEN x_cf.age=5",
            "PLAF IF x.age > 1 and x.age < 9 THEN x_cf.age = 5",
            "plaf if x.age > 1 and x.age < 9 then x_cf.age == 5;",
            "IF x.age > 1\n  and x.age < 9\nTHEN\tx_cf.age = 5 ; ;",
            "IF x.age > 1 # older than one\n and x.age < 9 THEN x_cf.age = 5 # so be it",
            "# first of all\nIF x . age > 1 and x. age < 9 THEN x_cf .age = 5",
            "IF x.`age` > (1) and (x.age) < 9.0 THEN x_cf.age = 5.",
        ],
    )
    def test_one_rule_in_many_spellings(self, text: str) -> None:
        assert str(rule(text)) == "IF x.age > 1 and x.age < 9 THEN x_cf.age == 5"

    @pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
    def test_signs(self, sign: str) -> None:
        assert then(f"x_cf.age {sign} x.age").sign == sign
        assert then(f"x_cf.age{sign}x.age").sign == sign

    def test_one_equals_sign_is_two(self) -> None:
        assert then("x_cf.age = 1") == then("x_cf.age == 1")

    @pytest.mark.parametrize("name", ["if", "THEN", "and", "plaf", "Group", "true", "x", "x_cf", "_", "a1", "größe"])
    def test_words_of_the_language_are_names_too(self, name: str) -> None:
        assert then(f"x_cf.{name} >= x.{name}").left == Reference("x_cf", name)
        assert parse_program(f"GROUP {name}, b PLAF x_cf.{name} = 1")[0] == ((name, "b"),)

    @pytest.mark.parametrize(
        "name", ["hours per week", "a-b", "1st", "a.b", "#", "it's", 'say "x"', "ü ö", "x;y", "=<"]
    )
    def test_other_names_in_backquotes(self, name: str) -> None:
        found = rule(f"x_cf.`{name}` >= x.`{name}`")
        assert found.then == Compared(Reference("x_cf", name), ">=", Reference("x", name))
        assert str(found) == f"x_cf.`{name}` >= x.`{name}`"


class TestExpressions:
    @pytest.mark.parametrize(
        ("text", "value"),
        [("5", 5.0), ("5.", 5.0), (".5", 0.5), ("0.5e-3", 0.0005), ("1E3", 1000.0), ("2e+2", 200.0), ("-3", -3.0),
         ("--3", 3.0), ("-(2)", -2.0), ("007", 7.0), ("1e-400", 0.0), ("9007199254740993", 9007199254740992.0)],
    )  # fmt: skip
    def test_numbers(self, text: str, value: float) -> None:
        assert right(text) == Constant(value)

    @pytest.mark.parametrize(
        ("text", "value"),
        [("'a'", "a"), ('"a"', "a"), ("''", ""), ("\"it's\"", "it's"), ("'say \"x\"'", 'say "x"'), ("'# no'", "# no"),
         ("'a and b'", "a and b"), ("'`'", "`"), ("true", True), ("TRUE", True), ("False", False)],
    )  # fmt: skip
    def test_levels_and_truth(self, text: str, value: Any) -> None:
        assert right(text) == Constant(value)
        assert type(right(text).value) is type(value)

    @pytest.mark.parametrize(
        ("text", "same"),
        [
            ("1 + 2 * x.age", "1 + (2 * x.age)"),
            ("1 * 2 + x.age", "(1 * 2) + x.age"),
            ("1 - 2 - x.age", "(1 - 2) - x.age"),
            ("8 / 4 / x.age", "(8 / 4) / x.age"),
            ("8 / 4 * x.age", "(8 / 4) * x.age"),
            ("1 - 2 + x.age", "(1 - 2) + x.age"),
            ("-x.age + 1", "(0 - x.age) + 1"),
            ("-x.age * 2", "(0 - x.age) * 2"),
            ("2 * -x.age", "2 * (0 - x.age)"),
            ("1--x.age", "1 - (0 - x.age)"),
            ("-(x.age + 1)", "0 - (x.age + 1)"),
            ("((x.age))", "x.age"),
        ],
    )
    def test_precedence(self, text: str, same: str) -> None:
        assert right(text) == right(same)
        assert right(text) != right("x.age + 99")

    def test_left_to_right(self) -> None:
        one, two, three = (Constant(float(n)) for n in (1, 2, 3))
        assert right("1 - 2 - 3") == Call("-", (Call("-", (one, two), 1), three), 2)
        assert right("1 - (2 - 3)") == Call("-", (one, Call("-", (two, three), 1)), 2)

    def test_arithmetic_binds_tighter_than_a_comparison(self) -> None:
        found = then("x.age + 1 < x_cf.age * 2")
        assert (found.left.name, found.sign, found.right.name) == ("+", "<", "*")

    @pytest.mark.parametrize(
        "text",
        ["x_cf.age = 0.1", "x_cf.age = 1e+300", "x_cf.age = -0.5", "x_cf.age = (1 - (2 - (3 / x.b)))", "x_cf.a != ''",
         "x_cf.a == \"it's\"", "1 == 2", "IF true == false THEN 'a' == 'b'", "x_cf.age = 123456789012345680000"],
    )  # fmt: skip
    def test_written_down_and_read_again(self, text: str) -> None:
        assert rule(str(rule(text))) == rule(text)


class TestPrograms:
    def test_statements_end_where_the_next_begins(self) -> None:
        text = "GROUP a, `b c` GROUP d,e PLAF x_cf.a >= x.a PLAF IF x.a = 1 THEN x_cf.d = 2 group f PLAF 1 = 2"
        groups, rules = parse_program(text)
        assert groups == (("a", "b c"), ("d", "e"), ("f",))
        assert list(map(str, rules)) == ["x_cf.a >= x.a", "IF x.a == 1 THEN x_cf.d == 2", "1 == 2"]
        assert parse_program(text.replace(" PLAF", ";PLAF").replace(" GROUP", "\n;\nGROUP")) == (groups, rules)

    @pytest.mark.parametrize("text", ["", "  ", "# nothing", ";;"])
    def test_nothing(self, text: str) -> None:
        assert parse_program(text) == parse_program("")

    def test_the_papers_example_with_comments(self) -> None:
        groups, rules = parse_program(
            """
            # who must not change, and who grows older
            GROUP education, income
            PLAF x_cf.gender == x.gender      # immutable
            PLAF x_cf.age >= x.age
            PLAF IF x_cf.education > x.education
                 THEN x_cf.age > x.age + 4
            """
        )
        assert groups == (("education", "income"),)
        assert str(rules[2]) == "IF x_cf.education > x.education THEN x_cf.age > (x.age + 4)"

    @pytest.mark.parametrize(
        ("text", "program"),
        [("PLAF 1 = 2", True), ("group a", True), ("# c\n\n  plaf\n1 = 2", True), ("c.yaml", False),
         ("plaf.yaml", False), ("plaf/c.yaml", False), ("", False), ("# c", False)],
    )  # fmt: skip
    def test_told_from_file_names(self, text: str, *, program: bool) -> None:
        assert is_program(text) == program


class TestReading:
    """The same constraints from text, files and objects."""

    TEXT = "GROUP a, b PLAF x_cf.a >= x.a; PLAF IF x_cf.b = 1 THEN x_cf.c < 2"
    KEYS = {"groups": [["a", "b"]], "rules": ["x_cf.a >= x.a", "IF x_cf.b == 1 THEN x_cf.c < 2"]}  # noqa: RUF012

    def test_text_file_yaml_json_and_dict(self, tmp_path: Path) -> None:
        (tmp_path / "c.plaf").write_text(self.TEXT, encoding="utf-8")
        (tmp_path / "c.json").write_text(json.dumps(self.KEYS), encoding="utf-8")
        (tmp_path / "c.yaml").write_text(
            "groups: [[a, b]]\nrules:\n  - x_cf.a >= x.a\n  - IF x_cf.b == 1 THEN x_cf.c < 2\n", encoding="utf-8"
        )
        sources = [self.TEXT, tmp_path / "c.plaf", tmp_path / "c.json", str(tmp_path / "c.yaml"), self.KEYS]
        assert {json.dumps(Constraints.read(source).to_dict()) for source in sources} == {json.dumps(self.KEYS)}

    def test_the_same_rules_come_out(self) -> None:
        frame = pd.DataFrame({"a": [1, 2, 3], "b": [1, 2, 1], "c": [1.0, 2.5, 3.5]})
        space = FeatureSpace.infer(frame)
        built = [
            BoundPolicy.build(space, space.encode(frame), Constraints.read(source), Distance(), "observed")
            for source in (self.TEXT, self.KEYS)
        ]
        assert built[0].rules == built[1].rules
        assert [domain.columns for domain in built[0].domains] == [domain.columns for domain in built[1].domains]

    def test_an_item_may_say_plaf_itself(self) -> None:
        assert str(rule("PLAF x_cf.a >= x.a")) == str(rule("x_cf.a >= x.a"))

    @pytest.mark.parametrize("text", ["x_cf.a >= x.a", "IF x.a = 1 THEN x_cf.a = 2", "x" * 5000])
    def test_text_that_is_no_file_says_how_statements_start(self, text: str) -> None:
        with pytest.raises(InputError, match=r"constraints: no file at .* statements that start with PLAF or GROUP"):
            Constraints.read(text)


START = "(, -, FALSE, IF, PLAF, TRUE, a 'level', a number, x. or x_cf."
VALUE = "(, -, FALSE, TRUE, a 'level', a number, x. or x_cf."


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "where", "expected"),
        [
            ("", "at the end: did not expect the end", START),
            ("# nothing", "at the end: did not expect the end", START),
            ("x_cf.age >=", "at the end: did not expect the end", VALUE),
            ("x_cf.age", "at the end: did not expect the end", "+, -, a comparison"),
            ("x_cf.age => 5", "line 1, column 11: did not expect '>'", VALUE),
            ("x_cf.age >= 5 6", "line 1, column 15: did not expect '6'", "*, +, -, /, ;, the end"),
            ("x_cf.age >= 5abc", "line 1, column 14: did not expect 'abc'", "*, +, -, /, ;, the end"),
            ("x_cf.age >= 1 < 2", "line 1, column 15: did not expect '<'", "+, -, ;, the end"),
            ("X.age >= 5", "line 1, column 1: did not expect 'X'", START),
            ("age >= 5", "line 1, column 1: did not expect 'age'", START),
            ("x_cf.age >= age", "line 1, column 13: did not expect 'age'", VALUE),
            ("x_cf.1 >= 5", "line 1, column 6: did not expect '1'", "a `feature`, a feature"),
            ("x_cf. >= 5", "line 1, column 7: did not expect '>='", "a `feature`, a feature"),
            ("x_cf.age >= 'a", 'line 1, column 13: did not expect "\'"', VALUE),
            ("x_cf.`age >= 5", "line 1, column 6: did not expect '`'", "a `feature`, a feature"),
            ("x_cf.age >= (1 + 2", "at the end: did not expect the end", "), +, -"),
            ("x_cf.age >= 1 + 2)", "line 1, column 18: did not expect ')'", "+, -, ;, the end"),
            ("x_cf.age >= @", "line 1, column 13: did not expect '@'", VALUE),
            ("IF x.age = 1", "at the end: did not expect the end", "AND, THEN"),
            ("IF x.age = 1 or x.b = 2 THEN 1 = 2", "line 1, column 14: did not expect 'or'", "*, +, -, /, AND, THEN"),
            ("x_cf.age = 1 and x_cf.b = 2", "line 1, column 14: did not expect 'and'", ";, the end"),
            ("IF x.age = 1\nTHEN x_cf.age =\n  nothing", "line 3, column 3: did not expect 'nothing'", VALUE),
            ("GROUP a, b", "line 1, column 1: did not expect 'GROUP'", START),
            ("x_cf.a = 1; x_cf.b = 2", "line 1, column 13: did not expect 'x_cf.'", ";, the end"),
            ("x_cf.a = 1 PLAF x_cf.b = 2", "line 1, column 12: did not expect 'PLAF'", ";, the end"),
            ("NOT x.a = 1", "line 1, column 1: did not expect 'NOT'", START),
        ],
    )
    def test_say_where_and_what_was_expected(self, text: str, where: str, expected: str) -> None:
        with pytest.raises(InputError) as error:
            rule(text)
        assert (error.value.path, error.value.fact, error.value.fix) == ("rules[0]", where, f"expected {expected}")

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            ("PLAF x_cf.a >= 1\n\n  GROUP a,", "at the end: did not expect the end"),
            ("PLAF x_cf.a >= 1\n\n  x_cf.b >= 1", "line 3, column 3: did not expect 'x_cf.'"),
            ("IF x.a = 1 THEN x_cf.a = 2", "line 1, column 1: did not expect 'IF'"),
            ("GROUP a PLAF\nPLAF 1 = 2", "line 2, column 1: did not expect 'PLAF'"),
            ("GROUP a b", "line 1, column 9: did not expect 'b'"),
        ],
    )
    def test_of_programs(self, text: str, where: str) -> None:
        with pytest.raises(InputError) as error:
            parse_program(text)
        assert (error.value.path, error.value.fact) == ("constraints", where)

    def test_of_rules_name_the_rule(self) -> None:
        frame = pd.DataFrame({"a": [1, 2]})
        space = FeatureSpace.infer(frame)
        rules = Constraints(rules=("x_cf.a > 1", "x_cf.a >", "x_cf.b = 1", "x_cf.a = 'b'"))
        with pytest.raises(InputErrors) as error:
            BoundPolicy.build(space, space.encode(frame), rules, Distance(), "observed")
        assert [found.path for found in error.value.errors] == [f"constraints.rules[{n}]" for n in (1, 2, 3)]

    @pytest.mark.parametrize("number", ["1e999", "9" * 400, "1" + "0" * 309 + ".5"])
    def test_numbers_too_large_for_a_float(self, number: str) -> None:
        with pytest.raises(InputError, match=r"line 1, column 12: \d.* is too large a number"):
            rule(f"x_cf.age = {number}")

    @pytest.mark.parametrize("value", [5, None, ["x_cf.a = 1"], {"if": 1}, True])
    def test_rules_are_texts(self, value: Any) -> None:
        with pytest.raises(InputError, match=r"constraints\.rules\[0\]: input should be a valid string"):
            Constraints.read({"rules": [value]})

    def test_a_rule_alone_is_no_list(self) -> None:
        with pytest.raises(InputError, match=r"constraints\.rules: must be a list"):
            Constraints.read({"rules": "x_cf.a = 1"})


LONG = {
    "parentheses": "x_cf.a = " + "(" * 9_900,
    "closed parentheses": "x_cf.a = " + "(" * 4_900 + "1" + ")" * 4_900 + "x",
    "signs": "x_cf.a = " + "-" * 9_900 + "x.a",
    "sum": "x_cf.a = " + "1+" * 4_900 + "1",
    "quotients": "x_cf.a = " + "1/(" * 3_000 + "1",
    "conditions": "IF " + " and ".join(["x.a > 1"] * 800) + " THEN x_cf.a",
    "word": "x" * 9_990,
    "name": "x_cf." + "x" * 9_900 + " = 1",
    "string": "x_cf.a = '" + "b" * 9_900 + "'",
    "open string": "x_cf.a = '" + "b" * 9_900,
    "quotes": "'" * 9_990,
    "backquotes": "`" * 9_990,
    "comment": "#" * 9_990,
    "blank": " " * 9_990,
    "digits": "x_cf.a = " + "1" * 9_900,
    "dots": "x_cf.a = " + "." * 9_900,
    "semicolons": ";" * 9_990,
    "keywords": "IF " * 3_300,
    "references": "x_cf.a" * 1_600,
    "too long": "x_cf.a = 1" + " " * 9_999,
}


@pytest.mark.parametrize("name", LONG)
def test_ten_thousand_characters_are_refused(name: str) -> None:
    """One that is read in exponential time would not end here."""
    frame = pd.DataFrame({"a": [1, 2, 3]})
    space = FeatureSpace.infer(frame)
    with pytest.raises(InputError) as error:
        BoundPolicy.build(space, space.encode(frame), Constraints(rules=(LONG[name],)), Distance(), "observed")
    assert len(str(error.value)) < 500
    assert error.value.path == "constraints.rules[0]"


def test_threads_may_parse_at_once() -> None:
    texts = [f"IF x_cf.a{n} > {n} and x.b = 'l{n}' THEN x_cf.c{n} <= (x.d + {n}) * 2" for n in range(40)]
    expected = [str(rule(text)) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        read = list(threads.map(lambda _: [str(rule(text)) for text in texts], range(24)))
    assert read == [expected] * 24


def test_long_rules_that_are_fine() -> None:
    conditions = " and ".join(["x.a > 1"] * 800)
    assert len(rule(f"IF {conditions} THEN x_cf.a = 1").when) == 800
    assert right("(" * 4_900 + "1" + ")" * 4_900) == Constant(1.0)
    assert right("-" * 9_000 + "1") == Constant(1.0)


def test_nesting_has_a_limit() -> None:
    assert str(rule("x_cf.a = " + "(x.a + " * 49 + "1" + ")" * 49)).count("+") == 49
    with pytest.raises(InputError, match=r"rules\[0\]: an expression is nested more than 50 deep; write simpler rules"):
        rule("x_cf.a = " + "(x.a + " * 51 + "1" + ")" * 51)


def test_length_has_a_limit() -> None:
    assert MAX_LENGTH == 10_000
    rule("x_cf.a = 1" + " " * (MAX_LENGTH - 10))
    with pytest.raises(InputError, match=r"rules\[0\]: 10,001 characters of PLAF; stay below 10,000"):
        rule("x_cf.a = 1" + " " * (MAX_LENGTH - 9))


def test_all_rules_of_a_request_together_have_a_limit() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    space = FeatureSpace.infer(frame)
    rules = Constraints(rules=("x_cf.a = 1" + " " * 9_900,) * 11)
    with pytest.raises(InputError, match=r"constraints\.rules: 109,010 characters of PLAF in all; stay below 100,000"):
        BoundPolicy.build(space, space.encode(frame), rules, Distance(), "observed")
    with pytest.raises(InputError, match=r"constraints\.rules: .* at most 256 items"):
        Constraints.read({"rules": ["x_cf.a = 1"] * 257})


def test_a_rule_of_many_conditions() -> None:
    frame = pd.DataFrame({"a": np.arange(2_000)})
    space = FeatureSpace.infer(frame)
    text = "IF " + " and ".join(["x_cf.a > 1"] * 600) + " THEN x_cf.a < 1900"
    prepared = BoundPolicy.build(space, space.encode(frame), Constraints(rules=(text,)), Distance(), "observed")
    accepted = prepared.accepts(space.encode(frame), np.array([5.0]))
    assert accepted.sum() == 1899  # 0 to 1899 without the row itself


@pytest.mark.parametrize("rule", ["x_cf.age = x.age", "IF x.job = 'a' THEN x_cf.job = 'b'"])
def test_one_equals_sign_reads_as_two(rule: str) -> None:
    assert parse_rule(rule, "rule") == parse_rule(rule.replace("=", "=="), "rule")
