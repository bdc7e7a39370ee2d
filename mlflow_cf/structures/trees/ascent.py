"""Lagrangian bounds on what it costs to reach a raw score of trees, for all rows of a box at once.

The least cost of a row with a gain of at least `need` is bounded from below by the Lagrangian relaxation of this
condition: for every price >= 0 of a unit of gain, by the least of cost - price * gain over the box, plus price * need.
The price with the largest bound is looked for by its subgradient, the gain that the least row lacks.

The columns of trees do not separate, so each tree may take another row (Lagrangian decomposition): it pays a share of
what each of its features costs beyond the cheapest cell, and the shares of a feature add up to 1. Subgradients of the
shares are what the trees' best leaves cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.costs import copy_into

Array = NDArray[Any]

SHARE, LOW, HIGH, MISSING, SET = range(5)  # columns of `LeafAsks.asks`
PATIENCE = 5  # steps without a larger bound, after which steps become shorter
SHORTER = 0.6  # times as long
BEYOND = 1.05  # times the limit on costs: the bound that steps aim at (Polyak's step)


class LeafAsks(NamedTuple):
    """Leaves of trees, and which cells they accept of the features on their paths.

    Attributes:
        tree: (n,) the tree of each leaf, ascending; gain: (n,) what it adds to the score.
        first: (n + 1,) where the asks of each leaf start.
        asks: (a, 5) per ask: the number of its tree and feature among all such pairs; the first and the last cell that
            are accepted, and the cell of missing values, numbered over all features, -1 where that is not accepted; for
            other than ordered features where the flags of its cells start in `sets`, else -1.
        sets: flags of accepted cells.
        feature: (pairs,) the feature of every pair of a tree and a feature; pairs: (d,) of each feature.
        paired: (trees + 1,) the first pair of every tree.
        start: (d + 1,) first cell of every feature.
    """

    tree: Array
    gain: Array
    first: Array
    asks: Array
    sets: Array
    feature: Array
    pairs: Array
    paired: Array
    start: Array


class AscentRoom(NamedTuple):
    """Workspace: costs (cells,) of cells and (a,) of asks, the leaves (n,) that can be reached, and per tree and pair.

    Attributes:
        cell, ask, reached: as above; cheapest: (d,) the cell that costs least.
        best, pick: (trees,) the least of cost - price * gain of a tree, and its leaf.
        slope: (pairs,) subgradient of the shares; mean, spread: (d,) of those of a feature.
        shares: (pairs,) the present ones.
        split: (2,) the feature about which trees disagree most, and what it costs in the mean.
        worth: (n,) cost - price * gain of the leaves that can be reached.
        least: (cells,) the same of a tree's best leaf that accepts a cell, without the share of the cell's feature.
        unasked: (d,) of a tree's best leaf that does not ask about a feature; asked: (d,) the last leaf that does.
        lows: (cells,) what rows with a cell cost at least.
        reach: (1,) how many leaves can be reached.
    """

    cell: Array
    ask: Array
    reached: Array
    cheapest: Array
    best: Array
    pick: Array
    slope: Array
    mean: Array
    spread: Array
    shares: Array
    split: Array
    worth: Array
    least: Array
    unasked: Array
    asked: Array
    lows: Array
    reach: Array


@numba.njit(inline="always")
def _find_cell_costs(mask: Array, cells: Array, costs: Array, start: Array, room: AscentRoom) -> float:
    """Write what cells cost in a box, inf for those that it has not, and each feature's cheapest one."""
    room.cell[:] = np.inf
    for value in range(cells.size):
        if mask[value]:
            room.cell[cells[value]] = min(room.cell[cells[value]], costs[value])
    total = 0.0
    for feature in range(start.size - 1):
        cheapest = start[feature]
        for cell in range(start[feature], start[feature + 1]):
            if room.cell[cell] < room.cell[cheapest]:
                cheapest = cell
        room.cheapest[feature] = cheapest
        total += room.cell[cheapest]
    return total


@numba.njit(inline="always")
def _ask_cost(ask: Array, leaves: LeafAsks, room: AscentRoom) -> Any:
    """Return what the cells that one ask accepts cost at least beyond the cheapest cell of their feature."""
    feature = leaves.feature[ask[SHARE]]
    cheapest, found = room.cheapest[feature], np.inf
    if ask[SET] >= 0:
        for cell in range(leaves.start[feature], leaves.start[feature + 1]):
            if leaves.sets[ask[SET] + cell - leaves.start[feature]]:
                found = min(found, room.cell[cell])
        return found - room.cell[cheapest]
    if ask[LOW] <= cheapest <= ask[HIGH] or ask[MISSING] == cheapest:
        return 0.0
    for cell in range(ask[LOW], ask[HIGH] + 1):
        found = min(found, room.cell[cell])
    if ask[MISSING] >= 0:
        found = min(found, room.cell[ask[MISSING]])
    return found - room.cell[cheapest]


