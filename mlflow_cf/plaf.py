"""PLAF, the language of constraints over several features: its text as syntax trees, and these as text again.

No name is resolved and nothing is evaluated here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any, Literal, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from mlflow_cf.errors import InputError

MAX_LENGTH = 10_000  # characters of one program or rule
MAX_DEPTH = 50  # nesting of one expression
_PLAIN = re.compile(r"[^\W\d]\w*")  # a name that needs no quotes

Sign = Literal["==", "!=", "<", "<=", ">", ">="]
Function = Literal["+", "-", "*", "/", "abs", "min", "max", "floor", "exp"]


@dataclass(frozen=True)
class Constant:
    """A constant: a number, a string (a level) or true/false."""

    value: float | str | bool


@dataclass(frozen=True)
class Reference:
    """``x.feature`` or ``x_cf.feature``."""

    side: Literal["x", "x_cf"]
    feature: str


@dataclass(frozen=True)
class Call:
    """Arithmetic on two expressions, or ``abs``, ``floor`` or ``exp`` of one, or ``min`` or ``max`` of several.

    A leading minus is 0 minus the rest; `depth` says how deep it is nested.
    """

    name: Function
    arguments: tuple[Node, ...]
    depth: int


Node = Constant | Reference | Call


@dataclass(frozen=True)
class Compared:
    """``left sign right``."""

    left: Node
    sign: Sign
    right: Node

    def __str__(self) -> str:
        return f"{text_of(self.left)} {self.sign} {text_of(self.right)}"


@dataclass(frozen=True)
class Statement:
    """``[IF when THEN] then``; its string is the rule in PLAF again."""

    when: tuple[Compared, ...]
    then: Compared

    def __str__(self) -> str:
        return f"IF {' and '.join(map(str, self.when))} THEN {self.then}" if self.when else str(self.then)


def nodes_of(node: Node) -> Iterator[Node]:
    """Yield an expression and all its subexpressions."""
    yield node
    if isinstance(node, Call):
        yield from chain.from_iterable(map(nodes_of, node.arguments))


def text_of(node: Node) -> str:
    """Return an expression in PLAF again."""
    match node:
        case Constant(bool(value)):
            return "true" if value else "false"
        case Constant(str(value)):
            return f'"{value}"' if "'" in value else f"'{value}'"
        case Constant(value):
            number = float(value)
            return repr(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
        case Reference(side, feature):
            return f"{side}.{feature}" if _PLAIN.fullmatch(feature) else f"{side}.`{feature}`"
        case Call("+" | "-" | "*" | "/" as sign, (left, right)):
            return f"({text_of(left)} {sign} {text_of(right)})"
        case Call(name, arguments):
            return f"{name}({', '.join(map(text_of, arguments))})"


def parse_program(text: str, path: str = "constraints") -> tuple[tuple[tuple[str, ...], ...], tuple[Statement, ...]]:
    """Return the groups and the rules of a whole program, in order.

    Raises:
        InputError: text that is no PLAF, with line, column and what was expected; too long or too deeply nested.
    """
    parts = _parse(text, "program", path)
    groups = tuple(part for part in parts if isinstance(part, tuple))
    rules = tuple(part for part in parts if isinstance(part, Statement))
    _refuse_functions(rules, path)
    return groups, rules


def parse_rule(text: str, path: str, *, functions: bool = False) -> Statement:
    """Parse one item of `rules`: a statement that may omit the leading PLAF and is no GROUP.

    Raises:
        InputError: as for a program; a function, but where `functions` allows them.
    """
    rule: Statement = _parse(text, "item", path, functions=functions)
    if not functions:
        _refuse_functions([rule], path)
    return rule


def _refuse_functions(rules: Iterable[Statement], path: str) -> None:
    for comparison in chain.from_iterable((*rule.when, rule.then) for rule in rules):
        for node in (*nodes_of(comparison.left), *nodes_of(comparison.right)):
            if isinstance(node, Call) and node.name.isalpha():
                raise InputError(path, f"rules know no {node.name}()", "functions are for actions and relationships")


def parse_expression(text: str, path: str) -> Node:
    """Parse an expression alone, such as the effort of an action; it may use functions.

    Raises:
        InputError: as for a program.
    """
    node: Node = _parse(text, "formula", path, functions=True)
    return node


def is_program(text: str) -> bool:
    """Whether `text` looks like PLAF rather than the name of a file."""
    words = [line.split("#")[0].split() for line in text.splitlines()]
    first = next((line[0].lower() for line in words if line), "")
    return first in {"plaf", "group"}


def _parse(text: str, start: str, path: str, *, functions: bool = False) -> Any:
    if len(text) > MAX_LENGTH:
        raise InputError(path, f"{len(text):,} characters of PLAF", f"stay below {MAX_LENGTH:,}; split it")
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        raise InputError(path, *_complaint(error, functions=functions)) from None
    except _RefusedError as error:
        raise InputError(path, *error.args) from None


class _RefusedError(Exception):
    """Text that is refused while it is parsed; the arguments are the fact and the fix."""


@v_args(inline=True)
class _Builder(Transformer[Token, object]):
    """Builds syntax trees while lark parses, bottom-up, so that nothing recurses over the input."""

    def program(self, *parts: tuple[str, ...] | Statement) -> tuple[tuple[str, ...] | Statement, ...]:
        return parts

    def group(self, *features: str) -> tuple[str, ...]:
        return features

    def rule(self, *comparisons: Compared) -> Statement:
        return Statement(comparisons[:-1], comparisons[-1])

    def comparison(self, left: Node, sign: Token, right: Node) -> Compared:
        return Compared(left, cast("Sign", "==" if sign == "=" else str(sign)), right)

    def arithmetic(self, left: Node, sign: Token, right: Node) -> Node:
        return self.call(sign, left, right)

    def call(self, name: Token, *arguments: Node) -> Node:
        depth = 1 + max(node.depth if isinstance(node, Call) else 0 for node in arguments)
        if depth > MAX_DEPTH:
            raise _RefusedError(f"an expression is nested more than {MAX_DEPTH} deep", "write simpler rules")
        function = cast("Function", str(name).lower())
        several = function not in ("abs", "floor", "exp")
        if several != (len(arguments) > 1):
            wanted = "two arguments or more" if several else "one argument"
            raise _RefusedError(f"{function}() of {len(arguments)}", f"it takes {wanted}")
        return Call(function, arguments, depth)

    def negative(self, sign: Token, inner: Node) -> Node:
        if isinstance(inner, Constant) and isinstance(inner.value, float):
            return Constant(-inner.value)
        return self.call(sign, Constant(0.0), inner)

    def number(self, token: Token) -> Constant:
        value = float(token)
        if not math.isfinite(value):
            raise _RefusedError(f"line {token.line}, column {token.column}: {token[:40]} is too large a number", "")
        return Constant(value)

    def string(self, token: Token) -> Constant:
        return Constant(str(token)[1:-1])

    def truth(self, token: Token) -> Constant:
        return Constant(token.lower() == "true")

    def reference(self, side: Token, feature: str) -> Reference:
        return Reference("x_cf" if side.startswith("x_cf") else "x", feature)

    def feature(self, token: Token) -> str:
        return str(token).strip("`")


@cache
def _parser() -> Lark:
    grammar = files("mlflow_cf").joinpath("plaf.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        start=["program", "item", "formula"],
        propagate_positions=True,
        maybe_placeholders=False,
        transformer=_Builder(),
    )


_WORDS = {
    "NAME": "a feature",
    "QUOTED": "a `feature`",
    "NUMBER": "a number",
    "STRING": "a 'level'",
    "SIGN": "a comparison",
    "SIDE": "x. or x_cf.",
    "FUNCTION": "abs(), min(), max(), floor() or exp()",
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


def _complaint(error: UnexpectedInput, *, functions: bool) -> tuple[str, str]:
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
    words = sorted({_WORDS.get(name, name.strip("_").upper()) for name in expected if functions or name != "FUNCTION"})
    return f"{where}: did not expect {found}", f"expected {', '.join(words)}"
