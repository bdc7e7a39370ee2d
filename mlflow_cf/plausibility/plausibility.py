"""Plausibility as a requirement: a score of how much a row looks like the background, and how low it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.constraints import Origin
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.metrics.outliers import Inliers
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.plausibility.isolation import Isolation
from mlflow_cf.problem import Requirement, Target
from mlflow_cf.problem.further import Method, Plausible

ORIGIN: Final = Origin("policy", "plausible")


@dataclass(frozen=True, eq=False)
class Plausibility:
    """What was learned of the background; rows kept apart from each other where no rows are kept.

    Attributes:
        scorer: the isolation forest, or the neighbours of the local outlier factor.
        requirement: the score as a judge; larger is more like the background.
    """

    scorer: Isolation | Inliers
    requirement: Requirement

    @classmethod
    def learn(cls, method: Method, space: FeatureSpace, background: Floats) -> Plausibility:
        """Learn from coded background rows (n, d)."""
        kind = Isolation if method == "isolation_forest" else Inliers
        return cls._of(kind.fit(space, background), space, background)

    @classmethod
    def restored(
        cls, method: Method, space: FeatureSpace, background: Floats, arrays: Mapping[str, NDArray[Any]]
    ) -> Plausibility:
        """Rebuild from `arrays`.

        Raises:
            KeyError, ValueError: they are not what was learned of these features.
        """
        kind = Isolation if method == "isolation_forest" else Inliers
        return cls._of(kind.from_arrays(space, arrays), space, background)

    @classmethod
    def _of(cls, scorer: Isolation | Inliers, space: FeatureSpace, background: Floats) -> Plausibility:
        if isinstance(scorer, Isolation):
            model = OpenModel("isolation_forest", (), partial(_likeness, scorer, space), compile=scorer.compile)
        else:
            model = OpenModel("lof", (), partial(_likeness, scorer, space), steady=True)
        return cls(scorer, Requirement.learn(ORIGIN, model, space, background))

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What was learned as plain arrays, to be stored."""
        return self.scorer.arrays if isinstance(self.scorer, Isolation) else self.scorer.to_arrays()

    def required(self, wanted: Plausible) -> Requirement:
        """Return the requirement to have no larger a factor, or to be as normal as all but a share of all rows."""
        least = (
            np.quantile(self.requirement.outcome.values, wanted.quantile, method="lower")
            if wanted.threshold is None
            else -wanted.threshold
        )
        return replace(self.requirement, target=Target(low=float(least)))


def _likeness(scorer: Isolation | Inliers, space: FeatureSpace, rows: pd.DataFrame) -> Floats:
    """Return the score (m,) of raw rows, larger for rows more like the background."""
    Z = space.covering(rows).encode(rows)
    return scorer.scores(Z) if isinstance(scorer, Isolation) else -scorer.scores(Z)
