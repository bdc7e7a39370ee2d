"""The active set: the groups that a swarm may change, the most telling first (MD-PSO section 2, step 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.mdpso.coordinates import (
    NO_CHANGE,
    BoxOf,
    Coordinates,
    NumberCoordinate,
    coordinates_of,
)
from mlflow_cf.features import Floats
from mlflow_cf.features.embedding import Embedding
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.problem.group import GroupActions
from mlflow_cf.problem.points import with_values
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.snapping import NearestActions, Snapping

SLACK = 1e-9  # of a number's range: what is on the edge of a box is in it


@dataclass(frozen=True, eq=False)
class Unit:
    """A group that may change.

    Attributes:
        number: of the group; group: itself.
        coordinates: of each of its features.
        nearest: what finds the codes of its tuples.
        corners: for levels of a lone feature, the code of each corner; else None.
        back: (t,) the code that stands for each: a number that is hardly changed is not changed.
    """

    number: int
    group: Group
    coordinates: list[Coordinates]
    nearest: NearestActions
    corners: Codes | None
    back: Codes | None

    @property
    def width(self) -> int:
        """How many coordinates it has."""
        return sum(len(one.own) for one in self.coordinates)

    def land(self, X: Floats) -> tuple[Codes, Floats | None]:
        """Return the codes (m,) of the nearest tuples at positions (w, m), and what was wanted of a lone number."""
        one = self.coordinates[0]
        if self.corners is not None and not isinstance(one, NumberCoordinate):
            return self.corners[one.corners(X)], None
        wanted = (
            one.codes(X)[None] if isinstance(one, NumberCoordinate) and len(self.coordinates) == 1 else self._wanted(X)
        )
        codes = self.nearest.codes(wanted)
        return codes if self.back is None else self.back[codes], wanted[0]

    def _wanted(self, X: Floats) -> Floats:
        """Return the raw codes (columns, m) at positions (w, m)."""
        found, start = np.empty((len(self.coordinates), X.shape[1])), 0
        for place, one in enumerate(self.coordinates):
            found[place] = one.codes(X[start : start + len(one.own)])
            start += len(one.own)
        return found

    def positions(self, values: Floats) -> Floats:
        """Return the positions (w, m) of tuples (columns, m)."""
        return np.concatenate([one.positions(column) for one, column in zip(self.coordinates, values, strict=True)])


@dataclass(frozen=True, eq=False)
class Active:
    """The groups that may change, with their coordinates one after the other.

    Attributes:
        problem: whose groups they are.
        snapping: where numbers come down.
        units: the groups, ascending.
        frozen: names of features that tell more than others here, and whose boxes have nothing but their own value.
    """

    problem: Problem
    snapping: Snapping
    units: list[Unit]
    frozen: tuple[str, ...]

    @cached_property
    def starts(self) -> Codes:
        """(A,) where the coordinates of every group start."""
        widths = np.array([unit.width for unit in self.units], dtype=np.intp)
        return widths.cumsum() - widths

    @cached_property
    def parts(self) -> list[slice]:
        """The coordinates of every group."""
        return [slice(start, start + unit.width) for unit, start in zip(self.units, self.starts.tolist(), strict=True)]

    @cached_property
    def low(self) -> Floats:
        """(D,) the lower end of every coordinate."""
        return np.concatenate([one.low for one in self._all])

    @cached_property
    def high(self) -> Floats:
        """(D,) the upper end of every coordinate."""
        return np.concatenate([one.high for one in self._all])

    @cached_property
    def own(self) -> Floats:
        """(D,) the coordinates of the row to explain."""
        return np.concatenate([one.own for one in self._all])

    @cached_property
    def numeric(self) -> Codes:
        """The coordinates of numbers."""
        return np.flatnonzero(
            np.concatenate([np.full(len(one.own), isinstance(one, NumberCoordinate)) for one in self._all])
        )

    @cached_property
    def numbers(self) -> Codes:
        """(A,) the groups, ascending."""
        return np.array([unit.number for unit in self.units], dtype=np.intp)

    @cached_property
    def own_codes(self) -> Codes:
        """(A,) the row's own tuples."""
        return np.array([unit.group.own for unit in self.units], dtype=np.intp)

    @cached_property
    def free(self) -> Bools:
        """(A,) which groups may keep the row's own tuple."""
        return np.array([unit.group.own_allowed for unit in self.units])

    @cached_property
    def continuous(self) -> Codes:
        """(c,) the units of numbers that may be anything in an interval."""
        return np.flatnonzero([unit.group.interval is not None for unit in self.units])

    @cached_property
    def own_numbers(self) -> Floats:
        """(c,) the row's own values of continuous numbers."""
        return np.array([self.problem.x0[self.units[place].group.columns[0]] for place in self.continuous.tolist()])

    def changed(self, codes: Codes, numbers: Floats) -> Bools:
        """Return (m, A) which groups differ from the row in what `land` returns."""
        changed: Bools = codes != self.own_codes
        changed[:, self.continuous] |= ~same(numbers, self.own_numbers)
        return changed

    def put_back(self, codes: Codes, numbers: Floats, which: Bools) -> tuple[Codes, Floats]:
        """Return the same with some groups (m, A) as the row has them."""
        return np.where(which, self.own_codes, codes), np.where(which[:, self.continuous], self.own_numbers, numbers)

    def reachable(self, rows: Floats) -> Problem:
        """Return the problem with no other actions than particles can take, continuous numbers those of rows (m, d).

        Groups that rules may have to repair keep all of theirs.
        """
        problem, units = self.problem, {unit.number: unit for unit in self.units}
        numbers = {self.units[place].number for place in self.continuous.tolist()}
        problem = with_values(problem, {n: rows[:, problem.columns[n][0]] for n in numbers}) if numbers else problem
        repaired = set(Cascade(problem).steps)
        box = np.full((2, len(problem.space)), np.nan) if self.snapping.box is None else self.snapping.box
        groups = []
        for number, group in enumerate(problem.groups):
            kept = np.full(len(group.actions), number in units or number in repaired)
            if number in units and (ends := box[:, group.columns[0]])[0] <= ends[1]:
                kept = (group.actions[:, 0] >= ends[0]) & (group.actions[:, 0] <= ends[1])
            groups.append(_keeping(group, kept))
        return replace(problem, groups=tuple(groups))

    @cached_property
    def _all(self) -> list[Coordinates]:
        return [one for unit in self.units for one in unit.coordinates]

    def land(self, X: Floats) -> tuple[Codes, Floats]:
        """Return the codes (m, A) of the tuples at positions (D, m), and the continuous numbers (m, c) among them."""
        codes = np.empty((len(self.units), X.shape[1]), dtype=np.intp)
        numbers = np.empty((len(self.continuous), X.shape[1]))
        at = 0
        for place, (unit, part) in enumerate(zip(self.units, self.parts, strict=True)):
            codes[place], wanted = unit.land(X[part])
            if wanted is not None and unit.group.interval is not None:
                numbers[at], codes[place] = self._number(unit, wanted, codes[place])
                at += 1
        return codes.T.copy(), numbers.T.copy()

    def _number(self, unit: Unit, wanted: Floats, codes: Codes) -> tuple[Floats, Codes]:
        """Return the numbers (m,) of a continuous group, and its codes where they are hardly changed."""
        (column,) = unit.group.columns
        own, feature = self.problem.x0[column], self.problem.space.features[column]
        values = self.snapping.between(unit.group, wanted, unit.group.actions[codes, 0])
        if not unit.group.own_allowed:
            return values, codes
        kept = np.abs(values - own) < NO_CHANGE * (feature.high - feature.low)
        return np.where(kept, own, values), np.where(kept, unit.group.own, codes)


