"""The favourable background rows around a row to explain, and what they span (UFCE section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import BoundTarget
from mlflow_cf.problem import Problem

LEAST: Final = 10  # rows of a neighbourhood
SHARE: Final = 0.05  # or so many of all favourable rows


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Favourable rows near the row to explain.

    Attributes:
        rows: (k, d) their codes; none where no row is favourable.
    """

    rows: Floats

    @classmethod
    def of(cls, problem: Problem, labels: Floats, points: tuple[Floats, Floats], radius: float | None) -> Neighbourhood:
        """Return the rows in a ball around the row to explain.

        A row counts that has the wanted label and that the model predicts favourable; where there is none, one that is
        predicted favourable alone. One look at every row takes less time than a tree that looks at a twentieth of them.

        Args:
            problem: the row to explain.
            labels: (n,) of the background rows.
            points: background rows (n, width) and the row (width,) as vectors.
            radius: of the ball; None: the smallest that holds ten rows and 5 % of all. An empty ball becomes that of
                ten rows.
        """
        predicted = problem.rate_background().favourable
        wanted = predicted & meets(labels, problem.target)
        rows = np.flatnonzero(wanted if wanted.any() else predicted)
        if not len(rows):
            return cls(problem.background[:0])
        vectors, own = points
        away = np.sqrt(((vectors[rows] - own) ** 2).sum(axis=1))
        if radius is None:
            radius = _reach(away, max(LEAST, int(np.ceil(SHARE * len(rows)))))
        elif not (away <= radius).any():
            radius = _reach(away, LEAST)
        return cls(problem.background[rows[away <= radius]])

    def span(self, column: int) -> tuple[float, float]:
        """Return the least and the largest number of a column, missing ones left out; inf, -inf: there is none."""
        known = self.rows[:, column]
        known = known[~np.isnan(known)]
        return (float(known.min()), float(known.max())) if len(known) else (np.inf, -np.inf)

    def median(self, column: int) -> float:
        """Return the median of a column; NaN: there is none."""
        known = self.rows[:, column]
        known = known[~np.isnan(known)]
        return float(np.median(known)) if len(known) else np.nan


def meets(labels: Floats, bound: BoundTarget | None) -> Bools:
    """Return (n,) which labels, as `known_labels` gives them, a target wants; all without a target."""
    if bound is None:
        return np.ones(len(labels), dtype=np.bool_)
    target = bound.target
    if target.interval:
        low = -np.inf if target.low is None else target.low
        high = np.inf if target.high is None else target.high
        return np.asarray((labels >= low) & (labels <= high))
    if target.differs:
        return np.asarray((labels >= 0) & (labels != bound.own))
    return np.asarray(labels == target.column(bound.model))


def _reach(away: Floats, rows: int) -> float:
    rows = min(rows, len(away))
    return float(np.partition(away, rows - 1)[rows - 1])