@numba.njit(inline="always")
def _reach(leaves: LeafAsks, room: AscentRoom) -> int:
    """Write the costs of all asks and the leaves that a box reaches; return how many these are."""
    count = 0
    for leaf in range(leaves.tree.size):
        reached = True
        for ask in range(leaves.first[leaf], leaves.first[leaf + 1]):
            room.ask[ask] = _ask_cost(leaves.asks[ask], leaves, room)
            if room.ask[ask] == np.inf:
                reached = False
                break
        if reached:
            room.reached[count] = leaf
            count += 1
    return count


@numba.njit(inline="always")
def _least_leaves(leaves: LeafAsks, count: int, price: float, room: AscentRoom) -> tuple[float, float]:
    """Write each tree's best leaf; return the sum of cost - price * gain over them, and the sum of their gains."""
    room.best[:] = np.inf
    for at in range(count):
        leaf = room.reached[at]
        worth = -price * leaves.gain[leaf]
        for ask in range(leaves.first[leaf], leaves.first[leaf + 1]):
            worth += room.shares[leaves.asks[ask, SHARE]] * room.ask[ask]
        room.worth[leaf] = worth
        tree = leaves.tree[leaf]
        if worth < room.best[tree]:
            room.best[tree], room.pick[tree] = worth, leaf
    total, gained = 0.0, 0.0
    for tree in range(room.best.size):
        total += room.best[tree]
        gained += leaves.gain[room.pick[tree]]
    return total, gained


@numba.njit(inline="always")
def _find_slopes(leaves: LeafAsks, room: AscentRoom) -> float:
    """Write the subgradient of the shares, less its mean over each feature's; return the sum of its squares."""
    room.slope[:], room.mean[:], room.spread[:] = 0.0, 0.0, 0.0
    for tree in range(room.pick.size):
        leaf = room.pick[tree]
        for ask in range(leaves.first[leaf], leaves.first[leaf + 1]):
            pair = leaves.asks[ask, SHARE]
            room.slope[pair] = room.ask[ask]
            room.mean[leaves.feature[pair]] += room.ask[ask] / leaves.pairs[leaves.feature[pair]]
    squares = 0.0
    for pair in range(room.slope.size):
        room.slope[pair] -= room.mean[leaves.feature[pair]]
        squares += room.slope[pair] ** 2
        room.spread[leaves.feature[pair]] += abs(room.slope[pair])
    return squares


@numba.njit(inline="always")
def _step(leaves: LeafAsks, length: float, room: AscentRoom) -> None:
    """Move the shares along their slopes; they stay positive, and those of a feature add up to 1."""
    room.spread[:] = 0.0
    for pair in range(room.slope.size):
        room.shares[pair] = max(room.shares[pair] + length * room.slope[pair], 0.0)
        room.spread[leaves.feature[pair]] += room.shares[pair]
    for pair in range(room.slope.size):
        room.shares[pair] /= room.spread[leaves.feature[pair]]


@numba.njit(inline="always")
def _note_split(room: AscentRoom) -> None:
    widest = 0
    for feature in range(room.spread.size):
        if room.spread[feature] > room.spread[widest]:
            widest = feature
    room.split[0], room.split[1] = widest, room.mean[widest] + room.cell[room.cheapest[widest]]


@kernel
def ascend(
    box: tuple[Array, Array, Array],
    leaves: LeafAsks,
    aim: tuple[float, float, int],
    room: AscentRoom,
    best: Array,
) -> float:
    """Return a lower bound on the cost of all rows of a box whose trees gain at least as needed; inf: there are none.

    Args:
        box: the mask (n,) of the box, the cell (n,) of every value, and what each costs (n,).
        leaves: the trees.
        aim: what rows must gain; costs from which on no larger bound is looked for; the most steps.
        room: workspace.
        best: (pairs + 1,) the price and the shares to start from; those of the bound that is returned are written.
    """
    need, limit, steps = aim
    base = _find_cell_costs(box[0], box[1], box[2], leaves.start, room)
    count, price, found, worse, length = _reach(leaves, room), best[0], -np.inf, 0, 1.0
    room.reach[0] = count
    copy_into(best[1:], room.shares)
    room.slope[:] = 0.0
    _step(leaves, 0.0, room)  # so that they add up to 1, however they were rounded
    for _ in range(steps):
        total, gained = _least_leaves(leaves, count, price, room)
        if total == np.inf:
            return np.inf
        bound, lacks = total + base + price * need, need - gained
        squares = _find_slopes(leaves, room)
        if bound > found:
            found, worse, best[0] = bound, 0, price
            copy_into(room.shares, best[1:])
            _note_split(room)
        else:
            worse += 1
            if worse % PATIENCE == 0:
                length *= SHORTER
        # costs and prices have the limit's unit, if gains have that of the need
        squares += (lacks * limit) ** 2
        if found > limit or squares <= 0.0:
            break
        step = length * max(BEYOND * limit - bound, 0.0) / squares
        _step(leaves, step, room)
        price = max(price + step * lacks * limit**2, 0.0)
    return found


