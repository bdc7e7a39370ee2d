"""The common changes that are compared: all moves of all features, and all pairs of them, or a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Final

import numpy as np

from mlflow_cf.evaluation.summary.bits import Words
from mlflow_cf.evaluation.summary.changes import CommonChange, Move
from mlflow_cf.evaluation.summary.lawful import LawfulMoves
from mlflow_cf.features import Feature, Floats
from mlflow_cf.problem import Codes
from mlflow_cf.structures.structure import Structure
from mlflow_cf.words.sentences import counted

MOST_VALUES: Final = 1_024  # of a number, before the constraints are checked: that takes up to a millisecond a move
GRIDS: Final = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2)  # values of a number in one direction, where all are too many


@dataclass(frozen=True, eq=False)
class ListedFamily:
    """Changes that are given one by one.

    Attributes:
        changes: the changes.
        text: what they are, in words.
    """

    changes: tuple[CommonChange, ...]
    text: str

    @property
    def size(self) -> int:
        """How many changes there are."""
        return len(self.changes)

    def change(self, at: int) -> CommonChange:
        """Return one of the changes."""
        return self.changes[at]

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """The moves that the changes are made of."""
        return tuple(dict.fromkeys(chain.from_iterable(self.changes)))

    def moves_of(self, numbers: Codes) -> Codes:
        """Return the two moves (k, 2) of some changes; -1: there is no second one."""
        return self._moves_of[numbers]

    @cached_property
    def _moves_of(self) -> Codes:
        place = {move: at for at, move in enumerate(self.moves)}
        both = [[place[move] for move in change] + [-1] * (2 - len(change)) for change in self.changes]
        return np.array(both, dtype=np.intp).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class WholeFamily:
    """All moves of some features, and all pairs of moves of two of them.

    Changes are numbered: first all moves, then the pairs, one pair of columns after the other, and for each pair all
    moves of its first column times all moves of its second one.

    Attributes:
        lawful: the moves by column, with what the constraints say of them.
        stand_for: how many moves they stand for, those included that turn no row which a nearer one does not turn.
        grid: how many values of one number in one direction there are at most; 0: all.
    """

    lawful: LawfulMoves
    stand_for: int
    grid: int = 0

    @classmethod
    def of(cls, lawful: LawfulMoves, structure: Structure | None, most: int) -> WholeFamily:
        """Return the family of moves that some row may make, on a grid where it would have more than `most` changes.

        Moves that a nearer one of the same feature and direction stands for are left out; see `_needed`.
        """
        kept: list[int] = np.flatnonzero(np.any(lawful.moved & lawful.alone, axis=1)).tolist()
        needed = _needed(lawful, kept, structure) if structure is not None else kept
        whole = cls(_only(lawful, needed), len(kept))
        for grid in GRIDS:
            if whole.size <= most:
                break
            whole = cls(_only(lawful, _thinned(lawful.moves, needed, grid)), len(kept), grid)
        return whole

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves, by column."""
        return self.lawful.moves

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns that move, ascending."""
        return tuple(dict.fromkeys(move.column for move in self.moves))

    @cached_property
    def start(self) -> Codes:
        """(c + 1,) where the moves of each column start."""
        whose = [move.column for move in self.moves]
        return np.searchsorted(whose, [*self.columns, np.iinfo(np.int64).max]).astype(np.intp)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs of columns, by their place among `columns`."""
        return tuple(combinations(range(len(self.columns)), 2))

    @cached_property
    def place(self) -> Codes:
        """(p + 1,) the number of the first change of each pair of columns, and how many changes there are."""
        sizes = np.diff(self.start)
        each = [int(sizes[one] * sizes[two]) for one, two in self.pairs]
        return np.cumsum([len(self.moves), *each])

    @property
    def size(self) -> int:
        """How many changes there are."""
        return int(self.place[-1])

    def change(self, at: int) -> CommonChange:
        """Return one of the changes."""
        one, two = self.moves_of(np.array([at]))[0].tolist()
        return (self.moves[one],) if two < 0 else (self.moves[one], self.moves[two])

    def moves_of(self, numbers: Codes) -> Codes:
        """Return the two moves (k, 2) of some changes; -1: there is no second one."""
        found = np.column_stack([numbers, np.full(len(numbers), -1)])
        some = np.flatnonzero(numbers >= len(self.moves))
        if len(some):
            pair = np.searchsorted(self.place, numbers[some], side="right") - 1
            one, two = np.array(self.pairs, dtype=np.intp)[pair].T
            line, column = np.divmod(numbers[some] - self.place[pair], np.diff(self.start)[two])
            found[some] = np.column_stack([self.start[one] + line, self.start[two] + column])
        return found

    def blocks(self) -> Iterator[tuple[slice, list[int], list[int]]]:
        """Yield per pair of columns the numbers of its changes, and the moves of both columns."""
        for (one, two), begin, end in zip(self.pairs, self.place.tolist()[:-1], self.place.tolist()[1:], strict=True):
            sides = (range(self.start[each], self.start[each + 1]) for each in (one, two))
            first, second = (list(side) for side in sides)
            yield slice(begin, end), first, second

    @property
    def text(self) -> str:
        """What the changes are, in words."""
        features, moves = counted(len(self.columns), "feature"), counted(self.stand_for, "move")
        if self.grid:
            values = f"on a grid of {self.grid} values a number and direction, {len(self.moves):,} of {moves} in all"
        elif len(self.moves) < self.stand_for:
            values = f"{moves} in all, of which {len(self.moves):,} turn all rows that the others turn"
        else:
            values = f"{moves} in all"
        if has_many(self.lawful):
            values += f"; numbers of more than {MOST_VALUES:,} values: ends of what the model tells apart, or so many"
        return (
            f"all {self.size:,} changes of one or two of {features}, to a level or up or down to a number that may "
            f"be proposed ({values})"
        )


