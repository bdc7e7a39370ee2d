"""Levels of one column that go with one level of another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.plaf import Compared, Constant, Reference, Statement
from mlflow_cf.suggest.chance import few, log_tail, within_chance
from mlflow_cf.suggest.columns import Column, Sample
from mlflow_cf.suggest.names import quotable
from mlflow_cf.suggest.result import Suggestion

MOST_LEVELS: Final = 50  # of a column
MOST_OF_ALL: Final = 2_000  # levels of all columns together
LONGEST: Final = 100  # characters of a level
FIRST_ROWS: Final = 10_000  # on which all pairs of levels are counted first
FIRST_LOOK: Final = 0.03  # share of exceptions among them
MOST_PAIRS: Final = 2_000  # that are counted on all rows
MOST_SUGGESTED: Final = 100
INFORMATIVE: Final = 0.05  # least share of exceptions that independent columns would have


@dataclass(frozen=True)
class Level:
    """One level: the position of its column, its value, and the code of its rows."""

    column: int
    value: float | str | bool
    code: int


@dataclass(frozen=True)
class Implication:
    """How often one level goes with another; both are positions in the list of levels."""

    when: int
    then: int
    support: int
    exceptions: int


def implications(
    sample: Sample, known: Collection[tuple[int, int]], rng: np.random.Generator, notes: list[str]
) -> Iterator[Suggestion]:
    """Yield rules ``IF a == level THEN b == level``, those without exceptions and with most support first.

    Args:
        sample: the rows.
        known: pairs of columns (by, of) of which other suggestions tell more.
        rng: draws the rows for a first look.
        notes: gets sentences about what was left out.
    """
    levels = _levels(sample.columns, notes)
    pairs = _candidates(sample, levels, known, rng)
    if len(pairs) > MOST_PAIRS:
        notes.append(f"{len(pairs) - MOST_PAIRS:,} pairs of levels that may imply each other were not counted")
    considered = max(len(levels) ** 2, 1)
    found = []
    for when, then in pairs[:MOST_PAIRS]:
        each = _measured(sample.columns, levels, when, then)
        if _holds(each, sample, levels[then], considered):
            found.append(each)
    found.sort(key=lambda each: (each.exceptions > 0, -each.support, each.when, each.then))
    kept = list(_without_contrapositives(found, sample.columns, levels))
    if len(kept) > MOST_SUGGESTED:
        notes.append(f"{len(kept) - MOST_SUGGESTED:,} implications with less support were left out")
    for each in kept[:MOST_SUGGESTED]:
        yield _suggested(each, sample.columns, levels)


def _levels(columns: Sequence[Column], notes: list[str]) -> list[Level]:
    found: list[tuple[int, Level]] = []
    for place, column in enumerate(columns):
        if (column.numeric and not column.binary) or column.distinct > MOST_LEVELS or not quotable(column.name):
            continue
        for code, count in enumerate(column.counts.tolist()):
            value = column.values[np.argmax(column.codes == code)]
            if not np.isnan(value):
                told = column.levels[int(value)] if column.levels else float(value)
                if not isinstance(told, str) or _writable(told):
                    found.append((count, Level(place, told, code)))
    if len(found) > MOST_OF_ALL:
        notes.append(f"implications were looked for among the {MOST_OF_ALL:,} most frequent levels of {len(found):,}")
        found = sorted(found, key=lambda each: -each[0])[:MOST_OF_ALL]
    return sorted((level for _, level in found), key=lambda level: (level.column, level.code))


def _candidates(
    sample: Sample, levels: list[Level], known: Collection[tuple[int, int]], rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return pairs of levels with few exceptions among some rows, those with most rows first."""
    if not levels:
        return []
    rows = np.sort(rng.permutation(sample.rows)[:FIRST_ROWS])
    hot = np.stack([sample.columns[level.column].codes[rows] == level.code for level in levels]).astype(np.float32)
    present = np.stack([~sample.columns[level.column].missing[rows] for level in levels]).astype(np.float32)
    together, about = hot @ hot.T, hot @ present.T
    share = np.array([hot.sum(axis=1) / np.maximum(present.sum(axis=1), 1)])
    fit = (about >= 1) & (about - together <= FIRST_LOOK * about) & (share <= 1 - INFORMATIVE / 2)
    column = np.array([level.column for level in levels])
    fit &= column[:, None] != column[None, :]
    pairs = [(int(w), int(t)) for w, t in np.argwhere(fit) if (int(column[w]), int(column[t])) not in known]
    return sorted(pairs, key=lambda pair: (-together[pair], pair))


def _measured(columns: Sequence[Column], levels: list[Level], when: int, then: int) -> Implication:
    first, second = levels[when], levels[then]
    rows: NDArray[np.bool_] = (columns[first.column].codes == first.code) & ~columns[second.column].missing
    support = int((columns[second.column].codes[rows] == second.code).sum())
    return Implication(when, then, support, int(rows.sum()) - support)


def _holds(each: Implication, sample: Sample, then: Level, considered: int) -> bool:
    column = sample.columns[then.column]
    rate = 1 - float(column.counts[then.code] / (~column.missing).sum())
    rows = each.support + each.exceptions
    if rate < INFORMATIVE or not few(each.exceptions, rows, rate * rows):
        return False
    return not within_chance(log_tail(each.exceptions, rows, rate), considered)


def _without_contrapositives(
    found: list[Implication], columns: Sequence[Column], levels: list[Level]
) -> Iterator[Implication]:
    """Leave out the second of two rules that say the same of two columns with two levels each."""
    told = set()
    for each in found:
        first, second = levels[each.when], levels[each.then]
        if columns[first.column].distinct == columns[second.column].distinct == 2:
            same = (second.column, 1 - second.code, first.column, 1 - first.code)
            if same in told:
                continue
            told.add((first.column, first.code, second.column, second.code))
        yield each


def _suggested(each: Implication, columns: Sequence[Column], levels: list[Level]) -> Suggestion:
    first, second = levels[each.when], levels[each.then]
    a, b = columns[first.column].name, columns[second.column].name
    when = Compared(Reference("x_cf", a), "==", Constant(first.value))
    then = Compared(Reference("x_cf", b), "==", Constant(second.value))
    often = "every row" if not each.exceptions else "nearly every row"
    reason = f"{often} with {a} {_told(first.value)} has {b} {_told(second.value)}"
    rule = str(Statement((when,), then))
    active = not each.exceptions
    return Suggestion("implication", (a, b), {"rules": [rule]}, each.support, each.exceptions, reason, active)


def _told(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _writable(level: str) -> bool:
    """Whether PLAF can quote a level, and somebody read it."""
    return len(level) <= LONGEST and "\n" not in level and not ("'" in level and '"' in level)
