"""PLAF rules in arrays decide as the slow interpreter decides on raw values, and search obeys it."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties.interpreter import NotPlafError, Reference, Sum, program_of, rule_of
from rule_worlds import TABLE, all_rules, background, coded, draw_rows

from mlflow_cf.constraints.plaf import parse_program, parse_rule
from mlflow_cf.constraints.rules import ground
from mlflow_cf.errors import InputError

seeds = st.integers(0, 2**32 - 1)
ROWS = 200  # per example; 50 examples of the dev profile make 10,000 rows
FRAME = background()


@given(st.lists(all_rules(), min_size=1, max_size=4), seeds)
def test_vectorised_rules_are_the_interpreters(texts: list[str], seed: int) -> None:
    query, *rows = draw_rows(seed, ROWS)
    rules, codes = coded(texts, [query, *rows], FRAME)
    for text, rule in zip(texts, rules, strict=True):
        slow = rule_of(text)
        expected = [slow.holds(query, row, TABLE) for row in rows]
        assert rule.holds(codes[1:], codes[0]).tolist() == expected, text


@given(all_rules(), seeds)
def test_grounding_changes_nothing(text: str, seed: int) -> None:
    query, *rows = draw_rows(seed, 50)
    (rule,), codes = coded([text], [query, *rows], FRAME)
    grounded = ground(rule, codes[0])
    expected = rule.holds(codes[1:], codes[0])
    if grounded is None:
        assert expected.all()
        return
    assert not grounded.columns("x")
    nobody = np.full(codes.shape[1], 1e9)  # a grounded rule must not look at the query row any more
    assert grounded.holds(codes[1:], nobody).tolist() == expected.tolist()


@given(all_rules())
def test_a_rule_survives_being_written_down(text: str) -> None:
    rule = parse_rule(text, "rules[0]")
    assert parse_rule(str(rule), "rules[0]") == rule
    assert str(parse_rule(str(rule), "rules[0]")) == str(rule)


@given(all_rules(), seeds)
def test_a_rule_written_down_means_the_same(text: str, seed: int) -> None:
    query, *rows = draw_rows(seed, 20)
    first, again = rule_of(text), rule_of(str(parse_rule(text, "rules[0]")))
    assert all(first.holds(query, row, TABLE) == again.holds(query, row, TABLE) for row in rows)


SCRAPS = [
    "x.", "x_cf.", "a", "`b c`", "1", ".5", "2.", "'a'", '"b"', "true", "FALSE", "==", "=", "!=", "<", "<=", ">", ">=",
    "+", "-", "*", "/", "(", ")", ",", ";", "IF", "if", "THEN", "and", "AND", "&&", "PLAF", "plaf", "GROUP", "group",
    "# c\n", "\n", "\t", "@", "'", "`", ".", "&", "!", "x", "x_cf", "1e", "1e5", "_", "é", "then1", "ifx", "\u0663",
]  # fmt: skip


def verdict(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except (InputError, NotPlafError):
        return None


def shape(rule: Any) -> Any:
    """Return the interpreter's tree in the package's own words for it."""

    def node(part: Any) -> Any:
        if isinstance(part, Sum):
            return (part.sign, node(part.left), node(part.right))
        return (part.side, part.feature) if isinstance(part, Reference) else part.value

    def pair(comparison: Any) -> Any:
        return node(comparison.left), comparison.sign, node(comparison.right)

    return tuple(map(pair, rule.when)), pair(rule.then)


def parsed_shape(rule: Any) -> Any:
    def node(part: Any) -> Any:
        if hasattr(part, "sign"):
            return (part.sign, node(part.left), node(part.right))
        return (part.side, part.feature) if hasattr(part, "side") else part.value

    def pair(comparison: Any) -> Any:
        return node(comparison.left), comparison.sign, node(comparison.right)

    return tuple(map(pair, rule.when)), pair(rule.then)


@given(st.lists(st.sampled_from(SCRAPS), max_size=14), st.sampled_from(["", " "]))
def test_any_text_is_read_or_refused(scraps: list[str], glue: str) -> None:
    text = glue.join(scraps)
    rule, slow = verdict(lambda t: parse_rule(t, "rules[0]"), text), verdict(rule_of, text)
    assert (rule is None) == (slow is None), text
    if rule is not None:
        assert parsed_shape(rule) == shape(slow)
    program, slow_program = verdict(parse_program, text), verdict(program_of, text)
    assert (program is None) == (slow_program is None), text
    if program is not None:
        assert list(program.groups) == slow_program[0]
        assert list(map(parsed_shape, program.rules)) == list(map(shape, slow_program[1]))
