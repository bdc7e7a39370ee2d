"""Bounds: the least and the largest sums over all rows whose cells are among the allowed ones."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.nodes import CUT, FEATURE, LEFT, MISSING_LEFT, TEST, Array, Features, Nodes


@numba.njit(inline="always")
def _narrow(sets: tuple[Array, Array, Array], node: Any, left: Any, tests: Array, start: Array, bits: Array) -> Any:
    """Keep the allowed cells of a node's feature that go left (or right); return whether there are any."""
    span, mask, below = sets
    feature = tests[node, FEATURE]
    if tests[node, TEST] >= 0:
        some = np.uint64(0)
        for word in range(mask.shape[1]):
            goes = bits[tests[node, TEST], word]
            mask[feature, word] &= goes if left else ~goes
            some |= mask[feature, word]
        return some != np.uint64(0)
    if left:
        span[feature, 1] = min(span[feature, 1], tests[node, CUT])
    else:
        span[feature, 0] = max(span[feature, 0], tests[node, CUT] + 1)
    if (tests[node, MISSING_LEFT] != 0) != left:
        span[feature, 2] = 0
    low, high, first = span[feature, 0], span[feature, 1], start[feature]
    return span[feature, 2] != 0 or (low <= high and below[first + high + 1] > below[first + low])


@kernel
def allowed_cells(allowed: Array, features: Features) -> tuple[Array, Array, Array]:
    """Return the allowed cells as intervals, as bits, and how many allowed cells stand before each."""
    start, ordered = features.start, features.ordered
    span = np.zeros((ordered.size, 3), dtype=np.int64)
    mask = np.zeros((ordered.size, features.bits.shape[1]), dtype=np.uint64)
    below = np.zeros(allowed.size + 1, dtype=np.int64)
    for cell in range(allowed.size):
        below[cell + 1] = below[cell] + np.int64(allowed[cell])
    for feature in range(ordered.size):
        last = start[feature + 1] - start[feature] - 1
        span[feature, 1], span[feature, 2] = last - 1, np.int64(allowed[start[feature] + last])
        if not ordered[feature]:
            for cell in range(last + 1):
                if allowed[start[feature] + cell]:
                    mask[feature, cell >> 6] |= np.uint64(1) << np.uint64(cell & 63)
    return span, mask, below


@numba.njit(inline="always")
def _reach(low: Array, high: Array, values: Array, node: Any) -> None:
    for place in range(low.size):
        low[place] = min(low[place], np.float64(values[node, place]))
        high[place] = max(high[place], np.float64(values[node, place]))


@kernel
def bounds_trees(
    allowed: Array, nodes: Nodes, features: Features, base: Array, deepest: int
) -> tuple[Array, Array, Array]:
    """Return the sums of every tree's least, largest and largest absolute leaf (k,) that some allowed row reaches.

    Args:
        allowed: (cells,) flags, at least one per feature.
        nodes, features: the trees.
        base: (k,) added to all sums.
        deepest: number of tests on the longest way down a tree.
    """
    tests, start, bits = nodes.tests, features.start, features.bits
    sets = allowed_cells(allowed, features)
    span, mask, _ = sets
    way, saved = np.empty((deepest + 1, 2), dtype=np.int64), np.empty((deepest + 1, 3), dtype=np.int64)
    saved_mask = np.empty((deepest + 1, mask.shape[1]), dtype=np.uint64)
    lows, highs, sizes, width = base.copy(), base.copy(), np.abs(base), nodes.value.shape[1]
    low, high = np.empty(width), np.empty(width)
    for tree in range(nodes.roots.size):
        low[:], high[:] = np.inf, -np.inf
        at = 0
        way[0, 0], way[0, 1] = nodes.roots[tree], 0
        while at >= 0:  # way[at]: a node, and how many of its sides were seen
            node, seen = way[at, 0], way[at, 1]
            feature = np.int64(tests[node, FEATURE])
            if feature < 0:
                _reach(low, high, nodes.value, node)
                at -= 1
                continue
            if seen:
                span[feature], mask[feature] = saved[at], saved_mask[at]
            if seen == 2:
                at -= 1
                continue
            saved[at], saved_mask[at] = span[feature], mask[feature]
            way[at, 1] += 1
            if _narrow(sets, node, seen == 0, tests, start, bits):
                at += 1
                way[at, 0], way[at, 1] = tests[node, LEFT] + seen, 0
        for place in range(width):
            first = max(nodes.outputs[tree], 0)
            lows[first + place] += low[place]
            highs[first + place] += high[place]
            sizes[first + place] += max(abs(low[place]), abs(high[place]))
    return lows, highs, sizes


@kernel
def bounds_boxes(
    masks: Array, choice: Array, cell: Array, nodes: Nodes, features: Features, base: Array, deepest: int
) -> tuple[Array, Array, Array]:
    """Return what `bounds_trees` does, (m, k) each, for many boxes.

    Args:
        masks: (m, choices) what is allowed in each box.
        choice, cell: which choice allows which cell.
        nodes, features, base, deepest: as in `bounds_trees`.
    """
    shape = len(masks), base.size
    low, high, size = np.empty(shape), np.empty(shape), np.empty(shape)
    flags = np.empty(features.start[-1], dtype=np.bool_)
    for box in range(len(masks)):
        flags[:] = False
        for place in range(choice.size):
            if masks[box, choice[place]]:
                flags[cell[place]] = True
        low[box], high[box], size[box] = bounds_trees(flags, nodes, features, base, deepest)
    return low, high, size
