"""Explainable Boosting Machines as trees: one per term, over the bins of one feature or of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures import Column, Forest, Link, NotOpenedError
from mlflow_cf_flavors.sklearn.sources import RawLevels, Source, finished, values_of
from mlflow_cf_flavors.sums import TreeModel

Estimator = Any  # interpret carries no types
LINKS: Final[dict[str, Link]] = {"logit": "sigmoid", "mlogit": "softmax", "identity": "identity"}
MISSING, BETWEEN = 0, 0.5  # the bin of missing values, and what lies between the numbers of two bins


def additive_trees(estimator: Estimator, sources: Sequence[Source]) -> TreeModel:
    """Return a fitted Explainable Boosting Machine that takes `sources`.

    Every term has a table of scores: per feature missing values, then its bins, then categories it was not fitted on.

    Raises:
        NotOpenedError: an unknown link, or numbers that it takes as categories.
    """
    link = LINKS.get(estimator.link_)
    if link is None:
        raise NotOpenedError(f"{type(estimator).__name__} with the link {estimator.link_}")
    kind = type(estimator).__name__
    columns = [_column(kind, *pair) for pair in zip(sources, estimator.bins_, strict=True)]
    base = np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64))
    nodes = _Nodes(len(base))
    for features, scores in zip(estimator.term_features_, estimator.term_scores_, strict=True):
        axes = [_axis(number, estimator.bins_[number], len(features)) for number in features]
        nodes.roots.append(len(nodes.column))
        _grow(nodes, axes, np.asarray(scores, dtype=np.float64).reshape(*scores.shape[: len(axes)], len(base)))
    return TreeModel(columns, nodes.forest(base, link))


def _column(kind: str, source: Source, bins: Sequence[Any]) -> Column:
    """Return the encoded column of a feature: numbers as they are, categories as the places of their scores."""
    known = bins[0]
    if not isinstance(known, dict):
        return finished([source], kind)[0]
    if not isinstance(source, RawLevels):
        raise NotOpenedError(f"numbers that {kind} takes as categories")
    values, column = values_of(source)
    unknown = max(known.values(), default=MISSING) + 1
    places = [known.get(str(value), unknown) for value in values[:-1]]
    return column(np.array([*places, MISSING], dtype=np.float64))


@dataclass(frozen=True, eq=False)
class _Axis:
    """One feature of a term.

    Attributes:
        column: encoded column.
        limits: (bins - 1,) ascending, the largest encoded value of every bin but the last.
        places: (bins,) place of every bin on its axis of the table of scores.
        gaps: whether a missing value stays one, and so has a test of its own.
    """

    column: int
    limits: Floats
    places: Sequence[int]
    gaps: bool


def _axis(number: int, bins: Sequence[Any], features: int) -> _Axis:
    """Return a feature of a term of so many `features`; the more there are, the coarser may its bins be."""
    known = bins[min(len(bins), features) - 1]
    if isinstance(known, dict):
        count = max(known.values(), default=MISSING) + 2
        return _Axis(number, np.arange(count - 1) + BETWEEN, range(count), gaps=False)
    limits = np.nextafter(np.asarray(known, dtype=np.float64), -np.inf)  # a number at a cut is above it
    return _Axis(number, limits, range(1, len(limits) + 2), gaps=True)


@dataclass(eq=False)
class _Nodes:
    """The nodes of trees that grow, in the lists of `Forest`; outputs: number of raw scores."""

    outputs: int
    roots: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    value: list[Floats] = field(default_factory=list)

    def add(self, column: int, threshold: float, value: Floats | None = None) -> int:
        """Add a node without children, a leaf if it has a value, and return its number."""
        self.column.append(column)
        self.threshold.append(threshold)
        self.left.append(-1)
        self.right.append(-1)
        self.value.append(np.zeros(self.outputs) if value is None else value)
        return len(self.column) - 1

    def forest(self, base: Floats, link: Link) -> Forest:
        """Return the trees, whose raw scores begin at `base`."""
        several = len(base) > 1
        return Forest(
            roots=np.array(self.roots, dtype=np.int32),
            outputs=np.full(len(self.roots), -1 if several else 0, dtype=np.int32),
            column=np.array(self.column, dtype=np.int32),
            threshold=np.array(self.threshold),
            missing_left=np.zeros(len(self.column), dtype=np.bool_),
            left=np.array(self.left, dtype=np.int32),
            right=np.array(self.right, dtype=np.int32),
            value=np.array(self.value),
            rule="<= float64",
            base=base,
            link=link,
        )


def _grow(nodes: _Nodes, axes: Sequence[_Axis], scores: Floats) -> int:
    """Add the tree of a table of `scores`, over the bins of `axes`, and return its root."""
    if not axes or (scores == scores.reshape(-1, scores.shape[-1])[0]).all():
        return nodes.add(-1, 0.0, scores.reshape(-1, scores.shape[-1])[0])
    axis, others = axes[0], axes[1:]

    def leaf(place: int) -> int:
        return _grow(nodes, others, scores[place])

    if not axis.gaps:
        return _halves(nodes, axis, 0, len(axis.places), leaf)
    root = nodes.add(axis.column, np.inf)  # numbers go left, missing values right
    nodes.left[root] = _halves(nodes, axis, 0, len(axis.places), leaf)
    nodes.right[root] = leaf(MISSING)
    return root


def _halves(nodes: _Nodes, axis: _Axis, first: int, stop: int, leaf: Callable[[int], int]) -> int:
    """Add a balanced tree over the bins `first` to `stop` - 1 of an axis, and return its root."""
    if stop - first == 1:
        return leaf(axis.places[first])
    middle = (first + stop) // 2
    root = nodes.add(axis.column, float(axis.limits[middle - 1]))
    nodes.left[root] = _halves(nodes, axis, first, middle, leaf)
    nodes.right[root] = _halves(nodes, axis, middle, stop, leaf)
    return root
