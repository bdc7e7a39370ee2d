"""Plausibility as a requirement: how much a row looks like the background, and how much it must.

By an isolation forest (Liu, Ting and Zhou 2008), which scikit-learn grows, or by the local outlier factor. The forest
is scored, swept and bounded as the trees that it is: scikit-learn's ``score_samples`` is a growing function of the
mean path length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.constraints import Origin
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import Requirement
from mlflow_cf.metrics.outliers import Inliers
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.policy import Target
from mlflow_cf.policy.further import Method, Plausible
from mlflow_cf.structures import ClippedLine, Column, Forest, LevelColumn, MonotoneStep, NumberColumn, TreeEnsemble
from mlflow_cf.structures.structure import Structure, score_rows
from mlflow_cf.unlogged import unlogged

SEED: Final = 0  # fixed: what is plausible does not depend on the seed of searches
TREES: Final = 100
# of the nodes of all trees: where they begin, and what they test
NODES: Final = ("roots", "column", "threshold", "left", "right", "length")
CODING: Final = ("numbers", "sizes", "tables")
EULER: Final = float(np.euler_gamma)


@dataclass(frozen=True, eq=False)
class Isolation:
    """A forest learned from the background, over one number per feature.

    * A number or date is its place between the lowest (0) and the highest value (1); a missing one is the median.
    * An ordinal is the rank of its level, a missing one the median rank.
    * A category or boolean is the share of background rows that have its level, so that rare levels lie apart; so is
      a missing one, and a level that the background never had is 0.

    Attributes:
        space: the features.
        arrays: the trees and what codes rows for them, as they are stored.
    """

    space: FeatureSpace
    arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def fit(cls, space: FeatureSpace, background: Floats) -> Isolation:
        """Learn from coded background rows (n, d)."""
        from sklearn.ensemble import IsolationForest  # noqa: PLC0415  half a second that no server needs

        coding = _coding(space, background)
        rows = np.column_stack([column.encode(background[:, column.feature]) for column in _columns(space, coding)])
        grown = unlogged(IsolationForest(n_estimators=TREES, random_state=SEED).fit, rows)
        return cls(space, {**coding, **_nodes([part.tree_ for part in grown.estimators_])})

    @classmethod
    def from_arrays(cls, space: FeatureSpace, arrays: Mapping[str, NDArray[Any]]) -> Isolation:
        """Rebuild from `arrays`.

        Raises:
            ValueError: they are no forest over these features.
        """
        isolation = cls(space, {name: arrays[name] for name in (*CODING, *NODES)})
        _check_coding(isolation.arrays, space)
        _check_nodes(isolation.arrays, len(space))
        return isolation

    @cached_property
    def structure(self) -> TreeEnsemble:
        """The trees: their sum is the mean length of a row's paths."""
        trees = self.arrays
        forest = Forest(
            roots=trees["roots"],
            outputs=np.zeros(len(trees["roots"]), dtype=np.int32),
            column=trees["column"],
            threshold=trees["threshold"],
            missing_left=np.zeros(len(trees["column"]), dtype=np.bool_),  # nothing is missing once it is coded
            left=trees["left"],
            right=trees["right"],
            value=trees["length"][:, None] / len(trees["roots"]),
            rule="<= float32",
            base=np.zeros(1),
            link="identity",
        )
        return TreeEnsemble.compile(forest, _columns(self.space, trees), self.space)

    def compile(self, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
        """Return the trees, as a flavor compiles a model; they know their features."""
        del space, rows
        return self.structure

    def scores(self, Z: Floats) -> Floats:
        """Return the mean length (k,) of the paths of coded rows (k, d): larger is more like the background."""
        return score_rows(self.structure, Z)[:, 0]


def average_path(rows: Floats) -> Floats:
    """Return (n,) the mean length of an unsuccessful search in a binary tree of so many rows: ``c(n)`` of the paper."""
    many = np.maximum(rows, 3.0)
    longer = 2.0 * (np.log(many - 1.0) + EULER) - 2.0 * (many - 1.0) / many
    return np.where(rows <= 1, 0.0, np.where(rows == 2, 1.0, longer))


def _nodes(trees: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return the nodes of scikit-learn's trees; a leaf's length is its depth and what its own rows would add."""
    sizes = np.array([tree.node_count for tree in trees])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    shift = np.repeat(starts, sizes)
    column = np.concatenate([tree.feature for tree in trees])
    rows = np.concatenate([tree.n_node_samples for tree in trees]).astype(np.float64)
    depth = np.concatenate([_depths(tree) for tree in trees])
    return {
        "roots": starts.astype(np.int32),
        "column": np.where(column >= 0, column, -1).astype(np.int32),
        "threshold": np.concatenate([tree.threshold for tree in trees]),
        "left": _shifted([tree.children_left for tree in trees], shift, column),
        "right": _shifted([tree.children_right for tree in trees], shift, column),
        "length": np.where(column >= 0, 0.0, depth + average_path(rows)),
    }


def _shifted(children: Sequence[Any], shift: NDArray[Any], column: NDArray[Any]) -> NDArray[np.int32]:
    """Return the children of all nodes by their place among all, 0 of a leaf."""
    return np.where(column >= 0, np.concatenate(children) + shift, 0).astype(np.int32)


def _depths(tree: Any) -> Floats:
    """Return how many cuts are above each node; children stand behind their parent."""
    depth = np.zeros(tree.node_count)
    for node in range(tree.node_count):
        if tree.feature[node] >= 0:
            depth[[tree.children_left[node], tree.children_right[node]]] = depth[node] + 1
    return depth


def _check_coding(coding: Mapping[str, NDArray[Any]], space: FeatureSpace) -> None:
    """Refuse what codes rows of other features."""
    sizes = [0 if feature.numeric else len(feature.levels) + 2 for feature in space.features]
    sound = coding["numbers"].shape == (len(space), 3) and coding["sizes"].tolist() == sizes
    if not sound or coding["tables"].shape != (sum(sizes),) or not all(np.isfinite(coding[n]).all() for n in CODING):
        raise ValueError("a coding of other features")


def _check_nodes(nodes: Mapping[str, NDArray[Any]], columns: int) -> None:
    """Refuse nodes that are no trees over so many columns: a child stands behind its parent, in the same tree."""
    roots, column = nodes["roots"], nodes["column"]
    count = len(column)
    if any(nodes[name].dtype != (np.float64 if name in ("threshold", "length") else np.int32) for name in NODES):
        raise ValueError("nodes of another type")
    inner = np.flatnonzero(column >= 0)
    ends = np.append(roots[1:], count)[np.searchsorted(roots, inner, side="right") - 1]
    sound = len(roots) and roots[0] == 0 and (np.diff(roots) > 0).all() and roots[-1] < count
    sound = sound and all(nodes[name].shape == (count,) for name in NODES[1:]) and (column < columns).all()
    for side in ("left", "right"):
        sound = sound and ((nodes[side][inner] > inner) & (nodes[side][inner] < ends)).all()
    if not sound or not all(np.isfinite(nodes[name]).all() for name in NODES):
        raise ValueError("nodes that are no trees")


def _coding(space: FeatureSpace, background: Floats) -> dict[str, NDArray[Any]]:
    """Return what codes rows.

    Per feature: `numbers`, its median, lowest and highest value; `sizes`, how many of `tables` are its levels' numbers,
    with one for unseen levels and one for missing values behind them, 0 of a number.
    """
    numbers, tables = np.zeros((len(space), 3)), [np.empty(0)] * len(space)
    for at, feature in enumerate(space.features):
        codes = background[:, at]
        known = codes[~np.isnan(codes)]
        if feature.numeric:
            numbers[at] = (np.median(known), known.min(), known.max()) if len(known) else (0.0, 0.0, 0.0)
        elif feature.kind == "ordinal":
            ranks = np.arange(len(feature.levels) + 1, dtype=np.float64)
            tables[at] = np.append(ranks, np.median(known) if len(known) else 0.0)
        else:
            shares = np.bincount(known.astype(np.intp), minlength=len(feature.levels)) / max(len(codes), 1)
            tables[at] = np.append(shares[: len(feature.levels)], [0.0, np.isnan(codes).mean()])
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    return {"numbers": numbers, "sizes": sizes, "tables": np.concatenate(tables)}


def _columns(space: FeatureSpace, coding: Mapping[str, NDArray[Any]]) -> list[Column]:
    """Return how each feature becomes a number."""
    tables = np.split(coding["tables"], np.cumsum(coding["sizes"])[:-1])
    return [
        _number(at, *coding["numbers"][at]) if feature.numeric else LevelColumn(at, tables[at])
        for at, feature in enumerate(space.features)
    ]


def _number(at: int, median: float, low: float, high: float) -> NumberColumn:
    width = high - low if high > low else 1.0
    return NumberColumn(
        at, (MonotoneStep(partial(_scaled, median, low, width), ClippedLine(1.0 / width, -low / width)),)
    )


def _scaled(median: float, low: float, width: float, codes: NDArray[Any]) -> NDArray[Any]:
    return (np.where(np.isnan(codes), median, codes) - low) / width


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
    def learn(
        cls,
        method: Method,
        space: FeatureSpace,
        background: Floats,
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> Plausibility:
        """Learn from coded background rows (n, d), or rebuild what was learned of them from `arrays`.

        Raises:
            KeyError, ValueError: the arrays are not what was learned of these features.
        """
        kind = Isolation if method == "isolation_forest" else Inliers
        scorer = kind.fit(space, background) if arrays is None else kind.from_arrays(space, arrays)
        if isinstance(scorer, Isolation):
            likeness = partial(_likeness, scorer, space)
            model = OpenModel("isolation_forest", (), likeness, compile=scorer.compile, levels=_levels_of)
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


def _levels_of(space: FeatureSpace, rows: pd.DataFrame) -> dict[str, frozenset[str]]:
    """Return the levels that an isolation forest tells apart: those of the background."""
    del rows
    return {one.name: frozenset(map(str, one.levels)) for one in space.features if not one.numeric}


def _likeness(scorer: Isolation | Inliers, space: FeatureSpace, rows: pd.DataFrame) -> Floats:
    """Return the score (m,) of raw rows, larger for rows more like the background."""
    Z = space.encode_any(rows)
    return scorer.scores(Z) if isinstance(scorer, Isolation) else -scorer.scores(Z)
