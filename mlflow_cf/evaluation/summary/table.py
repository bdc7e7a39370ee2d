"""The table that a summary is chosen from: which row each common change turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES, SWEPT
from mlflow_cf.evaluation.summary import refused
from mlflow_cf.evaluation.summary.bits import WORD, Words, words
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.evaluation.summary.effects import RowEffects, tells_pairs
from mlflow_cf.evaluation.summary.family import Family, WholeFamily
from mlflow_cf.evaluation.summary.marking import Marks, mark_row
from mlflow_cf.evaluation.summary.refused import RefusedRows
from mlflow_cf.features import Floats
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.problem import Codes
from mlflow_cf.request.admission import MOST_PLACES
from mlflow_cf.structures.structure import Structure

MOST_DOUBTS: Final = 500_000  # rows of changes so near to the threshold that the model is asked, a few seconds
Rate = Callable[[Floats, Codes], tuple[Bools, Bools]]


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


def decided_by_one(rows: RefusedRows) -> Structure | None:
    """Return the opened model whose changes can be tabulated fast: one number decides, and pairs are known."""
    structure = rows.requirements.structure
    if structure is None or not tells_pairs(structure, rows.bound_policy.background):
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
    unscored, doubts = rows.unread.copy(), [np.empty((0, 2), dtype=np.int64)]
    marking = Marking(rows.unread, RowEffects.of(rows, family, structure), _decisions(rows), clock)
    marked = rows.explained.admission.shared(marking.word, range(bits.shape[1]), MOST_PLACES, placed=False)
    for word, found in enumerate(marked):
        if found is None:
            unscored[word * WORD :] = True
            break
        bits[:, word] = found.turned
        doubts.append(found.doubts)
        unscored[found.unscored] = True
        clock.count(min(WORD, len(rows) - word * WORD))
    keep_lawful(family, bits)
    _ask(rows, family, bits, np.concatenate(doubts)[:MOST_DOUBTS])
    return Table(family, bits, unscored)


class Word(NamedTuple):
    """Which changes turn 64 rows.

    Attributes:
        turned: (c,) the rows that each change turns, each a bit.
        doubts: (m, 2) the changes and rows of which the model must be asked.
        unscored: rows of which nothing is known.
    """

    turned: Words
    doubts: Codes
    unscored: list[int]


@dataclass(frozen=True, eq=False)
class Marking:
    """Marks what changes turn rows, 64 at a time; threads may share it.

    Attributes:
        unread: (n,) rows that the structure cannot read.
        effects: of all changes.
        decided: the number that decides about each row (n,).
        clock: when to stop.
    """

    unread: Bools
    effects: RowEffects
    decided: Sequence[DecisionScore]
    clock: Clock

    def word(self, number: int) -> Word | None:
        """Return which changes turn the rows of a word; None if it is too late."""
        if self.clock.late:
            return None
        layout = self.effects.layout
        marks = Marks(np.zeros(int(layout.place[-1]), dtype=np.uint64), np.empty((MOST_DOUBTS, 2), dtype=np.int64))
        rows = np.arange(number * WORD, min((number + 1) * WORD, len(self.unread)))
        mine, known, unscored = rows[~self.unread[rows]], 0, list[int]()
        decided = [self.decided[row] for row in mine.tolist()]
        for row, found in zip(mine.tolist(), self.effects.of_rows(mine, decided), strict=False):
            if found is None:
                unscored.append(row)
            else:
                known = mark_row(layout, found, _ends(self.decided[row]), row, marks, known)
        return Word(marks.words, marks.doubts[:known].copy(), unscored)


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
        try:
            turned = rows.turned(Z, part[:, 1])
        except UnavailableError:  # what is not known may turn
            return
        for change, row in part[~turned].tolist():
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
        try:
            may, sure = _rated(rows, family, some, rate)
        except UnavailableError:  # rows that were not reached count as turned in the bound, as when it is late
            break
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