Family = ListedFamily | WholeFamily


def moves_to(feature: Feature, column: int, values: Floats, *, unranked: bool) -> list[Move]:
    """Return the moves of a feature to values (t,), ascending, the nearest first in each direction.

    Args:
        feature: of the `column`.
        values: the values that may be proposed.
        unranked: whether some row has none that can be compared.
    """
    if not feature.has_order:
        return [Move(column, 0, code) for code in values.tolist()]
    up = [Move(column, 1, code) for code in values.tolist()]
    down = [Move(column, -1, code) for code in values.tolist()[::-1]]
    level = [Move(column, 0, code) for code in values.tolist()] if unranked and not feature.numeric else []
    return [*up, *down, *level]


def every_move(lawful: LawfulMoves, structure: Structure | None = None) -> tuple[Move, ...]:
    """Return all moves to values of the domains, by column; of a number with very many values to some of them.

    These are the first and the last value of every interval that the model does not tell apart, if that makes few
    enough; else they are evenly spread.
    """
    found: dict[int, list[Move]] = {}
    for domain in lawful.bound_policy.domains:
        for part, column in enumerate(domain.columns):
            values, feature = np.unique(domain.actions[:, part]), lawful.space.features[column]
            values, own = _few(values[~np.isnan(values)], column, structure), lawful.X[:, column]
            unranked = not (own < feature.unknown_from).all()
            found[column] = moves_to(feature, column, values, unranked=unranked)
    return tuple(move for column in sorted(found) for move in found[column])


def _few(values: Floats, column: int, structure: Structure | None) -> Floats:
    """Return at most `MOST_VALUES` of values (t,), ascending."""
    if len(values) <= MOST_VALUES:
        return values
    if structure is not None:
        encoded = structure.encode(column, values)
        differs = np.any((encoded[1:] != encoded[:-1]).reshape(len(values) - 1, -1), axis=1)
        ends = np.flatnonzero(np.concatenate([[True], differs]) | np.concatenate([differs, [True]]))
        values = values[ends]
    spread = np.linspace(0, len(values) - 1, min(MOST_VALUES, len(values))).round().astype(np.intp)
    return np.asarray(values[np.unique(spread)])


def has_many(lawful: LawfulMoves) -> bool:
    """Return whether some number has more values than moves go to."""
    return any(
        len(np.unique(part)) > MOST_VALUES for domain in lawful.bound_policy.domains for part in domain.actions.T
    )


def _only(lawful: LawfulMoves, kept: Sequence[int]) -> LawfulMoves:
    """Return some of the moves."""
    return replace(lawful, moves=tuple(lawful.moves[at] for at in kept))


def _needed(lawful: LawfulMoves, kept: Sequence[int], structure: Structure) -> list[int]:
    """Return the moves but those that a nearer one stands for.

    It goes in the same direction to a value that the model does not tell from the farther one. Then every row that
    the farther one turns is turned by the nearer one, too, alone and with any other move, if the constraints on this
    feature hold for no other rows, and no constraint compares it with others.
    """
    found: list[int] = []
    encoded = {
        column: structure.encode(column, np.array([lawful.moves[at].code for at in kept]))
        for column in {lawful.moves[at].column for at in kept} - lawful.linking
    }
    nearer: dict[tuple[int, int, bytes], list[int]] = {}
    for place, at in enumerate(kept):
        move = lawful.moves[at]
        if not move.direction or move.column in lawful.linking:
            found.append(at)
            continue
        key = (move.column, move.direction, encoded[move.column][place].tobytes())
        held, others = lawful.alone[at], nearer.setdefault(key, [])
        if not any(_within(held, lawful.alone[other]) for other in others):
            others.append(at)
            found.append(at)
    return found


def _within(one: Words, other: Words) -> bool:
    return not (one & ~other).any()


def _thinned(moves: Sequence[Move], kept: Sequence[int], most: int) -> list[int]:
    """Return of the moves of a number in one direction at most so many, evenly spread; all moves to levels."""
    found: list[int] = []
    lines: dict[tuple[int, int], list[int]] = {}
    for at in kept:
        lines.setdefault((moves[at].column, moves[at].direction), []).append(at)
    for (_, direction), some in lines.items():
        if not direction or len(some) <= most:
            found.extend(some)
        else:
            spread = np.linspace(0, len(some) - 1, most).round().astype(int)
            found.extend(some[place] for place in np.unique(spread).tolist())
    return sorted(found)
