"""The trees of ONNX's own operators as a forest: thresholds and sums are float32, unless they are stored as doubles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures import Forest, Link, NotOpenedError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.onnx.graph import Node, words

_LEAF: Final = "LEAF"
_BELOW, _REVERSED = ("BRANCH_LEQ", "BRANCH_LT"), ("BRANCH_GT", "BRANCH_GTE")
_STRICT: Final = ("BRANCH_LT", "BRANCH_GTE")  # what is just as large as the threshold goes the other way


@dataclass(frozen=True, eq=False)
class Splits:
    """The nodes of all trees, root first in each of them.

    Attributes:
        roots: (trees,) first node of every tree.
        tree: (nodes,) number of the tree.
        column: (nodes,) the column that is tested, -1 in a leaf.
        threshold: (nodes,); mode: (nodes,) comparisons by their names in ONNX.
        true, false: (nodes,) where a row goes for which the comparison holds, and any other.
        missing_true: (nodes,) whether it holds of missing values.
    """

    roots: NDArray[np.intp]
    tree: NDArray[np.intp]
    column: NDArray[np.int64]
    threshold: NDArray[Any]
    mode: NDArray[np.str_]
    true: NDArray[np.intp]
    false: NDArray[np.intp]
    missing_true: NDArray[np.bool_]

    def forest(self, leaves: Leaves, base: Floats, link: Link, *, narrow: bool) -> Forest:
        """Return the forest of these nodes.

        Args:
            leaves: what they add to the raw scores.
            base: (outputs,) added to the sums; `link` turns them into scores.
            narrow: whether values and thresholds are compared as float32.

        Raises:
            NotOpenedError: a comparison that is no order of numbers.
        """
        leaf = self.mode == _LEAF
        if len(odd := np.setdiff1d(self.mode, (_LEAF, *_BELOW, *_REVERSED))):
            raise NotOpenedError(say("onnx_mode", mode=str(odd[0])))
        over = np.isin(self.mode, _REVERSED)
        precision = np.float32 if narrow else np.float64
        values, outputs = leaves.values(self)
        limit = self.threshold.astype(precision)
        limit = np.where(np.isin(self.mode, _STRICT), np.nextafter(limit, precision(-np.inf)), limit)
        left, right = np.where(over, self.false, self.true), np.where(over, self.true, self.false)
        own = np.arange(len(leaf))
        self._check_trees(leaf)
        return Forest(
            roots=self.roots.astype(np.int32),
            outputs=outputs.astype(np.int32),
            column=np.where(leaf, -1, self.column).astype(np.int32),
            threshold=limit.astype(np.float64),
            missing_left=np.where(over, ~self.missing_true, self.missing_true),
            left=np.where(leaf, own, left).astype(np.int32),
            right=np.where(leaf, own, right).astype(np.int32),
            value=np.ascontiguousarray(values),
            rule="<= float32" if narrow else "<= float64",
            base=base,
            link=link,
        )

    def _check_trees(self, leaf: NDArray[np.bool_]) -> None:
        """Refuse nodes that two others lead to, on circles too."""
        inner = np.flatnonzero(~leaf)
        children = np.concatenate([self.true[inner], self.false[inner], self.roots])
        if len(np.unique(children)) != len(children):
            raise NotOpenedError(say("onnx_no_trees"))


def splits_of(node: Node) -> tuple[Splits, NDArray[np.int64]]:
    """Return the nodes of TreeEnsembleClassifier or TreeEnsembleRegressor, and a key (nodes,) to find each by.

    The key is that of `keys`.
    """
    tree, number = node.integers("nodes_treeids"), node.integers("nodes_nodeids")
    order = np.argsort(tree, kind="stable")  # the nodes of a tree together, its root first
    tree, number = tree[order], number[order]
    known = keys(tree, number)
    trees, roots, which = np.unique(tree, return_index=True, return_inverse=True)
    del trees
    thresholds, tracks = node.floats("nodes_values"), node.integers("nodes_missing_value_tracks_true")
    if thresholds is None or len(thresholds) != len(tree):
        raise NotOpenedError(say("onnx_no_trees"))
    modes = np.array(words(node.attributes["nodes_modes"]), dtype=np.str_)[order]
    leaf = modes == _LEAF
    true = _places(known, keys(tree, node.integers("nodes_truenodeids")[order]), leaf)
    false = _places(known, keys(tree, node.integers("nodes_falsenodeids")[order]), leaf)
    missing = tracks[order] != 0 if len(tracks) else np.zeros(len(tree), dtype=np.bool_)
    column = node.integers("nodes_featureids")[order]
    return Splits(roots, which, column, thresholds[order], modes, true, false, missing), known


def keys(tree: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for each pair of a tree's number and the number of one of its nodes."""
    return tree * (1 << 32) + number


