"""Branches of trees: which cells of a feature come to a node.

`span` holds the first cell of a branch, its last one, and whether the missing one comes (ordered features); `mask`
holds one bit per cell (other features).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.structures.kernels.nodes import CUT, MISSING_LEFT, TEST, Array

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@numba.njit(inline="always")
def part(
    span: Array, mask: Array, at: Any, stays: Any, goes: Any, node: Any, left: Any, tests: Array, bits: Array
) -> Any:
    """Part the cells of branch `at` by a node's test, and return whether there are any of either kind.

    Those that go `left` (or right) come to branch `stays`, the others to branch `goes`; `at` may be either of them.
    """
    row = tests[node, TEST]
    if row >= 0:
        some, others = np.uint64(0), np.uint64(0)
        flip = np.uint64(0) if left else ALL
        for word in range(mask.shape[1]):
            came, sides = mask[at, word], bits[row, word] ^ flip
            mask[goes, word] = came & ~sides
            mask[stays, word] = came & sides
            some |= came & sides
            others |= came & ~sides
        return some != np.uint64(0), others != np.uint64(0)
    cut, low, high, missing = np.int64(tests[node, CUT]), span[at, 0], span[at, 1], span[at, 2]
    up, down = max(low, cut + 1), min(high, cut)
    missing_stays = missing if (tests[node, MISSING_LEFT] != 0) == left else np.int64(0)
    span[goes, 0], span[goes, 1], span[goes, 2] = up if left else low, high if left else down, missing - missing_stays
    span[stays, 0], span[stays, 1], span[stays, 2] = low if left else up, down if left else high, missing_stays
    return (
        span[stays, 0] <= span[stays, 1] or missing_stays > 0,
        span[goes, 0] <= span[goes, 1] or missing > missing_stays,
    )


@numba.njit(inline="always")
def copy(span: Array, mask: Array, at: Any, into: Any) -> None:
    """Let the cells of branch `at` come to branch `into`."""
    for place in range(3):
        span[into, place] = span[at, place]
    for word in range(mask.shape[1]):
        mask[into, word] = mask[at, word]


@numba.njit(inline="always")
def all_cells(span: Array, mask: Array, at: Any, feature: Any, start: Array) -> None:
    """Let all cells of a feature come to branch `at`."""
    span[at, 0], span[at, 1], span[at, 2] = 0, start[feature + 1] - start[feature] - 2, 1
    for word in range(mask.shape[1]):
        mask[at, word] = ALL