def active_set(problem: Problem, embedding: Embedding, telling: Floats, most: int, box_of: BoxOf) -> Active:
    """Return the active set: groups that must change, then those that tell most, at most `most`; ties by column.

    Args:
        problem: the row to explain.
        embedding: how numbers are scaled.
        telling: (d,) the information value of every feature.
        most: of groups, beside those that must change.
        box_of: the ends of boxes.
    """
    order = sorted(
        range(len(problem.groups)),
        key=lambda n: (problem.groups[n].own_allowed, -telling[list(problem.columns[n])].max(), n),
    )
    box = np.full((2, len(problem.space)), np.nan)
    snapping = Snapping(problem, box)
    units: list[Unit] = []
    frozen: list[str] = []
    for number in order:
        group = problem.groups[number]
        if group.own_allowed and len(units) >= most:
            break
        if not _may_change(group):
            continue
        coordinates = coordinates_of(problem, embedding, group, box_of)
        back = None
        if len(group.columns) == 1 and isinstance(coordinates[0], NumberCoordinate):
            box[:, group.columns[0]] = _ends(coordinates[0])
            back = _hardly_changed(group, coordinates[0])
            if group.own_allowed and not _leaves(group, coordinates[0], box[:, group.columns[0]], back):
                frozen.append(problem.space.names[group.columns[0]])
                continue
        corners = None
        if len(coordinates) == 1 and not isinstance(coordinates[0], NumberCoordinate):
            corners = np.delete(np.arange(len(group.actions)), [] if group.own_allowed else [group.own])
        units.append(Unit(number, group, coordinates, snapping.nearest(number), corners, back))
    return Active(problem, snapping, sorted(units, key=lambda unit: unit.number), tuple(frozen))


def _keeping(group: Group, kept: Bools) -> Group:
    """Return a group with some of its tuples (t,) and its own one."""
    kept = kept.copy()
    kept[group.own] = True
    bound, own = group.bound, int(np.count_nonzero(kept[: group.own]))
    places = None if bound.ids is None else bound.ids[kept]
    parts = (bound.values[kept], bound.weights[kept], own, bound.cost[kept], bound.peak[kept], places)
    return group.taking(GroupActions(*parts))


def _may_change(group: Group) -> bool:
    return group.proposals > 0 or (group.interval is not None and group.interval[0] < group.interval[1])


def _ends(number: NumberCoordinate) -> Floats:
    ends = np.concatenate([number.low - SLACK, number.high + SLACK])
    return ends * number.scale + number.centre


def _hardly_changed(group: Group, number: NumberCoordinate) -> Codes | None:
    """Return the code that stands for each tuple (t,) where some are next to the row's own one; else None."""
    if not group.own_allowed:
        return None
    codes = np.arange(len(group.actions))
    near = np.abs(group.actions[:, 0] - number.x0) < NO_CHANGE * number.scale
    near[group.own] = False
    return np.where(near, group.own, codes) if near.any() else None


def _leaves(group: Group, number: NumberCoordinate, ends: Floats, back: Codes | None) -> bool:
    """Whether a box leaves a lone number anything but its own value."""
    if group.interval is not None and number.high[0] - number.low[0] >= NO_CHANGE:
        return True
    values = group.actions[:, 0]
    inside = (values >= ends[0]) & (values <= ends[1])
    codes = np.flatnonzero(inside) if back is None else back[inside]
    return bool((codes != group.own).any())
