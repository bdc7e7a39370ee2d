"""A heap of numbers by their keys, the least one first (Williams 1964, Communications of the ACM 7, algorithm 232)."""

from __future__ import annotations

from typing import Any

from mlflow_cf.kernel import inner
from mlflow_cf.structures.kernels.trees import Array


@inner
def push(key: Any, number: Any, size: Any, keys: Array, numbers: Array) -> None:
    """Add a number to a heap of so many."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] <= key:
            break
        keys[at], numbers[at] = keys[above], numbers[above]
        at = above
    keys[at], numbers[at] = key, number


@inner
def drop_least(size: Any, keys: Array, numbers: Array) -> None:
    """Take the number with the least key out of a heap of so many."""
    last, at = size - 1, 0
    key, number = keys[last], numbers[last]
    while 2 * at + 1 < last:
        below = 2 * at + 1
        if below + 1 < last and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at], numbers[at] = keys[below], numbers[below]
        at = below
    keys[at], numbers[at] = key, number
