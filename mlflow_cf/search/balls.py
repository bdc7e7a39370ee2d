"""Points drawn in balls, and in layers of them, around the row to explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.problem.points import limits, with_values
from mlflow_cf.search.snapping import Snapping

Radii = Literal["volume", "radius"]  # what is drawn evenly
POINTS = 1001  # of a continuous number, evenly between the ends of what is allowed


@dataclass(frozen=True, eq=False)
class Balls:
    """Draws points around a row, over the features with an order, scaled by their range; a candidate is nearest.

    Attributes:
        problem: the row, with even points of continuous numbers.
        rng: source of randomness.
        columns: (p,) features that are drawn: those of groups without levels that may change, where the row has a known
            value.
        levels: the groups with levels that are drawn, too.
        span: (d,) the range of every feature; 0: only whether it changes counts.
        clip: whether points stay within the background's range.
    """

    problem: Problem
    rng: np.random.Generator
    columns: Codes
    levels: tuple[int, ...]
    span: Floats
    clip: bool

    @classmethod
    def of(cls, problem: Problem, rng: np.random.Generator, *, levels: bool, clip: bool) -> Balls:
        """Return the balls around a problem's row; `levels`: whether levels are drawn, too."""
        intervals = {n: group for n, group in enumerate(problem.groups) if group.interval is not None}
        if intervals:
            points = {n: np.linspace(*limits(problem, group), POINTS) for n, group in intervals.items()}
            problem = with_values(problem, points)
        features = problem.space.features
        span = np.array([feature.high - feature.low if feature.has_order else 0.0 for feature in features])
        span[~(problem.x0 < [feature.unknown_from for feature in features])] = 0.0
        free = [n for n, group in enumerate(problem.groups) if group.proposals]
        ordered = [n for n in free if all(features[column].has_order for column in problem.columns[n])]
        columns = [column for n in ordered for column in problem.columns[n] if span[column] > 0]
        drawn = tuple(n for n in free if n not in ordered) if levels else ()
        return cls(problem, rng, np.array(columns, dtype=np.intp), drawn, span, clip)

    @property
    def any(self) -> bool:
        """Whether there is anything to draw."""
        return bool(len(self.columns) or self.levels)

    @property
    def reach(self) -> float:
        """The diagonal of the background's range: from the row, no point of it is farther away."""
        return float(max(np.sqrt(len(self.columns)), 1.0))

    def draw(self, inner: float, outer: float, count: int, radii: Radii) -> Codes:
        """Return the codes (count, G) of points between two radii, before any rule over several groups."""
        problem, p = self.problem, len(self.columns)
        Z = np.tile(problem.x0, (count, 1))
        if p:
            directions = self.rng.standard_normal((count, p))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            if radii == "volume":  # (inner / outer)^p first: inner^p alone underflows
                radius = outer * self.rng.uniform((inner / outer) ** p, 1.0, count) ** (1 / p)
            else:
                radius = self.rng.uniform(inner, outer, count)
            Z[:, self.columns] += directions * radius[:, None] * self.span[self.columns]
            if self.clip:
                low, high = np.array([(f.low, f.high) for f in problem.space.features]).T
                Z[:, self.columns] = Z[:, self.columns].clip(low[self.columns], high[self.columns])
        codes = self._snapped(Z)
        for number in self.levels:
            group = problem.groups[number]
            admissible = np.arange(len(group.tuples))
            admissible = admissible if group.own_allowed else np.delete(admissible, group.own)
            codes[:, number] = self.rng.choice(admissible, size=count)
        return self._few(codes)

    def _snapped(self, Z: Floats) -> Codes:
        return self.problem.kept(_snapping).codes(Z)

    def _few(self, codes: Codes) -> Codes:
        """Put back the smallest changes of candidates (m, G) that change too many groups."""
        problem = self.problem
        most = problem.most_changes
        if most >= min(len(problem.groups), int((codes != problem.own).sum(axis=1).max(initial=0))):
            return codes
        changes = self.changes(codes)
        changes[:, [not group.own_allowed for group in problem.groups]] = np.inf
        smallest = np.argsort(changes, axis=1, kind="stable")[:, : len(problem.groups) - most]
        np.put_along_axis(codes, smallest, problem.own[smallest], axis=1)
        return codes

    def changes(self, codes: Codes) -> Floats:
        """Return the lengths (m, G) of the changes of every group: in ranges, 1 for another level."""
        rows, x0 = self.problem.rows(codes), self.problem.x0
        differs = ~same(rows, x0)
        ranked = (self.span > 0) & ~np.isnan(rows)
        change = np.where(ranked, np.abs(rows - x0) / np.where(self.span > 0, self.span, 1.0), differs)
        return np.column_stack([np.sqrt((change[:, columns] ** 2).sum(axis=1)) for columns in self.problem.columns])

    def away(self, codes: Codes) -> Floats:
        """Return the Euclidean distances (m,) of candidates from the row."""
        return np.asarray(np.sqrt((self.changes(codes) ** 2).sum(axis=1)))


def _snapping(problem: Problem) -> Snapping:
    return Snapping(problem)
