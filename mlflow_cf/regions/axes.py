"""The features along which a region may grow, each parted into pieces that belong to it as a whole or not at all.

A piece is one admissible value, or an interval of numbers without any gap. Pieces of levels may be taken in any
combination; those of numbers are in ascending order, and a region has some that follow one another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Feature, Floats
from mlflow_cf.features.feature import MICROSECONDS
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.points import allowed, rule_ends
from mlflow_cf.structures.capabilities import breaks_of, ends_of
from mlflow_cf.structures.structure import Encoded

EVEN_PIECES: Final = 32  # of a number between whose breaks the model's answer may change anywhere
FINER: Final = 16  # pieces of a piece
FINE: Final = 1e-4  # of a number's range: no piece that is shorter is parted
MOST_PIECES: Final = 30_000  # of one number


@dataclass(frozen=True, eq=False)
class Axis:
    """One feature along which a region may grow.

    Attributes:
        column: its column; group: the number of its group.
        first, last: (p,) the least and the largest value of every piece.
        encoded: (p * points, ...) the structure's encoded values of its ends, or of one value where they are alike.
        points: how many encoded values a piece has: 1, or 2 where the model's answer may change within pieces.
        at: the piece that the counterfactual lies in.
        own: the piece with the row's own value; -1: it has none.
        numeric: whether pieces are in order, so that a region takes an interval of them.
    """

    column: int
    group: int
    first: Floats
    last: Floats
    encoded: Encoded
    points: int
    at: int
    own: int
    numeric: bool

    @cached_property
    def span(self) -> float:
        """The distance from the least to the largest value."""
        return float(self.last[-1] - self.first[0])

    def finer(self, pieces: Collection[int], feature: Feature, scorer: Scorer) -> tuple[Axis, Codes]:
        """Return the axis with some pieces parted, and (p,) the old piece that each new one is of."""
        first, last, old = [], [], []
        for piece in range(len(self.first)):
            low, high = self.first[[piece]], self.last[[piece]]
            if piece in pieces:
                cuts = np.linspace(low[0], high[0], FINER + 1)[1:-1]
                low, high = _parted(low[0], high[0], cuts, feature)
            first.append(low)
            last.append(high)
            old.append(np.full(len(low), piece))
        ends, whose = np.concatenate(first), np.concatenate(old)
        tops = np.concatenate(last)
        at, own = (int(np.searchsorted(whose, place)) if place >= 0 else -1 for place in (self.at, self.own))
        encoded = _ends_encoded(scorer, self.column, ends, tops)
        return replace(self, first=ends, last=tops, encoded=encoded, at=at, own=own), whose


def axes_of(problem: Problem, scorer: Scorer, row: Floats, columns: Sequence[int]) -> list[Axis]:
    """Return the axes of a counterfactual `row` (d,) among some columns, by ascending column.

    A feature has none if it is missing in the row, changes together with others as a group, or takes any number while
    nothing bounds the model's answer between numbers, or while rules of its own cannot be taken apart.
    """
    wanted = set(columns)
    found: list[Axis] = []
    for number, group in enumerate(problem.groups):
        if len(group.columns) > 1 or group.columns[0] not in wanted or np.isnan(row[group.columns[0]]):
            continue
        whole = number in problem.linked or bool(problem.limits)  # each value counts by itself
        if group.interval is None:
            axis = _of_actions(problem, scorer, number, row, apart=whole)
        else:
            axis = _of_interval(problem, scorer, number, row, apart=whole)
        if axis is not None:
            found.append(axis)
    return sorted(found, key=lambda axis: axis.column)


def _of_actions(problem: Problem, scorer: Scorer, number: int, row: Floats, *, apart: bool) -> Axis | None:
    """Return the axis of a feature with a table of actions; equal neighbours are one piece unless kept `apart`."""
    group = problem.groups[number]
    (column,) = group.columns
    codes = group.admissible
    codes = codes[~np.isnan(group.actions[codes, 0])]
    values, feature = group.actions[codes, 0], problem.space.features[column]
    at = np.flatnonzero(values == row[column])
    if not len(at):
        return None
    encoded = problem.encoded_group(scorer, group)[0][codes]
    starts = np.arange(len(values))
    if feature.numeric and not apart and encoded.ndim == 1 and encoded.dtype.kind == "i":  # cells of trees
        starts = np.flatnonzero(np.append(True, encoded[1:] != encoded[:-1]))
    last = np.append(starts[1:], len(values)) - 1
    own = np.flatnonzero(values == problem.x0[column])
    place = [int(np.searchsorted(starts, some[0], "right")) - 1 if len(some) else -1 for some in (at, own)]
    return Axis(column, number, values[starts], values[last], encoded[starts], 1, place[0], place[1], feature.numeric)


def _of_interval(problem: Problem, scorer: Scorer, number: int, row: Floats, *, apart: bool) -> Axis | None:
    """Return the axis of a number that takes any value of an interval."""
    group = problem.groups[number]
    (column,) = group.columns
    feature, structure = problem.space.features[column], scorer.structure
    breaks, constants = breaks_of(structure, column), rule_ends(problem, group)
    if breaks is None or constants is None or len(breaks) > MOST_PIECES:
        return None
    alike = ends_of(structure, column) is not None  # within a piece, the model's answer is the same
    low, high = group.interval or (0.0, 0.0)
    cuts = [breaks, constants, _before(constants, feature)]
    if not alike:
        cuts.append(np.linspace(low, high, EVEN_PIECES + 1)[1:-1])
    if apart or not alike:
        kept = np.array([row[column], problem.x0[column]])
        cuts += [kept, _before(kept, feature)]
    first, last = _parted(low, high, np.concatenate(cuts), feature)
    lawful = allowed(problem, group, first)
    if not group.own_allowed:
        lawful &= ~((first == problem.x0[column]) & (last == first))
    first, last = first[lawful], last[lawful]
    inside = [np.flatnonzero((first <= value) & (value <= last)) for value in (row[column], problem.x0[column])]
    if not len(inside[0]):
        return None
    at, own = (int(some[0]) if len(some) else -1 for some in inside)
    points = 1 if alike and not apart else 2
    encoded = _ends_encoded(scorer, column, first, last)
    if alike and (encoded[::2] != encoded[1::2]).any():  # the column's type cannot hold what a break parts
        return None
    encoded = encoded[1::2] if points == 1 else encoded
    return Axis(column, number, first, last, encoded, points, at, own, numeric=True)


def _ends_encoded(scorer: Scorer, column: int, first: Floats, last: Floats) -> Encoded:
    """Return the encoded values (2 p, ...) of the least and the largest value of every piece, piece after piece."""
    return scorer.structure.encode(column, np.stack([first, last], axis=1).ravel())


def _parted(low: float, high: float, cuts: Floats, feature: Feature) -> tuple[Floats, Floats]:
    """Return the least and largest values (p,) of pieces of an interval; each but the last ends at one of the cuts.

    All of them are values that the feature's column can hold.
    """
    low, high = float(_held(np.array([low]), feature, 1)[0]), float(_held(np.array([high]), feature, -1)[0])
    if not low <= high:
        return np.empty(0), np.empty(0)
    last = np.unique(_held(cuts[np.isfinite(cuts)], feature, -1))
    last = last[(last >= low) & (last < high)]
    return np.append(low, _next(last, feature, 1)), np.append(last, high)


def _before(values: Floats, feature: Feature) -> Floats:
    """Return the largest values (n,) below others that a feature's column can hold."""
    known = values[np.isfinite(values)]
    up = _held(known, feature, 1)
    return _next(up, feature, -1)


