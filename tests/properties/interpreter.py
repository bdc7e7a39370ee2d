"""PLAF rules decided a second time: plain Python over raw values, with a parser of its own.

Nothing of the package is imported and nothing is vectorised, so that a mistake in the package's grammar, codes or
arrays cannot hide behind itself. A missing value is None, NaN or NaT; levels are compared as they are written.
"""

import datetime as dt
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

Row = Mapping[str, Any]
TOKEN = re.compile(
    r"""\s+ | \#[^\n]*
    | (?P<number>(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)
    | (?P<string>"[^"\n]*"|'[^'\n]*')
    | (?P<quoted>`[^`\n]+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<sign>&&|==|!=|<=|>=|[=<>+\-*/().,;])""",
    re.VERBOSE,
)
END = ("end", "")
ORDERS = {"<", "<=", ">", ">="}


@dataclass(frozen=True)
class Table:
    """What the rules' words mean: features that hold levels (with the known ones, in rank order), and dates."""

    levels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    dates: Collection[str] = ()


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Word:
    value: str | bool


@dataclass(frozen=True)
class Reference:
    side: str
    feature: str


@dataclass(frozen=True)
class Sum:
    sign: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Comparison:
    left: Any
    sign: str
    right: Any


@dataclass(frozen=True)
class Rule:
    when: tuple[Comparison, ...]
    then: Comparison

    def holds(self, query: Row, row: Row, table: Table) -> bool:
        decide = Decider(query, row, table)
        return not all(map(decide.truth, self.when)) or decide.truth(self.then)


class NotPlafError(Exception):
    pass


def rule_of(text: str) -> Rule:
    """Return one item of `rules`: a statement that may omit the leading PLAF."""
    return Reader(text).item()


def program_of(text: str) -> tuple[list[tuple[str, ...]], list[Rule]]:
    """Return the groups and rules of a whole program."""
    return Reader(text).program()


def lawful(texts: Sequence[str], query: Row, row: Row, table: Table) -> bool:
    return all(rule_of(text).holds(query, row, table) for text in texts)


class Reader:
    """Recursive descent, one method per line of the grammar."""

    def __init__(self, text: str) -> None:
        self.tokens = [*tokens(text), END]
        self.at = 0

    def program(self) -> tuple[list[tuple[str, ...]], list[Rule]]:
        groups, rules = [], []
        while self.tokens[self.at] != END:
            if self.sign(";"):
                continue
            if self.keyword("group"):
                groups.append(self.group())
                continue
            self.need(self.keyword("plaf"))
            rules.append(self.rule())
        return groups, rules

    def item(self) -> Rule:
        self.keyword("plaf")
        rule = self.rule()
        while self.sign(";"):
            pass
        self.need(self.tokens[self.at] == END)
        return rule

    def group(self) -> tuple[str, ...]:
        names = [self.feature()]
        while self.sign(","):
            names.append(self.feature())
        return tuple(names)

    def rule(self) -> Rule:
        when = []
        if self.keyword("if"):
            when.append(self.comparison())
            while self.keyword("and") or self.sign("&&"):
                when.append(self.comparison())
            self.need(self.keyword("then"))
        return Rule(tuple(when), self.comparison())

    def comparison(self) -> Comparison:
        left = self.expression()
        sign = self.sign("==", "=", "!=", "<=", ">=", "<", ">")
        self.need(sign)
        return Comparison(left, "==" if sign == "=" else sign, self.expression())

    def expression(self) -> Any:
        node = self.term()
        while sign := self.sign("+", "-"):
            node = Sum(sign, node, self.term())
        return node

    def term(self) -> Any:
        node = self.factor()
        while sign := self.sign("*", "/"):
            node = Sum(sign, node, self.factor())
        return node

    def factor(self) -> Any:
        if self.sign("-"):
            inner = self.factor()
            return Number(-inner.value) if isinstance(inner, Number) else Sum("-", Number(0.0), inner)
        if self.sign("("):
            inner = self.expression()
            self.need(self.sign(")"))
            return inner
        return self.atom()

    def atom(self) -> Any:
        if self.keyword("true"):
            return Word(value=True)
        if self.keyword("false"):
            return Word(value=False)
        kind, text = self.next()
        if kind == "number":
            return Number(float(text))
        if kind == "string":
            return Word(text[1:-1])
        self.need(text in ("x", "x_cf") and self.sign("."))
        return Reference(text, self.feature())

    def feature(self) -> str:
        kind, text = self.next()
        self.need(kind in ("word", "quoted"))
        return text.strip("`")

    def need(self, found: object) -> None:
        if not found:
            raise NotPlafError(self.tokens[self.at :])

    def next(self) -> tuple[str, str]:
        token = self.tokens[self.at]
        self.at += token != END
        return token

    def sign(self, *signs: str) -> str:
        kind, text = self.tokens[self.at]
        found = kind == "sign" and text in signs
        self.at += found
        return text if found else ""

    def keyword(self, word: str) -> bool:
        kind, text = self.tokens[self.at]
        found = kind == "word" and text.lower() == word
        self.at += found
        return found


def tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise NotPlafError(text[position:])
        position = match.end()
        yield from ((kind, found) for kind, found in match.groupdict().items() if found is not None)


@dataclass(frozen=True)
class Decider:
    """Evaluates comparisons for one query row and one counterfactual."""

    query: Row
    row: Row
    table: Table

    def truth(self, comparison: Comparison) -> bool:
        sides = (comparison.left, comparison.right)
        named = [side.feature for side in sides if isinstance(side, Reference)]
        if any(name in self.table.levels for name in named):
            return self.levels(comparison)
        if all(isinstance(side, Word) for side in sides):
            return (comparison.left.value == comparison.right.value) == (comparison.sign == "==")
        bare = not any(isinstance(side, Sum) for side in sides)
        left, right = (self.number(side) for side in sides)
        if left is None or right is None:
            return self.unknown(comparison.sign, bare=bare, both=left is None and right is None)
        return {
            "==": left == right, "!=": left != right,
            "<": left < right, "<=": left <= right,
            ">": left > right, ">=": left >= right,
        }[comparison.sign]  # fmt: skip

    def unknown(self, sign: str, *, bare: bool, both: bool) -> bool:
        """Two bare missing values are equal; apart from that only a bare != is true."""
        if not bare:
            return False
        return sign in ("==", "<=", ">=") if both else sign == "!="

    def levels(self, comparison: Comparison) -> bool:
        sign = comparison.sign
        left, right = (self.level(side) for side in (comparison.left, comparison.right))
        if left is None or right is None:
            return self.unknown(sign, bare=True, both=left is None and right is None)
        same = left == right and self.known_word(comparison.left, comparison.right)
        if sign not in ORDERS:
            return same == (sign == "==")
        if same:
            return "=" in sign
        ranks = [self.rank(value, comparison) for value in (left, right)]
        if None in ranks:
            return False
        return ranks[0] < ranks[1] if sign.startswith("<") else ranks[0] > ranks[1]

    def level(self, side: Any) -> Any:
        """Return the level of a side; None if it is missing."""
        value = (self.row if side.side == "x_cf" else self.query)[side.feature] if isinstance(side, Reference) else None
        value = value if isinstance(side, Reference) else side.value
        return None if not isinstance(value, str) and pd.isna(value) else value

    def known_word(self, left: Any, right: Any) -> bool:
        """Whether a level written in the rule is one that the feature beside it has; else it is never equal."""
        if isinstance(left, Reference) and isinstance(right, Reference):
            return True
        reference, word = (left, right) if isinstance(left, Reference) else (right, left)
        return word.value in self.table.levels[reference.feature]

    def rank(self, value: Any, comparison: Comparison) -> int | None:
        name = next(side.feature for side in (comparison.left, comparison.right) if isinstance(side, Reference))
        known = list(self.table.levels[name])
        return known.index(value) if value in known else None

    def number(self, node: Any) -> float | None:
        """Return a number, or a date in days; None if it is missing or cannot be calculated."""
        if isinstance(node, Number):
            return node.value
        if isinstance(node, Word):
            return days(node.value)
        if isinstance(node, Reference):
            value = (self.row if node.side == "x_cf" else self.query)[node.feature]
            if pd.isna(value):
                return None
            return days(value) if node.feature in self.table.dates else float(value)
        left, right = self.number(node.left), self.number(node.right)
        if left is None or right is None or (node.sign == "/" and right == 0):
            return None
        result = {"+": left.__add__, "-": left.__sub__, "*": left.__mul__, "/": left.__truediv__}[node.sign](right)
        return result if math.isfinite(result) else None


def days(value: Any) -> float:
    """Return days since 1970 of a date, a moment or an ISO string; without a zone it is UTC."""
    moment = dt.datetime.fromisoformat(value) if isinstance(value, str) else pd.Timestamp(value).to_pydatetime()
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(days=1)
