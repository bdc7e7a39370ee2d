"""The cells of continuous numbers: between two neighbouring thresholds of an opened model its answer is constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints import Domain
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.problem.actions import Codes, Group, GroupActions
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.structures.capabilities import ends_of
from mlflow_cf.structures.structure import Encoded, Structure

MOST_CELLS = 30_000  # of one number
INWARDS = (np.inf, -np.inf)  # from the ends of an interval


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of numbers, number after number, ascending.

    The model gives all values of a cell the same score, so only the one nearest to the row's own is ever proposed.

    Attributes:
        groups: the groups of these numbers, ascending; start: (groups + 1,) where their cells start.
        column: (c,) column of every cell.
        first, last: (c,) its ends, as the column's type holds them.
        encoded: column -> the structure's encoded values of its cells, (cells, ...) each.
    """

    groups: tuple[int, ...]
    start: Codes
    column: Codes
    first: Floats
    last: Floats
    encoded: dict[int, Encoded]

    @classmethod
    def of(cls, structure: Structure, domains: Sequence[Domain], space: FeatureSpace) -> Cells:
        """Return the cells of all numbers that `structure` only compares with thresholds, cut to their intervals."""
        groups, columns, ends = [], [], []
        for number, domain in enumerate(domains):
            feature = space.features[domain.columns[0]]
            if domain.interval is None or feature.kind == "date" or feature.stored.kind != "f":
                continue  # no values beside a threshold can be made for its type
            known = ends_of(structure, domain.columns[0])
            if known is None or len(known) > MOST_CELLS:
                continue
            groups.append(number)
            columns.append(domain.columns[0])
            ends.append(_cut(known, domain.interval, feature.stored))
        sizes = [len(first) for first, _ in ends]
        return cls(
            tuple(groups),
            np.cumsum([0, *sizes]),
            np.repeat(np.array(columns, dtype=np.intp), sizes),
            np.concatenate([np.empty(0), *(first for first, _ in ends)]),
            np.concatenate([np.empty(0), *(last for _, last in ends)]),
            {column: structure.encode(column, last) for column, (_, last) in zip(columns, ends, strict=True)},
        )

    def nearest(self, x0: Floats) -> Floats:
        """Return for every cell its value (c,) nearest to that of a row (d,); its lowest where the row's is missing."""
        own = x0[self.column]
        return np.where(np.isnan(own), self.first, np.clip(own, self.first, self.last))

    def places(self, column: int, values: Floats) -> Codes:
        """Return the cells (m,) that numbers (m,) of one of the columns lie in, counted from the column's first."""
        at = int(np.flatnonzero(self.column[self.start[:-1]] == column)[0])
        return np.searchsorted(self.last[self.start[at] : self.start[at + 1]], values)


class Some(NamedTuple):
    """Some values (v,) of a group's number, ascending, and the cells (v,) of the number that they lie in."""

    group: Group
    values: Floats
    cells: Codes


def bind_cells(some: Sequence[Some], x0: Floats, distance: BoundDistance) -> list[Group]:
    """Return groups of one number with these values and the own action of a row (d,), at what they cost."""
    column = np.array([one.group.columns[0] for one in some], dtype=np.intp)
    whose = np.repeat(np.arange(len(some)), [len(one.values) for one in some])
    own, values = x0[column], np.concatenate([one.values for one in some])
    cells, other = np.concatenate([one.cells for one in some]), values != own[whose]
    table, starts, places = _with_own(values[other], whose[other], own)
    at, rest = starts + places, np.ones(len(table), dtype=np.bool_)
    rest[at] = False
    known = np.full(len(table), -1)
    known[rest], known[at[whose[~other]]] = cells[other], cells[~other]
    sizes = np.diff(starts, append=len(table))
    each = np.repeat(np.arange(len(some)), sizes)
    cost, peak = distance.contributions(column[each], table, own[each])
    weights, groups = rest.astype(np.float64), []
    for one, start, size, place in zip(some, starts.tolist(), sizes.tolist(), places.tolist(), strict=True):
        part = slice(start, start + size)
        groups.append(
            one.group.taking(GroupActions(table[part, None], weights[part], place, cost[part], peak[part], known[part]))
        )
    return groups


def _cut(ends: Floats, interval: tuple[float, float], stored: np.dtype[np.generic]) -> tuple[Floats, Floats]:
    """Return the first and last values of the cells in an interval, all of them values that the column's type holds."""
    low, high = (float(_held(np.array([end]), stored, side)[0]) for end, side in zip(interval, INWARDS, strict=True))
    last = np.unique(_held(ends[np.isfinite(ends)], stored, -np.inf))
    last = last[(last >= low) & (last < high)]
    if not low <= high:
        return np.empty(0), np.empty(0)
    after = np.nextafter(last.astype(stored), stored.type(np.inf)).astype(np.float64)
    return np.append(low, after), np.append(last, high)


def _held(values: Floats, stored: np.dtype[np.generic], side: float) -> Floats:
    """Return values (n,) as a type holds them, rounded towards one `side` (+inf or -inf)."""
    with np.errstate(over="ignore"):
        held: NDArray[np.generic] = values.astype(stored)
        beyond = held.astype(np.float64) < values if side > 0 else held.astype(np.float64) > values
        return np.where(beyond, np.nextafter(held, stored.type(side)), held).astype(np.float64)


def _with_own(values: Floats, whose: Codes, own: Floats) -> tuple[Floats, Codes, Codes]:
    """Insert the own value of each of g groups into its values (n,), which ascend; a missing one comes last.

    Returns:
        All values (n + g,), the start (g,) of each group, and the position (g,) of its own value in it.
    """
    before: Bools = np.isnan(own)[whose] | (values < own[whose])
    counts = np.bincount(whose, minlength=len(own)) + 1
    starts: Codes = counts.cumsum() - counts
    places: Codes = np.bincount(whose[before], minlength=len(own))
    table = np.empty(len(values) + len(own))
    table[np.arange(len(values)) + whose + ~before] = values
    table[starts + places] = own
    return table, starts, places
