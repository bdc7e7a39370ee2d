"""Contributions of players to the score of trees, between a row and reference rows: exact Shapley values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import beta

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.contributions import Game, GameWorkspace, divide, note_sides
from mlflow_cf.structures.kernels.trees import Array, Trees, find_comparands
from mlflow_cf.structures.shapley import Attribution
from mlflow_cf.structures.structure import Encoded

MOST_KEPT: Final = 64  # tables of shares, one for every depth of trees


@dataclass(frozen=True, eq=False)
class TreeContributions:
    """What sets trees apart for a row from what they say of reference rows.

    Attributes:
        trees: the ensemble.
        player: (d,) of every feature; players: how many there are.
        rows: how many reference rows there are.
        sides: (nodes, words) which of them go right at a node, a bit each; everything: (words,) all of them.
    """

    trees: Trees
    player: NDArray[np.intp]
    players: int
    rows: int
    sides: Array
    everything: Array

    @classmethod
    def of(cls, trees: Trees, references: Sequence[Encoded], player: NDArray[np.intp]) -> TreeContributions:
        """Prepare the trees for reference rows, cells (m,) per feature."""
        rows, width = len(references[0]), int(trees.walk.start[-1])
        words = -(-rows // 64)
        sides = np.zeros((len(trees.nodes.tests), words), dtype=np.uint64)
        if width:
            note_sides(_comparands(trees, references), width, trees.nodes, trees.walk, sides)
        flags = np.zeros((1, words * 64), dtype=np.bool_)
        flags[0, :rows] = True
        everything = np.packbits(flags, axis=1, bitorder="little").view(np.uint64)[0]
        return cls(trees, player, int(player.max()) + 1, rows, sides, everything)

    def of_row(self, row: Sequence[Encoded], weights: Floats) -> Attribution:
        """Return the players' Shapley values of a row of cells (1,) per feature; see `Contributions.of_row`."""
        nodes, levels = self.trees.nodes, self.trees.deepest + 2
        room = GameWorkspace(
            stack=np.empty((4 * levels + 8, 5), dtype=np.int64),
            sets=np.empty((4 * levels + 8, len(self.everything)), dtype=np.uint64),
            marks=np.empty(4 * levels + 8),
            decided=np.zeros(self.players, dtype=np.int8),
        )
        game = Game(self.player, np.ascontiguousarray(weights), _shares(levels), self.sides, self.everything)
        totals = np.zeros(self.players + 2)
        divide(_comparands(self.trees, row), nodes, self.trees.walk, game, room, totals)
        totals /= self.rows
        base = float(self.trees.base @ weights)
        return Attribution(totals[:-2], float(totals[-2]) + base, float(totals[-1]) + base)


def _comparands(trees: Trees, rows: Sequence[Encoded]) -> NDArray[np.int32]:
    """Return the comparands of rows, cells (m,) per feature, row after row."""
    found = np.empty(len(rows[0]) * int(trees.walk.start[-1]), dtype=np.int32)
    cells = np.ascontiguousarray(np.column_stack(rows), dtype=np.int32)  # another order would be compiled anew
    find_comparands(cells, trees.walk, found)
    return found


@lru_cache(MOST_KEPT)
def _shares(levels: int) -> Floats:
    """Return what each of `a` players gets of a value that needs all of them and none of `b` others, (levels, levels).

    It is (a - 1)! b! / (a + b)!; 0 where there are none.
    """
    mine, theirs = np.arange(levels, dtype=np.float64)[:, None], np.arange(levels, dtype=np.float64)
    shares = np.asarray(beta(np.maximum(mine, 1.0), theirs + 1.0))
    shares[0] = 0.0
    return shares
