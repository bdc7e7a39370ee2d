"""CatBoost's trees as a forest, read from its own JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures import Forest, Link, NotOpenedError, Subsets
from mlflow_cf_flavors.catboost.export import Facts

Split = dict[str, Any]
Flags = NDArray[np.bool_]
Nodes = NDArray[np.intp]
NO_CATEGORY: Final = -0.5  # what lies above is one


@dataclass(frozen=True, eq=False)
class _Grown:
    """Trees, one after the other; a node's children follow it.

    Attributes:
        roots: (trees,) first node of every tree.
        split: (nodes,) which of the distinct splits a node tests, -1 for a leaf.
        left, right: (nodes,) children; right is where a split holds.
        value: (nodes, k) leaf values.
    """

    roots: Nodes
    split: Nodes
    left: Nodes
    right: Nodes
    value: Floats


def catboost_forest(facts: Facts, link: Link) -> Forest:
    """Return the trees of an exported model, over its features in order, categories by the places of one-hot values.

    Raises:
        NotOpenedError: a split on statistics of categories, or no trees.
    """
    if statistics := facts["features_info"].get("ctrs"):
        raise NotOpenedError(_on_statistics(facts, statistics))
    splits = _Splits.of(facts)
    if trees := facts.get("oblivious_trees"):
        grown = _symmetric(trees, splits)
    elif trees := facts.get("trees"):
        grown = _free(trees, splits)
    else:
        raise NotOpenedError("CatBoost without trees")
    scale, bias = facts["scale_and_bias"]
    several = grown.value.shape[1] > 1
    subsets = splits.subsets(grown.split)
    inner = grown.split >= 0
    return Forest(
        roots=grown.roots.astype(np.int32),
        outputs=np.full(len(grown.roots), -1 if several else 0, dtype=np.int32),
        column=np.where(inner, splits.feature[grown.split], -1).astype(np.int32),
        threshold=np.where(inner, splits.border[grown.split], 0.0),
        missing_left=inner & splits.missing_left[grown.split],
        left=grown.left.astype(np.int32),
        right=grown.right.astype(np.int32),
        value=grown.value * scale,
        rule="<= float32",
        base=np.array(bias, dtype=np.float64),
        link=link,
        subsets=subsets,
    )


def _on_statistics(facts: Facts, statistics: Sequence[dict[str, Any]]) -> str:
    """Return what is not opened: statistics of the target per category, of these features."""
    names = {one["feature_index"]: one["feature_id"] for one in facts["features_info"]["categorical_features"]}
    used = {part.get("cat_feature_index") for one in statistics for part in one["elements"]} & set(names)
    told = ", ".join(str(names[number]) for number in sorted(used))
    return f"CatBoost's statistics of categories (CTR) of {told}; a larger one_hot_max_size would avoid them"


@dataclass(frozen=True, eq=False)
class _Splits:
    """The distinct splits of a model.

    Attributes:
        number: what the JSON says of a split -> its position.
        feature: (splits,) which of the model's features is tested.
        border: (splits,) a number above it passes, in float32; place: the one-hot value that passes, -1 for numbers.
        missing_left: (splits,) whether a missing value fails.
    """

    number: dict[tuple[str, int, float], int]
    feature: Nodes
    border: Floats
    place: Nodes
    missing_left: Flags

    @classmethod
    def of(cls, facts: Facts) -> _Splits:
        """Return the splits of an exported model."""
        found: dict[tuple[str, int, float], tuple[int, float, int, bool]] = {}
        for one in facts["features_info"].get("float_features", ()):
            left = one["nan_value_treatment"] != "AsTrue"  # a comparison with NaN fails
            for border in one["borders"] or ():
                key = ("FloatFeature", one["feature_index"], border)
                found[key] = (one["flat_feature_index"], float(np.float32(border)), -1, left)
        for one in facts["features_info"].get("categorical_features", ()):
            for place, value in enumerate(one.get("values") or ()):
                found["OneHotFeature", one["feature_index"], value] = (one["flat_feature_index"], 0.0, place, True)
        number = {key: position for position, key in enumerate(found)}
        rows = list(found.values()) or [(0, 0.0, -1, True)]  # trees without splits look nothing up
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        return cls(number, *columns)

    def find(self, split: Split) -> int:
        """Return the position of a split of a tree."""
        kind = split["split_type"]
        if kind == "FloatFeature":
            return self.number[kind, split["float_feature_index"], split["border"]]
        if kind == "OneHotFeature":
            return self.number[kind, split["cat_feature_index"], split["value"]]
        raise NotOpenedError(f"CatBoost's splits of the kind {kind}")

    def excluded(self, one: int, other: int) -> tuple[tuple[bool, bool], ...]:
        """Return the outcomes of two splits that no row has together."""
        if one == other:
            return (False, True), (True, False)
        if self.feature[one] != self.feature[other]:
            return ()
        if self.place[one] >= 0:
            return ((True, True),)
        return ((True, False) if self.border[one] > self.border[other] else (False, True),)

    def subsets(self, split: Nodes) -> Subsets | None:
        """Return the sets of the nodes that test one-hot values: every other value goes left."""
        place = np.where(split >= 0, self.place[split], -1)
        most = int(self.place.max()) + 1
        return Subsets(place.astype(np.int32), ~np.eye(most, most + 1, dtype=np.bool_), NO_CATEGORY) if most else None


def _symmetric(trees: Sequence[dict[str, Any]], splits: _Splits) -> _Grown:
    """Return symmetric trees, all of whose nodes of one level have the same split, without what no row can reach.

    Leaf number j of a tree is for rows that pass the splits whose bits are set in j, the first split being the lowest.
    """
    tested = [[splits.find(split) for split in tree["splits"] or ()] for tree in trees]
    depths = np.array([len(some) for some in tested])
    depth = int(depths.max(initial=0))
    every = np.full((len(trees), depth), -1)
    outputs = len(trees[0]["leaf_values"]) >> int(depths[0])
    leaves = np.zeros((len(trees), 2**depth, outputs))
    for number, (some, tree) in enumerate(zip(tested, trees, strict=True)):
        every[number, : len(some)] = some
        leaves[number, : 2 ** len(some)] = np.reshape(tree["leaf_values"], (-1, outputs))
    heaps = _Heaps.of(leaves, np.array([_reachable(some, splits, depth) for some in tested]))
    return heaps.grown(every)


def _reachable(tested: Sequence[int], splits: _Splits, depth: int) -> Flags:
    """Return which of the leaves (2 ** depth,) of a tree some row can reach; those beyond its own depth it cannot."""
    leaf = np.arange(2**depth)
    reachable: Flags = leaf < 2 ** len(tested)
    for (first, one), (second, other) in combinations(enumerate(tested), 2):
        for passes, also in splits.excluded(one, other):
            reachable &= ~(((leaf >> first & 1) == passes) & ((leaf >> second & 1) == also))
    return reachable


@dataclass(frozen=True, eq=False)
class _Heaps:
    """Complete binary trees of one depth, of which only some nodes are needed.

    Level i has the nodes 2**i - 1 to 2**(i + 1) - 2. Of a node at place p there, the children are those at the places
    p and p + 2**i of the next level.

    Attributes:
        depth: of all of them.
        same: (trees, nodes) the node that decides for a node: itself, or the only one of its children that is needed.
        leaves: (trees, 2 ** depth, k) values of the last level.
    """

    depth: int
    same: Nodes
    leaves: Floats

    @classmethod
    def of(cls, leaves: Floats, reachable: Flags) -> _Heaps:
        """Return the trees with such `leaves`, some of which are `reachable` (trees, 2 ** depth)."""
        depth = leaves.shape[1].bit_length() - 1
        same = np.tile(np.arange(2 ** (depth + 1) - 1), (len(leaves), 1))
        last, tree = 2**depth - 1, np.arange(len(leaves))[:, None]
        alive = reachable
        for level in reversed(range(depth)):
            count = 2**level
            one, other = (same[:, 2 * count - 1 + side : 2 * count - 1 + side + count] for side in (0, count))
            left, right = alive[:, :count], alive[:, count:]
            both_leaves = (one >= last) & (other >= last)
            values = leaves[tree, np.maximum(one - last, 0)] == leaves[tree, np.maximum(other - last, 0)]
            first = ~right | (both_leaves & values.all(axis=2))
            own = same[:, count - 1 : 2 * count - 1]
            own[...] = np.where(~left, other, np.where(first, one, own))
            alive = left | right
        return cls(depth, same, leaves)

    def grown(self, split: Nodes) -> _Grown:
        """Return the needed nodes; `split` (trees, depth) is that of every level."""
        trees, last = len(self.same), 2**self.depth - 1
        needed = np.zeros(self.same.shape, dtype=np.bool_)
        needed[np.arange(trees), self.same[:, 0]] = True
        for level in range(self.depth):
            tree, place = np.nonzero(needed[:, 2**level - 1 : 2 ** (level + 1) - 1])
            for child in (place, place + 2**level):
                needed[tree, self.same[tree, 2 ** (level + 1) - 1 + child]] = True
        number = np.cumsum(needed).reshape(needed.shape) - 1
        tree, node = np.nonzero(needed)
        inner = node < last
        levels = np.frexp(node + 1)[1] - 1
        first = np.where(inner, node + 2**levels, 0)
        second = np.where(inner, first + 2**levels, 0)
        return _Grown(
            roots=number[np.arange(trees), self.same[:, 0]],
            split=np.where(inner, split[tree, np.where(inner, levels, 0)], -1)
            if self.depth
            else np.full(len(node), -1),
            left=np.where(inner, number[tree, self.same[tree, first]], -1),
            right=np.where(inner, number[tree, self.same[tree, second]], -1),
            value=np.where(inner[:, None], 0.0, self.leaves[tree, np.maximum(node - last, 0)]),
        )


def _free(trees: Sequence[dict[str, Any]], splits: _Splits) -> _Grown:
    """Return trees every node of which has a split of its own."""
    roots: list[int] = []
    split: list[int] = []
    children: list[list[int]] = []
    values: list[Any] = []
    for tree in trees:
        roots.append(len(split))
        for node, parent, side in _nodes(tree, len(split)):
            if parent >= 0:
                children[parent][side] = len(split)
            split.append(splits.find(node["split"]) if "split" in node else -1)
            children.append([-1, -1])
            values.append(node.get("value"))
    outputs = max(np.size(value) for value in values if value is not None)
    table = np.array([np.zeros(outputs) if value is None else np.reshape(value, -1) for value in values], np.float64)
    left, right = np.array(children).T
    return _Grown(np.array(roots), np.array(split), left, right, table)


def _nodes(tree: dict[str, Any], start: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the nodes of a tree, numbered from `start`: each with the number of its parent, and its side there."""
    stack = [(tree, -1, 0)]
    number = start
    while stack:
        node, parent, side = stack.pop()
        yield node, parent, side
        if "split" in node:
            stack += [(node["right"], number, 1), (node["left"], number, 0)]
        number += 1
