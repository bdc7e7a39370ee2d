"""The decision variables of one row to explain: which action its counterfactual takes in every feature group.

A group of several features, a category, and a number with few values have one binary selector for each action, so that
no constraint needs a large constant. Any other number is real: it moves up or down by shares of the width of its range,
and a switch says whether it moves at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.milp.program import Affine, Columns, Program, difference, total
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.problem.points import box

STRICT: Final = 1e-5  # a difference that is surely larger than the solver's tolerance
ONE = Affine.of(1.0)
NOTHING = Affine.of(0.0)


class ChangedRange(NamedTuple):
    """The least and the largest value of a real number that changes."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Chosen:
    """A group with one selector per action; the row's own action may be none of them.

    Attributes:
        columns: the group's columns.
        codes: (t,) the actions by their number in the group; own: the number of the row's own action.
        actions: (t, columns) the actions' values.
        selectors: (t,) columns of the program, exactly one of which is 1.
    """

    columns: tuple[int, ...]
    codes: Codes
    own: int
    actions: Floats
    selectors: Columns

    def where(self, flags: NDArray[np.bool_]) -> Affine:
        """Return an expression that is 1 if the selected action is a flagged one (t,), else 0."""
        return Affine.chosen(self.selectors, flags.astype(np.float64))

    def values(self, feature: int) -> Floats:
        """Return the values (t,) of a feature of the group."""
        values: Floats = self.actions[:, self.columns.index(feature)]
        return values

    @cached_property
    def switch(self) -> Affine:
        """1 if another action than the row's own is selected, else 0."""
        return self.where(self.codes != self.own)


@dataclass(frozen=True, eq=False)
class Real:
    """A number that takes any value in an interval, or keeps the row's own.

    Attributes:
        column: the feature.
        own: the row's own value; of a missing one NaN.
        low, high: the interval of changed values; step: the width of the interval widened to the own value.
        up, down: columns, the shares of `step` by which it moves; at most one of them is more than 0.
        switch: 1 if it may differ from the row's own value.
    """

    column: int
    own: float
    low: float
    high: float
    step: float
    up: int
    down: int
    switch: Affine

    @property
    def origin(self) -> float:
        """The value that shifts start from: the row's own, or 0 where that is missing."""
        return 0.0 if np.isnan(self.own) else self.own

    @cached_property
    def shift(self) -> Affine:
        """The signed shift, in shares of `step`."""
        ends = (self.low - self.origin) / self.step, (self.high - self.origin) / self.step
        return Affine(np.array([self.up, self.down]), np.array([1.0, -1.0]), 0.0, min(ends[0], 0.0), max(ends[1], 0.0))

    @cached_property
    def size(self) -> Affine:
        """The absolute value of the shift, in shares of `step`, provided that it is minimised."""
        most = max(abs(self.shift.low), abs(self.shift.high))
        return Affine(np.array([self.up, self.down]), np.ones(2), 0.0, 0.0, most)

    @cached_property
    def value(self) -> Affine:
        """The new value; 0 where a missing one stays missing."""
        return self.shift.times(self.step).plus(self.origin)


Variable = Chosen | Real


@dataclass(frozen=True, eq=False)
class Pieces:
    """Intervals of a real number, one of which the program selects.

    Attributes:
        above, most: (p,) the number is above `above` and at most `most`.
        columns: (p,) columns of the program, one of which is 1; a single interval needs none.
    """

    above: Floats
    most: Floats
    columns: Columns


