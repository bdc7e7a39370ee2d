"""What kernels of the search among sets of changed features work on."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner

Array = NDArray[Any]
MEMBER: Final = -2  # roles of features; others are closed beside so many features of the set
OPEN: Final = -1
DEPTH, PART, WAITING, OWN, FOUND, WORK = range(6)  # in `Progress.counts`


class Moves(NamedTuple):
    """What each feature may be changed to: two lists of cells, each with costs that ascend.

    Attributes:
        start: (d, 3) where the two lists of each feature start and end.
        cost: (cells,) what each costs at least; least: (d,) the least cost of a change.
    """

    start: Array
    cost: Array
    least: Array


class SetLeaves(NamedTuple):
    """The leaves that rows within the limit may reach.

    A leaf asks about the features on its path, and needs those changed whose own cell it does not accept.

    Attributes:
        tree: (n,) ascending; gain: (n,) what it adds to the score; trees: how many trees there are.
        first: (n + 1,) where the needs of each start; need: (needs,) their features; pair: (needs,) the number of tree
            and feature among all such pairs, feature after feature; paired: (d + 1,) the first pair of every feature.
        ask: (n, d) the ask of each about every feature, -1 where there is none.
        span: (asks, 4) the first and the last accepted place in both lists of the feature; none if the last is less.
        cost: (asks,) what an accepted change costs at least.
        table: (asks,) where the flags of the places of the first list start in `flags`; -1: all within the span.
    """

    tree: Array
    gain: Array
    trees: int
    first: Array
    need: Array
    pair: Array
    paired: Array
    ask: Array
    span: Array
    cost: Array
    table: Array
    flags: Array


class Aim(NamedTuple):
    """What is looked for.

    Attributes:
        may, sure: from which gain on rows may meet the target, and certainly do.
        least, most: how many features they change.
        cheapest: what a change costs at least.
        steps: of shares, beside every set.
    """

    may: float
    sure: float
    least: int
    most: int
    cheapest: float
    steps: int


class Progress(NamedTuple):
    """What a search has come to.

    Attributes:
        counts: how many features are in the set (DEPTH), which part of its rows is next (PART), how many boxes wait
            (WAITING), leaves of the set alone (OWN), rows found (FOUND), and leaves looked at (WORK).
        limit: (1,) on costs, lowered by rows that certainly meet the target.
        found: (f, 2 * most) feature and place in `Moves.cost` of every change of the rows found; -1: none.
    """

    counts: Array
    limit: Array
    found: Array


class Branch(NamedTuple):
    """The set, feature after feature, and what is known beside its first k ones.

    Attributes:
        chosen: (most,) the features; role: (d,) MEMBER, OPEN, or beside how many of the first ones it is closed.
        alive: (most + 1,) whether rows may be near enough and meet the target.
        total: (most + 1,) what the features cost at least.
        size: (most + 1,) how many leaves rows may reach; lists: (most + 1, n) which.
    """

    chosen: Array
    role: Array
    alive: Array
    total: Array
    size: Array
    lists: Array


class Shares(NamedTuple):
    """What trees pay of changes beside the set's first features, and the price of a unit of gain.

    Attributes:
        of: (most + 1, pairs + 1) shares, those of a feature add up to 1; the price at the end.
        uses: (most + 1,) whose shares are used.
        worth, leader: (trees,) the least of what a tree pays, less price * gain, and the leaf.
        paid: (pairs,) what the leaders pay; kept: (pairs + 1,) a copy of shares.
        payers, payment: (d,) how many leaders need a feature, and what they pay for it.
    """

    of: Array
    uses: Array
    worth: Array
    leader: Array
    paid: Array
    kept: Array
    payers: Array
    payment: Array


class SetBoxes(NamedTuple):
    """The boxes of the set's rows that wait, and the set's own leaves side by side.

    Attributes:
        box: (b, 2 + 2 * most) start and number of the leaves of the box around each; then first and last places.
        inside: (pool,) leaves of boxes.
        span: (n, 4 * most) spans, feature after feature; table: (n, most) as in `SetLeaves`; tree, gain: (n,).
    """

    box: Array
    inside: Array
    span: Array
    table: Array
    tree: Array
    gain: Array


class Search(NamedTuple):
    """All that a search works on."""

    moves: Moves
    leaves: SetLeaves
    aim: Aim
    progress: Progress
    branch: Branch
    shares: Shares
    boxes: SetBoxes


def room_for(moves: Moves, leaves: SetLeaves, aim: Aim, room: tuple[int, int, int]) -> Search:
    """Return a search that has not begun; `room` is for so many boxes, leaves of boxes, and rows found."""
    boxes, pool, found = room
    most, count, features, pairs = aim.most, len(leaves.tree), len(moves.least), int(leaves.paired[-1])
    levels = most + 1
    whole = np.int64
    progress = Progress(np.zeros(6, whole), np.zeros(1), np.empty((found, 2 * most), whole))
    branch = Branch(
        np.zeros(levels, whole), np.zeros(features, whole), np.zeros(levels, np.bool_), np.zeros(levels),
        np.zeros(levels, whole), np.empty((levels, count), np.int32),
    )  # fmt: skip
    shares = Shares(
        np.empty((levels, pairs + 1)), np.zeros(levels, whole), np.empty(leaves.trees), np.zeros(leaves.trees, whole),
        np.empty(pairs), np.empty(pairs + 1), np.zeros(features, whole), np.zeros(features),
    )  # fmt: skip
    inside = SetBoxes(
        np.empty((boxes, 2 + 2 * most), whole), np.empty(pool, np.int32), np.empty((count, 4 * most), np.int32),
        np.empty((count, most), whole), np.empty(count, whole), np.empty(count),
    )  # fmt: skip
    return Search(moves, leaves, aim, progress, branch, shares, inside)


class Reach(NamedTuple):
    """The best that trees can give: how many there are, the last one, its best gain, and the sum of those before."""

    trees: int
    last: int
    best: float
    high: float


@inner
def reached(reach: Reach, tree: Any, gain: Any) -> Reach:
    """Return the same with one more leaf; the trees of leaves ascend."""
    if tree != reach.last:
        return Reach(reach.trees + 1, tree, gain, reach.high + reach.best)
    return Reach(reach.trees, tree, max(reach.best, gain), reach.high)