def places(known: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the positions of the keys `wanted` among those that are `known`.

    Raises:
        NotOpenedError: there is no such node.
    """
    order = np.argsort(known)
    found = order[np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)]
    if not np.array_equal(known[found], wanted):
        raise NotOpenedError(say("onnx_no_trees"))
    return found


def _places(known: NDArray[np.int64], wanted: NDArray[np.int64], leaf: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the positions of children; leaves have none, whatever is written there."""
    return places(known, np.where(leaf, known, wanted))


@dataclass(frozen=True, eq=False)
class Leaves:
    """What leaves add to raw scores.

    Attributes:
        node: (entries,) the leaf; output: (entries,) the raw score; weight: (entries,) what is added to it.
        outputs: how many raw scores there are.
    """

    node: NDArray[np.intp]
    output: NDArray[np.int64]
    weight: NDArray[Any]
    outputs: int

    def values(self, splits: Splits) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Return leaf values (nodes, k) and, per tree, the raw score it adds to; -1 where leaves hold all of them."""
        one_of_tree = np.full(len(splits.roots), -1, dtype=np.intp)
        one_of_tree[splits.tree[self.node]] = self.output
        if np.array_equal(one_of_tree[splits.tree[self.node]], self.output) and (one_of_tree >= 0).all():
            values = np.zeros((len(splits.tree), 1), dtype=self.weight.dtype)
            np.add.at(values[:, 0], self.node, self.weight)
            return values, one_of_tree
        values = np.zeros((len(splits.tree), self.outputs), dtype=self.weight.dtype)
        np.add.at(values, (self.node, self.output), self.weight)
        return values, np.full(len(splits.roots), -1, dtype=np.intp)

    def complete(self, splits: Splits) -> bool:
        """Whether every row gets something for every raw score: each has a tree all of whose leaves add to it.

        A class that a row gets nothing for is never the label, even where all others have negative scores.
        """
        trees, shape = splits.tree[self.node], (len(splits.roots), self.outputs)
        some = np.unique(np.column_stack([trees, self.output, self.node]), axis=0)
        named = np.zeros(shape, dtype=np.intp)
        np.add.at(named, (some[:, 0], some[:, 1]), 1)
        leaves = np.bincount(splits.tree[splits.mode == _LEAF], minlength=len(splits.roots))
        return bool((named == leaves[:, None]).any(axis=0).all())


def leaves_of(node: Node, kind: str, known: NDArray[np.int64], outputs: int) -> Leaves:
    """Return the leaves of TreeEnsembleClassifier (`kind` class) or TreeEnsembleRegressor (`kind` target)."""
    at = places(known, keys(node.integers(f"{kind}_treeids"), node.integers(f"{kind}_nodeids")))
    weights = node.floats(f"{kind}_weights")
    if weights is None:
        raise NotOpenedError(say("onnx_no_trees"))
    return Leaves(at, node.integers(f"{kind}_ids"), weights, outputs)


_MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")


def numbered_trees(node: Node) -> tuple[Splits, Leaves]:
    """Return the trees of TreeEnsemble, which lists leaves beside the other nodes, and refers to both by position."""
    true, false = node.integers("nodes_truenodeids"), node.integers("nodes_falsenodeids")
    leafs = np.concatenate([node.integers("nodes_trueleafs"), node.integers("nodes_falseleafs")]) != 0
    count, named = len(true), np.concatenate([true, false])
    children = np.where(leafs, count + np.arange(2 * count), named)  # every mention of a leaf is a leaf of its own
    tree, depth = _reached(node.integers("tree_roots"), children.reshape(2, count))
    order = np.lexsort((depth, tree))[np.count_nonzero(tree < 0) :]
    place = np.full(len(tree), -1, dtype=np.intp)
    place[order] = np.arange(len(order))
    inner = order < count
    at = np.where(inner, order, 0)
    mode = np.array(_MODES)[np.asarray(node.attributes["nodes_modes"], dtype=np.intp)][at]
    tracks = node.integers("nodes_missing_value_tracks_true")
    splits = Splits(
        roots=np.flatnonzero(depth[order] == 0),
        tree=tree[order],
        column=node.integers("nodes_featureids")[at],
        threshold=np.asarray(node.attributes["nodes_splits"])[at],
        mode=np.where(inner, mode, _LEAF),
        true=place[children[:count]][at],
        false=place[children[count:]][at],
        missing_true=(tracks[at] != 0) if len(tracks) else np.zeros(len(order), dtype=np.bool_),
    )
    leaf = named[order[~inner] - count]
    weights, outputs = np.asarray(node.attributes["leaf_weights"])[leaf], node.integers("leaf_targetids")[leaf]
    return splits, Leaves(np.flatnonzero(~inner), outputs, weights, int(node.attributes.get("n_targets", 1)))


def _reached(roots: NDArray[np.int64], children: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the tree of every node, -1 for those that no root leads to, and how far it is from the root.

    Args:
        roots: (trees,) their first nodes.
        children: (2, inner nodes); larger numbers than there are inner nodes are leaves.

    Raises:
        NotOpenedError: several nodes lead to the same one.
    """
    inner = children.shape[1]
    tree, depth = (np.full(3 * inner, -1, dtype=np.intp) for _ in range(2))
    front, far = roots, 0
    tree[roots] = np.arange(len(roots))
    while len(front):
        depth[front] = far
        front = front[front < inner]
        after, far = children[:, front].ravel(), far + 1
        if (tree[after] >= 0).any() or len(np.unique(after)) < len(after):
            raise NotOpenedError(say("onnx_no_trees"))
        tree[after] = np.tile(tree[front], 2)
        front = after
    return tree, depth