@numba.njit(inline="always")
def _accept(ask: Array, worth: float, leaves: LeafAsks, room: AscentRoom) -> None:
    """Note what a leaf is worth at the cells that one of its asks accepts."""
    feature = leaves.feature[ask[SHARE]]
    if ask[SET] >= 0:
        for cell in range(leaves.start[feature], leaves.start[feature + 1]):
            if leaves.sets[ask[SET] + cell - leaves.start[feature]]:
                room.least[cell] = min(room.least[cell], worth)
        return
    for cell in range(ask[LOW], ask[HIGH] + 1):
        room.least[cell] = min(room.least[cell], worth)
    if ask[MISSING] >= 0:
        room.least[ask[MISSING]] = min(room.least[ask[MISSING]], worth)


@numba.njit(inline="always")
def _add_tree(tree: int, part: tuple[int, int], leaves: LeafAsks, room: AscentRoom) -> None:
    """Add to what rows with a cell cost what a tree's best leaf costs there beyond its best one anywhere.

    Leaves that can be reached from the first to the last of a `part` are those of the tree.
    """
    pairs = leaves.feature[leaves.paired[tree] : leaves.paired[tree + 1]]
    for feature in pairs:
        room.unasked[feature], room.asked[feature] = np.inf, -1
        for cell in range(leaves.start[feature], leaves.start[feature + 1]):
            room.least[cell] = np.inf
    for at in range(part[0], part[1]):
        leaf = room.reached[at]
        for ask in range(leaves.first[leaf], leaves.first[leaf + 1]):
            share = leaves.asks[ask, SHARE]
            room.asked[leaves.feature[share]] = leaf
            _accept(leaves.asks[ask], room.worth[leaf] - room.shares[share] * room.ask[ask], leaves, room)
        for feature in pairs:
            if room.asked[feature] != leaf:
                room.unasked[feature] = min(room.unasked[feature], room.worth[leaf])
    for feature in pairs:
        for cell in range(leaves.start[feature], leaves.start[feature + 1]):
            room.lows[cell] += min(room.least[cell], room.unasked[feature]) - room.best[tree]


@kernel
def bound_cells(leaves: LeafAsks, need: float, best: Array, room: AscentRoom) -> float:
    """Write what rows of a box with each of its cells cost at least, after `ascend`; inf: not in the box, or no row.

    In rows with one cell, its feature costs what this cell does, whatever the trees' best leaves would have paid.
    Every row has a cell of each feature: the least of a feature's bounds, which is returned for the feature where it is
    largest, bounds all rows.

    Args:
        leaves: the trees; need: what rows must gain.
        best: the price and the shares of the bound.
        room: workspace of `ascend`; bounds are written to `lows`.
    """
    count = room.reach[0]
    copy_into(best[1:], room.shares)
    total, _ = _least_leaves(leaves, count, best[0], room)
    for feature in range(leaves.start.size - 1):
        total += room.cell[room.cheapest[feature]]
    total += best[0] * need
    for feature in range(leaves.start.size - 1):
        for cell in range(leaves.start[feature], leaves.start[feature + 1]):
            room.lows[cell] = total + room.cell[cell] - room.cell[room.cheapest[feature]]
    start = 0
    for tree in range(room.best.size):
        stop = start
        while stop < count and leaves.tree[room.reached[stop]] == tree:
            stop += 1
        _add_tree(tree, (start, stop), leaves, room)
        start = stop
    found = -np.inf
    for feature in range(leaves.start.size - 1):
        least = np.inf
        for cell in range(leaves.start[feature], leaves.start[feature + 1]):
            least = min(least, room.lows[cell])
        found = max(found, least)
    return found
