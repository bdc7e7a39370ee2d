"""The nearest two changes of many rows at once, or the nearest changed sets, by the cells of trees.

See `pair_kernels` and `set_kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlflow_cf.engine import thresholds
from mlflow_cf.explainers.geco.sweeps import PAIRED_INSTEAD
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.portfolio.kernels import BlockRows, Setting
from mlflow_cf.portfolio.pair_kernels import nearest_pairs
from mlflow_cf.portfolio.pair_room import MISSING, FoundPairs, PairQuestion, PairRoom, SweptRows
from mlflow_cf.portfolio.set_kernels import nearest_sets
from mlflow_cf.portfolio.set_room import FoundSets, MostPairs, SetRoom
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.structures.kernels.trees import find_comparands
from mlflow_cf.structures.trees.ensemble import EXPECTED, TreeEnsemble


def tells_pairs(bound_policy: BoundPolicy) -> bool:
    """Whether the constraints and the distance are of a kind that kernels know how two changes meet them."""
    distance, columns = bound_policy.bound_distance, tuple((column,) for column in range(len(bound_policy.space)))
    limits = all(limit.groups == columns and limit.most > 1 for limit in bound_policy.limits)
    return limits and len(columns) > 1 and distance.b > 0 and distance.percentiles is None


@dataclass(frozen=True, eq=False)
class NearestPairs:
    """Finds the nearest two changes of rows; threads may share it.

    Attributes:
        trees: the model; scorer: rates its raw scores; decision: from which one on the target is met.
        setting: what kernels know of the constraints and of all values.
    """

    trees: TreeEnsemble
    scorer: Scorer
    decision: DecisionScore
    setting: Setting

    def swept(self, cells: Codes, sums: Floats, alone: Floats | None = None) -> SweptRows:
        """Return what is known of rows.

        Args:
            cells: (m, d) of the rows.
            sums: (m, cells, k) their raw scores with one feature changed to each cell.
            alone: (m,) how far the nearest single change is that turns the decision; None where `sets` are asked for.
        """
        trees = self.trees.trees
        X = np.empty((len(cells), trees.walk.start[-1]), np.int32)
        find_comparands(cells, trees.walk, X.reshape(-1))
        own, none = cells + trees.features.start[:-1], np.empty(0)
        if alone is None:
            return SweptRows(X, own, sums, none.reshape(0, 0), none)
        lacks = self.scorer.lacks(sums.reshape(-1, sums.shape[2])).reshape(sums.shape[:2])
        return SweptRows(X, own, sums, lacks, alone)

    def settle(self, rows: BlockRows, swept: SweptRows, most: int) -> FoundPairs:
        """Return what settles rows whose nearest single changes do not; their tables may have `most` numbers each."""
        trees, many = self.trees.trees, len(rows.X)
        out = FoundPairs.none(many)
        question = PairQuestion(self.setting, rows, swept, trees, self.decision.weights)
        rectangles, done = EXPECTED * len(trees.nodes.roots), 0
        while done < many:
            room = PairRoom.of(self.setting, trees, rectangles, most)
            done = nearest_pairs(question, most, done, room, out)
            rectangles = rectangles if done == many else max(2 * rectangles, int(room.tally[MISSING]))
        return out

    def sets(self, rows: BlockRows, swept: SweptRows, count: int, verified: int) -> FoundSets:
        """Return the nearest `verified` candidates of rows that `count` answers of one to three changes settle."""
        trees, many = self.trees.trees, len(rows.X)
        out, question = (
            FoundSets.none(many, verified),
            PairQuestion(self.setting, rows, swept, trees, self.decision.weights),
        )
        rectangles, done, most = (
            EXPECTED * len(trees.nodes.roots),
            0,
            MostPairs(PAIRED_INSTEAD, thresholds.PAIRED_FIRST),
        )
        while done < many:
            room = SetRoom.of(self.setting, trees, rectangles, PAIRED_INSTEAD, count)
            done = nearest_sets(question, most, done, room, out)
            rectangles = rectangles if done == many else max(2 * rectangles, int(room.pair.tally[MISSING]))
        return out