@dataclass(frozen=True, eq=False)
class Variables:
    """The decision variables of all groups of a problem.

    Attributes:
        problem: the problem.
        groups: the variable of every group.
        strict: by which share of its interval a real number must exceed an end to be above it; 0: reaching it will do.
        pieces: per real number, the intervals that structures tell apart, as they are added.
    """

    problem: Problem
    groups: tuple[Variable, ...]
    strict: float
    pieces: dict[int, list[Pieces]] = field(default_factory=dict, repr=False)

    @classmethod
    def add(
        cls, program: Program, problem: Problem, domains: Sequence[Codes | ChangedRange], strict: float = STRICT
    ) -> Variables:
        """Add the columns of a problem's groups and the constraints that tie them together.

        Per group, `domains` has the actions that get selectors, or the interval of a real number.
        """
        groups: list[Variable] = []
        for group, domain in zip(problem.groups, domains, strict=True):
            if isinstance(domain, ChangedRange):
                groups.append(_real(program, group, domain, float(problem.x0[group.columns[0]])))
                continue
            selectors = program.add_binaries(len(domain))
            program.require([Affine(selectors, np.ones(len(domain)), 0.0, 1.0, 1.0)], 1.0, 1.0)
            groups.append(Chosen(group.columns, domain, group.own, group.actions[domain], selectors))
        return cls(problem, tuple(groups), strict)

    def of(self, feature: int) -> Variable:
        """Return the variable of a feature's group."""
        return self.groups[int(self.problem.owner[feature])]

    def value(self, feature: int) -> Affine:
        """Return the new value of a number, in the unit of its codes; 0 where a missing one stays missing."""
        variable = self.of(feature)
        if isinstance(variable, Real):
            return variable.value
        return Affine.chosen(variable.selectors, np.nan_to_num(variable.values(feature)))

    def missing(self, feature: int) -> Affine:
        """Return an expression that is 1 if the new value is missing, which only the row's own can be, else 0."""
        variable = self.of(feature)
        if isinstance(variable, Real):
            return difference(ONE, variable.switch) if np.isnan(variable.own) else NOTHING
        return variable.where(np.isnan(variable.values(feature)))

    def changed(self, feature: int) -> Affine:
        """Return an expression that is 1 if a feature may differ from the row's own value, else 0."""
        variable = self.of(feature)
        if isinstance(variable, Real):
            return variable.switch
        values, own = variable.values(feature), self.problem.x0[feature]
        return variable.where((values != own) & ~(np.isnan(values) & np.isnan(own)))

    def changes(self, numbers: Sequence[int]) -> Affine:
        """Return how many of some groups may differ from the row to explain."""
        return total([self.groups[number].switch for number in numbers])

    def row(self, values: Floats) -> Floats:
        """Return the row (d,) of a solution, with exact actions, and the own values of all that stays.

        A solver meets constraints up to a tolerance; real numbers are moved into the intervals selected for them.
        """
        row = self.problem.x0.copy()
        for variable in self.groups:
            if isinstance(variable, Chosen):
                row[list(variable.columns)] = variable.actions[int(values[variable.selectors].argmax())]
            elif variable.switch.value(values) > 0.5:
                row[variable.column] = self._inside(variable, values)
        return row

    def _inside(self, real: Real, values: Floats) -> float:
        """Return a number of the column's type within its own interval and all those that were selected."""
        stored = self.problem.space.features[real.column].stored
        above, most = float(np.nextafter(real.low, -np.inf)), real.high
        for pieces in self.pieces.get(real.column, ()):
            at = int(values[pieces.columns].argmax()) if len(pieces.columns) else 0
            above, most = max(above, float(pieces.above[at])), min(most, float(pieces.most[at]))
        return _between(real.value.value(values), above, most, stored)


def _between(value: float, above: float, most: float, stored: np.dtype[Any]) -> float:
    """Return the number of a type nearest to a value, above `above` and at most `most` if there is any such."""
    if stored.kind != "f":
        return float(np.clip(value, np.nextafter(above, np.inf), most))
    with np.errstate(over="ignore"):
        number = stored.type(value)
        if number > most:
            number = stored.type(most)
            number = np.nextafter(number, stored.type(-np.inf)) if number > most else number
        elif number <= above:
            number = stored.type(above)
            number = np.nextafter(number, stored.type(np.inf)) if number <= above else number
    return float(number)


