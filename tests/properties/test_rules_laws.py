"""PLAF rules in arrays decide as the slow interpreter decides on raw values, and search obeys it."""

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import worlds
from checker import Checker
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import dear
from properties.interpreter import NotPlafError, Reference, Sum, Table, program_of, rule_of
from rule_worlds import FEATURES, TABLE, all_rules, background, coded, comparisons, draw_rows, rule_texts

from mlflow_cf.constraints import Constraints, compile_rules
from mlflow_cf.constraints.programs import Checks
from mlflow_cf.constraints.rules import ground
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.options import WrapOptions
from mlflow_cf.plaf import parse_program, parse_rule
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.why_not.blame import impossible
from mlflow_cf.wrapping import assemble

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


@given(st.lists(all_rules(), min_size=1, max_size=3), seeds)
def test_pairs_are_checked_as_rows_are_one_by_one(texts: list[str], seed: int) -> None:
    before, after = draw_rows(seed, 20), draw_rows(seed + 1, 20)
    rules, codes = coded(texts, [*before, *after], FRAME)
    X, Z = codes[: len(before)], codes[len(before) :]
    for rule in rules:
        expected = [bool(rule.holds(Z[at : at + 1], X[at])[0]) for at in range(len(Z))]
        assert rule.holds(Z, X).tolist() == expected


SIMPLE = {
    "immutable": ["job", "home", "start"],
    "increasing": ["grade", "age"],
    "decreasing": ["income", "rooms"],
    "ranges": {"rooms": [1, 3], "end": ["2024-03-01", None]},
}


@given(st.sets(st.sampled_from(sorted(SIMPLE)), min_size=1), st.lists(all_rules(), max_size=4), seeds)
def test_rules_together_hold_where_each_does(keys: set[str], texts: list[str], seed: int) -> None:
    query, *rows = draw_rows(seed, 50)
    written, codes = coded(texts, [query, *rows], FRAME)
    constraints = Constraints.read({key: SIMPLE[key] for key in keys})
    rules = (*written, *compile_rules(constraints, FeatureSpace.infer(FRAME, FEATURES)))
    checks = Checks.of(rules)
    assert len(checks.others) <= len(written)
    for x0 in (codes[0], codes[:0:-1]):
        expected = np.ones(len(rows), dtype=bool)
        for rule in rules:
            expected &= rule.holds(codes[1:], x0)
        found = np.ones(len(rows), dtype=bool)
        checks.refuse(codes[1:], x0, found)
        assert found.tolist() == expected.tolist()


@given(all_rules(), seeds)
def test_a_rule_is_checked_as_it_says(text: str, seed: int) -> None:
    query, *rows = draw_rows(seed, 50)
    (rule,), codes = coded([text], [query, *rows], FRAME)
    for x0 in (codes[0], codes[:0:-1]):
        found = np.arange(len(rows)) % 5 > 0  # what is refused already stays so
        expected = rule.holds(codes[1:], x0) & found
        Checks.of([rule]).refuse(codes[1:], x0, found)
        assert found.tolist() == expected.tolist()


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
        if hasattr(part, "arguments"):
            return (part.name, *map(node, part.arguments))
        return (part.side, part.feature) if hasattr(part, "side") else part.value

    def pair(comparison: Any) -> Any:
        return node(comparison.left), comparison.sign, node(comparison.right)

    return tuple(map(pair, rule.when)), pair(rule.then)


@given(st.text(max_size=80))
def test_any_characters_are_read_or_refused(text: str) -> None:
    rule = verdict(lambda t: parse_rule(t, "rules[0]"), text)
    program = verdict(parse_program, text)
    assert rule is None or parse_rule(str(rule), "rules[0]") == rule
    assert program is None or isinstance(program[0], tuple)


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
        assert list(program[0]) == slow_program[0]
        assert list(map(parsed_shape, program[1])) == list(map(shape, slow_program[1]))


SMALL = rule_texts(
    comparisons(numbers=("age", "income", "rooms"), ordinals=("grade",), categories=("job",), booleans=("member",))
)
SMALL_TABLE = Table(levels={"grade": worlds.GRADES, "job": worlds.JOBS, "member": (False, True)})


