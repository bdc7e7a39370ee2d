"""What the kernels that look for several answers are given, and the arrays that they work in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.larger_sets import LargerSets
from mlflow_cf.engine.thresholds import MOST_FOUND, MOST_SETS
from mlflow_cf.portfolio.kernels import Setting
from mlflow_cf.portfolio.pair_room import LIMIT, PairRoom
from mlflow_cf.structures.kernels.trees import Trees
from mlflow_cf.structures.kernels.triple_grid import FoundTriples, Grid, TripleRoom

Array = NDArray[Any]
FIRST, SECOND, IN_DOUBT = range(3)  # of `SetNotes.alone`
CERTAIN, LAWFUL, DOUBTFUL, MISSES = range(4)  # of `SeenPairs.kind`
MOST_SEEN: Final = MOST_FOUND // 2  # pairs of one row that are kept: the search of single rows sees a few more


class MostPairs(NamedTuple):
    """How many pairs of changes of one row are looked at.

    Attributes:
        numbers: of the tables made at a time.
        first: pairs that are looked at before others.
    """

    numbers: int
    first: int


class FoundSets(NamedTuple):
    """What is known of m rows.

    Attributes:
        places: (m, v, 3) the nearest candidates of distinct changed sets, nearest first: the positions of one to three
            changes among all values; -1: there is none.
        many: (m,) how many candidates there are; 0: the row is not settled.
        scored: (m,) candidates that count as evaluations; paired, tripled: (m,) what tables of pairs count, and grids
            of three changes.
    """

    places: Array
    many: Array
    scored: Array
    paired: Array
    tripled: Array

    @classmethod
    def none(cls, rows: int, most: int) -> FoundSets:
        """Return that nothing is known of so many rows, of at most so many candidates each."""
        numbers = np.zeros((4, rows), dtype=np.int64)
        return cls(np.full((rows, most, 3), -1, dtype=np.int64), *numbers)


class SeenPairs(NamedTuple):
    """Pairs of changes that may be answers.

    Attributes:
        one, two: (s,) their changes among the tried ones; far: (s,) how far they are.
        kind: (s,) CERTAIN: both changes are needed; LAWFUL: it may be that one suffices, but rules refuse that one
            alone; DOUBTFUL: scores are too near to the target's threshold; MISSES: the structure says that the target
            is missed, by less than it may be off, or that one change is enough.
        total: (1,) how many there are; more than fit if there was no room for some.
    """

    one: Array
    two: Array
    far: Array
    kind: Array
    total: Array


class SetNotes(NamedTuple):
    """What is known of the changed sets of one row of d features, of which k are wanted.

    Attributes:
        place, group: (t,) the position of every change among all values, and its feature.
        limit: its first number is how far answers are at most.
        nearest: (d, d) how far the nearest certain candidate of every two features is; of one: twice the same.
        top_far, top_set: (k,) the least of these, ascending, and which each is of.
        far, one, two: (d, d) the nearest candidate of every changed set, and its places.
        alone: (d, 3) the costs of the nearest two single changes of a feature that may suffice, and of the nearest one
            that is in doubt; with units, of the nearest two that certainly suffice.
        seen: pairs that may be answers.
        three: (s, 3) the places of the nearest candidates of sets of three features, which are numbered from d * d on.
        key, which, order: (d * d + s,) to put changed sets in order, and t changes.
        larger: to list sets of more features.
    """

    place: Array
    group: Array
    limit: Array
    nearest: Array
    top_far: Array
    top_set: Array
    far: Array
    one: Array
    two: Array
    alone: Array
    seen: SeenPairs
    three: Array
    key: Array
    which: Array
    order: Array
    larger: LargerSets

    @classmethod
    def of(cls, changes: tuple[Array, Array], limit: Array, d: int, count: int) -> SetNotes:
        """Return notes of changes at some places, of some features, of which there are d; `count` sets are wanted."""
        numbers, seen = np.empty((2, d, d), dtype=np.int64), np.empty((3, MOST_SEEN), dtype=np.int64)
        return cls(
            place=changes[0],
            group=changes[1],
            limit=limit,
            nearest=np.empty((d, d)),
            top_far=np.empty(count),
            top_set=np.empty(count, dtype=np.int64),
            far=np.empty((d, d)),
            one=numbers[0],
            two=numbers[1],
            alone=np.empty((d, 3)),
            seen=SeenPairs(seen[0], seen[1], np.empty(MOST_SEEN), seen[2], np.zeros(1, dtype=np.int64)),
            three=np.empty((MOST_SETS, 3), dtype=np.int64),
            key=np.empty(d * d + MOST_SETS),
            which=np.empty(d * d + MOST_SETS, dtype=np.int64),
            order=np.empty(max(d * d + MOST_SETS, len(changes[0])), dtype=np.int64),
            larger=LargerSets.room(d),
        )


class TripleSets(NamedTuple):
    """What is known of three changes of one row of d features.

    Attributes:
        looked_at: (1,) whether they are; dearest: (1,) what the dearest change of the row costs.
        features: (s, 3) sets of features, the cheapest first; total: (s,) what their changes cost at least.
        far: (s,) how far the nearest candidate of each is; its places are in `SetNotes.three`.
        grid: the cells that changes lead to; place: (t + d,) the position of each among all values, of the row's own
            cells -1; group: (t + d,) its feature.
        room: to look at three features; found: candidates.
    """

    looked_at: Array
    dearest: Array
    features: Array
    total: Array
    far: Array
    grid: Grid
    place: Array
    group: Array
    room: TripleRoom
    found: FoundTriples

    @classmethod
    def of(cls, setting: Setting, trees: Trees, count: int) -> TripleSets:
        """Return arrays for all changes, where rules and limits are of a kind that kernels know."""
        sizes, cells = np.diff(setting.packed.start), np.diff(trees.features.start)
        d, values = len(sizes), len(setting.packed.values) + len(sizes)
        cell, place, group = np.empty((3, values), dtype=np.int64)
        start, (own, offset) = np.empty(d + 1, dtype=np.int64), np.empty((2, d), dtype=np.int64)
        offset[:] = np.append(0, (cells + 1).cumsum())[:-1]
        before, none = np.empty(int((cells + 1).sum()), dtype=np.int64), np.empty(0, dtype=np.int32)
        ascending, (cost, peak) = np.empty(d, dtype=np.bool_), np.zeros((2, values))
        grid = Grid(start, cell, cost, peak, own, np.empty(d), ascending, before, offset, none)
        return cls(
            looked_at=np.array([not setting.linked.any()]),
            dearest=np.empty(1),
            features=np.empty((MOST_SETS, 3), dtype=np.int64),
            total=np.empty(MOST_SETS),
            far=np.empty(MOST_SETS),
            grid=grid,
            place=place,
            group=group,
            room=TripleRoom.of(trees, int(sizes.max(initial=0)) + 1),
            found=FoundTriples.room(np.empty(count)),
        )


class SetRoom(NamedTuple):
    """All arrays to work in, for d features and t values.

    Attributes:
        pair: those for pairs of changes; three: those for three changes; notes: of changed sets.
        least: (d,) what a change of every feature costs at least.
        beside: (t,) what each change costs beside the least one of another feature; counts: (d,).
    """

    pair: PairRoom
    three: TripleSets
    notes: SetNotes
    least: Array
    beside: Array
    counts: Array

    @classmethod
    def of(cls, setting: Setting, trees: Trees, rectangles: int, most: int, count: int) -> SetRoom:
        """Return arrays for `count` answers, with room for so many rectangles, and for tables of `most` numbers."""
        pair = PairRoom.of(setting, trees, rectangles, most)
        d, values = len(pair.tables.some), len(pair.tried.place)
        notes = SetNotes.of((pair.tried.place, pair.tried.group), pair.found[LIMIT:], d, count)
        three = TripleSets.of(setting, trees, count)
        return cls(pair, three, notes, np.empty(d), np.empty(values), np.empty(d, dtype=np.int64))
