"""Partial evaluation: the trees that are left once most features are fixed (GeCo section 6)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.structures.kernels.nodes import CUT, FEATURE, LEFT, MISSING_LEFT, TEST, Array, Features, Nodes
from mlflow_cf.structures.kernels.score import NEVER, Walk, comparands_of


@numba.njit(inline="always")
def _free(X: Array, node: Any, tests: Array, walk: Walk, place: Array) -> Any:
    """Return the first node from here on, along the row's comparands, that is a leaf or tests a free feature."""
    while tests[node, FEATURE] >= 0 and place[tests[node, FEATURE]] < 0:
        node = np.int64(walk.left[node]) + np.int64(X[walk.key[node] >> 32] > (walk.key[node] & 0xFFFFFFFF))
    return node


@numba.njit(cache=True, nogil=True)
def _pruned(
    X: Array, place: Array, shift: Array, nodes: Nodes, walk: Walk, tests: Array, value: Array, key: Array
) -> int:
    """Write the pruned trees, in order and with siblings side by side, and return how many nodes they have."""
    source, target, count = np.empty(len(tests), np.int32), np.empty(len(tests), np.int32), nodes.roots.size
    for tree in range(nodes.roots.size):
        source[0], target[0], at = nodes.roots[tree], tree, 1
        while at:
            at -= 1
            node, into = _free(X, np.int64(source[at]), nodes.tests, walk, place), np.int64(target[at])
            old = nodes.tests[node]
            tests[into, TEST], tests[into, MISSING_LEFT] = old[TEST], old[MISSING_LEFT]
            if old[FEATURE] < 0:
                tests[into, FEATURE], tests[into, CUT], tests[into, LEFT] = -1, 0, into
                value[into] = nodes.value[node]
                key[into] = NEVER
                continue
            tests[into, FEATURE], tests[into, CUT] = place[old[FEATURE]], old[CUT]
            tests[into, LEFT] = count
            key[into] = walk.key[node] + (shift[old[FEATURE]] << 32)
            for side in range(2):
                source[at + side], target[at + side] = old[LEFT] + side, count + side
            at, count = at + 2, count + 2
    return count


def restrict_trees(
    cells: Array, changed: Array, nodes: Nodes, features: Features, walk: Walk
) -> tuple[Nodes, Features, Walk]:
    """Return the same trees over the `changed` features alone, all others fixed to those of a row of cells (1, d).

    Every tree stays, if only as a leaf, so that leaves are added up in the same order.
    """
    place = np.full(len(features.ordered), -1)
    place[changed] = np.arange(len(changed))
    start = np.concatenate([[0], np.cumsum(np.diff(walk.start)[changed])])
    shift = np.zeros(len(place), dtype=np.int64)
    shift[changed] = start[:-1] - walk.start[changed]
    tests, value, key = np.empty_like(nodes.tests), np.empty_like(nodes.value), np.empty_like(walk.key)
    count = _pruned(comparands_of(cells, walk), place, shift, nodes, walk, tests, value, key)
    tests = tests[:count].copy()
    sizes = np.diff(features.start)[changed]
    return (
        Nodes(np.arange(len(nodes.roots), dtype=np.int32), nodes.outputs, tests, value[:count].copy()),
        features._replace(start=np.concatenate([[0], np.cumsum(sizes)]), ordered=features.ordered[changed]),
        Walk(key[:count].copy(), tests[:, LEFT].copy(), start, walk.offset[changed], walk.comparands),
    )
