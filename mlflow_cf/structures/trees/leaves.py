"""The leaves of compiled trees as boxes of cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlflow_cf.structures.kernels.trees import (
    CUT,
    FEATURE,
    LEFT,
    MISSING_LEFT,
    TEST,
    Array,
    Features,
    Nodes,
    Trees,
    flags_of,
)
from mlflow_cf.structures.parts import LeafLimits, Leaves
from mlflow_cf.structures.structure import Flags, Link
from mlflow_cf.structures.trees.cells import Lookup


def leaves_of(trees: Trees, lookups: Sequence[Lookup], link: Link) -> Leaves:
    """Return the reachable leaves of compiled trees, tree after tree."""
    nodes, base = trees.nodes, trees.base
    tree = tree_of(nodes)
    leaves = np.flatnonzero(nodes.tests[:, FEATURE] < 0)
    leaves = leaves[np.argsort(tree[leaves], kind="stable")]
    leaf, test, goes_left = _ways(nodes, leaves)
    tested = nodes.tests[test, FEATURE]
    limits = []
    for feature, lookup in enumerate(lookups):
        here = np.flatnonzero(tested == feature)
        limits.append(_limits(leaf[here], nodes.tests[test[here]], goes_left[here], trees.features, lookup))
    reached = np.ones(len(leaves), dtype=np.bool_)
    for limit in limits:
        reached[limit.leaf[(limit.high < limit.low) & ~limit.missing]] = False
    leaves = leaves[reached]
    outputs, value = nodes.outputs[tree[leaves]], nodes.value[leaves].astype(np.float64)
    if (outputs >= 0).any():  # of each tree alone
        every = np.zeros((len(leaves), len(base)))
        every[np.arange(len(leaves)), outputs] = value[:, 0]
        value = every
    return Leaves(
        lookups=tuple(lookups),
        limits=tuple(_kept(limit, reached) for limit in limits),
        tree=tree[leaves],
        value=value,
        base=base,
        link=link,
    )


def tree_of(nodes: Nodes) -> Array:
    """Return the tree (nodes,) of every node."""
    tree = np.empty(len(nodes.tests), dtype=np.int32)
    level = nodes.roots
    tree[level] = np.arange(len(level))
    while len(level := level[nodes.tests[level, FEATURE] >= 0]):
        left = nodes.tests[level, LEFT]
        tree[left] = tree[left + 1] = tree[level]
        level = np.concatenate([left, left + 1])
    return tree


def _ways(nodes: Nodes, leaves: Array) -> tuple[Array, Array, Flags]:
    """Return all tests on the paths to `leaves`: position of the leaf, node, and whether the path goes left."""
    inner = np.flatnonzero(nodes.tests[:, FEATURE] >= 0)
    parent = np.full(len(nodes.tests), -1)
    parent[nodes.tests[inner, LEFT]] = parent[nodes.tests[inner, LEFT] + 1] = inner
    leaf, below = np.arange(len(leaves)), leaves
    found: list[tuple[Array, Array, Array]] = []
    while len(leaf):
        above = parent[below]
        found.append((leaf, above, nodes.tests[above, LEFT] == below))
        leaf, below = leaf[above >= 0], above[above >= 0]
    leaf, test, goes_left = (np.concatenate(part) for part in zip(*found, strict=True))
    return leaf[test >= 0], test[test >= 0], goes_left[test >= 0]


def _limits(leaf: Array, tests: Array, goes_left: Flags, features: Features, lookup: Lookup) -> LeafLimits:
    """Return the cells of one feature that leaves accept, by the `tests` (n, 5) and directions (n,) on their paths."""
    order = np.argsort(leaf, kind="stable")
    tests, goes_left = tests[order], goes_left[order]
    distinct, first = np.unique(leaf[order], return_index=True)
    last, own_cell = lookup.size - 2, lookup.missing == lookup.size - 1
    if not len(leaf):
        nothing = np.empty(0, dtype=np.int32)
        return LeafLimits(nothing, nothing, nothing, nothing.astype(np.bool_), None)
    if (tests[:, TEST] < 0).all():
        low = np.maximum.reduceat(np.where(goes_left, 0, tests[:, CUT] + 1), first)
        high = np.minimum.reduceat(np.where(goes_left, tests[:, CUT], last), first)
        missing = np.logical_and.reduceat((tests[:, MISSING_LEFT] > 0) == goes_left, first)
        return LeafLimits(distinct, low, high, missing & own_cell, None)
    taken = np.logical_and.reduceat(flags_of(features.bits)[tests[:, TEST], : lookup.size] == goes_left[:, None], first)
    taken[:, -1] &= own_cell
    some = taken[:, :-1].any(axis=1)
    low = np.where(some, taken[:, :-1].argmax(axis=1), last + 1)
    high = np.where(some, last - taken[:, -2::-1].argmax(axis=1), last)
    return LeafLimits(distinct, low, high, taken[:, -1], taken)


def _kept(limits: LeafLimits, reached: Flags) -> LeafLimits:
    """Return the limits of the reachable leaves, renumbered."""
    kept = reached[limits.leaf]
    taken = None if limits.taken is None else limits.taken[kept]
    number = np.cumsum(reached) - 1
    return LeafLimits(number[limits.leaf[kept]], limits.low[kept], limits.high[kept], limits.missing[kept], taken)