def _held(values: Floats, feature: Feature, side: int) -> Floats:
    """Return values (n,) as a feature's column holds them, rounded up (`side` 1) or down (-1)."""
    round_to = np.ceil if side > 0 else np.floor
    if feature.kind == "date":
        return np.asarray(round_to(values * MICROSECONDS - side * 0.4) / MICROSECONDS)  # days are off by less
    if feature.stored.kind in "iu":
        return np.asarray(round_to(values))
    if feature.stored.kind != "f":
        return values
    with np.errstate(over="ignore"):
        held: NDArray[Any] = values.astype(feature.stored)
        beyond: Bools = (values - held) * side > 0
        return np.where(beyond, np.nextafter(held, feature.stored.type(side * np.inf)), held).astype(np.float64)


def _next(values: Floats, feature: Feature, side: int) -> Floats:
    """Return the next larger (`side` 1) or smaller (-1) values (n,) that a feature's column can hold."""
    if feature.kind == "date":
        return np.asarray((np.rint(values * MICROSECONDS) + side) / MICROSECONDS)
    if feature.stored.kind in "iu":
        return values + side
    stored = feature.stored if feature.stored.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):
        following: Floats = np.nextafter(values.astype(stored), stored.type(side * np.inf)).astype(np.float64)
    return following