def fitting(frame: pd.DataFrame, constraints: dict[str, Any], texts: list[str]) -> tuple[BoundPolicy, list[str]]:
    """Return the setting with those of the rules that close no circle, and these rules."""
    kept: list[str] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is not a level of ", UserWarning)
        bound_policy = worlds.setting_of(frame, constraints)
        for text in texts:
            try:
                bound_policy = worlds.setting_of(frame, {**constraints, "rules": [*kept, text]})
            except InputError as error:
                assert "depend on each other" in str(error)  # noqa: PT017  a circle is to be expected
                continue
            kept.append(text)
    return bound_policy, kept


def judging(frame: pd.DataFrame, constraints: dict[str, Any], texts: list[str], predict: Any = None) -> Checker:
    def rule(text: str) -> Any:
        slow = rule_of(text)
        return lambda query, row: slow.holds(query, row, SMALL_TABLE)

    return Checker(predict, frame, (constraints,), "yes", worlds.ORDERS, rules=tuple(map(rule, texts)))


small_sets = st.lists(SMALL, min_size=1, max_size=4)


@given(seeds, worlds.constraint_dicts, small_sets, worlds.wide_rows)
def test_the_cascade_repairs_or_rejects(
    seed: int, constraints: dict[str, Any], texts: list[str], query: dict[str, Any]
) -> None:
    frame = worlds.background(seed % 40)
    bound_policy, texts = fitting(frame, constraints, texts)
    problem = worlds.bind(bound_policy, worlds.table([query], frame))
    assume(not impossible(problem))
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(len(group.actions), size=30) for group in problem.groups])
    codes[::2] = np.where(rng.random(codes[::2].shape) < 0.6, problem.own, codes[::2])
    repaired = Cascade(problem, rng).repair(codes)
    checker = judging(frame, constraints, texts)
    for line in problem.rows(repaired):
        row = problem.space.values(line)
        assert checker.accepts(query, row), list(checker.broken(query, row))
    assert np.array_equal(Cascade(problem, rng).repair(repaired), repaired)
    lawful = codes[problem.check(problem.rows(codes))]
    assert {*map(tuple, lawful.tolist())} <= {*map(tuple, repaired.tolist())}  # what holds is left alone


@dear(2)
@given(seeds, st.sampled_from([0.03, 0.3]), worlds.constraint_dicts, small_sets, worlds.wide_rows)
def test_answers_obey_the_interpreter(
    seed: int, share: float, constraints: dict[str, Any], texts: list[str], query: dict[str, Any]
) -> None:
    frame, model = worlds.background(seed % 40), worlds.lottery(seed, share)
    _, texts = fitting(frame, constraints, texts)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is not a level of ", UserWarning)
        explained = worlds.explained(model, frame, {**constraints, "rules": texts})
    checker = judging(frame, constraints, texts, model.decide)
    (found,) = explained.explain(worlds.table([query], frame), count=3)
    assert found.status in ("found", "already", "infeasible", "not_found")
    for answer in found.counterfactuals:
        assert checker.faults(query, answer.row) == []
    if found.status == "infeasible":
        assert found.reason
        assert not any(checker.accepts(query, row) for row in everything(checker, query))


