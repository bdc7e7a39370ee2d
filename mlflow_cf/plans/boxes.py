"""Interval arithmetic for plans: lower bounds of the cost of sequences of actions over boxes of values.

The interval of an expression contains all its values in a box of states. It is unbounded where the expression is
unknown or undefined somewhere in the box (a missing value, a division by zero).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.expressions import Apply, Const, Expression, Recoded, Ref
from mlflow_cf.constraints.rules import Atom, Bools, Rule
from mlflow_cf.features import Floats
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.bound_actions import BoundAction
from mlflow_cf.plans.relations import Edge

SLACK: Final = 1e-12  # of the size of a number: a bound of the rounding error


class UnboundedError(Exception):
    """An expression without bounds over a box: a Python function computes it."""


class Interval(NamedTuple):
    """Lower and upper ends (m,)."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, low: Floats, high: Floats) -> Interval:
        """Return the interval between two ends; an end that is NaN makes it unbounded."""
        return cls(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))

    @property
    def is_point(self) -> Bools:
        """Whether each interval (m,) is a single value."""
        points: Bools = self.low == self.high
        return points


def interval_of(expression: Expression, after: Interval, before: Interval) -> Interval:
    """Return intervals (m,) of an expression over boxes of states (m, d) after and before a step."""
    match expression:
        case Const(value):
            ends = np.full(len(after.low), value)
            return Interval.of(ends, ends)
        case Ref(side, column):
            box = before if side == "x" else after
            return Interval.of(box.low[:, column], box.high[:, column])
        case Apply("+" | "-" | "*" | "/" as sign, (left, right)):
            return _combined(sign, interval_of(left, after, before), interval_of(right, after, before))
        case Apply(function, several):
            return _applied(function, [interval_of(of, after, before) for of in several])
        case Recoded(of, _, _, table):
            return _recoded(interval_of(of, after, before), np.array(table))
        case _:
            raise UnboundedError


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def _combined(sign: str, left: Interval, right: Interval) -> Interval:
    if sign == "+":
        return _widened(left.low + right.low, left.high + right.high)
    if sign == "-":
        return _widened(left.low - right.high, left.high - right.low)
    if sign == "/":
        crosses = (right.low <= 0) & (right.high >= 0)
        right = Interval(
            np.where(crosses, -np.inf, 1.0 / right.high), np.where(crosses, np.inf, 1.0 / right.low)
        )  # of both signs
    ends = np.array([a * b for a in left for b in right])
    unknown = np.isnan(ends).any(axis=0)
    return _widened(np.where(unknown, -np.inf, ends.min(axis=0)), np.where(unknown, np.inf, ends.max(axis=0)))


@np.errstate(over="ignore")
def _applied(function: str, several: Sequence[Interval]) -> Interval:
    low, high = several[0]
    if function == "abs":
        inside, ends = (low <= 0) & (high >= 0), np.abs(several[0])
        return Interval(np.where(inside, 0.0, ends.min(axis=0)), ends.max(axis=0))
    if function == "floor":
        return Interval(np.floor(low), np.floor(high))
    if function == "exp":
        return _widened(np.exp(low), np.exp(high))
    reduced = np.minimum if function == "min" else np.maximum
    return Interval(reduced.reduce([one.low for one in several]), reduced.reduce([one.high for one in several]))


def _recoded(codes: Interval, table: Floats) -> Interval:
    """Return intervals of the code of a level in another feature; unbounded where the level is not known."""
    known = codes.is_point & (codes.low >= 0) & (codes.low < len(table))
    found = table[np.where(known, codes.low, 0).astype(np.intp)]
    found = np.where(known & np.isfinite(found), found, np.nan)
    return Interval.of(found, found)


def _widened(low: Floats, high: Floats) -> Interval:
    """Return an interval widened by a bound of the rounding error."""
    with np.errstate(invalid="ignore"):
        slack = SLACK * np.maximum(np.abs(low), np.abs(high))
        return Interval.of(low - slack, high + slack)


def may_hold_or_fail(rule: Rule, after: Interval, before: Interval) -> tuple[Bools, Bools]:
    """Return (m,) whether a condition may hold, and whether it may fail, for some state of each box; False is sure."""
    hold, fail = _possible_truths(rule.then, after, before)
    for atom in rule.when:
        true, false = _possible_truths(atom, after, before)
        hold |= false
        fail &= true
    return hold, fail


def _possible_truths(atom: Atom, after: Interval, before: Interval) -> tuple[Bools, Bools]:
    """Return (m,) whether an atom may be true, and whether it may be false; both where something may be unknown."""
    left, right = interval_of(atom.left, after, before), interval_of(atom.right, after, before)
    if atom.sign in (">", ">="):  # < and <= the other way round
        left, right = right, left
    within = np.isfinite([*left, *right]).all(axis=0) & (np.maximum(left.high, right.high) < atom.unknown_from)
    match atom.sign:
        case "==" | "!=":
            apart = (left.low > right.high + atom.tolerance) | (right.low > left.high + atom.tolerance)
            alike = left.is_point & right.is_point & (left.low == right.low)
            true, false = (~apart, ~alike) if atom.sign == "==" else (~alike, ~apart)
        case "<" | ">":
            true, false = left.low < right.high, left.high >= right.low
        case "<=" | ">=":
            true, false = left.low <= right.high, left.high > right.low
        case _:
            raise UnboundedError
    return true | ~within, false | ~within


MOST_HELPED: Final = 4  # features of an action that others help, up to which all ways to change them are compared


