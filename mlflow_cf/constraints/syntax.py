"""Syntax trees of PLAF, and their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Sign = Literal["==", "!=", "<", "<=", ">", ">="]
Arithmetic = Literal["+", "-", "*", "/"]
FunctionName = Literal["abs", "min", "max", "floor", "exp"]


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


@dataclass(frozen=True)
class Call:
    """A function of expressions: ``abs``, ``floor`` and ``exp`` of one, ``min`` and ``max`` of several."""

    name: FunctionName
    arguments: tuple[Node, ...]
    depth: int


Node = Literally | Reference | Operation | Call


@dataclass(frozen=True)
class Compared:
    """``left sign right``."""

    left: Node
    sign: Sign
    right: Node


@dataclass(frozen=True)
class Statement:
    """``[IF when THEN] then``; its string is the rule in PLAF again."""

    when: tuple[Compared, ...]
    then: Compared

    def __str__(self) -> str:
        then = _comparison_text(self.then)
        return f"IF {' and '.join(map(_comparison_text, self.when))} THEN {then}" if self.when else then


@dataclass(frozen=True)
class PlafProgram:
    """Groups and rules of a PLAF program, in order."""

    groups: tuple[tuple[str, ...], ...]
    rules: tuple[Statement, ...]


def nodes_of(node: Node) -> Iterator[Node]:
    """Yield an expression and all its parts."""
    yield node
    match node:
        case Operation(_, left, right):
            yield from nodes_of(left)
            yield from nodes_of(right)
        case Call(_, arguments):
            for argument in arguments:
                yield from nodes_of(argument)


def depth_of(node: Node) -> int:
    """Return how deep an expression is nested."""
    return node.depth if isinstance(node, Operation | Call) else 0


def _comparison_text(comparison: Compared) -> str:
    return f"{text_of(comparison.left)} {comparison.sign} {text_of(comparison.right)}"


def text_of(node: Node) -> str:
    """Return an expression in PLAF again."""
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
            return f"({text_of(left)} {sign} {text_of(right)})"
        case Call(name, arguments):
            return f"{name}({', '.join(map(text_of, arguments))})"


_PLAIN = re.compile(r"[^\W\d]\w*")
