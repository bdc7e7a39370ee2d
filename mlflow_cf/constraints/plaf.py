"""PLAF text to syntax trees. No name is resolved and nothing is evaluated here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from mlflow_cf.constraints.syntax import (
    Arithmetic,
    Call,
    Compared,
    FunctionName,
    Literally,
    Node,
    Operation,
    PlafProgram,
    Reference,
    Sign,
    Statement,
    depth_of,
    nodes_of,
)
from mlflow_cf.errors import InputError

MAX_LENGTH = 10_000  # characters of one program or rule
MAX_DEPTH = 50  # nesting of one expression


def parse_program(text: str, path: str = "constraints") -> PlafProgram:
    """Parse a whole program.

    Raises:
        InputError: text that is no PLAF, with line, column and what was expected; too long or too deeply nested.
    """
    parts = cast("list[Part]", _parse(text, "program", path))
    _check_plain(parts, path)
    groups = [part for part in parts if isinstance(part, tuple)]
    return PlafProgram(tuple(groups), tuple(part for part in parts if isinstance(part, Statement)))


def parse_rule(text: str, path: str, *, functions: bool = False) -> Statement:
    """Parse one item of `rules`: a statement that may omit the leading PLAF and is no GROUP.

    Raises:
        InputError: as for a program; a function, but where `functions` allows them.
    """
    (rule,) = cast("list[Part]", _parse(text, "item", path, functions=functions))
    if not functions:
        _check_plain([rule], path)
    return cast("Statement", rule)


def _check_plain(parts: Iterable[Part], path: str) -> None:
    """Refuse functions."""
    for rule in (part for part in parts if isinstance(part, Statement)):
        for comparison in (*rule.when, rule.then):
            for node in (*nodes_of(comparison.left), *nodes_of(comparison.right)):
                if isinstance(node, Call):
                    fix = "functions are for actions and relationships"
                    raise InputError(path, f"rules know no {node.name}()", fix)


def parse_expression(text: str, path: str) -> Node:
    """Parse an expression alone, such as the effort of an action; it may use functions.

    Raises:
        InputError: as for a program.
    """
    return cast("Node", _parse(text, "formula", path, functions=True))


def is_program(text: str) -> bool:
    """Whether `text` looks like PLAF rather than the name of a file."""
    words = [line.split("#")[0].split() for line in text.splitlines()]
    first = next((line[0].lower() for line in words if line), "")
    return first in {"plaf", "group"}


def _parse(text: str, start: str, path: str, *, functions: bool = False) -> object:
    if len(text) > MAX_LENGTH:
        raise InputError(path, f"{len(text):,} characters of PLAF", f"stay below {MAX_LENGTH:,}; split it")
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        raise InputError(path, *_complaint(error, functions=functions)) from None
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

    def conditions(self, *comparisons: Compared) -> tuple[Compared, ...]:
        return comparisons

    def rule(self, *parts: tuple[Compared, ...] | Compared) -> Statement:
        when = cast("tuple[Compared, ...]", parts[0]) if len(parts) > 1 else ()
        return Statement(when, cast("Compared", parts[-1]))

    def comparison(self, left: Node, sign: Token, right: Node) -> Compared:
        return Compared(left, cast("Sign", "==" if sign == "=" else str(sign)), right)

    def arithmetic(self, left: Node, sign: Token, right: Node) -> Node:
        depth = 1 + max(depth_of(left), depth_of(right))
        if depth > MAX_DEPTH:
            raise _RefusedError(f"an expression is nested more than {MAX_DEPTH} deep", "write simpler rules")
        return Operation(cast("Arithmetic", str(sign)), left, right, depth)

    def formula(self, node: Node) -> Node:
        return node

    def call(self, name: Token, *arguments: Node) -> Node:
        depth = 1 + max(map(depth_of, arguments))
        if depth > MAX_DEPTH:
            raise _RefusedError(f"an expression is nested more than {MAX_DEPTH} deep", "write simpler rules")
        function = cast("FunctionName", str(name).lower())
        several = function in ("min", "max")
        if several != (len(arguments) > 1):
            wanted = "two arguments or more" if several else "one argument"
            raise _RefusedError(f"{function}() of {len(arguments)}", f"it takes {wanted}")
        return Call(function, arguments, depth)

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
