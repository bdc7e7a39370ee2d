"""What the kernels that look for two changes are given, and the arrays that they work in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.portfolio.kernels import BlockRows, Nearest, Setting
from mlflow_cf.structures.kernels.blocks import Sides
from mlflow_cf.structures.kernels.pairs import PairWorkspace
from mlflow_cf.structures.kernels.trees import Trees

Array = NDArray[Any]
NOT_SETTLED, ALONE = -1, -2  # in place of two changes; ALONE: the nearest single change settles the row
LIMIT, BEST, ONE, TWO, NEXT, DOUBT = range(6)  # of `PairRoom.found`
REFUSED, MISSING = range(2)  # of `PairRoom.tally`
FIGURES: Final = 6


class SweptRows(NamedTuple):
    """What trees say of the single changes of rows.

    Attributes:
        X: (m, columns) the rows' comparands, see `Walk`; own: (m, d) their cells among those of all features.
        sums: (m, cells, k) raw scores with one feature changed to each cell; lacks: (m, cells) their shortfalls.
        alone: (m,) how far the nearest single change is that turns the decision; inf: none does; < 0: not known.
    """

    X: Array
    own: Array
    sums: Array
    lacks: Array
    alone: Array


class PairQuestion(NamedTuple):
    """What is asked about a block of rows.

    Attributes:
        setting, rows: what to explain; swept: what is known of single changes.
        trees: the model; weights: (k,) of its raw scores in the decision score.
    """

    setting: Setting
    rows: BlockRows
    swept: SweptRows
    trees: Trees
    weights: Array


class FoundPairs(NamedTuple):
    """What is known of rows.

    Attributes:
        places: (m, 2) the positions of both changes among all values, the second one ALONE where the first suffices;
            NOT_SETTLED, or twice ALONE where the single change that was known before suffices.
        used: (m,) evaluations that tables of pairs count.
        ties: (m,) how many single changes are verified; -1: as many as was known before.
    """

    places: Array
    used: Array
    ties: Array

    @classmethod
    def none(cls, rows: int) -> FoundPairs:
        """Return that nothing is known of so many rows."""
        places, none = np.full((rows, 2), NOT_SETTLED, dtype=np.int64), np.zeros((2, rows), dtype=np.int64)
        return cls(places, none[0], none[1] - 1)


class TriedRoom(NamedTuple):
    """The changes of a row that are tried, feature after feature: t at most, of d features.

    Attributes:
        place, group: (t,) position among all values, and feature; cost, gain: (t,) of each.
        start: (d + 1,) where the changes of a feature start; least: (d,) the cheapest of each.
        sums: (t, k) raw scores; zeros: (t,).
        sorted_gain, sorted_cost, sorted_group: (t,) in the order of gains.
        cells: (t,) of the changes, ascending in every feature; ranks: (t,) where each is among the changes.
        before: number of tried cells before each cell, feature after feature; offset: (d,) where each starts there.
        seen: (cells,) flags.
    """

    place: Array
    group: Array
    cost: Array
    gain: Array
    start: Array
    least: Array
    sums: Array
    zeros: Array
    sorted_gain: Array
    sorted_cost: Array
    sorted_group: Array
    cells: Array
    ranks: Array
    before: Array
    offset: Array
    seen: Array

    @classmethod
    def of(cls, setting: Setting, trees: Trees) -> TriedRoom:
        """Return arrays for all changes."""
        cells = np.diff(trees.features.start)
        values, features = len(setting.packed.values), len(cells)
        numbers, floats = np.empty((3, values), dtype=np.int64), np.empty((4, values))
        return cls(
            place=numbers[0],
            group=numbers[1],
            cost=floats[0],
            gain=floats[1],
            start=np.empty(features + 1, dtype=np.intp),
            least=np.empty(features),
            sums=np.empty((values, len(trees.base))),
            zeros=np.zeros(values),
            sorted_gain=floats[2],
            sorted_cost=floats[3],
            sorted_group=numbers[2],
            cells=np.empty(values, dtype=np.int32),
            ranks=np.empty(values, dtype=np.intp),
            before=np.empty(int((cells + 1).sum()), dtype=np.intp),
            offset=np.append(0, (cells + 1).cumsum())[:-1].astype(np.intp),
            seen=np.zeros(int(cells.sum()), dtype=np.bool_),
        )


class TableRoom(NamedTuple):
    """Tables of p pairs of features at most.

    Attributes:
        both: (p,) what two changes of a pair cost at least; first, second: (p,) its features.
        chosen_first, chosen_second: (p,) those that are looked at together.
        number: (d, d) their number; some: (d,) which are in any.
        classes, side, counts, place, added: see `Tables`; ends: see `find_classes`.
        spans, leaf: see `Rectangles`; workspace: to find these.
        sides: see `Sides`.
    """

    both: Array
    first: Array
    second: Array
    chosen_first: Array
    chosen_second: Array
    number: Array
    some: Array
    classes: Array
    side: Array
    counts: Array
    place: Array
    added: Array
    ends: Array
    spans: Array
    leaf: Array
    workspace: PairWorkspace
    sides: Sides

    @classmethod
    def of(cls, setting: Setting, trees: Trees, rectangles: int, most: int) -> TableRoom:
        """Return arrays with room for so many rectangles, and for tables of `most` numbers."""
        sizes, outputs = np.diff(setting.packed.start), len(trees.base)
        features, largest = len(sizes), int(sizes.max(initial=0))
        pairs, values = features * (features - 1) // 2, (features - 1) * int(sizes.sum())
        chosen = np.empty((4, pairs), dtype=np.intp)
        ends, links = np.empty((2, 2, largest, outputs)), np.empty((3, 2, largest), dtype=np.int32)
        return cls(
            both=np.empty(pairs),
            first=chosen[0],
            second=chosen[1],
            chosen_first=chosen[2],
            chosen_second=chosen[3],
            number=np.empty((features, features), dtype=np.int64),
            some=np.empty(features, dtype=np.bool_),
            classes=np.empty(values, dtype=np.int32),
            side=np.empty(2 * pairs + 1, dtype=np.intp),
            counts=np.empty(2 * pairs, dtype=np.intp),
            place=np.empty(pairs + 1, dtype=np.intp),
            added=np.empty((most // outputs + 1, outputs)),
            ends=np.empty(values + 2 * pairs, dtype=np.int32),
            spans=np.empty((rectangles, 5), dtype=np.int32),
            leaf=np.empty((rectangles, 2), dtype=np.int32),
            workspace=_workspace(features, trees.deepest + 1, largest),
            sides=Sides(*np.empty((3, 2, largest)), *ends, *links),
        )


def _workspace(features: int, levels: int, largest: int) -> PairWorkspace:
    return PairWorkspace(
        way=np.empty((levels, 5), dtype=np.int64),
        trail=np.empty((levels, 7), dtype=np.int64),
        passing=np.empty((features, 3), dtype=np.int64),
        slots=np.empty((levels, 3), dtype=np.int64),
        ends=np.empty((levels, largest + 3), dtype=np.int64),
    )


class PairRoom(NamedTuple):
    """All arrays to work in.

    Attributes:
        tried, tables: for one row; near: a candidate, and the stack of rules.
        order: positions in some order.
        found: (FIGURES,) the limit; the nearest pair, which both are, the nearest but one, the nearest that is in
            doubt.
        tally: (2,) pairs that rules refuse; rectangles that there was no room for.
    """

    tried: TriedRoom
    tables: TableRoom
    near: Nearest
    order: Array
    found: Array
    tally: Array

    @classmethod
    def of(cls, setting: Setting, trees: Trees, rectangles: int, most: int) -> PairRoom:
        """Return arrays with room for so many rectangles, and for tables of `most` numbers."""
        tried, tables = TriedRoom.of(setting, trees), TableRoom.of(setting, trees, rectangles, most)
        steps = len(setting.own_rules.program.does) + len(setting.joint.does)
        near = Nearest.room(len(tables.some), steps)
        order = np.empty(max(len(tried.place), len(tables.both)), dtype=np.int64)
        return cls(tried, tables, near, order, np.empty(FIGURES), np.zeros(2, dtype=np.int64))
