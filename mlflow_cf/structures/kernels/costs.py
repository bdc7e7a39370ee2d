"""Lagrangian bounds on what it costs to reach a raw score of a linear model, for all rows of a box at once.

As for trees (`structures/trees/ascent.py`), with a price of a unit of gain; the least row is found column by column.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import kernel

Array = NDArray[Any]

MOST_CROSSINGS = 30  # of two lines; a search that ends there has a bound, if not the largest one


@numba.njit(inline="always")
def copy_into(source: Array, target: Array) -> None:
    """Write one array into another."""
    for at in range(target.size):  # to assign arrays would make one
        target[at] = source[at]


@numba.njit(inline="always")
def _least_values(
    mask: Array, start: Array, costs: Array, gains: Array, price: float, picks: Array
) -> tuple[float, float]:
    """Write each column's best value, -1 without; return the sums of their costs and of their gains."""
    cost, gained = 0.0, 0.0
    for column in range(start.size - 1):
        least, pick = np.inf, -1
        for value in range(start[column], start[column + 1]):
            if mask[value]:
                worth = costs[value] - price * gains[value] if price < np.inf else -gains[value]
                if worth < least or (worth == least and costs[value] < costs[pick]):
                    least, pick = worth, value
        if pick < 0:
            return np.inf, -np.inf
        picks[column] = pick
        cost += costs[pick]
        gained += gains[pick]
    return cost, gained


@kernel
def find_price(mask: Array, start: Array, costs: Array, gains: Array, need: float, picks: Array) -> float:
    """Return a lower bound on the cost of all rows of a box whose values gain at least `need`.

    The largest bound is where the lines cross of two rows, of which one gains enough and the other does not: they are
    replaced by the least row at the price of their crossing until that is one of them.

    Args:
        mask: (n,) the box; start: (d + 1,) the first value of every column.
        costs, gains: (n,) of values.
        need: what rows must gain.
        picks: (3, d) the values of both rows are written to the first two: what gains enough, and what does not.
    """
    low, lacking = _least_values(mask, start, costs, gains, 0.0, picks[1])
    copy_into(picks[1], picks[0])
    if low == np.inf or lacking >= need:
        return low
    high, enough = _least_values(mask, start, costs, gains, np.inf, picks[0])
    if enough < need:
        return low  # nothing gains enough, which bounds of the score tell as well
    found = low
    for _ in range(MOST_CROSSINGS):
        price = (high - low) / (enough - lacking)
        cost, gained = _least_values(mask, start, costs, gains, price, picks[2])
        found = max(found, cost + price * (need - gained))
        if gained >= need:
            if cost >= high:
                break
            high, enough = cost, gained
            copy_into(picks[2], picks[0])
        else:
            if gained <= lacking:
                break
            low, lacking = cost, gained
            copy_into(picks[2], picks[1])
    return found
