"""What UFCE learns from the background once, as arrays, and reads back for every search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.explainers.learned import Facts, Learned, Learning, known_labels
from mlflow_cf.explainers.ufce.information import mutual_information
from mlflow_cf.explainers.ufce.predictors import fit_predictors
from mlflow_cf.features import UNIT_MISMATCH, Embedding, FeatureSpace, Floats
from mlflow_cf.metrics.outliers import Inliers

INLIERS: Final = "inliers_"
EMBEDDING: Final = "embedding_"
Arrays = Mapping[str, NDArray[Any]]


def learn_all(facts: Facts) -> Learning:
    """Learn mutual information, predictors, the rows as vectors with their labels, and the local outlier factor.

    Raises:
        InputError: fewer than two background rows.
    """
    inliers = yield from Inliers.fitted(facts.space, facts.background)
    embedding = Embedding.fit(facts.space, facts.background, scale="deviation", level_weight=UNIT_MISMATCH)
    weights, intercepts = yield from fit_predictors(embedding, facts.background)
    mutual = yield from mutual_information(facts.space, facts.background, facts.seed)
    return Learned(
        {
            "mutual": mutual,
            "weights": weights,
            "intercepts": intercepts,
            "vectors": embedding.vectors(facts.background),
            "labels": known_labels(facts),
            **{EMBEDDING + name: array for name, array in embedding.to_arrays().items()},
            **{INLIERS + name: array for name, array in inliers.to_arrays().items()},
        }
    )


@dataclass(frozen=True, eq=False)
class Known:
    """What was learned.

    Attributes:
        mutual: (d, d) mutual information of the features.
        weights, intercepts: what predicts each coordinate of a row's vector; see `fit_predictors`.
        vectors: (n, width) the background rows; labels: (n,) see `known_labels`.
        embedding, inliers: the arrays of both.
    """

    mutual: Floats
    weights: Floats
    intercepts: Floats
    vectors: Floats
    labels: Floats
    embedding: Arrays
    inliers: Arrays

    @classmethod
    def of(cls, learned: Learned) -> Known:
        """Read what `learn_all` wrote.

        Raises:
            KeyError, ValueError: something is missing, or does not go together.
        """
        arrays = learned.arrays
        embedding, inliers = _under(EMBEDDING, arrays), _under(INLIERS, arrays)
        known = cls(
            **{name: arrays[name] for name in ("mutual", "weights", "intercepts", "vectors", "labels")},
            embedding=embedding,
            inliers=inliers,
        )
        d, width = len(embedding["centre"]), len(known.intercepts)
        shapes = {"mutual": (d, d), "weights": (width, width), "vectors": (len(known.labels), width)}
        if any(arrays[name].shape != shape for name, shape in shapes.items()) or not len(inliers["points"]):
            raise ValueError("what UFCE did not learn")
        return known

    def embedding_over(self, space: FeatureSpace) -> Embedding:
        """Return how rows become vectors, over features that may know more levels."""
        return Embedding.from_arrays(space, self.embedding)

    def inliers_over(self, space: FeatureSpace) -> Inliers:
        """Return what tells inliers, over features that may know more levels."""
        return Inliers.from_arrays(space, self.inliers)


def _under(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def refitted(space: FeatureSpace, background: Floats, x0: Floats) -> Inliers:
    """Return what tells inliers of the background and the row to explain, as the paper fits it for every row."""
    return Inliers.fit(space, np.vstack([background, x0]))
