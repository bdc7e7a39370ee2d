"""LightGBM's trees as a forest, read from its own text format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures import Forest, Increasing, Link, NotOpenedError, Subsets
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.sums import EXP

LINKS: Final[dict[str, Link]] = {
    "binary sigmoid:1": "sigmoid",
    "cross_entropy": "sigmoid",
    "multiclass": "softmax",
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), "identity"),
}
_EXPONENTIAL: Final = ("poisson", "gamma", "tweedie")
SQUARE: Final = Increasing("signed square", lambda values: np.sign(values) * values * values)  # of a rooted target
TINY: Final = float(np.float32(1e-35))  # anything from -TINY to TINY is taken as 0
# what the bits of decision_type say
_CATEGORIES, _DEFAULT_LEFT, _ZEROS_MISSING, _NANS_MISSING = 1, 2, 1 << 2, 2 << 2

Tree = dict[str, str]
Numbers = NDArray[Any]


def lightgbm_forest(booster: Any) -> tuple[Forest, frozenset[int], Increasing | None]:
    """Return the trees of a Booster, the columns in which it takes zeros as missing values, and what follows the sum.

    Raises:
        NotOpenedError: an unknown objective, or linear trees.
    """
    head, *texts = booster.model_to_string().split("\nTree=")
    facts = _facts(head)
    link, function = _link(facts.get("objective", ""))
    texts[-1] = texts[-1].split("\nend of trees")[0]
    trees = [_facts(text) for text in texts]
    if any(tree.get("is_linear", "0") != "0" for tree in trees):
        raise NotOpenedError(say("linear_trees"))
    width = int(facts["num_tree_per_iteration"])
    splits = np.array([int(tree["num_leaves"]) - 1 for tree in trees])
    nodes = _Nodes.of(splits)
    threshold, kind = nodes.spread(_numbers(trees, "threshold"), 0.0), nodes.spread(_numbers(trees, "decision_type"), 0)
    kind = kind.astype(np.intp)
    column = nodes.spread(_numbers(trees, "split_feature"), -1).astype(np.int32)
    by_category = kind & _CATEGORIES > 0
    subsets = _subsets(trees, threshold, by_category, np.repeat(np.arange(len(trees)), nodes.sizes))
    # a missing value counts as 0 where the training rows had none, and as no category
    default_left = np.where(kind & (_ZEROS_MISSING | _NANS_MISSING), kind & _DEFAULT_LEFT, threshold >= 0)
    value = np.zeros(len(column))
    rounds = len(trees) // width if "average_output" in head.splitlines() else 1  # random forests answer a mean
    value[~nodes.inner] = _numbers(trees, "leaf_value") / rounds
    forest = Forest(
        roots=nodes.starts.astype(np.int32),
        outputs=(np.arange(len(trees)) % width).astype(np.int32),
        column=column,
        threshold=_beside_zeros(threshold),
        missing_left=(default_left > 0) & ~by_category,
        left=nodes.children(_numbers(trees, "left_child")),
        right=nodes.children(_numbers(trees, "right_child")),
        value=value[:, None],
        rule="<= float64",
        base=np.zeros(width),
        link=link,
        subsets=subsets,
    )
    return forest, _zeros_missing(column, kind), function


def _facts(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _link(objective: str) -> tuple[Link, Increasing | None]:
    """Return what makes scores of raw scores: a link, then perhaps a function that never falls."""
    name = objective.split(" ", maxsplit=1)[0]
    if name in _EXPONENTIAL:
        return "identity", EXP
    link = LINKS.get(objective) or LINKS.get(name)
    if link is None:
        what = say("objective_of", library="LightGBM", objective=objective) if objective else say("own_objective")
        raise NotOpenedError(what)
    return link, SQUARE if "sqrt" in objective.split() else None


def _numbers(trees: Sequence[Tree], name: str) -> Numbers:
    """Return the numbers of all trees, one after the other; trees without splits have none."""
    return np.array(" ".join(tree.get(name, "") for tree in trees).split(), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Nodes:
    """All nodes in order: of every tree its splits, then its leaves.

    Attributes:
        starts, sizes: (trees,) first node and number of nodes.
        splits: (trees,) number of splits; `inner`: (nodes,) whether a node is one.
    """

    starts: Numbers
    sizes: Numbers
    splits: Numbers
    inner: NDArray[np.bool_]

    @classmethod
    def of(cls, splits: Numbers) -> _Nodes:
        sizes = 2 * splits + 1
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        inner = np.arange(sizes.sum()) - np.repeat(starts, sizes) < np.repeat(splits, sizes)
        return cls(starts, sizes, splits, inner)

    def spread(self, of_splits: Numbers, of_leaves: float) -> Numbers:
        values = np.full(len(self.inner), of_leaves)
        values[self.inner] = of_splits
        return values

    def children(self, named: Numbers) -> NDArray[np.int32]:
        """Return the nodes of children; a leaf is named by its number within the tree, all bits flipped."""
        child = named.astype(np.int32)
        child = np.where(child < 0, np.repeat(self.splits, self.splits) + ~child, child)
        return self.spread(child + np.repeat(self.starts, self.splits), -1).astype(np.int32)


def _beside_zeros(threshold: Numbers) -> Numbers:
    """Return thresholds with the same answers for numbers that are not taken as 0 before they are compared."""
    below = np.where((threshold >= -TINY) & (threshold < 0), np.nextafter(-TINY, -np.inf), threshold)
    return np.where((below >= 0) & (below < TINY), TINY, below)


def _zeros_missing(column: Numbers, kind: Numbers) -> frozenset[int]:
    compares = (column >= 0) & (kind & _CATEGORIES == 0)
    zeros = compares & (kind & _ZEROS_MISSING > 0)
    found = frozenset(column[zeros].tolist())
    if not found.isdisjoint(column[(column >= 0) & ~zeros].tolist()):
        raise NotOpenedError(say("some_zeros"))
    return found


def _subsets(
    trees: Sequence[Tree], threshold: Numbers, by_category: NDArray[np.bool_], tree_of: Numbers
) -> Subsets | None:
    """Return which nodes send some categories left, and everything else right; `threshold` counts sets in a tree."""
    if not by_category.any():
        return None
    bits: list[NDArray[np.bool_]] = []
    first = np.zeros(len(trees), dtype=np.intp)  # set of every tree
    for number, tree in enumerate(trees):
        first[number] = len(bits)
        words = np.array(tree.get("cat_threshold", "").split(), dtype=np.int64).astype("<u4")
        ends = np.array(tree.get("cat_boundaries", "0").split(), dtype=np.intp)
        bits += [
            np.unpackbits(words[start:end].view(np.uint8), bitorder="little").astype(np.bool_)
            for start, end in pairwise(ends)
        ]
    left = np.zeros((len(bits), max(map(len, bits)) + 1), dtype=np.bool_)
    for row, some in enumerate(bits):
        left[row, : len(some)] = some
    subset = np.full(len(threshold), -1, dtype=np.int32)
    subset[by_category] = first[tree_of[by_category]] + threshold[by_category].astype(np.intp)
    return Subsets(subset, left, above=-1.0)
