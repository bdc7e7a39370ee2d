"""Decision scores of changes, for blocks of rows: by the cells of trees, or by one layer of units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import numpy as np

from mlflow_cf.constraints import Rule
from mlflow_cf.constraints.expressions import Ref
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.units.pairs import ValueBlocks, in_blocks, pairs_for
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.portfolio.kernels import (
    SETTLED,
    UNTIL_LAWFUL,
    UNTIL_TWO,
    BlockRows,
    Nearest,
    Setting,
    Singles,
    nearest_by_cells,
)
from mlflow_cf.portfolio.pair_room import ALONE
from mlflow_cf.portfolio.pairs import NearestPairs, tells_pairs
from mlflow_cf.portfolio.set_room import FoundSets
from mlflow_cf.portfolio.unit_kernels import TOGETHER, RowUnits, Units, nearest_by_units
from mlflow_cf.portfolio.unit_sets import UnitBlocks, UnitQuestion, UnitSetRoom, nearest_unit_sets
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.structures.capabilities import HiddenLayer, SupportsHidden
from mlflow_cf.structures.kernels.sweeps import sweep_trees
from mlflow_cf.structures.trees.ensemble import TreeEnsemble

SPARED: Final = 2  # the search of single rows looks at so many times as many pairs of units: it comes to an end, too


class FewChanges(NamedTuple):
    """What is known of rows: their single changes, and the positions of two changes of those that need them.

    Attributes:
        singles: see `Singles`.
        places: (m, 2) the positions of two changes among all values; negative where the row is not settled by two.
        paired: (m,) evaluations that pairs of changes count.
    """

    singles: Singles
    places: Codes
    paired: Codes

    @classmethod
    def none(cls, rows: int) -> FewChanges:
        """Return that nothing is known of so many rows."""
        return cls(Singles.none(rows), np.full((rows, 2), -1, dtype=np.int64), np.zeros(rows, dtype=np.int64))


class Scores(Protocol):
    """Decision scores of changes, for a block of rows."""

    @property
    def numbers(self) -> int:
        """How many numbers a row counts as, of those that rows tried together may have."""
        ...

    def settle(self, setting: Setting, rows: BlockRows, near: Nearest, out: FewChanges, most: int) -> None:
        """Write the nearest changes of rows to `out`; tables of pairs of a row may have `most` numbers."""
        ...

    def sets(self, setting: Setting, rows: BlockRows, count: int, most: int) -> FoundSets | None:
        """Return the nearest `most` candidates of rows that `count` answers settle; None where this is not known."""
        ...


def scores_of(scorer: Scorer, bound_policy: BoundPolicy, decision: DecisionScore) -> Scores | None:
    """Return the scores of an opened model under a policy; None where kernels cannot tell.

    Args:
        scorer: what the model is, and what it must say.
        bound_policy: the values that features may take.
        decision: from which score on the target is met.
    """
    structure = scorer.structure
    if isinstance(structure, TreeEnsemble):
        return CellScores.of(structure, scorer, bound_policy, decision)
    if isinstance(structure, SupportsHidden):
        values = [bound_policy.tables.encoded[column] for column in range(len(bound_policy.space))]
        layer, exact = structure.hidden(values, decision.weights), scorer.decision_score(0.0)
        return None if layer is None or exact is None else UnitScores.of(structure, layer, bound_policy, exact)
    return None


def freezes(rule: Rule) -> bool:
    """Whether a rule lets no row change the only feature that it is about."""
    left, right = rule.then.left, rule.then.right
    if rule.when or rule.then.sign != "==" or rule.then.tolerance:
        return False
    return isinstance(left, Ref) and isinstance(right, Ref) and left.column == right.column and left.side != right.side


@dataclass(frozen=True, eq=False)
class CellScores:
    """Decision scores by the cells of trees.

    Attributes:
        trees: the trees; scorer: rates them; decision: from which score on the target is met.
        wanted: (d,) columns that some row may change.
        cell: (t,) the cell of every value of every column among those of all columns.
        pairs: whether two changes are looked at.
    """

    trees: TreeEnsemble
    scorer: Scorer
    decision: DecisionScore
    wanted: Bools
    cell: Codes
    pairs: bool

    @classmethod
    def of(cls, trees: TreeEnsemble, scorer: Scorer, bound_policy: BoundPolicy, decision: DecisionScore) -> CellScores:
        """Return the scores of changes to the values of all domains."""
        start, encoded = trees.trees.features.start, bound_policy.tables.encoded
        cells = [start[column] + encoded[column] for column in range(len(bound_policy.space))]
        frozen = [any(map(freezes, bound_policy.grounding.plain.rules.get(n, ()))) for n in range(len(cells))]
        wanted = [not fixed and len(some) > 0 for fixed, some in zip(frozen, cells, strict=True)]
        cell = np.concatenate(cells).astype(np.int64)
        return cls(trees, scorer, decision, np.array(wanted), cell, tells_pairs(bound_policy))

    @property
    def numbers(self) -> int:
        """The raw scores of a row with one feature changed to each cell."""
        return int(self.trees.trees.features.start[-1]) * self.trees.outputs

    def settle(self, setting: Setting, rows: BlockRows, near: Nearest, out: FewChanges, most: int) -> None:
        """Sweep rows, and write their nearest changes."""
        (cells, sums), weights = self._swept(rows), self.decision.weights
        scores = sums[:, :, 0] * weights[0] if len(weights) == 1 else sums @ weights
        own = np.ascontiguousarray(cells + self.trees.trees.features.start[:-1])
        nearest_by_cells(setting, rows, own, np.ascontiguousarray(scores), near, out.singles)
        some = np.flatnonzero((out.singles.known == UNTIL_TWO) | (out.singles.known == UNTIL_LAWFUL))
        if not self.pairs or not most or not len(some):
            return
        few = BlockRows(*(np.ascontiguousarray(part[some]) for part in rows))
        pairs = NearestPairs(self.trees, self.scorer, self.decision, setting)
        alone = np.where(out.singles.known[some] == UNTIL_TWO, out.singles.far[some], -1.0)
        found = pairs.settle(few, pairs.swept(cells[some], sums[some], alone), most)
        out.places[some], out.paired[some] = found.places, found.used
        told = found.ties >= 0
        out.singles.ties[some[told]] = found.ties[told]
        out.singles.known[some[found.places[:, 0] == ALONE]] = SETTLED

    def sets(self, setting: Setting, rows: BlockRows, count: int, most: int) -> FoundSets | None:
        """Sweep rows, and return their nearest changed sets."""
        if not self.pairs:
            return None
        pairs = NearestPairs(self.trees, self.scorer, self.decision, setting)
        cells, sums = self._swept(rows)
        return pairs.sets(rows, pairs.swept(cells, np.ascontiguousarray(sums)), count, most)

    def _swept(self, rows: BlockRows) -> tuple[Codes, Floats]:
        """Return the cells (m, d) of rows, and their raw scores (m, cells, k) with one feature changed to each cell."""
        cells = np.column_stack([self.trees.encode(column, codes) for column, codes in enumerate(rows.X.T)])
        return cells, sweep_trees(cells, np.tile(self.wanted, (len(cells), 1)), self.trees.trees)


@dataclass(frozen=True, eq=False)
class UnitScores:
    """Decision scores by one layer of units, which values are put through as they are looked at.

    Attributes:
        structure: the linear model or network; layer: its units.
        added: (width, TOGETHER + t + TOGETHER) what every value adds to them, with room on both sides.
        start: (d + 1,) where the values of every feature start.
        several: whether kernels know how several changes meet the constraints, and values are not too many.
        exact: from which score on the structure itself says that the target is met.
    """

    structure: SupportsHidden
    layer: HiddenLayer
    added: Floats
    start: Codes
    several: bool
    exact: DecisionScore

    @classmethod
    def of(
        cls, structure: SupportsHidden, layer: HiddenLayer, bound_policy: BoundPolicy, exact: DecisionScore
    ) -> UnitScores:
        """Return the scores of changes to the values of all domains."""
        added = np.zeros((len(layer.bias), len(layer.added) + 2 * TOGETHER))
        added[:, TOGETHER:-TOGETHER] = layer.added.T
        start = bound_policy.tables.short.packed.start
        single = not bound_policy.grounding.linking_rules and tells_pairs(bound_policy)
        few = layer.added.size <= thresholds.MOST_ADDED_UP // SPARED
        return cls(structure, layer, added, start, single and few, exact)

    @property
    def numbers(self) -> int:
        """What a row counts as: a quarter of the products in its units, which are added up at once and not kept."""
        return len(self.structure.first.start) * len(self.layer.bias) // 4

    @cached_property
    def blocks(self) -> UnitBlocks:
        """The values of all features in blocks."""
        layer, blocks = self.layer, ValueBlocks.of(np.arange(len(self.layer.added)), self.start)
        added, low, high = in_blocks(layer.added[blocks.at])
        return UnitBlocks(
            added=added,
            low=low,
            high=high,
            owner=blocks.owner,
            start=blocks.start,
            place=np.where(blocks.repeated, -1, blocks.at),
            weights=np.ascontiguousarray(layer.weights),
            shift=np.array([layer.shift]),
            floor=np.array([0.0 if layer.rectified else -np.inf]),
        )

    def settle(self, setting: Setting, rows: BlockRows, near: Nearest, out: FewChanges, most: int) -> None:  # noqa: ARG002  no tables
        """Write the nearest changes of rows; scores that rounding may move across a decision are in doubt."""
        layer = self.layer
        units = Units(
            added=self.added,
            weights=np.ascontiguousarray(layer.weights),
            shift=np.array([layer.shift]),
            least=np.array([0.0 if layer.rectified else -np.inf]),
            rows=self._read(rows),
            others=np.empty(len(layer.bias)),
            scores=np.empty(TOGETHER),
            places=np.empty(TOGETHER, dtype=np.int64),
        )
        nearest_by_units(setting, _doubtful(rows), units, near, out.singles)

    def sets(self, setting: Setting, rows: BlockRows, count: int, most: int) -> FoundSets | None:
        """Return the nearest changed sets of rows; None where rules are about several features, or values too many."""
        if not self.several:
            return None
        out, room = FoundSets.none(len(rows.X), most), UnitSetRoom.of(setting, self.blocks, count)
        question = UnitQuestion(
            setting=setting,
            rows=_doubtful(rows),
            blocks=self.blocks,
            units=self._read(rows),
            misses=np.full(len(rows.X), self.exact.may),
            meets=np.full(len(rows.X), self.exact.sure),
            most=pairs_for(thresholds.MOST_SCORED, len(self.layer.bias)) // SPARED,
        )
        nearest_unit_sets(question, room, out)
        return out

    def _read(self, rows: BlockRows) -> RowUnits:
        """Return rows as the first layer reads them."""
        structure = self.structure
        entries = np.concatenate([structure.encode(c, codes) for c, codes in enumerate(rows.X.T)], axis=1)
        return RowUnits.of(np.ascontiguousarray(entries), structure.first, self.layer.slack)


def _doubtful(rows: BlockRows) -> BlockRows:
    """Return rows whose doubt kernels may widen."""
    return rows._replace(may=rows.may.copy(), sure=rows.sure.copy())