class ReachedBoxes(NamedTuple):
    """The outcome of a sequence of actions over m boxes of values.

    Attributes:
        states: boxes (m, d) that contain all final states; cost: (m,) a lower bound.
        possible: (m,) False where some step surely cannot be done.
    """

    states: Interval
    cost: Floats
    possible: Bools


@dataclass(frozen=True, eq=False)
class BoxWalker:
    """Bounds the outcome of sequences of actions from one row over boxes of values.

    Attributes:
        action_model: the possible actions; x0: (d,) where all sequences start.
        unit: efforts are rounded to multiples of it.
    """

    action_model: ActionModel
    x0: Floats
    unit: float = 0.0

    def walk(self, order: Sequence[int], low: Floats, high: Floats) -> ReachedBoxes:
        """Return the outcome of one sequence of t actions with values between `low` and `high` (m, t)."""
        start = np.tile(self.x0, (len(low), 1))
        states = Interval.of(start, start)
        cost, possible = np.zeros(len(low)), np.ones(len(low), dtype=np.bool_)
        for place, number in enumerate(order):
            action = self.action_model.actions[number]
            after = self._after(action, states, Interval(low[:, place], high[:, place]))
            for rule in action.before:
                possible &= may_hold_or_fail(rule, states, states)[0]
            for rule in action.after:
                possible &= may_hold_or_fail(rule, after, states)[0]
            effort = self._effort(action, after, states)
            possible &= effort.high >= 0
            least = np.maximum(effort.low, 0.0)
            if self.unit:  # rounding keeps the order, so that the least effort rounded is the least rounded effort
                least = np.round(least / self.unit) * self.unit
            cost += least * self._discount(action, states, after)
            states = after
        return ReachedBoxes(states, cost, possible)

    def _after(self, action: BoundAction, states: Interval, values: Interval) -> Interval:
        after = Interval(states.low.copy(), states.high.copy())
        column = action.column
        if action.kind == "change":
            values = Interval.of(states.low[:, column] + values.low, states.high[:, column] + values.high)
        self._put(after, column, values)
        for other, effect in action.effects:
            self._put(after, other, interval_of(effect, after, states))
        return after

    def _put(self, after: Interval, column: int, values: Interval) -> None:
        """Set the interval of a feature in the boxes `after`, rounded to its grid and to known levels."""
        feature = self.action_model.space.features[column]
        if feature.numeric and feature.step is not None:
            low, high = (self.action_model.snapped(column, end) for end in values)
        elif feature.numeric:
            low, high = values
        else:
            low, high = np.maximum(values.low, 0.0), np.minimum(values.high, len(feature.known) - 1.0)
        after.low[:, column], after.high[:, column] = low, high

    def _effort(self, action: BoundAction, after: Interval, states: Interval) -> Interval:
        if action.effort is not None:
            return interval_of(action.effort, after, states)
        column, measure = action.column, self.action_model.measure
        low = np.maximum(after.low[:, column] - states.high[:, column], states.low[:, column] - after.high[:, column])
        weight, scale, most = float(measure.weights[column]), float(measure.scale[column]), np.full(len(low), np.inf)
        if scale == 0 or measure.percentiles is not None:  # a step changes its feature, unless an effect is all it has
            return Interval(np.full(len(low), 0.0 if action.effects or scale else weight), most)
        return Interval(np.minimum(np.maximum(low, 0.0) / scale, 1.0) * weight, most)

    def _discount(self, action: BoundAction, states: Interval, after: Interval) -> Floats:
        """Return a lower bound (m,) of the discount of a step."""
        columns = [column for column in action.columns if column in self._helps]
        if not columns:
            return np.ones(len(states.low))
        factors = np.array([np.mean([self._factor(edge, states) for edge in self._helps[c]], axis=0) for c in columns])
        if len(columns) > MOST_HELPED:
            lowest: Floats = np.minimum(factors.min(axis=0), 1.0)
            return lowest
        may, must = np.array([self._changes(column, states, after) for column in columns]).swapaxes(0, 1)
        least = np.where(must.any(axis=0), np.inf, 1.0)
        for some in product((False, True), repeat=len(columns)):
            chosen = np.array(some)[:, None]
            if chosen.any():
                fits = (may | ~chosen).all(axis=0) & (~must | chosen).all(axis=0)
                least = np.where(fits, np.minimum(least, factors[chosen[:, 0]].mean(axis=0)), least)
        return least

    def _changes(self, column: int, states: Interval, after: Interval) -> tuple[Bools, Bools]:
        """Return (m,) whether a step may change a feature, and (m,) whether it surely does."""
        low, high = after.low[:, column] - states.high[:, column], after.high[:, column] - states.low[:, column]
        least = float(self.action_model.least_changes[column])
        with np.errstate(invalid="ignore"):
            apart = np.maximum(low, -high)
            must = (apart > 0) & (apart >= least)
            may = ~((low == 0) & (high == 0)) & ~((low > -least) & (high < least))
        return may, must

    @cached_property
    def _helps(self) -> dict[int, list[Edge]]:
        found: dict[int, list[Edge]] = {}
        for edge in self.action_model.relations.edges:
            found.setdefault(edge.to, []).append(edge)
        return found

    def _factor(self, edge: Edge, states: Interval) -> Floats:
        if edge.factor is not None:
            return np.clip(interval_of(edge.factor, states, states).low, 0.0, 1.0)
        least, open_yet = np.ones(len(states.low)), np.ones(len(states.low), dtype=np.bool_)
        for rule, share in edge.cases:
            may_hold, may_fail = may_hold_or_fail(rule, states, states)
            least = np.where(open_yet & may_hold, np.minimum(least, share), least)
            open_yet &= may_fail
        return np.where(open_yet, np.minimum(least, edge.otherwise), least)
