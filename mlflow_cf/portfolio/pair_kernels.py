"""The nearest two changes of each row of a block, where one change does not suffice or is not known to be nearer.

Everything is looked at that the search of a single row looks at (`engine.few_changes`, `engine.two_changes`), in tables
of the same sizes, so that it counts as many evaluations. A row is settled where one pair certainly turns the decision
and nothing else may that is as near; else it is left to that search.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.programs import keeps
from mlflow_cf.engine.few_changes import Changes, find_nearest_two
from mlflow_cf.engine.thresholds import FARTHER, MOST_FOUND, PAIRS_PER_ROW, ROUNDING, VALUES_AT_ONCE
from mlflow_cf.kernel import inner, kernel
from mlflow_cf.portfolio.kernels import BlockRows, Nearest, Setting, cost_at, is_lawful, is_ranked, loosened
from mlflow_cf.structures.kernels.blocks import (
    Sides,
    SingleEffects,
    Tables,
    Threshold,
    add_rectangles,
    any_reaches,
    decision_of,
    find_classes,
    sum_up,
)
from mlflow_cf.structures.kernels.pairs import FeaturePairs, PairWorkspace, Rectangles, TriedCells, find_rectangles
from mlflow_cf.structures.kernels.trees import Trees

Array = NDArray[Any]
APART: Final = 1e-9  # relative: distances that differ by more are told apart by every search
LEFT, ALONE = -1, -2  # in place of two changes: the row is not settled; its single change is the nearest


class SweptRows(NamedTuple):
    """What trees say of the single changes of rows.

    Attributes:
        X: (m, columns) the rows' comparands, see `Walk`; own: (m, d) their cells among those of all features.
        sums: (m, cells, k) raw scores with one feature changed to each cell; lacks: (m, cells) their shortfalls.
        alone: (m,) how far the nearest single change is that turns the decision; inf: none does.
    """

    X: Array
    own: Array
    sums: Array
    lacks: Array
    alone: Array


class FoundPairs(NamedTuple):
    """What is known of rows.

    Attributes:
        places: (m, 2) the positions of both changes among all values; LEFT, or ALONE.
        used: (m,) evaluations that tables of pairs count.
    """

    places: Array
    used: Array


class PairRoom(NamedTuple):
    """Arrays to work in, for t values of d features in p pairs.

    Attributes:
        place, group: (t,) position and feature of every change that is tried; cost, gain: (t,) of each.
        start: (d + 1,) where the changes of a feature start; least: (d,) the cheapest of each.
        sums: (t, k) raw scores; zeros: (t,).
        order: (t or p,) positions in some order; sorted_gain, sorted_cost, sorted_group: (t,) in that of gains.
        cells: (t,) of the changes, ascending in every feature; ranks: (t,) where each is among the changes.
        before: number of tried cells before each cell, feature after feature; offset: (d,) where each starts there.
        seen: (cells,) flags.
        both: (p,) what two changes of a pair of features cost at least; first, second: (p,) its features.
        chosen_first, chosen_second: (p,) those that are looked at together.
        number: (d, d) their number; some: (d,) which are in any.
        classes, side, counts, place_of, added, ends: see `Tables` and `find_classes`.
        spans, leaf: see `Rectangles`; pairs: to find these.
        sides: see `Sides`.
        found: (6,) the limit; the nearest pair, its places, the nearest but one, and the nearest that is in doubt.
        tally: (2,) changes that no rule allows; rectangles that there was no room for.
    """

    place: Array
    group: Array
    cost: Array
    gain: Array
    start: Array
    least: Array
    sums: Array
    zeros: Array
    order: Array
    sorted_gain: Array
    sorted_cost: Array
    sorted_group: Array
    cells: Array
    ranks: Array
    before: Array
    offset: Array
    seen: Array
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
    place_of: Array
    added: Array
    ends: Array
    spans: Array
    leaf: Array
    pairs: PairWorkspace
    sides: Sides
    found: Array
    tally: Array


LIMIT, BEST, ONE, TWO, NEXT, DOUBT = range(6)  # of `found`
REFUSED, MISSING = range(2)  # of `tally`


@inner
def _sift(order: Array, key: Array, at: Any, count: Any) -> None:
    """Let a position sink in a heap whose largest key is on top."""
    held = order[at]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and key[order[child + 1]] > key[order[child]]:
            child += 1
        if key[order[child]] <= key[held]:
            break
        order[at] = order[child]
        at = child
    order[at] = held


@inner
def _sort(order: Array, key: Array, count: Any) -> None:
    """Write positions (count,) in ascending order of their keys."""
    for at in range(count):
        order[at] = at
    for at in range(count // 2 - 1, -1, -1):
        _sift(order, key, at, count)
    for last in range(count - 1, 0, -1):
        order[0], order[last] = order[last], order[0]
        _sift(order, key, 0, last)


@inner
def _drop_beaten(setting: Setting, own: Any, middle: Any, begin: Any, stop: Any, room: PairRoom) -> Any:
    """Of the changes of a number to one cell, keep the nearest on either side; return where they stop now."""
    cell, place, kept, before = setting.cell, room.place, begin, own
    for at in range(begin, stop):
        here = cell[place[at]]
        if at < middle:
            beaten = here == (cell[place[at + 1]] if at + 1 < middle else own)
        else:
            beaten, before = here == before, here
        if not beaten:
            place[kept] = place[at]
            kept += 1
    return kept


@inner
def _drop_repeated(setting: Setting, own: Any, begin: Any, stop: Any, room: PairRoom) -> Any:
    """Of the changes of a level to one cell, keep the first; return where they stop now."""
    cell, place, kept = setting.cell, room.place, begin
    for at in range(begin, stop):
        room.seen[cell[place[at]]] = False
    room.seen[own] = True
    for at in range(begin, stop):
        here = cell[place[at]]
        if not room.seen[here]:
            room.seen[here] = True
            place[kept] = place[at]
            kept += 1
    room.seen[own] = False
    return kept


@inner
def _list_changes(setting: Setting, rows: BlockRows, row: Any, own: Array, near: Nearest, room: PairRoom) -> Any:
    """List the lawful changes of a row that the trees tell apart, with their costs; return how many, LEFT: unknown."""
    packed, x0, at = setting.packed, rows.X[row], 0
    for group in range(packed.column.size):
        room.start[group], room.least[group] = at, np.inf
        if setting.frozen[group]:
            continue
        mine, begin, middle = x0[packed.column[group]], at, at
        ranked = is_ranked(packed, group, mine)
        if not ranked and packed.scaled.scale[group] != 0:
            return LEFT
        for place in range(packed.start[group], packed.start[group + 1]):
            if packed.values[place] != mine and is_lawful(setting, x0, near, group, place):
                room.place[at] = place
                at += 1
                middle += np.int64(packed.values[place] < mine)
        if at - begin > 1 and not setting.linked[group]:
            if ranked:
                at = _drop_beaten(setting, own[group], middle, begin, at, room)
            else:
                at = _drop_repeated(setting, own[group], begin, at, room)
        for each in range(begin, at):
            room.group[each], room.cost[each] = group, cost_at(setting, rows, row, group, room.place[each])
            room.least[group] = min(room.least[group], room.cost[each])
    room.start[packed.column.size] = at
    return at


@inner
def _largest(setting: Setting, room: PairRoom) -> Any:
    """Return the first feature with the most changes; see `TwoChanges.base`."""
    most, largest = -1, 0
    for group in range(setting.packed.column.size):
        if room.start[group + 1] - room.start[group] > most:
            most, largest = room.start[group + 1] - room.start[group], group
    return largest


@inner
def _expected(setting: Setting, lacks: Array, need: Any, count: Any, room: PairRoom) -> Any:
    """Return how far the nearest two changes are if their effects add up; see `FewChanges.expected`."""
    for at in range(count):
        lack = lacks[setting.cell[room.place[at]]]
        room.gain[at] = need - lack if np.isfinite(lack) else -np.inf
    _sort(room.order, room.gain, count)
    for at in range(count):
        here = room.order[at]
        room.sorted_gain[at], room.sorted_cost[at] = room.gain[here], room.cost[here]
        room.sorted_group[at] = room.group[here]
    changes = Changes(room.sorted_gain[:count], room.sorted_cost[:count], room.zeros[:count], room.sorted_group[:count])
    room.found[0] = np.inf
    find_nearest_two(changes, need, 0.0, room.found)
    return room.found[0]


@inner
def _try_within(setting: Setting, limit: Any, least: Any, sums: Array, room: PairRoom) -> None:
    """Keep the changes that are within a limit beside the cheapest one of another feature (`least`: the first two)."""
    kept, groups = 0, setting.packed.column.size
    for group in range(groups):
        begin, stop = room.start[group], room.start[group + 1]
        room.start[group] = kept
        other = least[1] if room.least[group] == least[0] else least[0]
        room.least[group] = np.inf
        for at in range(begin, stop):
            if room.cost[at] + other <= limit:
                room.place[kept], room.group[kept], room.cost[kept] = room.place[at], group, room.cost[at]
                room.least[group] = min(room.least[group], room.cost[at])
                for k in range(sums.shape[1]):
                    room.sums[kept, k] = sums[setting.cell[room.place[at]], k]
                kept += 1
        if group + 1 == groups:
            room.start[groups] = kept


@inner
def _order_cells(setting: Setting, first_cell: Array, room: PairRoom) -> None:
    """Write the cells of the tried changes in ascending order, and how many come before each cell."""
    for group in range(setting.packed.column.size):
        begin, stop, base = room.start[group], room.start[group + 1], first_cell[group]
        for at in range(begin, stop):
            cell, here = setting.cell[room.place[at]] - base, at
            while here > begin and room.cells[here - 1] > cell:
                room.cells[here], room.ranks[here] = room.cells[here - 1], room.ranks[here - 1]
                here -= 1
            room.cells[here], room.ranks[here] = cell, at
        at = begin
        for cell in range(first_cell[group + 1] - base + 1):
            while at < stop and room.cells[at] < cell:
                at += 1
            room.before[room.offset[group] + cell] = at - begin


@inner
def _pair_up(limit: Any, groups: Any, room: PairRoom) -> Any:
    """List the pairs of features that may have two changes within a limit; return how many."""
    count = 0
    for one in range(groups):
        for two in range(one + 1, groups):
            both = room.least[one] + room.least[two]
            if both <= limit and both < np.inf:
                room.first[count], room.second[count], room.both[count] = one, two, both
                count += 1
    return count


@inner
def _lay_out(begin: Any, stop: Any, room: PairRoom) -> Any:
    """Choose the pairs of a batch that may have two changes within the limit, and lay out tables; return how many."""
    room.number[:, :], room.some[:] = -1, False
    count = 0
    for at in range(begin, stop):
        pair = room.order[at]
        if room.both[pair] <= room.found[LIMIT]:
            one, two = room.first[pair], room.second[pair]
            room.chosen_first[count], room.chosen_second[count], room.number[one, two] = one, two, count
            room.some[one], room.some[two] = True, True
            count += 1
    room.side[0] = 0
    for at in range(count):
        one, two = room.chosen_first[at], room.chosen_second[at]
        room.side[2 * at + 1] = room.side[2 * at] + room.start[one + 1] - room.start[one]
        room.side[2 * at + 2] = room.side[2 * at + 1] + room.start[two + 1] - room.start[two]
    room.ends[: room.side[2 * count] + 2 * count] = 0
    room.place_of[0] = 0
    return count


@inner
def _consider(setting: Setting, rows: BlockRows, row: Any, one: Any, two: Any, near: Nearest, room: PairRoom) -> Any:
    """Whether the rules over several features allow two changes."""
    x0, column = rows.X[row], setting.packed.column
    for at in (one, two):
        near.candidate[column[room.group[at]]] = setting.packed.values[room.place[at]]
    kept = keeps(setting.joint, 0, setting.joint.rule.size - 1, near.candidate, x0, near.stack)
    for at in (one, two):
        near.candidate[column[room.group[at]]] = x0[column[room.group[at]]]
    return kept


@inner
def _note(sure: Any, far: Any, one: Any, two: Any, found: Array) -> None:
    """Note a lawful pair of changes that may turn the decision; what certainly does lowers the limit."""
    if not sure:
        found[DOUBT] = min(found[DOUBT], far)
    elif far < found[BEST]:
        found[NEXT], found[BEST], found[ONE], found[TWO] = found[BEST], far, one, two
        found[LIMIT] = min(found[LIMIT], loosened(far))
    else:
        found[NEXT] = min(found[NEXT], far)


@inner
def _look_into(
    setting: Setting, rows: BlockRows, row: Any, tables: Tables, base: Array, weights: Array, near: Nearest,
    room: PairRoom,
) -> None:  # fmt: skip
    """Look at all pairs of values in tables that may be within the limit and turn the decision."""
    found, sides, cost, sums = room.found, room.sides, room.cost, room.sums
    threshold, size = Threshold(weights, rows.may[row]), room.start[room.start.size - 1]
    own = decision_of(threshold, base)
    for pair in range(tables.first.size):
        one, two = tables.first[pair], tables.second[pair]
        if room.least[one] + room.least[two] > found[LIMIT]:
            continue
        alone = SingleEffects(sums[:size], base, cost[:size], room.zeros[:size], 0.0, found[LIMIT])
        sum_up(tables, pair, alone, threshold, sides)
        columns = tables.counts[2 * pair + 1]
        for a in range(tables.counts[2 * pair]):
            at = tables.place[pair] + a * columns
            added, least = tables.added[at : at + columns], sides.score[0, a] - own
            if not sides.size[0, a] or not any_reaches(added, least, sides.score[1], threshold):
                continue
            for b in range(columns):
                more = decision_of(threshold, added[b])
                if sides.cost[0, a] + sides.cost[1, b] > found[LIMIT]:
                    continue
                if not sides.size[1, b] or least + sides.score[1, b] + more < threshold.least:
                    continue
                x = np.int64(sides.first[0, a])
                while x >= 0:
                    here = room.start[one] + x
                    score, y = decision_of(threshold, sums[here]) + more - own, np.int64(sides.first[1, b])
                    while y >= 0:
                        there = room.start[two] + y
                        far, whole = cost[here] + cost[there], score + decision_of(threshold, sums[there])
                        if far <= found[LIMIT] and whole >= threshold.least:
                            if _consider(setting, rows, row, here, there, near, room):
                                _note(whole >= rows.sure[row], far, here, there, found)
                            else:
                                room.tally[REFUSED] += 1
                        y = np.int64(sides.next[1, y])
                    x = np.int64(sides.next[0, x])


@inner
def _look_at_batch(
    setting: Setting, rows: BlockRows, row: Any, swept: SweptRows, trees: Trees, most: Any, span: Any, base: Array,
    weights: Array, near: Nearest, room: PairRoom,
) -> Any:  # fmt: skip
    """Look at the pairs of features from one to another; return how many numbers their tables have, LEFT: too many."""
    count = _lay_out(span[0], span[1], room)
    if count == 0:
        return 0
    size, values = room.start[room.start.size - 1], room.side[2 * count]
    tried = TriedCells(room.cells[:size], room.start, room.before, room.offset)
    asked = FeaturePairs(tried, room.pairs.ends.shape[1] - 3, room.number, room.some)
    rectangles = find_rectangles(swept.X[row], trees, asked, room.pairs, Rectangles(room.spans, room.leaf))
    if rectangles > len(room.leaf):
        room.tally[MISSING] = rectangles
        return LEFT
    found = Rectangles(room.spans[:rectangles], room.leaf[:rectangles])
    empty = Tables(
        room.chosen_first[:count], room.chosen_second[:count], room.start, room.classes[:values],
        room.side[: 2 * count], room.counts[: 2 * count], room.place_of[: count + 1], room.added[:0],
    )  # fmt: skip
    find_classes(found, tried, room.ranks[:size], room.ends[: values + 2 * count], empty)
    total = room.place_of[count]
    if total * len(base) > most:
        return LEFT
    room.added[:total] = 0.0
    tables = Tables(
        empty.first, empty.second, empty.start, empty.classes, empty.side, empty.counts, empty.place,
        room.added[:total],
    )  # fmt: skip
    add_rectangles(found, trees.nodes.value, room.ends[: values + 2 * count], tables)
    _look_into(setting, rows, row, tables, base, weights, near, room)
    return total * len(base)


@inner
def _least_three(room: PairRoom, groups: Any) -> Any:
    """Return what the three cheapest changes of different features cost, ascending."""
    one, two, three = np.inf, np.inf, np.inf
    for group in range(groups):
        cost = room.least[group]
        if cost < one:
            one, two, three = cost, one, two
        elif cost < two:
            two, three = cost, two
        elif cost < three:
            three = cost
    return one, two, three


@inner
def _settle(
    setting: Setting, rows: BlockRows, row: Any, swept: SweptRows, trees: Trees, most: Any, weights: Array,
    near: Nearest, room: PairRoom, out: FoundPairs,
) -> None:  # fmt: skip
    """Write the nearest two changes of a row, if they settle it."""
    groups, own, alone, found = setting.packed.column.size, swept.own[row], swept.alone[row], room.found
    count = _list_changes(setting, rows, row, own, near, room)
    one, two, three = _least_three(room, groups)
    if count < 2 or not np.isfinite(two) or not alone > (one + two) * (1.0 + APART):
        return
    largest = _largest(setting, room)
    base, need = swept.sums[row, own[largest]], swept.lacks[row, own[largest]]
    if not 0.0 < need < np.inf:
        return
    expected = _expected(setting, swept.lacks[row], need, count, room)
    if expected <= 0.0:
        return
    limit = loosened(alone)
    _try_within(setting, limit, (one, two), swept.sums[row], room)
    _order_cells(setting, trees.features.start, room)
    pairs, first, values = _pair_up(limit, groups, room), 0, 0
    _sort(room.order, room.both, pairs)
    for at in range(pairs):
        values += room.start[room.first[at] + 1] - room.start[room.first[at]]
        values += room.start[room.second[at] + 1] - room.start[room.second[at]]
        first += np.int64(room.both[at] <= expected * FARTHER)
    found[:] = np.inf
    found[LIMIT], room.tally[:], used = limit, 0, 1
    for part in range(2):
        begin, stop = first * part, first if part == 0 else pairs
        if begin < stop and values <= VALUES_AT_ONCE:
            size = _look_at_batch(
                setting, rows, row, swept, trees, most, (begin, stop), base, weights, near, room
            )  # fmt: skip
            if size < 0 or found[DOUBT] <= found[LIMIT] or room.tally[REFUSED] > MOST_FOUND // 2:
                return
            if size > 0:
                used += 1 + size // PAIRS_PER_ROW
                most -= size
    _conclude((alone, (one + two) + three), row, used, room, out)
    if values > VALUES_AT_ONCE:
        out.places[row, 0] = LEFT


@inner
def _conclude(known: Any, row: Any, used: Any, room: PairRoom, out: FoundPairs) -> None:
    """Write what was found if nothing else is as near: neither the single change nor three others."""
    (alone, three), found = known, room.found
    best = found[BEST]
    if not min(best, alone) < three * (1.0 - APART):
        return
    if best < np.inf:
        if not found[NEXT] > best * (1.0 + APART) or not alone > best * (1.0 + APART):
            return
        out.places[row, 0], out.places[row, 1] = room.place[int(found[ONE])], room.place[int(found[TWO])]
        out.used[row] = used
    elif alone < np.inf:
        out.places[row, 0], out.places[row, 1] = ALONE, ALONE
        out.used[row] = used


@kernel
def nearest_pairs(
    setting: Setting, rows: BlockRows, swept: SweptRows, trees: Trees, most: int, weights: Array, begin: int,
    near: Nearest, room: PairRoom, out: FoundPairs,
) -> int:  # fmt: skip
    """Settle rows from one on; return how many are done: before one that there was no room for, see `PairRoom.tally`.

    Args:
        setting, rows: what to explain; swept: what is known of single changes.
        trees: the model; weights: (k,) of its raw scores in the decision score.
        most: numbers in the tables of a row.
        begin: the first row.
        near, room: to work in; out: where results are written.
    """
    for row in range(begin, len(rows.X)):
        for column in range(rows.X.shape[1]):
            near.candidate[column] = rows.X[row, column]
        out.places[row, 0], out.places[row, 1], room.tally[MISSING] = LEFT, LEFT, 0
        _settle(setting, rows, row, swept, trees, most, weights, near, room, out)
        if room.tally[MISSING] > 0:
            return row
    return len(rows.X)
