"""Rows moved to the nearest rows that a problem may propose.

Also background rows as a start for searches that found nothing from the row itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Embedding, Feature, Floats
from mlflow_cf.features.codec import decode_column, encode_column
from mlflow_cf.features.embedding import borders
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.problem.points import limits

CELLS = 2**16  # of a table of rows against actions: it stays in the processor's cache


@dataclass(frozen=True, eq=False)
class Snapping:
    """Moves every group of a row by itself to the nearest of its actions; rules over several groups are not asked.

    * A single number: the nearest admissible one inside the box; of two equally near the one nearer to the row to
      explain, then the lower one. A continuous one: any number in its interval that its type can hold.
    * A single level: itself if admissible, else the own one, else the first.
    * A declared group: the action with the least sum of changes, numbers in ranges, a mismatch 1; ties: the first.

    The own action is inside any box, and is not admissible for a group that must change. If nothing is left in the box,
    the box does not count; if nothing is left at all, the group stays as it is. Missing stands for the own value, and
    is never proposed where that is known.

    Attributes:
        problem: the row to explain and what it may become.
        box: (2, d) lowest and highest codes of single numbers, NaN for no bound.
    """

    problem: Problem
    box: Floats | None = None
    _found: dict[int, NearestActions] = field(default_factory=dict)

    def read(self, embedding: Embedding, V: Floats) -> Floats:
        """Return vectors (m, width) as rows (m, d) to snap: of every category the best admissible level.

        A feature that has exactly the coordinates of the row to explain is read as its own value, even if missing.
        """
        return embedding.rows(V, self.problem.x0, self._choice(embedding))

    def codes(self, Z: Floats) -> Codes:
        """Return the codes (m, G) of the actions nearest to rows (m, d); of continuous numbers too."""
        wanted = np.where(np.isnan(Z), self.problem.x0, Z).T.copy()  # one column after the other: faster
        codes = np.empty((len(self.problem.groups), len(Z)), dtype=np.intp)
        for number, group in enumerate(self.problem.groups):
            codes[number] = self.nearest(number).codes(wanted[list(group.columns)])
        return codes.T.copy()

    def nearest(self, number: int) -> NearestActions:
        """Return the object that finds the nearest actions of one group, made once."""
        if number not in self._found:
            self._found[number] = self._of(self.problem.groups[number])
        return self._found[number]

    def rows(self, Z: Floats) -> Floats:
        """Return the nearest rows (m, d) to rows (m, d); continuous numbers may lie between their actions."""
        snapped = self.problem.rows(self.codes(Z))
        for group in self.problem.groups:
            if group.interval is not None:
                (column,) = group.columns
                snapped[:, column] = self.between(group, Z[:, column], snapped[:, column])
        return snapped

    def _choice(self, embedding: Embedding) -> Bools:
        """Return (width,) which coordinates belong to a level of some admissible action, or to none."""
        choice = np.ones(embedding.width, dtype=np.bool_)
        for group in self.problem.groups:
            admissible = group.actions[group.admissible]
            for column, codes in zip(group.columns, admissible.T, strict=True):
                feature, block = embedding.space.features[column], embedding.blocks[column]
                if feature.kind == "category":
                    choice[block] = np.isin(np.arange(len(feature.levels)), codes)
        return choice

    def _of(self, group: Group) -> NearestActions:
        features = [self.problem.space.features[column] for column in group.columns]
        codes = group.admissible
        if not len(codes):
            return _Number(np.empty(0), codes, group.own, np.inf)  # it stays as it is
        if len(features) > 1:
            return _Tuples(group.actions[codes], codes, features)
        if features[0].has_order:
            return self._number(group, codes, features[0])
        default = group.own if group.own_allowed else int(codes[0])
        table = np.full(len(features[0].known) + 1, default)
        levels = group.actions[codes, 0]
        table[levels[~np.isnan(levels)].astype(np.intp)] = codes[~np.isnan(levels)]
        return _Level(table)

    def _number(self, group: Group, codes: Codes, feature: Feature) -> _Number:
        values = group.actions[codes, 0]
        ranked = values < feature.unknown_from  # neither missing nor a level without a rank
        low, high = self._ends(group)
        inside = ranked & (((values >= low) & (values <= high)) | (codes == group.own))
        kept = inside if inside.any() or group.own_allowed else ranked
        default = group.own if group.own_allowed else int(codes[kept][0])
        own = group.actions[group.own, 0]
        return _Number.between(values[kept], codes[kept], default, own, feature.unknown_from)

    def _ends(self, group: Group) -> tuple[float, float]:
        low, high = (np.nan, np.nan) if self.box is None else self.box[:, group.columns[0]].tolist()
        return -np.inf if np.isnan(low) else low, np.inf if np.isnan(high) else high

    def between(self, group: Group, wanted: Floats, nearest: Floats) -> Floats:
        """Return the nearest values (m,) of a continuous number, or what of its interval is nearer to those wanted."""
        (column,) = group.columns
        feature, own = self.problem.space.features[column], self.problem.x0[column]
        bounds = limits(self.problem, group), self._ends(group), group.interval or (0.0, 0.0)
        low, high = _inward(feature, max(low for low, _ in bounds), min(high for _, high in bounds))
        if low > high:
            return nearest
        wanted = np.where(np.isnan(wanted), own, wanted)
        values = np.where(np.isnan(wanted), low, wanted).clip(low, high)
        values, bad = encode_column(feature, decode_column(feature, values))  # as the column holds them
        kept = ~bad & (values >= low) & (values <= high)
        rows = np.broadcast_to(values[:, None], (len(values), len(self.problem.x0)))  # a group's rules read it alone
        for rule in group.rules:
            kept &= rule.holds(rows, self.problem.x0)
        gain = np.abs(nearest - wanted) - np.abs(values - wanted)
        kept &= (gain > 0) | ((gain == 0) & (np.abs(values - own) < np.abs(nearest - own)))
        return np.where(kept, values, nearest)


@dataclass(frozen=True, eq=False)
class _Level:
    """The code of the action for every level; the last place is that of a missing own level."""

    table: Codes

    def codes(self, wanted: Floats) -> Codes:
        last = len(self.table) - 1
        place = np.where(np.isnan(wanted[0]), last, wanted[0]).astype(np.intp).clip(max=last)
        codes: Codes = self.table[place]
        return codes


@dataclass(frozen=True, eq=False)
class _Number:
    """The codes (t,) of admissible numbers in ascending order.

    Attributes:
        cuts: (t - 1,) the first of the codes is that of numbers up to the first cut, and so on.
        found: the codes.
        default: the code for what has no rank.
        unknown_from: numbers from here on have none.
    """

    cuts: Floats
    found: Codes
    default: int
    unknown_from: float

    @classmethod
    def between(cls, values: Floats, found: Codes, default: int, own: float, unknown_from: float) -> _Number:
        cuts = borders(values)
        upwards = np.abs(values[1:] - own) < np.abs(values[:-1] - own)  # the upper one is nearer to the own value
        below = np.maximum(np.nextafter(cuts, -np.inf), values[:-1])
        return cls(np.where(upwards, below, cuts), found, default, unknown_from)

    def codes(self, wanted: Floats) -> Codes:
        if not len(self.found):
            return np.full(wanted.shape[1], self.default)
        codes: Codes = self.found[self.cuts.searchsorted(wanted[0])]
        return np.where(wanted[0] < self.unknown_from, codes, self.default)


@dataclass(frozen=True, eq=False)
class _Tuples:
    """Admissible actions (t, k) of a declared group, their codes (t,), and its features."""

    actions: Floats
    found: Codes
    features: list[Feature]

    def codes(self, wanted: Floats) -> Codes:
        count = wanted.shape[1]
        size = max(1, CELLS // len(self.actions))
        parts = [self._distance(wanted[:, start : start + size]).argmin(axis=1) for start in range(0, count, size)]
        return self.found[np.concatenate(parts)] if parts else np.empty(0, dtype=np.intp)

    def _distance(self, wanted: Floats) -> Floats:
        """Return the distances (m, t) of what is wanted (k, m) from all actions."""
        total = np.zeros((wanted.shape[1], len(self.actions)))
        for feature, sought, offered in zip(self.features, wanted, self.actions.T, strict=True):
            total += _changes(feature, sought[:, None], offered)
        return total


# what finds the actions of one group nearest to given values: `codes` takes codes (columns, m), where missing is the
# own value, and returns codes (m,) of actions
NearestActions = _Level | _Number | _Tuples


def _changes(feature: Feature, sought: Floats, offered: Floats) -> Floats | Bools:
    """Return changes (m, t) between codes (m, 1) and (t,): in ranges, and 1 where one of them has no rank."""
    span = feature.high - feature.low
    if feature.has_order and span:
        change = np.abs(sought - offered)
        change /= span
        limit = feature.unknown_from
        if sought.max() < limit and offered.max() < limit:  # and nothing is missing
            return change
        ranked: Bools = (sought < limit) & (offered < limit)
        return np.where(ranked, change, ~same(sought, offered))
    return ~same(sought, offered)


def _inward(feature: Feature, low: float, high: float) -> tuple[float, float]:
    """Return the ends of an interval moved to the first numbers inside that the feature's column can hold."""
    if feature.stored.kind != "f":
        return low, high
    first, last = np.array([low, high]).astype(feature.stored)
    first = first if float(first) >= low else np.nextafter(first, first.dtype.type(np.inf))
    last = last if float(last) <= high else np.nextafter(last, last.dtype.type(-np.inf))
    return float(first), float(last)


