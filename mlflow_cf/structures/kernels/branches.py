"""Branches of trees: the cells of a feature with which rows reach a node."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.structures.kernels.nodes import CUT, MISSING_LEFT, TEST, Array, Features, Nodes

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Branches(NamedTuple):
    """Sets of cells, each of one feature.

    Attributes:
        span: (n, 3) of an ordered feature the first cell, the last one, and whether that of missing values is included.
        mask: (n, words) of other features one bit per cell.
        features: the features.
    """

    span: Array
    mask: Array
    features: Features


class BranchWorkspace(NamedTuple):
    """The arrays of `Branches`, without features: every array that is passed to a kernel takes half a microsecond."""

    span: Array
    mask: Array


def room_for(count: int, features: Features) -> BranchWorkspace:
    """Return uninitialised arrays for `count` branches."""
    return BranchWorkspace(np.empty((count, 3), np.int64), np.empty((count, features.bits.shape[1]), np.uint64))


@numba.njit(inline="always")
def part(branches: Branches, at: Any, into: Any, nodes: Nodes, node: Any, left: Any) -> Any:
    """Move the cells of branch `at` that go `left` (or right) at a node to branch `into`; the others stay.

    Returns whether any cell moved, and whether any stayed.
    """
    span, mask, tests = branches.span, branches.mask, nodes.tests
    row = tests[node, TEST]
    if row >= 0:
        moved, stayed = np.uint64(0), np.uint64(0)
        flip = np.uint64(0) if left else ALL
        for word in range(mask.shape[1]):
            came, sides = mask[at, word], branches.features.bits[row, word] ^ flip
            mask[at, word] = came & ~sides
            mask[into, word] = came & sides
            moved |= came & sides
            stayed |= came & ~sides
        return moved != np.uint64(0), stayed != np.uint64(0)
    cut, low, high, missing = np.int64(tests[node, CUT]), span[at, 0], span[at, 1], span[at, 2]
    up, down = max(low, cut + 1), min(high, cut)
    missing_moves = missing if (tests[node, MISSING_LEFT] != 0) == left else np.int64(0)
    span[at, 0], span[at, 1], span[at, 2] = up if left else low, high if left else down, missing - missing_moves
    span[into, 0], span[into, 1], span[into, 2] = low if left else up, down if left else high, missing_moves
    return (
        span[into, 0] <= span[into, 1] or missing_moves > 0,
        span[at, 0] <= span[at, 1] or missing > missing_moves,
    )


@numba.njit(inline="always")
def copy(branches: Branches, at: Any, into: Any) -> None:
    """Copy the cells of branch `at` to branch `into`."""
    for place in range(3):
        branches.span[into, place] = branches.span[at, place]
    for word in range(branches.mask.shape[1]):
        branches.mask[into, word] = branches.mask[at, word]


@numba.njit(inline="always")
def all_cells(branches: Branches, at: Any, feature: Any) -> None:
    """Set branch `at` to all cells of a feature."""
    span, start = branches.span, branches.features.start
    span[at, 0], span[at, 1], span[at, 2] = 0, start[feature + 1] - start[feature] - 2, 1
    for word in range(branches.mask.shape[1]):
        branches.mask[at, word] = ALL
