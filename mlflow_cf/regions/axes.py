"""The values that a region may give each feature, ascending, with what the opened model sees of them.

Where numbers are continuous and the model is made of trees, a position stands for all values between two neighbouring
thresholds. Where the model's inputs are linear in the number, positions are points, and bounds hold between them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Feature, Floats
from mlflow_cf.goal.scorer import Scorer
from mlflow_cf.problem.actions import Group
from mlflow_cf.problem.points import box
from mlflow_cf.problem.problem import Problem
from mlflow_cf.structures.capabilities import SupportsHidden, ends_of
from mlflow_cf.structures.structure import Encoded

POINTS: Final = 400  # of a number whose region may end anywhere


@dataclass(frozen=True, eq=False)
class Axis:
    """The values that a region may give one feature.

    Attributes:
        column: of the feature.
        low, high: (t,) the first and the last value that each position stands for, ascending.
        encoded: (t, ...) what the structure sees of each.
        at: position of the counterfactual's own value.
        ordered: whether a region is an interval; else it is a set of levels.
        between: whether a region also has the numbers between two neighbouring positions.
    """

    column: int
    low: Floats
    high: Floats
    encoded: Encoded
    at: int
    ordered: bool = True
    between: bool = False

    @property
    def fixed(self) -> bool:
        """Whether nothing but the counterfactual's own value is possible."""
        return len(self.low) == 1

    def steps(self) -> list[NDArray[np.intp]]:
        """Return the sides of a region, each as the positions (s,) that it may take in, from the nearest outward."""
        places = np.arange(len(self.low))
        if self.ordered:
            return [places[: self.at][::-1], places[self.at + 1 :]]
        return [places[[place]] for place in places if place != self.at]


def axes_of(problem: Problem, scorer: Scorer, row: Floats, free: Sequence[int]) -> list[Axis]:
    """Return the axes of all columns around a counterfactual `row` (d,).

    Only columns in `free` have more than the row's own value. Groups of several features keep their values, and so do
    missing values.
    """
    axes, wanted = [], set(free)
    linked = {column for rule in problem.linking for column in rule.columns("x_cf")}
    for column in range(len(row)):
        group, axis = problem.groups[int(problem.owner[column])], None
        if column in wanted and len(group.columns) == 1 and not np.isnan(row[column]):
            feature = problem.space.features[column]
            if group.interval is None:
                axis = _listed(group, feature, scorer, row)
            elif column not in linked and feature.kind in ("real", "integer"):
                axis = _interval(problem, group, scorer, row)
        axes.append(_alone(scorer, column, row) if axis is None else axis)
    return axes


def _alone(scorer: Scorer, column: int, row: Floats) -> Axis:
    values = row[[column]]
    return Axis(column, values, values, scorer.structure.encode(column, values), 0)


def _listed(group: Group, feature: Feature, scorer: Scorer, row: Floats) -> Axis | None:
    """Return the axis of a feature of which every admissible value is an action."""
    (column,) = group.columns
    values = group.actions[group.admissible, 0]
    values = values[~np.isnan(values)]
    at = np.flatnonzero(values == row[column])
    if not len(at):
        return None
    return Axis(column, values, values, scorer.structure.encode(column, values), int(at[0]), feature.has_order)


def _interval(problem: Problem, group: Group, scorer: Scorer, row: Floats) -> Axis | None:
    """Return the axis of a number that may take any value of an interval; None where no bounds cover intervals."""
    (column,) = group.columns
    low, high = box(problem, group)
    if not low <= row[column] <= high:
        return None
    feature = problem.space.features[column]
    if feature.kind == "integer":
        low, high = np.ceil(low), np.floor(high)
    ends = ends_of(scorer.structure, column)
    if ends is not None:
        return _cells(feature, scorer, ends, (low, high), row[column], column)
    structure = scorer.structure
    if not isinstance(structure, SupportsHidden) or structure.slope(column) is None:
        return None
    points = np.linspace(low, high, POINTS)
    if feature.stored.kind != "f":
        points = np.round(points)
    points = np.unique(np.append(points.astype(feature.stored).astype(np.float64), row[column]))
    points = points[(points >= low) & (points <= high)]
    at = int(np.searchsorted(points, row[column]))
    return Axis(column, points, points, structure.encode(column, points), at, between=True)


def _cells(
    feature: Feature, scorer: Scorer, ends: Floats, limits: tuple[float, float], own: float, column: int
) -> Axis | None:
    """Return the axis of a number whose intervals end at `ends`, cut to limits."""
    low, high = limits
    whole, stored = feature.kind == "integer", feature.stored
    if not whole and stored.kind != "f":
        return None
    last = np.floor(ends) if whole else _below(ends[np.isfinite(ends)], stored)
    last = np.unique(last[np.isfinite(last)])
    last = last[(last >= low) & (last < high)]
    after = last + 1 if whole else np.nextafter(last.astype(stored), stored.type(np.inf)).astype(np.float64)
    first, last = np.append(low, after), np.append(last, high)
    return Axis(column, first, last, scorer.structure.encode(column, last), int(np.searchsorted(last, own)))


def _below(values: Floats, stored: np.dtype[np.generic]) -> Floats:
    """Return values (n,) as a type holds them, rounded down."""
    with np.errstate(over="ignore"):
        held = values.astype(stored)
        above = held.astype(np.float64) > values
        return np.where(above, np.nextafter(held, stored.type(-np.inf)), held).astype(np.float64)