@given(seeds, st.sampled_from(["grid", "continuous"]), worlds.constraint_dicts, small_sets, worlds.wide_rows)
def test_answers_beyond_observed_values_obey_too(
    seed: int, values: Any, constraints: dict[str, Any], texts: list[str], query: dict[str, Any]
) -> None:
    frame, model = worlds.stepped(seed % 40), worlds.lottery(seed, 0.3)
    _, texts = fitting(frame, constraints, texts)
    steps = {"income": {"step": 0.5}} if values == "grid" else {}
    policy = WrapOptions(
        target="yes", constraints={**constraints, "rules": texts}, features={**worlds.FEATURES, **steps}, values=values
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is not a level of ", UserWarning)
        explained = assemble(model, frame, None, policy)
    grids = {"age": (20, 26, 1), "rooms": (1, 4, 1)} | ({"income": (0.0, 2.5, 0.5)} if steps else {})
    rules = judging(frame, constraints, texts).rules
    checker = Checker(model.decide, frame, (constraints,), "yes", worlds.ORDERS, values, grids, rules)
    (found,) = explained.explain(worlds.table([query], frame), count=2, max_evaluations=4_000)
    assert found.status != "invalid", found.reason
    for answer in found.counterfactuals:
        assert checker.faults(query, answer.row) == []


def everything(checker: Checker, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every row of observed tuples and the query row's own."""
    lines = worlds.row_dicts(checker.background)
    offers = [
        list({tuple(line[name] for name in group): None for line in [query, *lines]}) for group in checker.groups()
    ]
    names = [name for group in checker.groups() for name in group]
    for tuples in itertools.product(*offers):
        row = dict(zip(names, itertools.chain(*tuples), strict=True))
        yield {name: row[name] for name in query}


@dear(2)
@given(seeds, small_sets, small_sets, worlds.wide_rows)
def test_rules_of_a_request_hold_on_top(
    seed: int, policy: list[str], request: list[str], query: dict[str, Any]
) -> None:
    frame, model = worlds.background(seed % 40), worlds.lottery(seed, 0.3)
    _, policy = fitting(frame, {}, policy)
    _, both = fitting(frame, {}, [*policy, *request])
    request = both[len(policy) :]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is not a level of ", UserWarning)
        explained = worlds.explained(model, frame, {"rules": policy})
        (found,) = explained.explain(worlds.table([query], frame), count=2, constraints={"rules": request})
        (at_once,) = worlds.explained(model, frame, {"rules": both}).explain(worlds.table([query], frame), count=2)
    checker = judging(frame, {}, both, model.decide)
    for answer in found.counterfactuals:
        assert checker.faults(query, answer.row) == []
    assert found.status == at_once.status
    assert [answer.row for answer in found.counterfactuals] == [answer.row for answer in at_once.counterfactuals]


@given(st.lists(SMALL, min_size=2, max_size=5), st.sampled_from([(), (("income", "rooms"),), (("age", "job"),)]))
def test_the_order_is_that_of_the_rules(texts: list[str], groups: tuple[tuple[str, ...], ...]) -> None:
    frame = worlds.background(0)
    names = list(frame.columns)
    group_of = {name: next((group for group in groups if name in group), (name,)) for name in names}
    edges = {edge for text in texts for edge in dependencies(rule_of(text), group_of)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is not a level of ", UserWarning)
        try:
            bound_policy = worlds.setting_of(frame, {"rules": texts, "groups": groups})
        except InputError as error:
            assert circular(edges)
            circle = str(error).split(": ")[2].split("; ")[0].split(" -> ")
            assert circle[0] == circle[-1]
            steps = [{tuple(part.split("+")) for part in step} for step in itertools.pairwise(circle)]
            assert all(step in [set(edge) for edge in edges] for step in steps)
            return
    assert not circular(edges)
    place = {bound_policy.domains[number].columns: at for at, number in enumerate(bound_policy.order)}
    columns = {group: tuple(sorted(names.index(name) for name in group)) for group in group_of.values()}
    assert all(place[columns[first]] < place[columns[later]] for first, later in edges)


def dependencies(rule: Any, group_of: dict[str, tuple[str, ...]]) -> set[tuple[Any, Any]]:
    """Return (group mentioned, group defined) of a rule, by the words of GeCo section 3.2."""
    left, right = mentioned(rule.then.left), mentioned(rule.then.right)
    defined = None
    if isinstance(rule.then.left, Reference) and left and not left & right:
        defined = rule.then.left.feature
    elif isinstance(rule.then.right, Reference) and right and not left:
        defined = rule.then.right.feature
    if defined is None:
        return set()
    speaks_of = left | right
    for condition in rule.when:
        speaks_of |= mentioned(condition.left) | mentioned(condition.right)
    return {(group_of[name], group_of[defined]) for name in speaks_of if group_of[name] != group_of[defined]}


def mentioned(node: Any) -> set[str]:
    """Return the counterfactual's features in an expression."""
    if isinstance(node, Sum):
        return mentioned(node.left) | mentioned(node.right)
    return {node.feature} if isinstance(node, Reference) and node.side == "x_cf" else set()


def circular(edges: set[tuple[Any, Any]]) -> bool:
    """Whether the edges close a circle: take away groups nothing leads to until none is left."""
    while edges:
        free = {first for first, _ in edges} - {later for _, later in edges}
        if not free:
            return True
        edges = {edge for edge in edges if edge[0] not in free}
    return False
