"""The nearest two changes of many rows at once, by the cells of trees; see `pair_kernels`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.engine.thresholds import PAIRS_PER_ROW
from mlflow_cf.explainers.geco.sweeps import SOON, SOON_SHARE
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.scorer import DecisionScore
from mlflow_cf.portfolio.kernels import BlockRows, Nearest, Setting
from mlflow_cf.portfolio.pair_kernels import MISSING, FoundPairs, PairRoom, SweptRows, nearest_pairs
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.structures.kernels.blocks import Sides
from mlflow_cf.structures.kernels.pairs import PairWorkspace
from mlflow_cf.structures.kernels.trees import find_comparands
from mlflow_cf.structures.trees.ensemble import EXPECTED, TreeEnsemble

LEAST_LEFT: Final = 64  # evaluations of a row: with fewer, every one that is taken may end its search
ROOM: Final = 4  # times the rectangles that most rows need


def most_paired(left: int) -> int:
    """Return how many numbers the tables of a row may have that has so many evaluations left for its search."""
    return 0 if left < LEAST_LEFT else min(SOON, left // SOON_SHARE * PAIRS_PER_ROW)


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

    def settle(self, rows: BlockRows, cells: Codes, sums: Floats, alone: Floats, most: int) -> FoundPairs:
        """Return what settles rows.

        Args:
            rows: those that no single change settles, while all of these are known.
            cells: (m, d) of the rows.
            sums: (m, cells, k) their raw scores with one feature changed to each cell.
            alone: (m,) how far the nearest single change is that turns the decision.
            most: numbers in the tables of a row.
        """
        trees, many = self.trees.trees, len(cells)
        out = FoundPairs(np.full((many, 2), -1, dtype=np.int64), np.zeros(many, dtype=np.int64))
        X = np.empty((many, trees.walk.start[-1]), np.int32)
        find_comparands(cells, trees.walk, X.reshape(-1))
        lacks = self.scorer.lacks(sums.reshape(-1, sums.shape[2])).reshape(sums.shape[:2])
        swept = SweptRows(X, cells + trees.features.start[:-1], sums, lacks, alone)
        near, rectangles, done = Nearest.room(rows.X.shape[1], self._steps), self._rectangles, 0
        while done < many:
            room = self._room(rectangles, most)
            done = nearest_pairs(
                self.setting, rows, swept, trees, most, self.decision.weights, done, near, room, out
            )  # fmt: skip
            rectangles = max(rectangles, int(room.tally[MISSING]))
        return out

    @property
    def _rectangles(self) -> int:
        return ROOM * EXPECTED * len(self.trees.trees.nodes.roots)

    @cached_property
    def _steps(self) -> int:
        return len(self.setting.own_rules.program.does) + len(self.setting.joint.does)

    def _room(self, rectangles: int, most: int) -> PairRoom:
        """Return arrays to work in, with room for so many rectangles and numbers of tables."""
        packed, trees = self.setting.packed, self.trees.trees
        sizes, cells = np.diff(packed.start), np.diff(trees.features.start)
        values, features, outputs = int(sizes.sum()), len(sizes), len(trees.base)
        pairs, largest, levels = features * (features - 1) // 2, int(sizes.max(initial=0)), trees.deepest + 1
        every = (features - 1) * values
        numbers, floats = np.empty((3, values), dtype=np.int64), np.empty((5, values))
        chosen = np.empty((4, pairs), dtype=np.intp)
        ends, links = np.empty((2, 2, largest, outputs)), np.empty((3, 2, largest), dtype=np.int32)
        return PairRoom(
            place=numbers[0],
            group=numbers[1],
            cost=floats[0],
            gain=floats[1],
            start=np.empty(features + 1, dtype=np.intp),
            least=np.empty(features),
            sums=np.empty((values, outputs)),
            zeros=np.zeros(values),
            order=np.empty(max(values, pairs), dtype=np.int64),
            sorted_gain=floats[2],
            sorted_cost=floats[3],
            sorted_group=numbers[2],
            cells=np.empty(values, dtype=np.int32),
            ranks=np.empty(values, dtype=np.intp),
            before=np.empty(int((cells + 1).sum()), dtype=np.intp),
            offset=np.append(0, (cells + 1).cumsum())[:-1].astype(np.intp),
            seen=np.zeros(int(cells.sum()), dtype=np.bool_),
            both=np.empty(pairs),
            first=chosen[0],
            second=chosen[1],
            chosen_first=chosen[2],
            chosen_second=chosen[3],
            number=np.empty((features, features), dtype=np.int64),
            some=np.empty(features, dtype=np.bool_),
            classes=np.empty(every, dtype=np.int32),
            side=np.empty(2 * pairs + 1, dtype=np.intp),
            counts=np.empty(2 * pairs, dtype=np.intp),
            place_of=np.empty(pairs + 1, dtype=np.intp),
            added=np.empty((most // outputs + 1, outputs)),
            ends=np.empty(every + 2 * pairs, dtype=np.int32),
            spans=np.empty((rectangles, 5), dtype=np.int32),
            leaf=np.empty((rectangles, 2), dtype=np.int32),
            pairs=PairWorkspace(
                way=np.empty((levels, 5), dtype=np.int64),
                trail=np.empty((levels, 7), dtype=np.int64),
                passing=np.empty((features, 3), dtype=np.int64),
                slots=np.empty((levels, 3), dtype=np.int64),
                ends=np.empty((levels, largest + 3), dtype=np.int64),
            ),
            sides=Sides(*np.empty((3, 2, largest)), *ends, *links),
            found=np.empty(6),
            tally=np.zeros(2, dtype=np.int64),
        )
