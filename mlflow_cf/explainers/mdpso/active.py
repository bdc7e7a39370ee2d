"""The active set: the groups that a swarm may change, the most telling first (MD-PSO section 2, step 3).

What tells is the information value: how well each feature by itself tells favourable rows from all others (MD-PSO
section 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.explainers.explainer import Facts, known_labels, meets
from mlflow_cf.explainers.mdpso.coordinates import (
    NO_CHANGE,
    BoxOf,
    Coordinates,
    NumberCoordinate,
    coordinates_of,
)
from mlflow_cf.features import Feature, Floats
from mlflow_cf.features.embedding import Embedding
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.problem.actions import GroupActions
from mlflow_cf.problem.binding import same
from mlflow_cf.problem.points import with_values
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.snapping import NearestActions, Snapping
from mlflow_cf.stepwise import Steps

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

    def land(self, X: Floats) -> tuple[Codes, Floats | None]:
        """Return the codes (m,) of the nearest tuples at positions (w, m), and what was wanted of a lone number."""
        one = self.coordinates[0]
        if self.corners is not None and not isinstance(one, NumberCoordinate):
            return self.corners[one.corners(X)], None
        wanted = one.codes(X)[None] if len(self.coordinates) == 1 else self._wanted(X)
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


class Active:
    """The groups that may change, with their coordinates one after the other.

    Attributes:
        problem: whose groups they are.
        snapping: where numbers come down.
        units: the groups, ascending.
        frozen: names of features that tell more than others here, and whose boxes have nothing but their own value.
        starts, parts: (A,) where the coordinates of every group start, and all of them.
        low, high, own: (D,) the ends of every coordinate, and those of the row to explain.
        numeric: the coordinates of numbers.
        numbers, own_codes: (A,) the groups, and the row's own tuples of them.
        free: (A,) which groups may keep these.
        continuous: (c,) the units of numbers that may be anything in an interval.
        own_numbers: (c,) the row's own values of these.
    """

    def __init__(self, problem: Problem, snapping: Snapping, units: list[Unit], frozen: tuple[str, ...]) -> None:
        self.problem, self.snapping, self.units, self.frozen = problem, snapping, units, frozen
        every, none = [one for unit in units for one in unit.coordinates], np.empty(0)
        stops = np.cumsum([sum(len(one.own) for one in unit.coordinates) for unit in units], dtype=np.intp)
        self.starts: Codes = np.append(0, stops)[: len(units)]
        self.parts = [slice(*ends) for ends in zip(self.starts.tolist(), stops.tolist(), strict=True)]
        self.low = np.concatenate([none, *(one.low for one in every)])
        self.high = np.concatenate([none, *(one.high for one in every)])
        self.own = np.concatenate([none, *(one.own for one in every)])
        self.numeric = np.flatnonzero([isinstance(one, NumberCoordinate) for one in every for _ in one.own])
        self.numbers = np.array([unit.number for unit in units], dtype=np.intp)
        self.own_codes = np.array([unit.group.own for unit in units], dtype=np.intp)
        self.free = np.array([unit.group.own_allowed for unit in units], dtype=np.bool_)
        self.continuous = np.flatnonzero([unit.group.interval is not None for unit in units])
        self.own_numbers = problem.x0[[units[place].group.columns[0] for place in self.continuous.tolist()]]

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
        if not group.mutable:
            continue
        coordinates, (column, *others) = coordinates_of(problem, embedding, group, box_of), group.columns
        one, back, corners = coordinates[0], None, None
        if not others and isinstance(one, NumberCoordinate):
            ends = np.concatenate([one.low - SLACK, one.high + SLACK]) * one.scale + one.centre
            box[:, column], back = ends, _hardly_changed(group, one)
            if group.own_allowed and not _leaves(group, one, ends, back):
                frozen.append(problem.space.names[column])
                continue
        elif not others:
            corners = group.admissible
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


Counts = NDArray[np.number[Any]]

BINS: Final = 10  # of a number, with as many rows each
REACH: Final = 1.5  # interquartile ranges beyond the quartiles, outside of which numbers do not count
SMOOTHING: Final = 0.5  # added to every count, so that no bin is without either


def information_values(facts: Facts) -> Steps[Floats]:
    """Return the information values (k, d) of all features for each class; of a regression (1, d) for its interval.

    The classes are those of the labels of training, or else what the model says. A class that no row has, or that all
    rows have, tells nothing: 0.

    Raises:
        InputError: a regression where no row or every row is in the wanted interval.
    """
    classes, members = len(facts.target.model.classes) or 1, _members(facts)
    found = []
    for feature, codes in zip(facts.space.features, facts.background.T, strict=True):
        found.append(_value(feature, codes, members, classes))
        yield
    return np.column_stack(found)


def information_value(positives: Counts, negatives: Counts, smoothing: float = SMOOTHING) -> Floats:
    """Return the information value (...) of bins with so many positives and negatives (bins, ...).

    It is the sum over all bins of ``(p - n) ln(p / n)`` with the shares p of all positives and n of all negatives that
    are in the bin; 0 where there are no positives, or no negatives, at all. The paper prints it without the logarithm.
    """
    all_positives, all_negatives = positives.sum(axis=0), negatives.sum(axis=0)
    bins = smoothing * len(positives)
    with np.errstate(divide="ignore", invalid="ignore"):
        p, n = (positives + smoothing) / (all_positives + bins), (negatives + smoothing) / (all_negatives + bins)
        value = ((p - n) * np.log(p / n)).sum(axis=0)
    return np.where((all_positives > 0) & (all_negatives > 0), value, 0.0)


def bins_of(feature: Feature, codes: Floats) -> tuple[NDArray[np.intp], Bools]:
    """Return the bin of each code (n,) and whether it counts: a level each, or as many rows each; missing is a bin.

    Of a number only the rows within 1.5 interquartile ranges of the quartiles count, unless they are all alike.
    """
    ranked = codes < feature.unknown_from  # neither missing nor a level without a rank
    counts = np.ones(len(codes), dtype=np.bool_)
    if not feature.has_order:
        return np.where(np.isnan(codes), -1, codes).astype(np.intp), counts
    known = codes[ranked]
    if not len(known):
        return np.zeros(len(codes), dtype=np.intp), counts
    first, third = np.quantile(known, [0.25, 0.75])
    reach = REACH * (third - first)
    inside = (known >= first - reach) & (known <= third + reach)
    if np.ptp(known[inside]) > 0:
        counts[ranked], known = inside, known[inside]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)))
    bins = np.searchsorted(edges[1:-1], codes, side="right")
    return np.where(ranked, bins, -1), counts


def _value(feature: Feature, codes: Floats, members: NDArray[np.intp], classes: int) -> Floats:
    """Return the information values (classes,) of one feature with codes (n,) for rows of classes `members` (n,)."""
    bins, counts = bins_of(feature, codes)
    known, bins = np.unique(bins[counts], return_inverse=True)
    members = members[counts]
    mine = np.bincount(bins[members >= 0] * classes + members[members >= 0], minlength=len(known) * classes)
    positives = mine.reshape(len(known), classes)
    return information_value(positives, np.bincount(bins, minlength=len(known))[:, None] - positives)


def _members(facts: Facts) -> NDArray[np.intp]:
    """Return the class (n,) of every row, -1 without; of a regression 0 in the wanted interval, -1 outside."""
    labels = known_labels(facts)
    if not facts.target.target.interval:
        return labels.astype(np.intp)
    inside = meets(labels, facts.target)
    if inside.all() or not inside.any():
        fact = f"{'every' if inside.all() else 'no'} row of the data is in the wanted interval, so no feature tells"
        raise InputError("explainer", fact, 'use "geco", or an interval that some rows are in')
    return np.where(inside, 0, -1)
