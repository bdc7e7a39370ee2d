"""What enough of several models of trees may accept, the nearest candidates first; see the kernels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.agreement import ALL, AWAIT, REFUSERS, SOME, begin_agreed, list_agreed
from mlflow_cf.structures.kernels.agreement_state import (
    BEYOND,
    BOUNDS,
    KNOWN,
    LISTED,
    OPEN,
    ROWS,
    Agreeing,
    AgreementRoom,
    RowValues,
)
from mlflow_cf.structures.kernels.agreement_values import GridValues, write_values
from mlflow_cf.structures.kernels.leaf_masks import LeafMasks, LeafRanges, note_ranges
from mlflow_cf.structures.kernels.triple_grid import GridChanges
from mlflow_cf.structures.model_leaves import ModelLeaves

Codes = NDArray[np.intp]
DEEPEST: Final = 8  # features of a set
FOUND: Final = 512  # candidates that are listed at once
BOXES: Final = 2**19  # that wait to be looked at: 45 MB; searches of 0.1 s have some thousand
SETS: Final = 2**19  # of features: 25 MB; searches of 0.1 s have some thousand
KNOWN_SETS: Final = 256  # without one feature of which a candidate may be accepted already
HELD: Final = 2**20  # words of sets, 8 MB


@dataclass(frozen=True, eq=False)
class AllLeaves:
    """The leaves of all models.

    Attributes:
        masks, ranges: as in the kernels.
        rooms: workspace that nobody works in; new pages of memory for each row take as long as half of a search.
    """

    masks: LeafMasks
    ranges: LeafRanges
    rooms: deque[AgreementRoom] = field(default_factory=deque)

    @classmethod
    def of(cls, leaves: Sequence[ModelLeaves]) -> AllLeaves:
        """Return the leaves of several structures over the same features."""
        parts = [part.masks for part in leaves]
        words = np.cumsum([0, *(part.first[-1] for part in parts)]).tolist()
        sizes = np.cumsum([0, *(len(part.accepts) for part in parts)]).tolist()
        moved = zip(parts, words, sizes, strict=False)
        first, tree, where = zip(
            *((part.first[:-1] + at, part.tree + at, part.where + begin) for part, at, begin in moved), strict=True
        )
        starts = np.append(np.concatenate(first), words[-1])
        every = np.full(3 * sizes[-1] + int(np.diff(starts).max()), ~np.uint64(0))
        np.concatenate([part.accepts for part in parts], out=every[: sizes[-1]])
        masks = LeafMasks(
            first=starts,
            tree=np.concatenate(tree),
            several=np.concatenate([part.several for part in parts]),
            value=np.concatenate([part.value for part in parts]),
            base=np.concatenate([part.base for part in parts]),
            off=np.concatenate([part.off for part in parts]),
            kinds=np.concatenate([part.kinds for part in parts]),
            where=np.concatenate(where),
            accepts=every[: sizes[-1]],
        )
        ranges = LeafRanges(every, np.empty(masks.kinds.shape, dtype=np.int64))
        note_ranges(masks, ranges)
        return cls(masks, ranges)

    def __reduce__(self) -> tuple[type[AllLeaves], tuple[LeafMasks, LeafRanges]]:
        """Other processes have rooms of their own."""
        return AllLeaves, (self.masks, self.ranges)

    @contextmanager
    def room(self) -> Iterator[AgreementRoom]:
        """Give workspace that nobody else works in."""
        try:
            room = self.rooms.pop()
        except IndexError:
            room = _room(self.masks)
        try:
            yield room
        finally:
            self.rooms.append(room)


class Listed(NamedTuple):
    """Candidates that enough of several models may accept, the nearest ones first.

    Attributes:
        at: (n, d) places of the values that features take, among those of the grid.
        sure: (n,) whether enough models certainly accept them; sets: (n,) which sets of features they change.
        bounds: how many bounds of models were made for them.
        ended: whether no more are to come; whole: whether none is missing then.
        low: how far those are at least that are not listed.
    """

    at: Codes
    sure: NDArray[np.bool_]
    sets: Codes
    bounds: int
    ended: bool
    whole: bool
    low: float


class Asked(NamedTuple):
    """What is asked.

    Attributes:
        may, sure: (models,) from which score on each may accept, and certainly does.
        models: (groups,) how many models there are of every group, one after the other; spare: (groups,) how many of
            them may refuse.
        c: weight of the largest peak in a distance.
        changes: how many features may change at most.
        undo: (d,) features; candidates that are certainly accepted without their change of one of these, too, are left
            out. Empty where all candidates are wanted.
    """

    may: Floats
    sure: Floats
    models: Codes
    spare: Codes
    c: float
    changes: int
    undo: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)

    def room(self, kept: AgreementRoom) -> AgreementRoom:
        """Return workspace with what is asked of each model."""
        groups, group = len(self.models), np.repeat(np.arange(len(self.models)), self.models)
        counts = np.empty((2, groups), dtype=np.int64)
        kept.may[:], kept.sure[:] = self.may, self.sure
        return kept._replace(group=group, spare=self.spare, against=counts[0], unsure=counts[1], undo=self.undo)


class Agreement:
    """Several models about candidates of one row."""

    def __init__(self, leaves: AllLeaves, kind: NDArray[np.int32], start: Codes, changes: GridChanges) -> None:
        """Set up for a row.

        Args:
            leaves: of the models.
            kind: (models, n) which values of a feature each cannot tell apart, of all in the grid.
            start: (d + 1,) the first value of each feature there.
            changes: what values cost, and which are the row's own.
        """
        self._leaves, self._own, self._start = leaves, changes.own, start[:-1]
        grid = GridValues(kind, kind.sum(axis=0, dtype=np.float64), changes.cost, changes.peak, start, changes.own)
        row, self._places = values_room(len(kind), len(start) - 1, len(changes.cost))
        count = write_values(grid, leaves.ranges.spanned, row, self._places, np.empty(kind.shape[1], dtype=np.intp))
        self._row = row._replace(cheapest=row.cheapest[:count], least=row.least[:count])

    @contextmanager
    def asking(self, asked: Asked) -> Iterator[Listing]:
        """Give a list of the candidates that enough models may accept."""
        with self._leaves.room() as kept:
            of = Agreeing(
                self._row._replace(c=np.array([asked.c])), self._leaves.masks, self._leaves.ranges, asked.room(kept)
            )
            begin_agreed(of, asked.changes, AWAIT)
            yield Listing(of, self._own, self._places, self._start)


@dataclass(frozen=True, eq=False)
class Listing:
    """A list of the candidates of a row that enough models may accept, the nearest ones first.

    Attributes:
        of: the row, the models and how far the list has come.
        own: (d,) the places of the row's own values in the grid; places: (n,) of all others, feature after feature, as
            the kernels know them; start: (d,) the first place of each feature.
    """

    of: Agreeing
    own: Codes
    places: Codes
    start: Codes

    def next(self, limit: float, wanted: int, most: int) -> Listed:
        """Return the next candidates.

        Args:
            limit: how far they are at most.
            wanted: how many at least, where so many are left.
            most: bounds, at most.
        """
        room, found = self.of.room, np.empty((FOUND, DEEPEST + 2), dtype=np.int64)
        room.tally[BOUNDS] = 0
        state = list_agreed(self.of, limit, wanted, most, found)
        found = found[: room.tally[LISTED]]
        values, sure, sets = found[:, :DEEPEST], found[:, DEEPEST] > 0, found[:, DEEPEST + 1]
        at = np.repeat(self.own[None], len(values), axis=0)
        line, level = np.nonzero(values >= 0)
        places = self.places[values[line, level]]
        at[line, np.searchsorted(self.start, places, side="right") - 1] = places
        low = min(room.near[BEYOND], room.keys[0] if room.tally[OPEN] else np.inf)
        return Listed(at, sure, sets, int(room.tally[BOUNDS]), state != SOME, state == ALL, float(low))

    def close(self, sets: Codes) -> None:
        """List no more candidates that change some sets of features."""
        self.of.room.closed[sets] = 1

    def know(self, sets: Codes) -> None:
        """Note sets of each of which a candidate is certainly accepted: one change more may be needless."""
        room, count = self.of.room, self.of.room.tally[KNOWN]
        new = np.setdiff1d(sets, room.known[:count])[: len(room.known) - count]
        room.known[count : count + len(new)] = new
        room.tally[KNOWN] += len(new)


def values_room(models: int, columns: int, values: int) -> tuple[RowValues, Codes]:
    """Return arrays for the values of a row, and for their places in its grid of so many."""
    others = values - columns
    row = RowValues(
        kind=np.empty((models, others), dtype=np.int32),
        own=np.empty((models, columns), dtype=np.int32),
        cost=np.empty(others),
        peak=np.empty(others),
        begin=np.empty(columns + 1, dtype=np.intp),
        middle=np.empty(columns, dtype=np.intp),
        ranged=np.empty((models, columns), dtype=np.bool_),
        listed=np.empty(columns, dtype=np.bool_),
        cheapest=np.empty(columns, dtype=np.intp),
        least=np.empty(columns),
        c=np.zeros(1),
    )
    return row, np.empty(others, dtype=np.intp)


def _room(masks: LeafMasks) -> AgreementRoom:
    """Return workspace for one row after the other; who asks brings what there is of each group of models."""
    models, words, widest = len(masks.base), int(masks.first[-1]), int(np.diff(masks.first).max())
    slots = max(HELD // words, 1)
    numbers = partial(np.empty, dtype=np.int32)
    return AgreementRoom(
        may=np.empty(models),
        sure=np.empty(models),
        group=np.zeros(0, dtype=np.int64),
        spare=np.zeros(0, dtype=np.int64),
        against=np.zeros(0, dtype=np.int64),
        unsure=np.zeros(0, dtype=np.int64),
        asked=np.arange(models),
        fixed=np.empty((slots, words), dtype=np.uint64),
        held=numbers((slots, models)),
        common=np.empty(widest, dtype=np.uint64),
        some=np.empty(widest, dtype=np.uint64),
        rows=np.empty(2 * DEEPEST + ROWS, dtype=np.int64),
        sets=numbers((SETS, DEEPEST)),
        sizes=numbers(SETS),
        refusers=numbers((SETS, REFUSERS)),
        closed=np.empty(SETS, dtype=np.uint8),
        undo=np.empty(0, dtype=np.bool_),
        known=np.empty(KNOWN_SETS, dtype=np.int64),
        of=numbers(BOXES),
        closest=numbers(BOXES),
        low=numbers((BOXES, DEEPEST)),
        high=numbers((BOXES, DEEPEST)),
        keys=np.empty(BOXES),
        numbers=np.empty(BOXES, dtype=np.int64),
        unused=np.empty(BOXES, dtype=np.int64),
        feature=np.empty(DEEPEST, dtype=np.int64),
        first=np.empty(DEEPEST, dtype=np.int64),
        last=np.empty(DEEPEST, dtype=np.int64),
        near=np.empty(4),
        tally=np.zeros(14, dtype=np.int64),
    )
