"""The table that a summary is chosen from: which row each common change turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES, SWEPT
from mlflow_cf.evaluation.summary import refused
from mlflow_cf.evaluation.summary.bits import WORD, Words, flags_of, words
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.evaluation.summary.family import Family, WholeFamily
from mlflow_cf.evaluation.summary.marking import Effects, Layout, Marks, mark_row
from mlflow_cf.evaluation.summary.refused import RefusedRows
from mlflow_cf.features import Floats
from mlflow_cf.goal.scorer import DecisionScore
from mlflow_cf.problem import Codes
from mlflow_cf.structures.capabilities import SupportsHidden, SupportsPairs
from mlflow_cf.structures.structure import Encoded, Structure

MOST_DOUBTS: Final = 500_000  # rows of changes so near to the threshold that the model is asked, a few seconds
MOST_PAIRED: Final = 2**24  # numbers in the joint effects of one row
Rate = Callable[[Floats, Codes], tuple[Bools, Bools]]
Joint = tuple[NDArray[Any], Codes, Codes, Codes, Floats]


@dataclass(frozen=True, eq=False)
class Table:
    """Which rows each change of a family turns lawfully.

    Attributes:
        family: the changes.
        bits: (c, w) the rows, each a bit.
        unscored: (n,) rows that were not looked at: any change may turn them.
    """

    family: Family
    bits: Words
    unscored: Bools


def is_additive(structure: Structure, rows: RefusedRows) -> bool:
    """Return whether single changes of a row add up in the raw scores of a structure, as those of linear models do."""
    if not isinstance(structure, SupportsHidden):
        return False
    values = [structure.encode(column, own[:1]) for column, own in enumerate(rows.bound_policy.background.T)]
    layer = structure.hidden(values, np.ones(structure.outputs))
    return layer is not None and not layer.rectified


def decided_by_one(rows: RefusedRows) -> Structure | None:
    """Return the opened model whose changes can be tabulated fast: one number decides, and pairs are known."""
    structure = rows.requirements.structure
    if structure is None or not (isinstance(structure, SupportsPairs) or is_additive(structure, rows)):
        return None
    return structure if all(_decision(rows, label) is not None for label, _ in rows.labels()) else None


def _decision(rows: RefusedRows, label: int) -> DecisionScore | None:
    scorer = rows.requirements.wanted(rows.explained.policy.target, label).scorer
    tolerance = SCORE_TOLERANCES * rows.requirements.judges.tolerance + SWEPT
    return None if scorer is None else scorer.decision_score(tolerance)


def by_structure(rows: RefusedRows, family: WholeFamily, structure: Structure, clock: Clock) -> Table:
    """Return the table of all moves and pairs of moves, scored by an opened model.

    What is too near to the threshold is asked of the logged model.
    """
    bits = np.zeros((family.size, words(len(rows))), dtype=np.uint64)
    unscored = rows.unseen.copy()
    effects = _RowEffects.of(rows, family, structure, np.flatnonzero(~unscored))
    decided = _decisions(rows)
    marks = Marks(np.zeros(family.size, dtype=np.uint64), np.empty((MOST_DOUBTS, 2), dtype=np.int64))
    known = 0
    for word in range(bits.shape[1]):
        block = np.arange(word * WORD, min((word + 1) * WORD, len(rows)))
        mine = block[~unscored[block]]
        if clock.late:
            unscored[block[0] :] = True
            break
        marks.words[:] = 0
        for row, found in zip(mine.tolist(), effects.of_rows(mine, [decided[row] for row in mine]), strict=False):
            if found is None:
                unscored[row] = True
            else:
                known = mark_row(effects.layout, found, _ends(decided[row]), row, marks, known)
        bits[:, word] = marks.words
        clock.count(len(block))
    keep_lawful(family, bits)
    _ask(rows, family, bits, marks.doubts[:known])
    return Table(family, bits, unscored)


def _decisions(rows: RefusedRows) -> list[DecisionScore]:
    """Return the number that decides about each row (n,)."""
    found: dict[int, DecisionScore] = {}
    for label, some in rows.labels():
        decision = _decision(rows, label)
        if decision is not None:
            found.update(dict.fromkeys(some.tolist(), decision))
    return [found[row] for row in range(len(rows))]


def _ends(decided: DecisionScore) -> Floats:
    return np.array([decided.may, decided.sure])


def keep_lawful(family: WholeFamily, bits: Words) -> None:
    """Keep the rows (c, w) that the changes of a family turn lawfully, in place."""
    lawful, single = family.lawful, len(family.moves)
    bits[:single] &= lawful.single
    for block, first, second in family.blocks():
        shape = (len(first), len(second), bits.shape[1])
        lawful.joined(first, second, bits[block].reshape(shape))


def _ask(rows: RefusedRows, family: Family, bits: Words, doubts: Codes) -> None:
    """Ask the model about rows that changes may turn, and take back those that it refuses, in place."""
    word, bit = doubts[:, 1] // WORD, np.uint64(1) << (doubts[:, 1] % WORD).astype(np.uint64)
    doubts = doubts[(bits[doubts[:, 0], word] & bit) != 0]
    for part in np.split(doubts, range(refused.TOGETHER, len(doubts), refused.TOGETHER)):
        Z = changed_rows(rows, family, part[:, 0], part[:, 1])
        for change, row in part[~rows.turned(Z, part[:, 1])].tolist():
            bits[change, row // WORD] &= ~(np.uint64(1) << np.uint64(row % WORD))


def changed_rows(rows: RefusedRows, family: Family, changes: Codes, at: Codes) -> Floats:
    """Return rows `at` (m,) after a change (m,) each, by its number, as codes (m, d)."""
    X, both = rows.X[at], family.moves_of(changes)
    Z, place = X.copy(), np.arange(len(at))
    if not len(family.moves):
        return Z
    column, direction, code = (np.array(part) for part in zip(*family.moves, strict=True))
    unknown_from = rows.bound_policy.bound_distance.unknown_from
    for some in both.T:
        own = X[place, column[some]]
        ranked = (own < unknown_from[column[some]]) & ((code[some] - own) * direction[some] > 0)
        moved = np.where(direction[some] == 0, own != code[some], ranked) & (some >= 0)
        Z[place[moved], column[some[moved]]] = code[some[moved]]
    return Z


@dataclass(frozen=True, eq=False)
class _RowEffects:
    """What the moves of single rows do to the raw scores.

    Attributes:
        structure: the opened model; layout: of the changes.
        values: per column of the table, the encoded values that its moves go to; None: it never moves.
        rows: per column, the encoded values (n, ...) of all rows; those of unscored ones mean nothing.
        moved: (n, s) which rows each move changes.
        columns: (2, p) the columns of every pair.
    """

    structure: Structure
    layout: Layout
    values: list[Encoded | None]
    rows: list[Encoded]
    moved: Bools
    columns: Codes

    @classmethod
    def of(cls, rows: RefusedRows, family: WholeFamily, structure: Structure, known: Codes) -> _RowEffects:
        """Encode the `known` rows, and all values that the moves of a family go to."""
        values: list[Encoded | None] = [None] * len(rows.space)
        whose = [np.empty(0, dtype=np.intp)]
        for at, column in enumerate(family.columns):
            moves = family.moves[family.start[at] : family.start[at + 1]]
            encoded = structure.encode(column, np.array([move.code for move in moves]))
            values[column], place = np.unique(encoded, axis=0, return_inverse=True)
            whose.append(place.ravel())
        pairs = np.array(family.pairs, dtype=np.intp).reshape(-1, 2).T
        layout = Layout(family.start, pairs[0].copy(), pairs[1].copy(), family.place, np.concatenate(whose))
        X = rows.X.copy()
        X[np.setdiff1d(np.arange(len(rows)), known)] = rows.bound_policy.background[0]  # whose levels can be read
        moved = np.ascontiguousarray(flags_of(family.lawful.moved, len(rows)).T)
        encoded_rows = [structure.encode(column, own) for column, own in enumerate(X.T)]
        columns = np.array(family.columns, dtype=np.intp)[pairs]
        return cls(structure, layout, values, encoded_rows, moved, columns)

    def of_rows(self, at: Codes, decided: Sequence[DecisionScore]) -> list[Effects | None]:
        """Return the effects of all moves on the number that decides, for rows `at` (m,); None: too many to hold."""
        if not len(at) or not self.moved.shape[1]:
            return []
        own = [encoded[at] for encoded in self.rows]
        swept = [sums for sums in self.structure.sweep(own, self.values) if sums is not None]
        sums, starts = self.structure.sums(own), self.layout.start
        found: list[Effects | None] = []
        for place, (row, decision) in enumerate(zip(at.tolist(), decided, strict=True)):
            score = np.empty(len(self.layout.value))
            for column, some in enumerate(swept):
                mine = slice(starts[column], starts[column + 1])
                score[mine] = (some[place] @ decision.weights)[self.layout.value[mine]]
            pairs = self._pairs([encoded[place : place + 1] for encoded in own], decision.weights)
            base = float(sums[place] @ decision.weights)
            found.append(None if pairs is None else Effects(self.moved[row], score, base, *pairs))
        return found

    def _pairs(self, row: list[Encoded], weights: Floats) -> Joint | None:
        """Return classes, sides, counts, table and joint effects of all pairs of a `row` (1, ...)."""
        if not isinstance(self.structure, SupportsPairs):
            return self._none
        found = self.structure.pairs(row).tables(self._tried, self.columns[0], self.columns[1], MOST_PAIRED)
        if found is None:
            return None
        tables = found.tables
        return tables.classes, tables.side, tables.counts, tables.place, tables.added @ weights

    @cached_property
    def _tried(self) -> list[Encoded]:
        """The values of all columns, none of those that never move."""
        none = np.empty(0)
        return [self.structure.encode(at, none) if some is None else some for at, some in enumerate(self.values)]

    @cached_property
    def _none(self) -> Joint:
        """No joint effects: one class of all values, and zeros."""
        pairs = self.columns.shape[1]
        sizes = np.array([len(self._tried[column]) for column in self.columns.T.ravel().tolist()], dtype=np.intp)
        side, ones = np.append(0, sizes.cumsum())[:-1], np.ones(2 * pairs, dtype=np.intp)
        return np.zeros(int(sizes.sum()), dtype=np.int32), side, ones, np.arange(pairs + 1), np.zeros(pairs)


def by_scores(rows: RefusedRows, family: Family, at: Codes, rate: Rate, clock: Clock) -> Table:
    """Return the table of changes of the rows `at` (m,), each candidate scored by itself; others are not looked at.

    Args:
        rows: all rows; family: the changes.
        at: the rows that are scored.
        rate: which of changed rows (k, d) of the rows (k,) may meet the target, and which certainly do.
        clock: when to stop.
    """
    bits = np.zeros((family.size, words(len(rows))), dtype=np.uint64)
    unscored = np.ones(len(rows), dtype=np.bool_)
    doubts = [np.empty((0, 2), dtype=np.int64)]
    size = min(WORD, max(1, refused.TOGETHER // max(family.size, 1)))  # rows at once: one that is begun is finished
    for start in range(0, len(at), size):
        if clock.late:
            break
        some = at[start : start + size]
        may, sure = _rated(rows, family, some, rate)
        for place, row in enumerate(some.tolist()):
            bits[:, row // WORD] |= may[:, place].astype(np.uint64) << np.uint64(row % WORD)
        changes, places = np.nonzero(may & ~sure)
        doubts.append(np.column_stack([changes, some[places]]))
        unscored[some] = False
        clock.count(len(some))
    _ask(rows, family, bits, np.concatenate(doubts)[:MOST_DOUBTS])
    return Table(family, bits, unscored)


def _rated(rows: RefusedRows, family: Family, at: Codes, rate: Rate) -> tuple[Bools, Bools]:
    """Return (c, m) which changes may turn rows `at` (m,) lawfully, and which certainly do."""
    may, sure = np.zeros((2, family.size * len(at)), dtype=np.bool_)
    for start in range(0, len(may), refused.TOGETHER):
        numbers = np.arange(start, min(start + refused.TOGETHER, len(may)))
        whose = at[numbers % len(at)]
        Z = changed_rows(rows, family, numbers // len(at), whose)
        lawful = np.flatnonzero(rows.bound_policy.accepts(Z, rows.X[whose]))
        may[start + lawful], sure[start + lawful] = rate(Z[lawful], whose[lawful])
    return may.reshape(family.size, len(at)), sure.reshape(family.size, len(at))


def asked(rows: RefusedRows) -> Rate:
    """Return what rates changed rows by the logged model."""

    def rate(Z: Floats, at: Codes) -> tuple[Bools, Bools]:
        turned = rows.turned(Z, at)
        return turned, turned

    return rate


def scored(rows: RefusedRows) -> Rate:
    """Return what rates changed rows by the opened model."""
    tolerance = SCORE_TOLERANCES * rows.requirements.judges.tolerance + SWEPT
    scorers = {
        label: rows.requirements.wanted(rows.explained.policy.target, label).scorer for label, _ in rows.labels()
    }

    def rate(Z: Floats, at: Codes) -> tuple[Bools, Bools]:
        may, sure = np.zeros((2, len(Z)), dtype=np.bool_)
        for label, scorer in scorers.items():
            mine = np.flatnonzero(rows.own[at] == label) if label >= 0 else np.arange(len(Z))
            if scorer is not None and len(mine):
                sums = scorer.structure.sums(scorer.encoded(range(Z.shape[1]), Z[mine]))
                may[mine], sure[mine] = scorer.decisions(sums, tolerance)
        return may, sure

    return rate
