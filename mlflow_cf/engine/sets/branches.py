"""Which sets of changed features trees may meet the target by: branch and bound, one feature in or out at a time.

Rows that change a set, and of the other features those that are open, reach the leaves that need nothing else and cost
no more than the limit. The best leaves of all trees bound what they gain. A Lagrangian bound as that of
`structures/trees/ascent.py` bounds what they cost, with the set paid for: each tree pays shares of what the open
features cost that its leaf needs changed. Leaves that raise it beyond the limit are dropped.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mlflow_cf.engine.sets.state import DEPTH, MEMBER, OPEN, WORK, Array, Reach, Search, reached
from mlflow_cf.kernel import inner
from mlflow_cf.structures.capabilities import COST_ROUNDING

FIRST_STEPS: Final = 150  # of shares, before any feature is in the set
FEW: Final = 8  # times as many leaves as shares: with fewer, shares of smaller sets are used as they are
PATIENCE: Final = 5  # steps without a larger bound, after which steps become shorter
SHORTER: Final = 0.6  # times as long
BEYOND: Final = 1.05  # times the limit: the bound that steps aim at (Polyak's step)


@inner
def over(bound: Any, search: Search) -> bool:
    """Whether a bound exceeds the limit, however it was rounded."""
    limit = search.progress.limit[0]
    exceeds: bool = bound > limit + COST_ROUNDING * max(1.0, limit)
    return exceeds


@inner
def _cost_beside(search: Search, leaf: Any, depth: Any) -> Any:
    """Return what rows of a leaf cost at least beside the set; inf where it needs too many features, or closed ones."""
    moves, leaves, branch = search.moves, search.leaves, search.branch
    cost, changes = branch.total[depth], depth
    for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
        feature = leaves.need[at]
        if branch.role[feature] >= 0:
            return np.inf
        if branch.role[feature] == OPEN:
            cost += leaves.cost[leaves.ask[leaf, feature]]
            changes += 1
    if changes > search.aim.most:
        return np.inf
    for at in range(depth):
        ask = leaves.ask[leaf, branch.chosen[at]]
        if ask >= 0:
            cost += leaves.cost[ask] - moves.least[branch.chosen[at]]
    return cost


@inner
def gather(search: Search, source: Array, size: Any, depth: Any) -> bool:
    """List those of some leaves that rows beside the set may reach; return whether these may meet the target."""
    leaves, listed = search.leaves, search.branch.lists[depth]
    count, reach = 0, Reach(0, -1, 0.0, 0.0)
    for at in range(size):
        leaf = source[at]
        if not _cost_beside(search, leaf, depth) > search.progress.limit[0]:
            listed[count] = leaf
            count += 1
            reach = reached(reach, leaves.tree[leaf], leaves.gain[leaf])
    search.branch.size[depth] = count
    search.progress.counts[WORK] += size
    return reach.trees == leaves.trees and reach.high + reach.best >= search.aim.may


@inner
def _worth(search: Search, leaf: Any, depth: Any) -> Any:
    """Return what a leaf's tree pays for it beside the set, less what its gain is worth."""
    leaves, shares = search.leaves, search.shares.of[search.shares.uses[depth]]
    found = -shares[len(shares) - 1] * leaves.gain[leaf]
    for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
        feature = leaves.need[at]
        if search.branch.role[feature] == OPEN:
            found += shares[leaves.pair[at]] * leaves.cost[leaves.ask[leaf, feature]]
    return found


@inner
def _lead(search: Search, depth: Any) -> tuple[Any, Any]:
    """Write each tree's best leaf; return what rows cost at least that may meet the target, and what the best gain."""
    leaves, branch, shares = search.leaves, search.branch, search.shares
    shares.worth[:] = np.inf
    for at in range(branch.size[depth]):
        leaf = branch.lists[depth, at]
        tree, worth = leaves.tree[leaf], _worth(search, leaf, depth)
        if worth < shares.worth[tree]:
            shares.worth[tree], shares.leader[tree] = worth, leaf
    bound, gained = branch.total[depth] + shares.of[shares.uses[depth], len(shares.paid)] * search.aim.may, 0.0
    for tree in range(leaves.trees):
        bound += shares.worth[tree]
        gained += leaves.gain[shares.leader[tree]]
    search.progress.counts[WORK] += branch.size[depth]
    return bound, gained


