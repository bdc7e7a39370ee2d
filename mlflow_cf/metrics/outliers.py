"""Whether a row looks like the background: the local outlier factor over standardised rows (UFCE section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.features import UNIT_MISMATCH, Embedding, FeatureSpace, Floats
from mlflow_cf.metrics.changes import mean
from mlflow_cf.metrics.nearest import Columns, neighbours
from mlflow_cf.stepwise import Steps, finished

MOST_ROWS = 10_000  # .8 s to learn, .08 ms to tell of a row
NEIGHBOURS = 100
LIMIT = 1.5  # scikit-learn's contamination="auto"
_NO_DISTANCE = 1e-10  # scikit-learn's: a row may equal all of its neighbours


@dataclass(frozen=True, eq=False)
class Inliers:
    """The background's local outlier factor, learned once (Breunig, Kriegel, Ng and Sander 2000).

    Numbers are standardised, a mismatch of levels is a distance of 1. The figures are those of scikit-learn's
    ``LocalOutlierFactor(novelty=True)``, whose fast distances for many columns are rounded to about 1e-8, and of which
    rows asked about together may change each other's last digits. Here a row's answer is its own, and of neighbours
    equally far away the first ones count.

    Attributes:
        embedding: how rows become points.
        points: (n, p) the background rows compared with.
        reach: (n,) distance of each to the last of its neighbours.
        density: (n,) local reachability density of each.
        neighbours: how many neighbours are asked.
    """

    embedding: Embedding
    points: Floats
    reach: Floats
    density: Floats
    neighbours: int

    @classmethod
    def fit(cls, space: FeatureSpace, background: Floats) -> Inliers:
        """Learn from coded background rows (m, d), evenly picked if there are more than 10,000.

        Raises:
            InputError: fewer than two rows.
        """
        return finished(cls.fitted(space, background))

    @classmethod
    def fitted(cls, space: FeatureSpace, background: Floats) -> Steps[Inliers]:
        """Learn the same step by step.

        Raises:
            InputError: fewer than two rows.
        """
        if len(background) < 2:
            raise InputError("background", f"{len(background)} rows", "plausibility needs at least two")
        picked = np.linspace(0, len(background) - 1, min(len(background), MOST_ROWS)).round().astype(np.intp)
        rows = background[picked]
        embedding = Embedding.fit(space, rows, scale="deviation", level_weight=UNIT_MISMATCH)
        points, count = _points(embedding, rows), min(NEIGHBOURS, len(rows) - 1)
        columns, parts = Columns.of(embedding, points), []
        for part in neighbours(columns, columns, count, itself=True):
            parts.append(part)
            yield
        distance, nearest = (np.concatenate(some) for some in zip(*parts, strict=True))
        reach = distance.max(axis=1)
        return cls(embedding, points, reach, _density(distance, reach[nearest]), count)

    @cached_property
    def _columns(self) -> Columns:
        return Columns.of(self.embedding, self.points)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learned as arrays by name."""
        own = {"points": self.points, "reach": self.reach, "density": self.density}
        facts = {f"embedding_{name}": array for name, array in self.embedding.to_arrays().items()}
        return {**own, "neighbours": np.array(self.neighbours), **facts}

    @classmethod
    def from_arrays(cls, space: FeatureSpace, arrays: Mapping[str, NDArray[Any]]) -> Inliers:
        """Rebuild from `to_arrays`; the answers are the same, bit for bit."""
        prefix = "embedding_"
        facts = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        embedding = Embedding.from_arrays(space, facts)
        return cls(embedding, arrays["points"], arrays["reach"], arrays["density"], int(arrays["neighbours"]))

    def scores(self, Z: Floats) -> Floats:
        """Return the local outlier factor (k,) of rows Z (k, d): about 1 inside the background, larger outside."""
        if not len(Z):
            return np.empty(0)
        asked, parts = Columns.of(self.embedding, _points(self.embedding, Z)), []
        for distance, nearest in neighbours(self._columns, asked, self.neighbours):
            around = self.density[nearest] / _density(distance, self.reach[nearest])[:, None]
            parts.append(around.mean(axis=1))
        return np.concatenate(parts)

    def accept(self, Z: Floats) -> Bools:
        """Return (k,) whether each row is an inlier: its factor is at most 1.5."""
        return self.scores(Z) <= LIMIT


def _points(embedding: Embedding, Z: Floats) -> Floats:
    """Return rows (k, d) as points, with one more coordinate.

    It takes a level that the background never had as far from all others as those are from each other.
    """
    return np.column_stack([embedding.vectors(Z), np.sqrt(embedding.unseen(Z).sum(axis=1)) * embedding.level_weight])


def _density(distance: Floats, reach: Floats) -> Floats:
    """Return the local reachability density (k,) from the distances (k, n) and reaches (k, n) of neighbours."""
    density: Floats = 1.0 / (np.maximum(distance, reach).mean(axis=1) + _NO_DISTANCE)
    return density


def plausibility(inliers: Bools | None) -> float | None:
    """Share of answers (k,) that are inliers of the background by LOF.

    Unit: share. Better: up. Source: UFCE. None without answers, and where nothing is known of them.
    """
    return mean(inliers)
