"""The nearest one or two changes of many rows at once, where it is certain that nothing else is as near.

`NearestFew` holds what a bound policy, an opened model and a target have in common for all rows. It comes to the same
answer as the search of single rows (`explainers.geco.sweeps`, `engine.few_changes`), with the same number of
evaluations, or leaves a row to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints import Rule
from mlflow_cf.constraints.programs import Checks
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.portfolio.kernels import (
    IN_DOUBT,
    LEFT,
    SETTLED,
    BlockRows,
    Nearest,
    Setting,
    Singles,
    nearest_of_doubts,
)
from mlflow_cf.portfolio.scores import CellScores, FewChanges, Scores, freezes, scores_of
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.problem.single_features import PackedColumns
from mlflow_cf.rounding import all_loose

# Rows that are tried together, and the numbers made for them (4 MB): with twice as many numbers, boosting on Credit
# takes 3 % longer, and 7 % on two cores; with eight times as many, a forest of 4,900 cells takes 15 % longer. With a
# quarter of the rows, a linear model takes 4 % longer, and 8 % on two cores: between kernels, threads wait for each
# other. 16,384 rows of 16 units take 0.1 s, after which time limits are looked at.
MOST_ROWS: Final = 16_384
MOST_NUMBERS: Final = 2**19


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
        searched: (s,) evaluations; cells: (s,) the values of rows that these stand for.
    """

    rows: Codes
    Z: Floats
    owner: Codes
    searched: Codes
    cells: Codes

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
        decision, structure, found = scorer.decision_score(tolerance), scorer.structure, setting_of(bound_policy)
        known = structure is bound_policy.tables.structure and len(scorer.targets) == 1
        if decision is None or found is None or not known or bound_policy.bound_distance.c:
            return None
        scores, (setting, listed) = scores_of(scorer, bound_policy, decision), found
        if scores is None:
            return None
        if isinstance(scores, CellScores):
            setting = setting._replace(cell=scores.cell)
        return cls(bound_policy, scorer, scores, decision, setting, listed)

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
        return Settled(np.arange(len(X)), changed_rows(self.setting.packed, X, places), *parts).take(
            np.flatnonzero(one | pair)
        )

    def _decide(self, rows: BlockRows, near: Nearest, singles: Singles, tolerances: DoubtTolerances) -> Scored:
        """Score the single changes that are in doubt, and settle rows by those."""
        some = np.flatnonzero(singles.known == IN_DOUBT)
        turns, doubts = singles.sure[some], singles.doubts[some]
        which, at = np.nonzero((doubts >= 0) & ~turns)
        kept = _first_of_cells(which, self.setting.cell[doubts[which, at]])  # a search lists no others, either
        which, at = which[kept], at[kept]
        row, place = some[which], doubts[which, at]
        X, Z = rows.X[row], changed_rows(self.setting.packed, rows.X[row], place[:, None])
        encoded = self.scorer.encoded(range(X.shape[1]), Z)
        turned, _ = self.scorer.margins(encoded)
        turns[which, at] = turned
        nearest_of_doubts(self.setting, rows, some, turns, near, singles)  # also for none: it is compiled ahead then
        asked, scored = tolerances.asked(self.scorer, self.scorer.structure.sums(encoded))
        columns = tuple((column,) for column in range(X.shape[1]))
        far, known = self.bound_policy.bound_distance.distance(columns, Z, X), singles.far[row]
        nearer = asked & ~turned & (all_loose(far) < known)
        # the model is asked about the answer anyway; what is as far as it is left to the search, which orders such rows
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
        Z = changed_rows(self.setting.packed, X[some[owner]], found.places[some[owner], at])
        groups, scored, paired, tripled = X.shape[1], found.scored[some], found.paired[some], found.tripled[some]
        cells = groups + 2 * paired + 3 * tripled + groups * scored
        return SettledSets(some, Z, owner, groups + scored + paired + tripled, cells)

    def _block(self, X: Floats) -> BlockRows:
        """Return rows X (m, d) with what kernels know of them before any change."""
        packed, distance = self.setting.packed, self.bound_policy.bound_distance
        own_at = np.ascontiguousarray(distance.positions(packed.column, X[:, packed.column]))
        may, sure = np.full(len(X), self.decision.may), np.full(len(X), self.decision.sure)
        lawful = np.ones(len(X), dtype=np.bool_)
        self.listed.refuse(X, X, lawful)
        return BlockRows(X, own_at, may, sure, lawful)

    @cached_property
    def _steps(self) -> int:
        """The number of steps of the longest program of a rule, or more."""
        return len(self.setting.own_rules.program.does) + len(self.setting.joint.does)


def setting_of(bound_policy: BoundPolicy) -> tuple[Setting, Checks] | None:
    """Return what kernels know of a policy, without any model's cells, and the rules that list a feature's values.

    None where kernels cannot check every constraint.
    """
    tables, grounding = bound_policy.tables, bound_policy.grounding
    packed, numbers = tables.short.packed, range(len(tables.all))
    single = len(tables.short.numbers) == len(tables.all) == len(bound_policy.space)
    if not single or (packed.column != np.arange(len(tables.all))).any() or np.isnan(packed.values).any():
        return None
    joint = Checks.of(linked.rule for linked in grounding.linking_rules)
    alone = [rule for rules in grounding.others.values() for rule in rules]
    listed = all(rule.origin.key == "levels" for rule in alone)  # of values, whatever the row
    if grounding.of_no_group or not listed or joint.others:
        return None
    linked = {number for rule in grounding.linking_rules for number in rule.groups}
    setting = Setting(
        packed=packed,
        formula=tables.short.formula,
        own_rules=grounding.plain.of(tables.short.numbers),
        joint=joint.program,
        frozen=np.array([any(map(freezes, grounding.plain.rules.get(n, ()))) for n in numbers], dtype=np.bool_),
        linked=np.array([number in linked for number in numbers], dtype=np.bool_),
        cell=np.full(len(packed.values), -1),
        refused=_refused(packed, alone, len(bound_policy.space)),
        most=min([len(tables.all), *(limit.most for limit in bound_policy.limits)]),
    )
    return setting, Checks.of(alone)


def changed_rows(packed: PackedColumns, X: Floats, places: Codes) -> Floats:
    """Return rows X (m, d) with the values at places (m, n) among all values; those at negative ones stay out."""
    group, Z = np.searchsorted(packed.start, places, side="right") - 1, X.copy()
    row, at = np.nonzero(places >= 0)
    Z[row, packed.column[group[row, at]]] = packed.values[places[row, at]]
    return Z


def _first_of_cells(row: Codes, cell: Codes) -> Codes:
    """Return which values (n,) are the first of a row in their cell; those without one, -1, are all told apart."""
    told_apart = np.where(cell < 0, -1 - np.arange(len(cell)), cell)
    return np.sort(np.unique(np.column_stack([row, told_apart]), axis=0, return_index=True)[1])


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