def nearest_favourable_rows(problem: Problem) -> Floats:
    """Return distinct background rows (m, d) that are predicted favourable and meet every constraint, nearest first."""
    constant = [column for column, feature in enumerate(problem.space.features) if feature.constant]
    if same(problem.background[0, constant], problem.x0[constant]).all():
        rows = problem.background[problem.rate_background().favourable]
        rows = rows[problem.check(rows)]
    else:  # a row keeps what is constant, and so no prediction of the background is known here
        rows = problem.background.copy()
        rows[:, constant] = problem.x0[constant]
        rows = rows[problem.check(rows)]
        rows = rows[problem.rate(rows).favourable]
    distance = problem.bound_distance.distance(problem.columns, rows, problem.x0)
    nearest = rows[np.argsort(distance, kind="stable")]
    _, first = np.unique(np.where(np.isnan(nearest), np.inf, nearest), axis=0, return_index=True)
    return np.asarray(nearest[np.sort(first)])


def codes_of(problem: Problem, Z: Floats) -> Codes:
    """Return the codes (k, G) of rows Z (m, d); rows with an action that is not among a group's are left out.

    A number is coded by the nearest value of its cell where a problem has one of every cell.
    """
    codes = np.empty((len(Z), len(problem.groups)), dtype=np.intp)
    every: Bools = np.ones(len(Z), dtype=np.bool_)
    changed = problem.changed(Z)
    for number, group in enumerate(problem.groups):
        values = Z[:, group.columns]
        if group.columns[0] in problem.celled and problem.cells is not None and group.ids is not None:
            # where a rule ends inside a cell, several values have it: the nearest stands for it
            candidates = group.admissible[np.argsort(group.cost[group.admissible], kind="stable")]
            keys, known = group.ids[candidates], ~np.isnan(values[:, 0])
            sought = problem.cells.places(group.columns[0], values[:, 0])
        else:
            known, sought = group.domain.keys(values)
            listed, keys = group.domain.keys(group.actions)
            listed[group.own] = False
            candidates, keys = np.flatnonzero(listed), keys[listed]
        if len(candidates):  # the first one with each key
            order = np.argsort(keys, kind="stable")
            position = order[np.searchsorted(keys[order], sought).clip(max=len(order) - 1)]
            codes[:, number], known = candidates[position], known & (keys[position] == sought)
        codes[~changed[:, number], number] = group.own
        every &= ~changed[:, number] | (known & (len(candidates) > 0))
    return codes[every]
