"""Shapley values of trees for one row and many reference rows, all references on one walk through each tree.

Interventional Shapley values: the game's value of a set of players is the score of the row whose players in the set
keep the row's values, while the others have those of a reference row (Lundberg et al., Nature Machine Intelligence 2,
2020, algorithm 3). References that have taken the same branches are the bits of a set, so that a leaf is reached once
for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.trees import FEATURE, Array, Nodes, Walk

FOURS, PAIRS, SINGLES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x3333333333333333), np.uint64(0x5555555555555555)
SUM_OF_BYTES = np.uint64(0x0101010101010101)
LOW_HALF = np.int64(0xFFFFFFFF)
VISIT, OF_ROW, OF_REFERENCE, LEAVE_ROW, LEAVE_REFERENCE = range(5)  # what is to be done next with a node, or player


class Game(NamedTuple):
    """What is divided among whom.

    Attributes:
        player: (d,) of every feature.
        weights: (k,) of the raw scores.
        shares: (levels, levels) of a leaf's value: what each player gets of those that must have the row's values,
            where a leaf asks for so many of them and so many that must have the reference's.
        sides: (nodes, words) which references go right at a node, a bit each.
        everything: (words,) all references.
    """

    player: Array
    weights: Array
    shares: Array
    sides: Array
    everything: Array


class GameWorkspace(NamedTuple):
    """Workspace of a walk.

    Attributes:
        stack: (n, 5) int64: what to do, node or player, players of the row and of the reference so far, the player
            that is decided here.
        sets: (n, words) the references that come here; marks: (n,) totals before a player was decided.
        decided: (players,) int8: 1 where the path asks for the row's value, -1 for the reference's, else 0.
    """

    stack: Array
    sets: Array
    marks: Array
    decided: Array


@kernel
def note_sides(X: Array, width: int, nodes: Nodes, walk: Walk, sides: Array) -> None:
    """Set the bits in `sides` (nodes, words) of the references, with comparands `X`, that go right at a node."""
    rows = X.size // width
    for node in range(walk.key.size):
        if nodes.tests[node, FEATURE] >= 0:
            column, cut = walk.key[node] >> 32, walk.key[node] & LOW_HALF
            for row in range(rows):
                if X[row * width + column] > cut:
                    sides[node, row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@inner
def _bits(word: np.uint64) -> int:
    """Return the number of bits that are set."""
    word = word - ((word >> np.uint64(1)) & SINGLES)
    word = (word & PAIRS) + ((word >> np.uint64(2)) & PAIRS)
    word = (word + (word >> np.uint64(4))) & FOURS
    return np.int64((word * SUM_OF_BYTES) >> np.uint64(56))  # type: ignore[return-value]


@inner
def _push(room: GameWorkspace, top: int, entry: tuple[int, int, int, int, int]) -> int:
    room.stack[top, 0], room.stack[top, 1], room.stack[top, 2] = entry[0], entry[1], entry[2]
    room.stack[top, 3], room.stack[top, 4] = entry[3], entry[4]
    return top + 1


@inner
def _part(sets: Array, source: int, into: int, sides: Array, side: tuple[int, bool]) -> bool:
    """Write those references of set `source` to set `into` that go to one side of a node; whether there are any."""
    node, right = side
    some = np.uint64(0)
    for word in range(sides.shape[1]):
        came = sets[source, word]
        sets[into, word] = came & sides[node, word] if right else came & ~sides[node, word]
        some |= sets[into, word]
    return some != np.uint64(0)  # type: ignore[no-any-return]


@inner
def _worth(nodes: Nodes, output: int, node: int, game: Game, comes: Array) -> float:
    """Return the weighted value of a leaf, times the number of references that come there."""
    found, count = 0.0, 0
    if output >= 0:
        found = nodes.value[node, 0] * game.weights[output]
    else:
        for column in range(game.weights.size):
            found += nodes.value[node, column] * game.weights[column]
    for word in range(comes.size):
        count += _bits(comes[word])
    return count * found


@inner
def _decide(room: GameWorkspace, top: int, totals: Array, so_far: tuple[float, float]) -> bool:
    """Note the decision about a player that stands on the stack, or its end; return whether it is the end."""
    does, player = room.stack[top, 0], room.stack[top, 4]
    if does in (LEAVE_ROW, LEAVE_REFERENCE):
        totals[player] += so_far[0 if does == LEAVE_ROW else 1] - room.marks[top]
        room.decided[player] = 0
        return True
    if does != VISIT:
        room.decided[player] = 1 if does == OF_ROW else -1
        room.marks[top - 1] = so_far[0 if does == OF_ROW else 1]
    return False


@inner
def _branch(room: GameWorkspace, top: int, game: Game, left: int, went: tuple[int, bool, int]) -> int:
    """Push the children of the node whose set is at `top`; the row has `went` right or not, at a node of a player."""
    stack, sets = room.stack, room.sets
    node, right, player = went
    mine, theirs, decided = stack[top, 2], stack[top, 3], room.decided[player]
    own, other = left + (1 if right else 0), left + (0 if right else 1)
    if decided == 1:
        return _push(room, top, (VISIT, own, mine, theirs, 0))  # with the same references
    spare = top + 5  # beyond what is pushed
    for word in range(sets.shape[1]):
        sets[spare, word] = sets[top, word]
    if _part(sets, spare, top, game.sides, (node, right)):
        top = _push(room, top, (VISIT, own, mine, theirs, 0))
    part = top if decided == -1 else top + 1
    if not _part(sets, spare, part, game.sides, (node, not right)):
        return top
    if decided == -1:
        return _push(room, top, (VISIT, other, mine, theirs, 0))
    for word in range(sets.shape[1]):
        sets[top + 3, word] = sets[top + 1, word]
    top = _push(room, top, (LEAVE_ROW, node, mine, theirs, player))
    top = _push(room, top, (OF_ROW, own, mine + 1, theirs, player))
    top = _push(room, top, (LEAVE_REFERENCE, node, mine, theirs, player))
    return _push(room, top, (OF_REFERENCE, other, mine, theirs + 1, player))


@kernel
def divide(X: Array, nodes: Nodes, walk: Walk, game: Game, room: GameWorkspace, totals: Array) -> None:
    """Add to `totals` (players + 2,) the players' Shapley values, the row's score, the references'; sums over these.

    Args:
        X: (width,) comparands of the row.
        nodes, walk: the trees.
        game: what is divided.
        room: workspace; totals: written to, without the base of the ensemble.
    """
    players = room.decided.size
    for tree in range(nodes.roots.size):
        gained, lost = 0.0, 0.0  # of all leaves so far: by players of the row, and of the reference
        for word in range(game.everything.size):
            room.sets[0, word] = game.everything[word]
        top = _push(room, 0, (VISIT, nodes.roots[tree], 0, 0, 0))
        while top:
            top -= 1
            if _decide(room, top, totals, (gained, lost)):
                continue
            node, mine, theirs = room.stack[top, 1], room.stack[top, 2], room.stack[top, 3]
            feature = nodes.tests[node, FEATURE]
            if feature >= 0:
                right = X[walk.key[node] >> 32] > (walk.key[node] & LOW_HALF)
                top = _branch(room, top, game, walk.left[node], (node, right, game.player[feature]))
                continue
            worth = _worth(nodes, nodes.outputs[tree], node, game, room.sets[top])
            gained += worth * game.shares[mine, theirs]
            lost -= worth * game.shares[theirs, mine]
            if theirs == 0:
                totals[players] += worth
            if mine == 0:
                totals[players + 1] += worth