@inner
def _pay(search: Search) -> float:
    """Write what the leaders pay, less the mean over each feature's pairs; return the sum of squares."""
    leaves, paid = search.leaves, search.shares.paid
    paid[:] = 0.0
    for tree in range(leaves.trees):
        leaf = search.shares.leader[tree]
        for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
            if search.branch.role[leaves.need[at]] == OPEN:
                paid[leaves.pair[at]] = leaves.cost[leaves.ask[leaf, leaves.need[at]]]
    squares = 0.0
    for feature in range(len(leaves.paired) - 1):
        first, last, mean = leaves.paired[feature], leaves.paired[feature + 1], 0.0
        for pair in range(first, last):
            mean += paid[pair] / (last - first)
        if mean > 0.0:
            for pair in range(first, last):
                paid[pair] -= mean
                squares += paid[pair] ** 2
    search.progress.counts[WORK] += len(paid)
    return squares


@inner
def _step(search: Search, length: Any, depth: Any) -> None:
    """Move shares along what was paid; they stay positive, and those of a feature add up to 1."""
    paired, paid, shares = search.leaves.paired, search.shares.paid, search.shares.of[depth]
    for feature in range(len(paired) - 1):
        total = 0.0
        for pair in range(paired[feature], paired[feature + 1]):
            shares[pair] = max(shares[pair] + length * paid[pair], 0.0)
            total += shares[pair]
        for pair in range(paired[feature], paired[feature + 1]):
            shares[pair] /= total


@inner
def _ascend(search: Search, steps: Any, depth: Any) -> Any:
    """Improve shares and price by some steps; return the largest bound, the shares of which are kept."""
    shares, kept, limit = search.shares.of[depth], search.shares.kept, search.progress.limit[0]
    last, found, worse, length = len(kept) - 1, -np.inf, 0, 1.0
    unit = abs(search.aim.may) if search.aim.may != 0.0 else 1.0  # prices are stepped like costs if it is 1
    for at in range(steps):
        bound, gained = _lead(search, depth)
        worse += 1
        if bound > found:
            found, worse = bound, 0
            for pair in range(last + 1):
                kept[pair] = shares[pair]
        elif worse % PATIENCE == 0:
            length *= SHORTER
        if over(found, search) or at == steps - 1:
            break
        lacks = (search.aim.may - gained) / unit
        squares = _pay(search) + (lacks * limit) ** 2
        if squares <= 0.0:
            break
        step = length * max(BEYOND * limit - bound, 0.0) / squares
        _step(search, step, depth)
        shares[last] = max(shares[last] + step * lacks * limit**2 / unit, 0.0)
    for pair in range(last + 1):
        shares[pair] = kept[pair]
    return found


@inner
def settle(search: Search, steps: Any, depth: Any) -> bool:
    """Improve shares beside the set, and drop leaves; return whether rows may be near enough.

    Where few leaves are left, to improve shares would take longer than to go on with those of smaller sets.
    """
    branch, shares = search.branch, search.shares
    if depth == 0 or FEW * branch.size[depth] >= len(shares.paid):
        if shares.uses[depth] != depth:
            for pair in range(len(shares.kept)):
                shares.of[depth, pair] = shares.of[shares.uses[depth], pair]
            shares.uses[depth] = depth
        if over(_ascend(search, steps, depth), search):
            return False
    bound, _ = _lead(search, depth)
    if over(bound, search):
        return False
    count = 0
    for at in range(branch.size[depth]):
        leaf = branch.lists[depth, at]
        if not over(bound - shares.worth[search.leaves.tree[leaf]] + _worth(search, leaf, depth), search):
            branch.lists[depth, count] = leaf
            count += 1
    branch.size[depth] = count
    return True


@inner
def _further(search: Search, depth: Any) -> Any:
    """Return how many more features may change within the limit; 2: perhaps more."""
    left = min(2, search.aim.most - depth)
    while left and search.branch.total[depth] + left * search.aim.cheapest > search.progress.limit[0]:
        left -= 1
    return left


