"""The coordinates of features: numbers in a box, truth values, and levels as corners of the unit hypercube."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.features.embedding import Embedding
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.problem.points import limits

BoxOf = Callable[[str, float], tuple[float, float]]  # name and own scaled value of a number -> the ends of its box
NO_CHANGE = 1e-6  # of a number's range: what is less is no change


@dataclass(frozen=True, eq=False)
class NumberCoordinate:
    """One coordinate: ``code = coordinate * scale + centre``; where the row's own value is, it stays as it is.

    Attributes:
        low, high: (1,) its ends; own: (1,) that of the row to explain.
        centre, scale: of the feature.
        x0: the row's own code, which may be missing.
    """

    low: Floats
    high: Floats
    own: Floats
    centre: float
    scale: float
    x0: float

    def codes(self, X: Floats) -> Floats:
        """Return the numbers (m,) at positions (1, m)."""
        return np.where(X[0] == self.own, self.x0, X[0] * self.scale + self.centre)

    def positions(self, codes: Floats) -> Floats:
        """Return the positions (1, m) of numbers (m,)."""
        at = (codes - self.centre) / (self.scale or 1.0)
        return np.where((codes == self.x0) | np.isnan(codes), self.own, at)[None]


@dataclass(frozen=True, eq=False)
class Truth:
    """One coordinate, rounded: true from 0.5 on."""

    own: Floats
    low: Floats = field(default_factory=lambda: np.zeros(1))
    high: Floats = field(default_factory=lambda: np.ones(1))

    def codes(self, X: Floats) -> Floats:
        """Return 0 or 1 (m,) at positions (1, m)."""
        return self.corners(X).astype(np.float64)

    def corners(self, X: Floats) -> Codes:
        """Return the corner (m,) that is meant at positions (1, m), by its place."""
        return np.asarray(X[0] >= 0.5, dtype=np.intp)

    def positions(self, codes: Floats) -> Floats:
        """Return the positions (1, m) of codes (m,)."""
        return np.asarray(codes[None], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class LevelCoordinate:
    """A coordinate for each of some codes (w,), ascending, a missing one last: the largest is meant, ties the first."""

    known: Floats
    own: Floats
    low: Floats
    high: Floats

    def codes(self, X: Floats) -> Floats:
        """Return the codes (m,) at positions (w, m)."""
        return np.asarray(self.known[self.corners(X)])

    def corners(self, X: Floats) -> Codes:
        """Return the corner (m,) that is meant at positions (w, m), by its place."""
        return np.asarray(X.argmax(axis=0), dtype=np.intp)

    def positions(self, codes: Floats) -> Floats:
        """Return the positions (w, m) of codes (m,)."""
        missing = np.isnan(self.known)[:, None] & np.isnan(codes)
        return np.asarray((self.known[:, None] == codes) | missing, dtype=np.float64)


# the w coordinates of one feature: `low`, `high` and `own` (w,), the ends and the row's own; positions are (w, m)
Coordinates = NumberCoordinate | Truth | LevelCoordinate


def coordinates_of(problem: Problem, embedding: Embedding, group: Group, box_of: BoxOf) -> list[Coordinates]:
    """Return the coordinates of every feature of a group, with boxes that its tuples leave something of."""
    admissible = group.actions[group.admissible]
    found: list[Coordinates] = []
    for place, column in enumerate(group.columns):
        feature, x0, values = problem.space.features[column], float(problem.x0[column]), admissible[:, place]
        if feature.has_order:
            if group.interval is not None:
                values = np.append(values, limits(problem, group))
            found.append(_number(problem, embedding, column, values, box_of))
            continue
        known = np.unique(values)  # missing comes last
        if feature.kind == "boolean" and known.tolist() == [0, 1] and not np.isnan(x0):
            found.append(Truth(np.array([x0])))
        else:
            own = same(known, problem.x0[column])
            found.append(LevelCoordinate(known, own.astype(np.float64), np.zeros(len(known)), np.ones(len(known))))
    return found


def _number(problem: Problem, embedding: Embedding, column: int, values: Floats, box_of: BoxOf) -> NumberCoordinate:
    """Return the coordinate of a number that may have some values, in a box cut to where these are."""
    feature, x0 = problem.space.features[column], float(problem.x0[column])
    centre, scale = float(embedding.centre[column]), float(embedding.scale[column])
    ranked = values[values < feature.unknown_from]
    ends = (float(ranked.min()), float(ranked.max())) if len(ranked) else (centre, centre)
    least, most = ((end - centre) / (scale or 1.0) for end in ends)
    if x0 < feature.unknown_from:
        own = (x0 - centre) / scale if scale else float(x0 != centre)
        low, high = box_of(feature.name, own)
    else:
        fill = float(embedding.fill[column])
        own, low, high = (fill - centre) / (scale or 1.0), 0.0, 1.0
    low, high = max(low, least), min(high, most)
    if low > high:  # a value that must change, to somewhere outside
        low, high = least, most
    return NumberCoordinate(np.array([low]), np.array([high]), np.array([own]), centre, scale, x0)
