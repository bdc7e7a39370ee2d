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
def _push(room: GameWorkspace, top: int, does: int, at: int, mine: int, theirs: int, player: int) -> int:
    stack = room.stack
    stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3], stack[top, 4] = does, at, mine, theirs, player
    return top + 1


@inner
def _part(room: GameWorkspace, source: int, into: int, sides: Array, node: int, right: bool) -> bool:  # noqa: FBT001
    """Write those references of set `source` to set `into` that go right at a node, or left; whether there are any."""
    some = np.uint64(0)
    for word in range(sides.shape[1]):
        came = room.sets[source, word]
        room.sets[into, word] = came & sides[node, word] if right else came & ~sides[node, word]
        some |= room.sets[into, word]
    return some != np.uint64(0)


@inner
def _worth(nodes: Nodes, output: int, node: int, weights: Array) -> float:
    """Return the weighted value of a leaf."""
    if output >= 0:
        return nodes.value[node, 0] * weights[output]  # type: ignore[no-any-return]
    found = 0.0
    for column in range(weights.size):
        found += nodes.value[node, column] * weights[column]
    return found


@kernel
def divide(X: Array, nodes: Nodes, walk: Walk, game: Game, room: GameWorkspace, totals: Array) -> None:
    """Add to `totals` (players + 2,) the players' Shapley values, the row's score, the references'; sums over these.

    Args:
        X: (width,) comparands of the row.
        nodes, walk: the trees.
        game: what is divided.
        room: workspace; totals: written to, without the base of the ensemble.
    """
    stack, sets, decided, words = room.stack, room.sets, room.decided, game.everything.size
    players = decided.size
    for tree in range(nodes.roots.size):
        gained, lost = 0.0, 0.0  # of all leaves so far: by players of the row, and of the reference
        for word in range(words):
            sets[0, word] = game.everything[word]
        top = _push(room, 0, VISIT, nodes.roots[tree], 0, 0, 0)
        while top:
            top -= 1
            does, node, mine, theirs, player = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3], stack[top, 4]
            if does == LEAVE_ROW:
                totals[player] += gained - room.marks[top]
                decided[player] = 0
                continue
            if does == LEAVE_REFERENCE:
                totals[player] += lost - room.marks[top]
                decided[player] = 0
                continue
            if does == OF_ROW:
                decided[player] = 1
                room.marks[top - 1] = gained
            elif does == OF_REFERENCE:
                decided[player] = -1
                room.marks[top - 1] = lost
            feature = nodes.tests[node, FEATURE]
            if feature < 0:
                count = 0
                for word in range(words):
                    count += _bits(sets[top, word])
                worth = count * _worth(nodes, nodes.outputs[tree], node, game.weights)
                gained += worth * game.shares[mine, theirs]
                lost -= worth * game.shares[theirs, mine]
                if theirs == 0:
                    totals[players] += worth
                if mine == 0:
                    totals[players + 1] += worth
                continue
            left, player = walk.left[node], game.player[feature]
            right = X[walk.key[node] >> 32] > (walk.key[node] & LOW_HALF)
            if decided[player] == 1:
                top = _push(room, top, VISIT, left + right, mine, theirs, 0)  # with the same references
                continue
            # the set of this node is at `top`: where references part, it is kept beyond what is pushed
            spare = top + 5
            for word in range(words):
                sets[spare, word] = sets[top, word]
            agree = _part(room, spare, top, game.sides, node, right)
            if agree:
                top = _push(room, top, VISIT, left + right, mine, theirs, 0)
            if decided[player] == -1:
                if _part(room, spare, top, game.sides, node, not right):
                    top = _push(room, top, VISIT, left + 1 - right, mine, theirs, 0)
                continue
            if _part(room, spare, top + 1, game.sides, node, not right):
                for word in range(words):
                    sets[top + 3, word] = sets[top + 1, word]
                top = _push(room, top, LEAVE_ROW, node, mine, theirs, player)
                top = _push(room, top, OF_ROW, left + right, mine + 1, theirs, player)
                top = _push(room, top, LEAVE_REFERENCE, node, mine, theirs, player)
                top = _push(room, top, OF_REFERENCE, left + 1 - right, mine, theirs + 1, player)