@inner
def _put_in(search: Search, feature: Any) -> bool:
    """Put a feature into the set; return whether rows may be near enough and meet the target."""
    branch, counts = search.branch, search.progress.counts
    before = counts[DEPTH]
    counts[DEPTH] = depth = before + 1
    branch.chosen[before], branch.role[feature] = feature, MEMBER
    branch.total[depth] = branch.total[before] + search.moves.least[feature]
    search.shares.uses[depth] = search.shares.uses[before]
    if not gather(search, branch.lists[before], branch.size[before], depth):
        return False
    return _further(search, depth) < 2 or settle(search, search.aim.steps, depth)


@inner
def _take_out(search: Search) -> None:
    """Take the last feature out of the set, and close it beside the others."""
    branch, counts = search.branch, search.progress.counts
    depth = counts[DEPTH]
    for feature in range(len(branch.role)):
        if branch.role[feature] == depth:
            branch.role[feature] = OPEN
    counts[DEPTH] = depth = depth - 1
    branch.role[branch.chosen[depth]] = depth
    alive = gather(search, branch.lists[depth], branch.size[depth], depth)
    if alive and _further(search, depth) > 1:
        alive = settle(search, search.aim.steps, depth)
    branch.alive[depth] = alive


@inner
def _disputed(search: Search) -> Any:
    """Return the open feature about which the trees' best leaves differ most; -1: none of them needs any."""
    leaves, shares = search.leaves, search.shares
    shares.payers[:], shares.payment[:] = 0, 0.0
    for tree in range(leaves.trees):
        leaf = shares.leader[tree]
        for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
            feature = leaves.need[at]
            if search.branch.role[feature] == OPEN:
                shares.payers[feature] += 1
                shares.payment[feature] += leaves.cost[leaves.ask[leaf, feature]]
    found, most = -1, 0.0
    for feature in range(len(shares.payers)):
        pairs = leaves.paired[feature + 1] - leaves.paired[feature]
        differs = shares.payment[feature] * (1.0 - shares.payers[feature] / (pairs + 1.0))
        if differs > most:
            found, most = feature, differs
    return found


@inner
def _next_feature(search: Search) -> Any:
    """Return an open feature to put into the set, or to close; -1: no leaf that may be reached needs one."""
    leaves, branch = search.leaves, search.branch
    depth = search.progress.counts[DEPTH]
    further = _further(search, depth)
    if not branch.alive[depth] or not further:
        return -1
    feature = _disputed(search) if further > 1 else -1
    for at in range(branch.size[depth] if feature < 0 else 0):
        leaf = branch.lists[depth, at]
        for place in range(leaves.first[leaf], leaves.first[leaf + 1]):
            if branch.role[leaves.need[place]] == OPEN:
                return leaves.need[place]
    return feature


@inner
def next_set(search: Search) -> bool:
    """Go on to the next set whose rows are to be looked at; return False if there is none."""
    counts = search.progress.counts
    while True:
        feature = _next_feature(search)
        if feature >= 0:
            alive = _put_in(search, feature)
            search.branch.alive[counts[DEPTH]] = alive
            if alive and counts[DEPTH] >= search.aim.least:
                return True
        elif counts[DEPTH] == 0:
            return False
        else:
            _take_out(search)


@inner
def open_all(search: Search) -> bool:
    """Begin with the set of no feature; return whether the target may be met at all within the limit."""
    leaves, branch, shares = search.leaves, search.branch, search.shares
    branch.role[:] = OPEN
    branch.total[0], branch.alive[0], shares.uses[0] = 0.0, True, 0
    for leaf in range(len(leaves.tree)):
        branch.lists[0, leaf] = leaf
    if not gather(search, branch.lists[0], len(leaves.tree), 0):
        return False
    for feature in range(len(leaves.paired) - 1):
        first, last = leaves.paired[feature], leaves.paired[feature + 1]
        for pair in range(first, last):
            shares.of[0, pair] = 1.0 / (last - first)
    shares.of[0, len(shares.paid)] = 0.0
    return settle(search, FIRST_STEPS, 0)
