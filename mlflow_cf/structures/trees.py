"""Decision trees, forests and boosting over cells: the intervals and levels that a model can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.cells import Lookup, Tests
from mlflow_cf.structures.columns import Column
from mlflow_cf.structures.forest import Forest
from mlflow_cf.structures.kernels.nodes import Features, Nodes, reordered
from mlflow_cf.structures.kernels.score import Walk, add_trees, walk_of
from mlflow_cf.structures.structure import Link, Tokens, linked


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """A forest compiled to cells.

    Attributes:
        lookups: one per feature: how its codes become cells.
        nodes, features: the trees and what their tests mean.
        walk: the same trees in the form that is walked fastest.
        base: (k,) added to the sums of leaves; link: turns sums into scores.
    """

    lookups: tuple[Lookup, ...]
    nodes: Nodes
    features: Features
    walk: Walk
    base: Floats
    link: Link

    @classmethod
    def compile(cls, forest: Forest, columns: Sequence[Column], space: FeatureSpace) -> TreeEnsemble:
        """Compile `forest`, whose nodes test `columns`, for the features of `space`.

        Raises:
            NotOpenedError: a test that cannot be told in terms of raw features.
        """
        tests = Tests.compile(forest, columns, space)
        parts = Nodes(
            forest.roots, forest.outputs, tests.feature, tests.cut, tests.test,
            forest.missing_left, forest.left, forest.value,
        )  # fmt: skip
        nodes = reordered(parts, forest.right)
        tabled = np.zeros(len(space), dtype=np.bool_)
        tabled[nodes.feature[nodes.test >= 0]] = True
        start = np.cumsum([0, *(lookup.size for lookup in tests.lookups)])
        features = Features(start, ~tabled, tests.goes_left)
        return cls(tests.lookups, nodes, features, walk_of(nodes, features), forest.base, forest.link)

    @property
    def kind(self) -> str:
        """Number of trees and leaves."""
        return f"{len(self.nodes.roots)} trees, {int((self.nodes.feature < 0).sum())} leaves"

    def encode(self, column: int, codes: Floats) -> Tokens:
        """Return the cells (n,) of raw codes (n,) of one feature."""
        return self.lookups[column].cells(codes)

    def sums(self, tokens: Sequence[Tokens]) -> Floats:
        """Return the sums of leaves (m, k) for the cells of every feature.

        They are added up in the library's own order and precision, so that float32 sums agree to the last bit.
        """
        totals = np.tile(self.base.astype(self.nodes.value.dtype), (len(tokens[0]), 1))
        add_trees(np.column_stack(tokens), self.nodes, self.walk, totals)
        return totals.astype(np.float64)

    def score(self, tokens: Sequence[Tokens]) -> Floats:
        """Return scores (m, classes) for the cells of every feature."""
        return linked(self.sums(tokens), self.link)