def _real(program: Program, group: Group, box: ChangedRange, own: float) -> Real:
    low, high = box
    origin = 0.0 if np.isnan(own) else own
    step = (max(high, origin) - min(low, origin)) or 1.0
    least, most = (low - origin) / step, (high - origin) / step
    up, down = program.add_columns(2, 0.0, [max(most, 0.0), max(-least, 0.0)]).tolist()
    switch = program.add_binary() if group.own_allowed else ONE
    real = Real(group.columns[0], own, low, high, step, up, down, switch)
    ends = [difference(real.shift, switch.times(end)) for end in (least, most)]
    program.require(ends, [0.0, -np.inf], [np.inf, 0.0])
    return real


MOST_SELECTORS: Final = 300  # of a number; one of more values is treated as real first
ROUNDING: Final = 1e-9  # of distances that are added up in another order


def domains_of(
    problem: Problem, cutoff: float = np.inf, near: Floats | None = None
) -> list[Codes | ChangedRange] | None:
    """Return the actions, or the interval, of every group; None if a group has no action left.

    Args:
        problem: the problem.
        cutoff: the incumbent's distance; actions that no nearer row has are left out.
        near: (d,) a row; numbers of many values may take those nearest to it, or their own. None: they are real.
    """
    boxes = [_continuous(problem, group) for group in problem.groups]
    domains: list[Codes | ChangedRange] = []
    for group, codes, interval in zip(problem.groups, _actions_within(problem, boxes, cutoff), boxes, strict=True):
        if interval is not None:
            domains.append(interval)
        elif not _is_wide(problem, group, codes):
            domains.append(codes)
        elif near is None:
            values = group.actions[codes[codes != group.own], 0]
            domains.append(ChangedRange(float(values.min()), float(values.max())))
        else:
            value = near[group.columns[0]]
            apart = np.abs(np.where(codes == group.own, value, group.actions[codes, 0]) - value)
            domains.append(np.sort(codes[np.argsort(apart, kind="stable")[:MOST_SELECTORS]]))
    return domains if all(isinstance(domain, ChangedRange) or len(domain) for domain in domains) else None


def _is_wide(problem: Problem, group: Group, codes: Codes) -> bool:
    """Whether a group is a number with too many values for selectors."""
    measured = problem.space.features[group.columns[0]].numeric and problem.bound_distance.percentiles is None
    return len(group.columns) == 1 and len(codes) > MOST_SELECTORS and measured


def _continuous(problem: Problem, group: Group) -> ChangedRange | None:
    """Return the interval of a number that may take any value in it; None of any other, and where it is empty."""
    if group.interval is None or group.columns[0] in problem.celled:
        return None
    low, high = box(problem, group)
    own = problem.x0[group.columns[0]]
    return ChangedRange(low, high) if low <= high and not low == high == own else None


def _actions_within(problem: Problem, boxes: list[ChangedRange | None], cutoff: float) -> list[Codes]:
    """Return the admissible actions (by number) of every group that some row within the cutoff may have."""
    every = [np.delete(np.arange(len(g.actions)), [] if g.own_allowed else [g.own]) for g in problem.groups]
    least, peaks = [0.0] * len(every), [0.0] * len(every)
    for number, (group, codes) in enumerate(zip(problem.groups, every, strict=True)):
        if boxes[number] is None and len(codes):
            least[number], peaks[number] = group.cost[codes].min(), group.peak[codes].min()
    most, c, kept = cutoff * (1 + ROUNDING) + ROUNDING, problem.bound_distance.c, []
    for number, (group, codes) in enumerate(zip(problem.groups, every, strict=True)):
        cost = sum(least) - least[number] + group.cost[codes]
        if c:
            cost = cost + c * np.maximum(max([*peaks[:number], *peaks[number + 1 :]], default=0.0), group.peak[codes])
        kept.append(codes[cost <= most])
    return kept
