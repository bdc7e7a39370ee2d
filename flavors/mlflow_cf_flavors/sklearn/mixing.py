"""scikit-learn's linear maps: steps that mix columns, which become part of the first layer that takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures import Column, NotOpenedError
from mlflow_cf_flavors.sklearn.sources import Combination, Source, Transformer, finished


@dataclass(frozen=True, eq=False)
class LinearMap:
    """What an estimator sees as linear combinations of columns: ``columns @ matrix + offset``.

    Attributes:
        columns: those that come from one raw feature each; matrix: (columns, seen); offset: (seen,).
    """

    columns: list[Column]
    matrix: Floats
    offset: Floats

    @classmethod
    def of(cls, sources: Sequence[Source], last: str) -> LinearMap:
        """Return the map that makes `sources`, which `last` sees; NotOpenedError where one has no numbers."""
        columns: list[Column] = []
        entries: list[tuple[int, int, float]] = []
        position: dict[int, int] = {}
        offset = np.zeros(len(sources))
        for seen, source in enumerate(sources):
            if isinstance(source, Combination):
                parts, weights = source.columns, source.weights
                offset[seen] = source.offset
            else:
                parts, weights = tuple(finished([source], last)), np.ones(1)
            for part, weight in zip(parts, weights, strict=True):
                if id(part) not in position:
                    position[id(part)] = len(columns)
                    columns.append(part)
                entries.append((position[id(part)], seen, weight))
        matrix = np.zeros((len(columns), len(sources)))
        for row, seen, weight in entries:
            matrix[row, seen] += weight
        return cls(columns, matrix, offset)


def unmixed(sources: Sequence[Source], last: str, weights: Floats, bias: Floats) -> tuple[list[Column], Floats, Floats]:
    """Return the columns behind those that `last` sees, and its first layer over them.

    Args:
        sources: what it sees.
        weights, bias: its first layer over these, (sources, width) and (width,).
    """
    if not any(isinstance(source, Combination) for source in sources):
        return finished(sources, last), weights, bias
    whole = LinearMap.of(sources, last)
    return whole.columns, whole.matrix @ weights, bias + whole.offset @ weights


def principal(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the components of a PCA, divided by their deviations where it whitens them."""
    matrix = step.components_.T.astype(np.float64)
    if step.whiten:
        deviation = np.sqrt(step.explained_variance_)
        matrix = matrix / np.maximum(deviation, np.finfo(deviation.dtype).eps)  # as scikit-learn does
    return _mixed(step, sources, matrix, -step.mean_ @ matrix)


def projected(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the components of a TruncatedSVD."""
    matrix = step.components_.T.astype(np.float64)
    return _mixed(step, sources, matrix, np.zeros(matrix.shape[1]))


def discriminants(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the discriminants of a LinearDiscriminantAnalysis; its other solver, lsqr, transforms nothing."""
    most = len(step.explained_variance_ratio_) if step.n_components is None else step.n_components
    matrix = step.scalings_[:, :most].astype(np.float64)
    centre = step.xbar_ if step.solver == "svd" else np.zeros(len(matrix))
    return _mixed(step, sources, matrix, -centre @ matrix)


def _mixed(step: Transformer, sources: Sequence[Source], matrix: Floats, offset: Floats) -> list[Source]:
    """Return the columns ``sources @ matrix + offset``, each as a combination of what comes from one raw feature."""
    kind = type(step).__name__
    if not (np.isfinite(matrix).all() and np.isfinite(offset).all()):
        raise NotOpenedError(f"{kind} with numbers that are not finite")
    whole = LinearMap.of(sources, kind)
    weights, offsets = whole.matrix @ matrix, whole.offset @ matrix + offset
    columns = tuple(whole.columns)
    return [Combination(kind, columns, weights[:, k], float(offsets[k])) for k in range(weights.shape[1])]
