"""Resolves PLAF syntax trees to rules: names to columns, levels and dates to codes; types are checked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mlflow_cf.constraints.expressions import Apply, Const, Expression, Recoded, Ref, Side, level_table
from mlflow_cf.constraints.rules import Atom, Origin, Rule
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import Feature, FeatureSpace, a_kind, days
from mlflow_cf.plaf import Call, Compared, Constant, Node, Reference, Sign, Statement, nodes_of

UNKNOWN = Const(float("inf"))  # a level no feature has: equal to nothing, and without a rank
_MIRROR: dict[Sign, Sign] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


Kind = Literal["number", "date", "level", "word"]


@dataclass(frozen=True)
class _Side:
    """One side of a comparison.

    Attributes:
        kind: ``number``, ``date``, ``level`` (a bare reference to levels), or ``word``: a string or true/false,
            which means nothing until the other side says whose level or date it is.
        feature: whose level it is; `word`: what was written.
    """

    expression: Expression
    kind: Kind
    feature: Feature | None = None
    word: str | bool | None = None


def known_levels(feature: Feature, word: object, *, reveal: bool) -> str:
    """Return the fix for a `word` that is no level of `feature`; it names levels only if `reveal` allows it."""
    return did_you_mean(word, feature.levels, "levels") if reveal else "write levels as the model's data have them"


def resolve(
    statement: Statement, space: FeatureSpace, origin: Origin, *, reveal: bool = True, path: str | None = None
) -> Rule:
    """Return the rule of a statement at `path`; with `reveal`, errors and warnings may name levels.

    Raises:
        InputError: unknown features, levels compared with numbers, an order where there is none, arithmetic on levels.
    """
    path = origin.path if path is None else path
    when = tuple(_atom(comparison, space, path, reveal=reveal) for comparison in statement.when)
    then = statement.then
    of_row = all(part.side == "x" for part in nodes_of(then.left) if isinstance(part, Reference))
    if of_row and isinstance(then.right, Reference) and then.right.side == "x_cf":
        then = Compared(then.right, _MIRROR[then.sign], then.left)  # so that it defines F of x_cf.F (GeCo section 3.2)
    atom, defines = _atom(then, space, path, reveal=reveal), None
    match then:
        case Compared(Reference("x_cf", name) as left, _, right) if left not in nodes_of(right):
            defines = space.index[name]
    return Rule(when, atom, origin, str(statement), defines)


def check_sides(node: Node, sides: Sequence[Side], path: str) -> None:
    """Refuse expressions that mention another side (``x``, ``x_cf``) than `sides`.

    Raises:
        InputError: one mentions it.
    """
    for part in nodes_of(node):
        if isinstance(part, Reference) and part.side not in sides:
            fact = f"speaks of {part.side}.{part.feature}, which is not known yet"
            raise InputError(path, fact, f"use {' and '.join(f'{side}.' for side in sides)} alone")


def resolve_number(node: Node, space: FeatureSpace, path: str) -> Expression:
    """Return a numeric expression, such as an effort.

    Raises:
        InputError: unknown features, or what is no number.
    """
    side = _side(node, space, path)
    if side.kind != "number":
        raise InputError(path, f"{_called(side)} is no number", "calculate with numbers")
    return side.expression


def resolve_code(node: Node, feature: Feature, space: FeatureSpace, path: str, *, reveal: bool = True) -> Expression:
    """Return the expression of a value that a feature is set to, in the feature's codes; unknown where it has no code.

    Raises:
        InputError: unknown features, or a value of another kind.
    """
    left = _Side(Ref("x_cf", space.index[feature.name]), "level", feature)
    right = _side(node, space, path)
    if not feature.numeric:
        return _beside_level(left, "==", right, path, reveal=reveal)
    kind: Kind = "date" if feature.kind == "date" else "number"
    left = _Side(left.expression, kind, feature)
    right = _as_date(right, left, path)
    if right.kind != kind:
        raise InputError(path, f"sets {feature.name}, a {kind}, to {_called(right)}", "give a value of its kind")
    return _as_stored(right, left)


def _atom(comparison: Compared, space: FeatureSpace, path: str, *, reveal: bool) -> Atom:
    sign = comparison.sign
    left, right = _side(comparison.left, space, path), _side(comparison.right, space, path)
    if "level" in (left.kind, right.kind):
        return _level_atom(left, sign, right, path, reveal=reveal)
    if left.kind == right.kind == "word":
        if isinstance(left.word, bool) != isinstance(right.word, bool) or sign not in ("==", "!="):
            raise InputError(path, f"cannot compare {_called(left)} {sign} {_called(right)}", "name a feature")
        return Atom(Const(0.0), sign, Const(0.0 if left.word == right.word else 1.0))
    left, right = _as_date(left, right, path), _as_date(right, left, path)
    if left.kind != right.kind:
        raise InputError(path, f"compares {_called(left)} with {_called(right)}", "compare like with like")
    return Atom(_as_stored(left, right), sign, _as_stored(right, left))


def _side(node: Node, space: FeatureSpace, path: str) -> _Side:
    match node:
        case Constant(bool() | str() as word):
            return _Side(UNKNOWN, "word", word=word)
        case Constant(value):
            return _Side(Const(float(value)), "number")
        case Reference(side, name):
            if name not in space.index:
                raise InputError(path, f"{name!r:.60} is not a feature", did_you_mean(name, space.names, "features"))
            feature = space[name]
            kind: Kind = "level" if not feature.numeric else "date" if feature.kind == "date" else "number"
            return _Side(Ref(side, space.index[name]), kind, feature)
        case Call("+" | "-" | "*" | "/" as sign, (left, right)):
            return _sum(sign, _side(left, space, path), _side(right, space, path), path)
        case Call(function, arguments):
            sides = [_side(argument, space, path) for argument in arguments]
            for one in sides:
                if one.kind != "number":
                    fact = f"{function}() of {_called(one)} has no meaning"
                    raise InputError(path, fact, "calculate with numbers")
            return _Side(Apply(function, tuple(one.expression for one in sides)), "number")


def _called(side: _Side) -> str:
    if side.kind == "word":
        return f"{side.word!r:.60}" if isinstance(side.word, str) else str(side.word).lower()
    return f"a {side.kind}"


def _sum(sign: Literal["+", "-", "*", "/"], left: _Side, right: _Side, path: str) -> _Side:
    """Return arithmetic on numbers and dates: date and days make a date, the difference of two dates is days."""
    kinds, calculated = (left.kind, right.kind), Apply(sign, (left.expression, right.expression))
    if kinds == ("number", "number") or (kinds == ("date", "date") and sign == "-"):
        return _Side(calculated, "number")
    if (kinds == ("date", "number") and sign in "+-") or (kinds == ("number", "date") and sign == "+"):
        return _Side(calculated, "date")
    raise InputError(path, f"{_called(left)} {sign} {_called(right)} has no meaning", "calculate with numbers")


def _as_stored(side: _Side, other: _Side) -> Expression:
    """Return a constant that a bare feature is compared with, rounded to the type of the feature's column."""
    if side.kind == "number" and isinstance(side.expression, Const) and other.feature is not None:
        return Const(other.feature.held(side.expression.value))
    return side.expression


