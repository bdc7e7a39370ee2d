"""The nearest one or two changes of many rows at once, where it is certain that nothing else is as near.

`NearestFew` holds what a bound policy, an opened model and a target have in common for all rows. It comes to the same
answer as the search of single rows (`explainers.geco.sweeps`, `engine.few_changes`), with the same number of
evaluations, or leaves a row to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import numpy as np

from mlflow_cf.constraints import Rule
from mlflow_cf.constraints.expressions import Ref
from mlflow_cf.constraints.programs import Checks
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.units.pairs import ValueBlocks, in_blocks, pairs_for
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.scorer import DecisionScore
from mlflow_cf.portfolio.kernels import (
    IN_DOUBT,
    LEFT,
    SETTLED,
    UNTIL_LAWFUL,
    UNTIL_TWO,
    BlockRows,
    Nearest,
    Setting,
    Singles,
    nearest_by_cells,
    nearest_of_doubts,
)
from mlflow_cf.portfolio.pair_room import ALONE
from mlflow_cf.portfolio.pairs import NearestPairs, tells_pairs
from mlflow_cf.portfolio.set_room import FoundSets
from mlflow_cf.portfolio.unit_kernels import TOGETHER, RowUnits, Units, nearest_by_units
from mlflow_cf.portfolio.unit_sets import UnitBlocks, UnitQuestion, UnitSetRoom, nearest_unit_sets
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.problem.single_features import PackedColumns
from mlflow_cf.rounding import all_loose
from mlflow_cf.structures.capabilities import HiddenLayer, SupportsHidden
from mlflow_cf.structures.kernels.sweeps import sweep_trees
from mlflow_cf.structures.trees.ensemble import TreeEnsemble

SPARED: Final = 2  # the search of single rows looks at so many times as many pairs of units: it comes to an end, too
# Rows that are tried together, and the numbers made for them (8 MB): with four times as many, a forest of 4,900 cells
# takes 15 % longer; with a quarter of the rows, boosting of 320 cells takes 5 % longer.
MOST_ROWS: Final = 4_096
MOST_NUMBERS: Final = 2**20


class Settled(NamedTuple):
    """Rows whose nearest counterfactual is known, up to what constraints and the model say of it.

    Attributes:
        rows: (s,) which of the rows.
        Z: (s, d) the counterfactuals.
        singles: (s,) how many single changes are verified: those as near as one, or the nearest ones beside two.
        paired: (s,) evaluations that pairs of changes count, 0 where none was looked at.
        scored: (s,) single changes in doubt that were scored as rows, which count as evaluations.
        nearer: (v, d) single changes that are nearer, and that the model may accept by its structure; owner: (v,) whose
            of `rows` each is.
    """

    rows: Codes
    Z: Floats
    singles: Codes
    paired: Codes
    scored: Codes
    nearer: Floats
    owner: Codes

    def take(self, some: Codes) -> Settled:
        """Return some of them."""
        place = np.full(len(self.rows), -1)
        place[some] = np.arange(len(some))
        mine = place[self.owner] >= 0
        parts = self.singles[some], self.paired[some], self.scored[some], self.nearer[mine], place[self.owner[mine]]
        return Settled(self.rows[some], self.Z[some], *parts)

    @classmethod
    def joined(cls, parts: Sequence[Settled]) -> Settled:
        """Return what is known of the rows of all parts."""
        before = np.cumsum([0, *(len(part.rows) for part in parts)])
        moved = [part._replace(owner=part.owner + at) for part, at in zip(parts, before.tolist(), strict=False)]
        return moved[0] if len(moved) == 1 else cls(*map(np.concatenate, zip(*moved, strict=True)))


class SettledSets(NamedTuple):
    """Rows whose nearest candidates of distinct changed sets are known, up to what constraints and the model say.

    Attributes:
        rows: (s,) which of the rows.
        Z: (n, d) the candidates, row after row, nearest first; owner: (n,) whose of `rows` each is.
        scored: (s,) candidates that count as evaluations; paired, tripled: (s,) what pairs of changes count, and three
            changes.
    """

    rows: Codes
    Z: Floats
    owner: Codes
    scored: Codes
    paired: Codes
    tripled: Codes

    @classmethod
    def joined(cls, parts: Sequence[SettledSets]) -> SettledSets:
        """Return what is known of the rows of all parts."""
        before = np.cumsum([0, *(len(part.rows) for part in parts)])
        moved = [part._replace(owner=part.owner + at) for part, at in zip(parts, before.tolist(), strict=False)]
        return moved[0] if len(moved) == 1 else cls(*map(np.concatenate, zip(*moved, strict=True)))


class DoubtTolerances(NamedTuple):
    """How near to a decision scores are in doubt.

    Attributes:
        proved: within this tolerance a proof asks the logged model.
        doubted: within this one the search of a single row scores a change as a row, too.
    """

    proved: float
    doubted: float

    def asked(self, scorer: Scorer, sums: Floats) -> tuple[Bools, Bools]:
        """Return (m,) of which raw scores (m, k) a proof asks the model, and which that search scores as rows."""
        (may, sure), (still, certain) = (scorer.decisions(sums, tolerance) for tolerance in self)
        return np.asarray(may != sure), np.asarray(still & ~certain)


class Scored(NamedTuple):
    """Single changes in doubt that were scored as rows.

    Attributes:
        many: (m,) how many of each row.
        nearer: (v, d) those nearer than the answer that a proof asks the model about; owner: (v,) whose each is.
    """

    many: Codes
    nearer: Floats
    owner: Codes


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
        """How many numbers are made for a row."""
        ...

    def settle(self, setting: Setting, rows: BlockRows, near: Nearest, out: FewChanges, most: int) -> None:
        """Write the nearest changes of rows to `out`; tables of pairs of a row may have `most` numbers."""
        ...

    def sets(self, setting: Setting, rows: BlockRows, count: int, most: int) -> FoundSets | None:
        """Return the nearest `most` candidates of rows that `count` answers settle; None where this is not known."""
        ...


@dataclass(frozen=True, eq=False)
class NearestFew:
    """Finds the nearest one or two changes of rows; threads may share it.

    Attributes:
        bound_policy: all constraints, of which kernels can check every one; scorer: rates rows.
        scores: of the opened model; decision: from which one on the target is met.
        setting: what kernels know of both.
        listed: the rules that list the values of a feature.
    """

    bound_policy: BoundPolicy
    scorer: Scorer
    scores: Scores
    decision: DecisionScore
    setting: Setting
    listed: Checks

    @classmethod
    def of(cls, bound_policy: BoundPolicy, scorer: Scorer, tolerance: float) -> NearestFew | None:
        """Return what finds changes that meet the targets of a scorer; None where kernels cannot tell.

        Scores within `tolerance` of a decision are in doubt, in units of max(1, |score|).
        """
        decision, structure = scorer.decision_score(tolerance), scorer.structure
        tables, grounding = bound_policy.tables, bound_policy.grounding
        single = len(tables.short.numbers) == len(tables.all) == len(bound_policy.space)
        known = structure is tables.structure and len(scorer.targets) == 1
        if decision is None or not single or not known or bound_policy.bound_distance.c:
            return None
        if (tables.short.packed.column != np.arange(len(tables.all))).any():
            return None
        joint = Checks.of(linked.rule for linked in grounding.linking_rules)
        alone = [rule for rules in grounding.others.values() for rule in rules]
        listed = all(rule.origin.key == "levels" for rule in alone)  # of values, whatever the row
        if grounding.of_no_group or not listed or joint.others or np.isnan(tables.short.packed.values).any():
            return None
        scores = _scores_of(scorer, bound_policy, decision)
        if scores is None:
            return None
        own_rules = grounding.plain.of(tables.short.numbers)
        numbers = range(len(tables.all))
        linked = {number for rule in grounding.linking_rules for number in rule.groups}
        setting = Setting(
            packed=tables.short.packed,
            formula=tables.short.formula,
            own_rules=own_rules,
            joint=joint.program,
            frozen=np.array([any(map(_freezes, grounding.plain.rules.get(n, ()))) for n in numbers], dtype=np.bool_),
            linked=np.array([number in linked for number in numbers], dtype=np.bool_),
            cell=scores.cell if isinstance(scores, CellScores) else np.full(len(tables.short.packed.values), -1),
            refused=_refused(tables.short.packed, alone, len(bound_policy.space)),
            most=min([len(tables.all), *(limit.most for limit in bound_policy.limits)]),
        )
        return cls(bound_policy, scorer, scores, decision, setting, Checks.of(alone))

    @property
    def rows_at_once(self) -> int:
        """How many rows should be settled together: what is made for them stays near the core."""
        return max(1, min(MOST_ROWS, MOST_NUMBERS // max(self.scores.numbers, 1)))

    def settle(self, X: Floats, most: int, tolerances: DoubtTolerances) -> Settled:
        """Return what settles rows X (m, d), all of whose levels the structure can read.

        Tables of pairs of a row may have `most` numbers. Changes in doubt are decided within `tolerances`.
        """
        rows, out, near = self._block(X), FewChanges.none(len(X)), Nearest.room(X.shape[1], self._steps)
        self.scores.settle(self.setting, rows, near, out, most)
        scored = self._decide(rows, near, out.singles, tolerances)
        one, pair = out.singles.known == SETTLED, out.places[:, 0] >= 0
        places = np.where(pair[:, None], out.places, np.column_stack([out.singles.place, np.full(len(X), -1)]))
        parts = out.singles.ties, out.paired, scored.many, scored.nearer, scored.owner
        return Settled(np.arange(len(X)), self._changed(X, places), *parts).take(np.flatnonzero(one | pair))

    def _decide(self, rows: BlockRows, near: Nearest, singles: Singles, tolerances: DoubtTolerances) -> Scored:
        """Score the single changes that are in doubt, and settle rows by those."""
        some = np.flatnonzero(singles.known == IN_DOUBT)
        turns, doubts = singles.sure[some], singles.doubts[some]
        which, at = np.nonzero((doubts >= 0) & ~turns)
        kept = _first_of_cells(which, self.setting.cell[doubts[which, at]])  # a search lists no others, either
        which, at = which[kept], at[kept]
        row, place = some[which], doubts[which, at]
        X, Z = rows.X[row], self._changed(rows.X[row], place[:, None])
        encoded = self.scorer.encoded(range(X.shape[1]), Z)
        turned, _ = self.scorer.margins(encoded)
        turns[which, at] = turned
        nearest_of_doubts(self.setting, rows, some, turns, near, singles)  # also for none: it is compiled ahead then
        asked, scored = tolerances.asked(self.scorer, self.scorer.structure.sums(encoded))
        columns = tuple((column,) for column in range(X.shape[1]))
        far, known = self.bound_policy.bound_distance.distance(columns, Z, X), singles.far[row]
        nearer = asked & ~turned & (all_loose(far) < known)
        told = ~asked | nearer | (place == singles.place[row]) | (far > all_loose(known))
        singles.known[row[~(told & scored)]] = LEFT
        return Scored(np.bincount(row, minlength=len(rows.X)), Z[nearer], row[nearer])

    def several(self, X: Floats, count: int, most: int) -> SettledSets | None:
        """Return the nearest `most` candidates of rows X (m, d) that `count` answers of few changes settle.

        Each has another changed set. None where the model does not tell what pairs of changes do.
        """
        found = self.scores.sets(self.setting, self._block(X), count, most)
        if found is None:
            return None
        some = np.flatnonzero(found.many)
        owner, at = np.nonzero(found.places[some, :, 0] >= 0)
        Z = self._changed(X[some[owner]], found.places[some[owner], at])
        return SettledSets(some, Z, owner, found.scored[some], found.paired[some], found.tripled[some])

    def _block(self, X: Floats) -> BlockRows:
        """Return rows X (m, d) with what kernels know of them before any change."""
        packed, distance = self.setting.packed, self.bound_policy.bound_distance
        own_at = np.ascontiguousarray(distance.positions(packed.column, X[:, packed.column]))
        may, sure = np.full(len(X), self.decision.may), np.full(len(X), self.decision.sure)
        lawful = np.ones(len(X), dtype=np.bool_)
        self.listed.refuse(X, X, lawful)
        return BlockRows(X, own_at, may, sure, lawful)

    def _changed(self, X: Floats, places: Codes) -> Floats:
        """Return rows X (m, d) with the values at places (m, n) among all values; those at negative ones stay out."""
        packed, Z = self.setting.packed, X.copy()
        group = np.searchsorted(packed.start, places, side="right") - 1
        row, at = np.nonzero(places >= 0)
        Z[row, packed.column[group[row, at]]] = packed.values[places[row, at]]
        return Z

    @cached_property
    def _steps(self) -> int:
        """The number of steps of the longest program of a rule, or more."""
        return len(self.setting.own_rules.program.does) + len(self.setting.joint.does)


def _first_of_cells(row: Codes, cell: Codes) -> Codes:
    """Return which values (n,) are the first of a row in their cell; those without one, -1, are all told apart."""
    told_apart = np.where(cell < 0, -1 - np.arange(len(cell)), cell)
    return np.sort(np.unique(np.column_stack([row, told_apart]), axis=0, return_index=True)[1])


def _freezes(rule: Rule) -> bool:
    """Whether a rule lets no row change the only feature that it is about."""
    left, right = rule.then.left, rule.then.right
    if rule.when or rule.then.sign != "==" or rule.then.tolerance:
        return False
    return isinstance(left, Ref) and isinstance(right, Ref) and left.column == right.column and left.side != right.side


def _refused(packed: PackedColumns, rules: Sequence[Rule], columns: int) -> Bools:
    """Return (t,) which values some rules refuse that mention nothing else of a row (d,)."""
    refused = np.zeros(len(packed.values), dtype=np.bool_)
    for rule in rules:
        (column,) = rule.columns("x_cf")
        start, stop = packed.start[column : column + 2]
        Z = np.zeros((stop - start, columns))
        Z[:, column] = packed.values[start:stop]
        refused[start:stop] |= ~rule.holds(Z, Z)
    return refused


def _scores_of(scorer: Scorer, bound_policy: BoundPolicy, decision: DecisionScore) -> Scores | None:
    structure = scorer.structure
    if isinstance(structure, TreeEnsemble):
        return CellScores.of(structure, scorer, bound_policy, decision)
    if isinstance(structure, SupportsHidden):
        values = [bound_policy.tables.encoded[column] for column in range(len(bound_policy.space))]
        layer, exact = structure.hidden(values, decision.weights), scorer.decision_score(0.0)
        return None if layer is None or exact is None else UnitScores.of(structure, layer, bound_policy, exact)
    return None


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
        frozen = [any(map(_freezes, bound_policy.grounding.plain.rules.get(n, ()))) for n in range(len(cells))]
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
        nearest_by_cells(setting, rows, np.ascontiguousarray(scores), near, out.singles)
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
        """The entries of a row in the first layer."""
        return len(self.structure.first.start)

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
