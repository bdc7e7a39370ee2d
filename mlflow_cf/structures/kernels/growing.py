"""A box that grows, side by side, as long as the sum of all trees stays above a threshold in it.

What a step adds is a slab: the box with one feature confined to the next positions. Of a slab, only the trees are
walked that test this feature; all others have the least leaf that they have in the box. Steps double where bounds prove
slabs, and halve where they do not; a single position that bounds leave open is settled by parting its slab. Those that
are the largest share of their feature come first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.growing import DOUBTFUL, ENDED, GROWING, STUCK, UNDECIDED
from mlflow_cf.structures.kernels.parting import (
    MISSED,
    PROVED,
    UNSURE,
    Cuts,
    Limits,
    PartWorkspace,
    followed,
    part_box,
)
from mlflow_cf.structures.kernels.trees import Array


class Grown(NamedTuple):
    """A box that grows.

    Attributes:
        ends: (2, features) its first and last positions.
        states: (2, features) of every side, one of the constants above; steps: how many positions are tried next.
        halved: (2, features) whether steps were halved since the last position that was settled.
        shares: (2, positions) of their features, that a position adds below and above a box.
        least: (trees,) least leaf of every tree in the box; tested: (trees,) a bit for every feature that it tests.
        slab: (2, features) the first and last positions of a slab; found: (trees,) least leaves in it.
    """

    ends: Array
    states: Array
    steps: Array
    halved: Array
    shares: Array
    least: Array
    tested: Array
    slab: Array
    found: Array


@inner
def _least_leaf(cuts: Cuts, tree: Any, low: Array, high: Array, waits: Array) -> Any:
    """Return the least leaf of a tree in a box."""
    waits[0], count, least = cuts.roots[tree], 1, np.inf
    while count:
        count -= 1
        node = followed(cuts, waits[count], low, high)
        if cuts.tests[node, 0] < 0:
            least = min(least, cuts.worth[node])
        else:
            waits[count] = cuts.tests[node, 2]
            waits[count + 1] = waits[count] + 1
            count += 2
    return least


@inner
def _set_slab(cuts: Cuts, grown: Grown, side: Any, feature: Any, most: Any) -> Any:
    """Set the slab to the next positions beyond a side, at most so many; return how many there are."""
    ends, slab = grown.ends, grown.slab
    for axis in range(ends.shape[1]):
        slab[0, axis], slab[1, axis] = ends[0, axis], ends[1, axis]
    if side:
        slab[0, feature] = ends[1, feature] + 1
        slab[1, feature] = min(ends[1, feature] + most, cuts.start[feature + 1] - cuts.start[feature] - 1)
    else:
        slab[1, feature] = ends[0, feature] - 1
        slab[0, feature] = max(ends[0, feature] - most, 0)
    return slab[1, feature] - slab[0, feature] + 1


@inner
def _added(grown: Grown, side: Any, feature: Any) -> None:
    """Add the slab to the box; `found` are the least leaves of trees in it."""
    grown.ends[side, feature] = grown.slab[side, feature]
    for tree in range(len(grown.least)):
        grown.least[tree] = min(grown.least[tree], grown.found[tree])


@inner
def _tries(cuts: Cuts, sure: Any, grown: Grown, waits: Array, side: Any, feature: Any) -> None:
    """Try the next step of a side by bounds."""
    count = _set_slab(cuts, grown, side, feature, grown.steps[side, feature])
    if not count:
        grown.states[side, feature] = ENDED
        return
    low, high, total, bit = grown.slab[0], grown.slab[1], 0.0, np.uint64(1) << np.uint64(feature & 63)
    for tree in range(len(grown.least)):
        grown.found[tree] = grown.least[tree]
        if grown.tested[tree] & bit:
            grown.found[tree] = _least_leaf(cuts, tree, low, high, waits)
        total += grown.found[tree]
    if total >= sure:
        _added(grown, side, feature)
        if not grown.halved[side, feature]:
            grown.steps[side, feature] *= 2
    elif count > 1:
        grown.steps[side, feature], grown.halved[side, feature] = count // 2, 1
    else:
        grown.states[side, feature] = STUCK


@inner
def _share(cuts: Cuts, grown: Grown, side: Any, feature: Any) -> Any:
    """Return the share of the next position beyond a side; inf: there is none."""
    place = grown.ends[side, feature] + 2 * side - 1
    if place < 0 or place >= cuts.start[feature + 1] - cuts.start[feature]:
        return np.inf
    return grown.shares[side, cuts.start[feature] + place]


@inner
def _next_stuck(cuts: Cuts, grown: Grown, least_share: Any) -> Any:
    """Return the side that is stuck whose next position is the largest share, as its place; -1: none is."""
    best, chosen = least_share, -1
    for feature in range(grown.ends.shape[1]):
        for side in range(2):
            if grown.states[side, feature] == STUCK:
                share = _share(cuts, grown, side, feature)
                if share >= best:
                    best, chosen = share, 2 * feature + side
    return chosen


@inner
def _settle(cuts: Cuts, limits: Limits, grown: Grown, room: PartWorkspace, side: Any, feature: Any) -> Any:
    """Prove the slab of the next position of a side, or find out why it does not hold; return the boxes looked at."""
    _set_slab(cuts, grown, side, feature, 1)
    for axis in range(grown.ends.shape[1]):
        room.low[0, axis], room.high[0, axis] = grown.slab[0, axis], grown.slab[1, axis]
    for tree in range(len(grown.least)):
        room.live[0, tree] = tree
        grown.found[tree] = grown.least[tree]
    room.counts[0], room.fixed[0], room.parted[0] = len(grown.least), 0.0, -1
    what, used = part_box(cuts, limits, room)
    if what == PROVED:
        for tree in range(len(grown.least)):
            if grown.tested[tree] & (np.uint64(1) << np.uint64(feature & 63)):
                grown.found[tree] = _least_leaf(cuts, tree, grown.slab[0], grown.slab[1], room.nodes)
        _added(grown, side, feature)
        grown.states[side, feature], grown.steps[side, feature], grown.halved[side, feature] = GROWING, 1, 0
    elif what == MISSED:
        grown.states[side, feature] = ENDED
    else:
        grown.states[side, feature] = DOUBTFUL if what == UNSURE else UNDECIDED
    return used


@kernel
def survey(cuts: Cuts, sizes: Array, grown: Grown, waits: Array) -> float:
    """Write the least leaves in the box and the features that trees test; return the sum of their largest `sizes`."""
    total = 0.0
    for tree in range(len(cuts.roots)):
        waits[0], count, largest, tested = cuts.roots[tree], 1, 0.0, np.uint64(0)
        while count:
            count -= 1
            node = waits[count]
            feature = cuts.tests[node, 0]
            if feature < 0:
                largest = max(largest, sizes[node])
            else:
                tested |= np.uint64(1) << np.uint64(feature & 63)
                waits[count] = cuts.tests[node, 2]
                waits[count + 1] = waits[count] + 1
                count += 2
        total += largest
        grown.tested[tree] = tested
        grown.least[tree] = _least_leaf(cuts, tree, grown.ends[0], grown.ends[1], waits)
    return total


@kernel
def grow(cuts: Cuts, limits: Limits, grown: Grown, room: PartWorkspace, most: int, least_share: float) -> int:
    """Grow until no side whose next position is that share is left, or until some `most` boxes are looked at.

    Returns how many were looked at; `limits` has how many of them one position may take.
    """
    used = 0
    while used < most:
        going = True
        while going:
            going = False
            for feature in range(grown.ends.shape[1]):
                for side in range(2):
                    if grown.states[side, feature] == GROWING and _share(cuts, grown, side, feature) >= least_share:
                        _tries(cuts, limits.sure, grown, room.nodes, side, feature)
                        going = True
        chosen = _next_stuck(cuts, grown, least_share)
        if chosen < 0:
            return used
        used += _settle(cuts, limits, grown, room, chosen & 1, chosen >> 1)
    return used
