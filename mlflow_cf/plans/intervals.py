"""Expressions and conditions over boxes of states: what they can be there, and never less than that.

What is unknown or undefined somewhere in a box (a missing value, a division by zero) may be anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.expressions import Apply, Const, Expression, Recoded, Ref, Size, Sum
from mlflow_cf.constraints.rules import Atom, Bools, Rule
from mlflow_cf.features import Floats

SLACK: Final = 1e-12  # of the size of a number: what rounding can amount to


class UnboundedError(Exception):
    """A part that nothing is known of over a box: it is computed by Python."""


class Interval(NamedTuple):
    """Lower and upper ends (m,)."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, low: Floats, high: Floats) -> Interval:
        """Return the interval between ends; what is not a number may be anything."""
        return cls(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))

    @property
    def is_point(self) -> Bools:
        """(m,) whether there is one value."""
        points: Bools = self.low == self.high
        return points


def interval_of(expression: Expression, after: Interval, before: Interval) -> Interval:
    """Return what an expression can be (m,) in boxes of states (m, d) after a step, and of those before it."""
    match expression:
        case Const(value):
            ends = np.full(len(after.low), value)
            return Interval.of(ends, ends)
        case Ref(side, column):
            box = before if side == "x" else after
            return Interval.of(box.low[:, column], box.high[:, column])
        case Sum(sign, left, right):
            return _combined(sign, interval_of(left, after, before), interval_of(right, after, before))
        case Size(of):
            return _size(interval_of(of, after, before))
        case Apply(function, several):
            return _applied(function, [interval_of(of, after, before) for of in several])
        case Recoded(of, _, _, table):
            return _looked_up(interval_of(of, after, before), np.array(table))
        case _:
            raise UnboundedError


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def _combined(sign: str, left: Interval, right: Interval) -> Interval:
    if sign == "+":
        return _loose(left.low + right.low, left.high + right.high)
    if sign == "-":
        return _loose(left.low - right.high, left.high - right.low)
    if sign == "/":
        crosses = (right.low <= 0) & (right.high >= 0)
        right = Interval(
            np.where(crosses, -np.inf, 1.0 / right.high), np.where(crosses, np.inf, 1.0 / right.low)
        )  # of both signs
    ends = np.array([a * b for a in left for b in right])
    unknown = np.isnan(ends).any(axis=0)
    return _loose(np.where(unknown, -np.inf, ends.min(axis=0)), np.where(unknown, np.inf, ends.max(axis=0)))


def _size(of: Interval) -> Interval:
    inside = (of.low <= 0) & (of.high >= 0)
    low, high = np.abs(of.low), np.abs(of.high)
    return Interval(np.where(inside, 0.0, np.minimum(low, high)), np.maximum(low, high))


@np.errstate(over="ignore")
def _applied(function: str, several: Sequence[Interval]) -> Interval:
    if function == "abs":
        return _size(several[0])
    if function == "floor":
        return Interval(np.floor(several[0].low), np.floor(several[0].high))
    if function == "exp":
        return _loose(np.exp(several[0].low), np.exp(several[0].high))
    reduced = np.minimum if function == "min" else np.maximum
    return Interval(reduced.reduce([one.low for one in several]), reduced.reduce([one.high for one in several]))


def _looked_up(codes: Interval, table: Floats) -> Interval:
    """Return the codes that a level may have in another feature; any, where it is not known which level it is."""
    known = codes.is_point & (codes.low >= 0) & (codes.low < len(table))
    found = table[np.where(known, codes.low, 0).astype(np.intp)]
    found = np.where(known & np.isfinite(found), found, np.nan)
    return Interval.of(found, found)


def _loose(low: Floats, high: Floats) -> Interval:
    """Return an interval that is wider by what rounding can amount to."""
    with np.errstate(invalid="ignore"):
        slack = SLACK * np.maximum(np.abs(low), np.abs(high))
        return Interval.of(low - slack, high + slack)


def may_hold(rule: Rule, after: Interval, before: Interval) -> Bools:
    """Return (m,) in which boxes a condition holds for some state, as far as is known."""
    possible = _may(rule.then, after, before)[0]
    for atom in rule.when:
        possible |= _may(atom, after, before)[1]
    return possible


def may_fail(rule: Rule, after: Interval, before: Interval) -> Bools:
    """Return (m,) in which boxes a condition fails for some state, as far as is known."""
    possible = _may(rule.then, after, before)[1]
    for atom in rule.when:
        possible &= _may(atom, after, before)[0]
    return possible


def _may(atom: Atom, after: Interval, before: Interval) -> tuple[Bools, Bools]:
    """Return (m,) whether an atom may be true, and whether it may be false; both where something may be unknown."""
    left, right = interval_of(atom.left, after, before), interval_of(atom.right, after, before)
    within = np.isfinite([*left, *right]).all(axis=0) & (np.maximum(left.high, right.high) < atom.unknown_from)
    apart = (left.low > right.high + atom.tolerance) | (right.low > left.high + atom.tolerance)
    match atom.sign:
        case "==":
            true, false = ~apart, ~(left.is_point & right.is_point & (left.low == right.low))
        case "!=":
            true, false = ~(left.is_point & right.is_point & (left.low == right.low)), ~apart
        case "<":
            true, false = left.low < right.high, left.high >= right.low
        case "<=":
            true, false = left.low <= right.high, left.high > right.low
        case ">":
            true, false = left.high > right.low, left.low <= right.high
        case ">=":
            true, false = left.high >= right.low, left.low < right.high
        case _:
            raise UnboundedError
    return true | ~within, false | ~within
