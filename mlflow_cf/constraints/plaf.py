"""PLAF text to syntax trees. No name is resolved and nothing is evaluated here."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from mlflow_cf.errors import InputError

MAX_LENGTH = 10_000  # characters of one program or rule
MAX_DEPTH = 50  # nesting of one expression

Sign = Literal["==", "!=", "<", "<=", ">", ">="]
Arithmetic = Literal["+", "-", "*", "/"]


@dataclass(frozen=True)
class Literally:
    """A number, a string (a level) or true/false."""

    value: float | str | bool


@dataclass(frozen=True)
class Reference:
    """``x.feature`` or ``x_cf.feature``."""

    side: Literal["x", "x_cf"]
    feature: str


@dataclass(frozen=True)
class Operation:
    """Arithmetic on two expressions; a leading minus is 0 minus the rest."""

    sign: Arithmetic
    left: Node
    right: Node
    depth: int


Node = Literally | Reference | Operation


@dataclass(frozen=True)
class Comparison:
    """``left sign right``."""

    left: Node
    sign: Sign
    right: Node


@dataclass(frozen=True)
class Statement:
    """``[IF when THEN] then``; its string is the rule in PLAF again."""

    when: tuple[Comparison, ...]
    then: Comparison

    def __str__(self) -> str:
        then = _comparison_text(self.then)
        return f"IF {' and '.join(map(_comparison_text, self.when))} THEN {then}" if self.when else then


@dataclass(frozen=True)
class Program:
    """Groups and rules of a PLAF program, in order."""

    groups: tuple[tuple[str, ...], ...]
    rules: tuple[Statement, ...]


def parse_program(text: str, path: str = "constraints") -> Program:
    """Parse a whole program.

    Raises:
        InputError: text that is no PLAF, with line, column and what was expected; too long or too deeply nested.
    """
    parts = _parse(text, "program", path)
    groups = [part for part in parts if isinstance(part, tuple)]
    return Program(tuple(groups), tuple(part for part in parts if isinstance(part, Statement)))


def parse_rule(text: str, path: str) -> Statement:
    """Parse one item of `rules`: a statement that may omit the leading PLAF and is no GROUP.

    Raises:
        InputError: as for a program.
    """
    (rule,) = _parse(text, "item", path)
    return cast("Statement", rule)


def is_program(text: str) -> bool:
    """Whether `text` looks like PLAF rather than the name of a file."""
    words = [line.split("#")[0].split() for line in text.splitlines()]
    first = next((line[0].lower() for line in words if line), "")
    return first in {"plaf", "group"}


def _parse(text: str, start: str, path: str) -> list[Part]:
    if len(text) > MAX_LENGTH:
        raise InputError(path, f"{len(text):,} characters of PLAF", f"stay below {MAX_LENGTH:,}; split it")
    try:
        return cast("list[Part]", _parser().parse(text, start=start))
    except UnexpectedInput as error:
        raise InputError(path, *_complaint(error)) from None
    except _RefusedError as error:
        raise InputError(path, *error.args) from None


Group = tuple[str, ...]
Part = Group | Statement


class _RefusedError(Exception):
    """Its arguments are the fact and the fix."""


@v_args(inline=True)
class _Builder(Transformer[Token, object]):
    """Builds our nodes while lark parses, bottom-up, so that nothing recurses over the input."""

    def program(self, *parts: Part) -> list[Part]:
        return list(parts)

    def item(self, rule: Statement) -> list[Part]:
        return [rule]

    def group(self, *features: str) -> Group:
        return features

    def conditions(self, *comparisons: Comparison) -> tuple[Comparison, ...]:
        return comparisons

    def rule(self, *parts: tuple[Comparison, ...] | Comparison) -> Statement:
        when = cast("tuple[Comparison, ...]", parts[0]) if len(parts) > 1 else ()
        return Statement(when, cast("Comparison", parts[-1]))

    def comparison(self, left: Node, sign: Token, right: Node) -> Comparison:
        return Comparison(left, cast("Sign", "==" if sign == "=" else str(sign)), right)

    def arithmetic(self, left: Node, sign: Token, right: Node) -> Node:
        depth = 1 + max(_depth(left), _depth(right))
        if depth > MAX_DEPTH:
            raise _RefusedError(f"an expression is nested more than {MAX_DEPTH} deep", "write simpler rules")
        return Operation(cast("Arithmetic", str(sign)), left, right, depth)

    def negative(self, sign: Token, inner: Node) -> Node:
        if isinstance(inner, Literally) and isinstance(inner.value, float):
            return Literally(-inner.value)
        return self.arithmetic(Literally(0.0), sign, inner)

    def number(self, token: Token) -> Literally:
        value = float(token)
        if not math.isfinite(value):
            raise _RefusedError(f"line {token.line}, column {token.column}: {token[:40]} is too large a number", "")
        return Literally(value)

    def string(self, token: Token) -> Literally:
        return Literally(str(token)[1:-1])

    def yes(self) -> Literally:
        return Literally(value=True)

    def no(self) -> Literally:
        return Literally(value=False)

    def reference(self, side: Token, feature: str) -> Reference:
        return Reference("x_cf" if side.startswith("x_cf") else "x", feature)

    def feature(self, token: Token) -> str:
        return str(token).strip("`")


@cache
def _parser() -> Lark:
    grammar = files("mlflow_cf.constraints").joinpath("plaf.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        start=["program", "item"],
        propagate_positions=True,
        maybe_placeholders=False,
        transformer=_Builder(),
    )


def _depth(node: Node) -> int:
    return node.depth if isinstance(node, Operation) else 0


def _comparison_text(comparison: Comparison) -> str:
    return f"{_text(comparison.left)} {comparison.sign} {_text(comparison.right)}"


def _text(node: Node) -> str:
    match node:
        case Literally(bool(value)):
            return "true" if value else "false"
        case Literally(str(value)):
            return f'"{value}"' if "'" in value else f"'{value}'"
        case Literally(value):
            number = float(value)
            return repr(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
        case Reference(side, feature):
            return f"{side}.{feature}" if _PLAIN.fullmatch(feature) else f"{side}.`{feature}`"
        case Operation(sign, left, right):
            return f"({_text(left)} {sign} {_text(right)})"


_PLAIN = re.compile(r"[^\W\d]\w*")

_WORDS = {
    "NAME": "a feature",
    "QUOTED": "a `feature`",
    "NUMBER": "a number",
    "STRING": "a 'level'",
    "SIGN": "a comparison",
    "SIDE": "x. or x_cf.",
    "LPAR": "(",
    "RPAR": ")",
    "PLUS": "+",
    "MINUS": "-",
    "TIMES": "*",
    "OVER": "/",
    "COMMA": ",",
    "SEMICOLON": ";",
    "$END": "the end",
}


def _complaint(error: UnexpectedInput) -> tuple[str, str]:
    """Return the fact (where, what) and what was expected instead."""
    if isinstance(error, UnexpectedToken):
        expected = error.accepts or error.expected
        found = "the end" if error.token.type == "$END" else repr(str(error.token)[:40])
        where = "at the end" if error.token.type == "$END" else f"line {error.line}, column {error.column}"
    elif isinstance(error, UnexpectedCharacters):
        expected, found = error.allowed or set(), repr(error.char)
        where = f"line {error.line}, column {error.column}"
    else:
        return "not PLAF", "see the grammar in the documentation"
    words = sorted({_WORDS.get(name, name.strip("_").upper()) for name in expected})
    return f"{where}: did not expect {found}", f"expected {', '.join(words)}"