def _as_date(side: _Side, other: _Side, path: str) -> _Side:
    """Return a word that is compared with a date as the code of an ISO date."""
    if side.kind != "word" or other.kind != "date":
        return side
    code = None if other.feature is None else other.feature.code(side.word)
    code = days(side.word) if code is None else code
    if code is None:
        raise InputError(path, f"{_called(side)} is not a date", "write it as '2024-12-31'")
    return _Side(Const(code), "date")


def _level_atom(left: _Side, sign: Sign, right: _Side, path: str, *, reveal: bool) -> Atom:
    if left.kind != "level":  # so that a level stands on the left
        left, sign, right = right, _MIRROR[sign], left
    feature = left.feature
    assert feature is not None  # noqa: S101  a level always has one
    if sign not in ("==", "!=") and not feature.has_order:
        fix = f"declare it: features={{{feature.name!r}: {{'kind': 'ordinal', 'levels': [...]}}}}"
        raise InputError(path, f"{feature.name} {sign}: a {feature.kind} has no order", fix)
    side = _beside_level(left, sign, right, path, reveal=reveal)
    return Atom(left.expression, sign, side, unknown_from=feature.unknown_from)


def _beside_level(left: _Side, sign: Sign, side: _Side, path: str, *, reveal: bool) -> Expression:
    """Return the code, in the feature of a level on the left, of the level or the word that it is compared with."""
    if side.kind == "level":
        return _recoded(left, sign, side, path)
    feature = left.feature
    assert feature is not None  # noqa: S101  a level always has one
    word = side.word if side.kind == "word" else side.expression.value if isinstance(side.expression, Const) else None
    comparable = side.kind == "word" or any(isinstance(level, int | float) for level in feature.levels)
    if word is None or not comparable or (feature.kind == "boolean" and not isinstance(word, bool)):
        fix = "use true or false" if feature.kind == "boolean" else known_levels(feature, "", reveal=reveal)
        raise InputError(path, f"compares {feature.name}, {a_kind(feature.kind)}, with {_called(side)}", fix)
    code = feature.code(word)
    if code is None:
        if reveal:  # a server's log would have the word, and who sent it never sees the warning
            fix = known_levels(feature, word, reveal=reveal)
            warnings.warn(f"{path}: {word!r:.60} is not a level of {feature.name}, so never equal; {fix}", stacklevel=2)
        return UNKNOWN
    return Const(code)


def _recoded(left: _Side, sign: Sign, right: _Side, path: str) -> Expression:
    """Return the level on the right in the codes of the feature on the left."""
    ours, theirs, into, source = left.feature, right.feature, left.expression, right.expression
    assert ours and theirs and isinstance(into, Ref) and isinstance(source, Ref)  # noqa: S101, PT018  levels are bare
    if into.column == source.column:
        return source
    if sign not in ("==", "!=") and theirs.levels != ours.levels:
        raise InputError(path, f"{ours.name} and {theirs.name} have different levels", "compare with == or !=")
    return Recoded(source, source.column, into.column, level_table(theirs, ours))
