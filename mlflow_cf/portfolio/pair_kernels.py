"""The nearest two changes of each row of a block, where one change does not suffice or is not known to be nearer.

Everything is looked at that the search of a single row looks at (`engine.few_changes`, `engine.two_changes`), in tables
of the same sizes, so that it counts as many evaluations. A row is settled where one pair certainly turns the decision
and nothing else may that is as near; else it is left to that search.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.programs import keeps
from mlflow_cf.engine.few_changes import Changes, find_nearest_two
from mlflow_cf.engine.thresholds import FARTHER, MOST_FOUND, PAIRS_PER_ROW, VALUES_AT_ONCE
from mlflow_cf.kernel import inner, kernel
from mlflow_cf.portfolio.kernels import cost_at, is_lawful, is_ranked, sort_by
from mlflow_cf.portfolio.pair_room import (
    ALONE,
    BEST,
    DOUBT,
    LIMIT,
    MISSING,
    NEXT,
    NOT_SETTLED,
    ONE,
    REFUSED,
    TWO,
    FoundPairs,
    PairQuestion,
    PairRoom,
    TriedRoom,
)
from mlflow_cf.rounding import loosened
from mlflow_cf.structures.kernels.blocks import (
    SingleEffects,
    Tables,
    Threshold,
    add_rectangles,
    any_reaches,
    decision_of,
    find_classes,
    sum_up,
)
from mlflow_cf.structures.kernels.pairs import FeaturePairs, Rectangles, TriedCells, find_rectangles

Array = NDArray[Any]
APART: Final = 1e-9  # relative: distances that differ by more are told apart by every search


@inner
def _drop_beaten(cell: Array, own: Any, middle: Any, span: Any, tried: TriedRoom) -> Any:
    """Of the changes of a number to one cell, keep the nearest on either side; return where they stop now."""
    (begin, stop), place, before = span, tried.place, own
    kept = begin
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
def _drop_repeated(cell: Array, own: Any, span: Any, tried: TriedRoom) -> Any:
    """Of the changes of a level to one cell, keep the first; return where they stop now."""
    (begin, stop), place, seen = span, tried.place, tried.seen
    kept = begin
    for at in range(begin, stop):
        seen[cell[place[at]]] = False
    seen[own] = True
    for at in range(begin, stop):
        here = cell[place[at]]
        if not seen[here]:
            seen[here] = True
            place[kept] = place[at]
            kept += 1
    return kept


@inner
def _list_feature(question: PairQuestion, row: Any, group: Any, begin: Any, room: PairRoom) -> Any:
    """List the lawful changes of a feature that the trees tell apart; return where they stop, < 0: it is not known."""
    setting, rows, tried = question.setting, question.rows, room.tried
    packed, x0, own = setting.packed, rows.X[row], question.swept.own[row, group]
    mine, at, middle = x0[packed.column[group]], begin, begin
    ranked = is_ranked(packed, group, mine)
    if not ranked and packed.scaled.scale[group] != 0:
        return NOT_SETTLED
    for place in range(packed.start[group], packed.start[group + 1]):
        if packed.values[place] != mine and is_lawful(setting, x0, room.near, group, place):
            tried.place[at] = place
            at += 1
            middle += packed.values[place] < mine
    if at - begin > 1 and not setting.linked[group]:  # two values at least: see `distinct_actions`
        if ranked:
            at = _drop_beaten(setting.cell, own, middle, (begin, at), tried)
        else:
            at = _drop_repeated(setting.cell, own, (begin, at), tried)
    for each in range(begin, at):
        tried.group[each], tried.cost[each] = group, cost_at(setting, rows, row, group, tried.place[each])
        tried.least[group] = min(tried.least[group], tried.cost[each])
    return at


@inner
def list_changes(question: PairQuestion, row: Any, room: PairRoom) -> Any:
    """List the changes of a row, with their costs; return how many, < 0: they are not known."""
    setting, tried, at = question.setting, room.tried, 0
    for column in range(question.rows.X.shape[1]):
        room.near.candidate[column] = question.rows.X[row, column]
    for group in range(setting.packed.column.size):
        tried.start[group], tried.least[group] = at, np.inf
        if not setting.frozen[group]:
            at = _list_feature(question, row, group, at, room)
            if at < 0:
                return at
    tried.start[setting.packed.column.size] = at
    return at


@inner
def base_cell(question: PairQuestion, row: Any, tried: TriedRoom) -> Any:
    """Return a cell that has the row's own raw scores in the sweep: the same as `TwoChanges.base`."""
    most, largest = -1, 0
    for group in range(tried.least.size):
        if tried.start[group + 1] - tried.start[group] > most:
            most, largest = tried.start[group + 1] - tried.start[group], group
    return question.swept.own[row, largest]


@inner
def _expected(question: PairQuestion, row: Any, need: Any, count: Any, room: PairRoom) -> Any:
    """Return how far the nearest two changes are if their effects add up; see `FewChanges.expected`."""
    tried = room.tried
    for at in range(count):
        lack = question.swept.lacks[row, question.setting.cell[tried.place[at]]]
        tried.gain[at] = need - lack if np.isfinite(lack) else -np.inf
    sort_by(room.order, tried.gain, count)
    for at in range(count):
        here = room.order[at]
        tried.sorted_gain[at], tried.sorted_cost[at] = tried.gain[here], tried.cost[here]
        tried.sorted_group[at] = tried.group[here]
    gain, cost, group = tried.sorted_gain[:count], tried.sorted_cost[:count], tried.sorted_group[:count]
    room.found[0] = np.inf
    find_nearest_two(Changes(gain, cost, tried.zeros[:count], group), need, 0.0, room.found)
    return room.found[0]


@inner
def try_within(question: PairQuestion, row: Any, limit: Any, least: Any, tried: TriedRoom) -> None:
    """Keep the changes that are within a limit beside the cheapest one of another feature (`least`: the first two)."""
    kept, groups, cell = 0, tried.least.size, question.setting.cell
    for group in range(groups):
        begin, stop = tried.start[group], tried.start[group + 1]
        tried.start[group] = kept
        other = least[1] if tried.least[group] == least[0] else least[0]
        tried.least[group] = np.inf
        for at in range(begin, stop):
            if tried.cost[at] + other <= limit:
                tried.place[kept], tried.group[kept], tried.cost[kept] = tried.place[at], group, tried.cost[at]
                tried.least[group] = min(tried.least[group], tried.cost[at])
                for k in range(tried.sums.shape[1]):
                    tried.sums[kept, k] = question.swept.sums[row, cell[tried.place[at]], k]
                kept += 1
    tried.start[groups] = kept


@inner
def order_cells(question: PairQuestion, tried: TriedRoom) -> None:
    """Write the cells of the tried changes in ascending order, and how many come before each cell."""
    first = question.trees.features.start
    for group in range(tried.least.size):
        begin, stop, base = tried.start[group], tried.start[group + 1], first[group]
        for at in range(begin, stop):
            cell, here = question.setting.cell[tried.place[at]] - base, at
            while here > begin and tried.cells[here - 1] > cell:
                tried.cells[here], tried.ranks[here] = tried.cells[here - 1], tried.ranks[here - 1]
                here -= 1
            tried.cells[here], tried.ranks[here] = cell, at
        at = begin
        for cell in range(first[group + 1] - base + 1):
            while at < stop and tried.cells[at] < cell:
                at += 1
            tried.before[tried.offset[group] + cell] = at - begin


@inner
def pair_up(limit: Any, near: Any, room: PairRoom) -> Any:
    """List the pairs of features that may have two changes within a limit, the nearest first in `room.order`.

    Returns:
        How many there are, how many of these may have some as `near` as that, and how many values both features have.
    """
    tried, tables, count, first, values = room.tried, room.tables, 0, 0, 0
    for one in range(tried.least.size):
        for two in range(one + 1, tried.least.size):
            both = tried.least[one] + tried.least[two]
            if both <= limit and both < np.inf:
                tables.first[count], tables.second[count], tables.both[count] = one, two, both
                values += tried.start[one + 1] - tried.start[one] + tried.start[two + 1] - tried.start[two]
                first += both <= near
                count += 1
    sort_by(room.order, tables.both, count)
    return count, first, values


@inner
def lay_out(span: Any, room: PairRoom) -> Any:
    """Choose the pairs of a batch that may have two changes within the limit, and lay out tables; return how many."""
    tables, start, count = room.tables, room.tried.start, 0
    tables.number[:, :], tables.some[:] = -1, False
    tables.side[0], tables.place[0] = 0, 0
    for at in range(span[0], span[1]):
        pair = room.order[at]
        if tables.both[pair] <= room.found[LIMIT]:
            one, two, side = tables.first[pair], tables.second[pair], tables.side
            tables.chosen_first[count], tables.chosen_second[count], tables.number[one, two] = one, two, count
            tables.some[one], tables.some[two] = True, True
            side[2 * count + 1] = side[2 * count] + start[one + 1] - start[one]
            side[2 * count + 2] = side[2 * count + 1] + start[two + 1] - start[two]
            count += 1
    tables.ends[: tables.side[2 * count] + 2 * count] = 0
    return count


@inner
def keeps_rules(question: PairQuestion, row: Any, one: Any, two: Any, room: PairRoom) -> Any:
    """Whether the rules over several features allow two changes."""
    setting, x0, tried, candidate = question.setting, question.rows.X[row], room.tried, room.near.candidate
    first, second = setting.packed.column[tried.group[one]], setting.packed.column[tried.group[two]]
    candidate[first] = setting.packed.values[tried.place[one]]
    candidate[second] = setting.packed.values[tried.place[two]]
    kept = keeps(setting.joint, 0, setting.joint.rule.size - 1, candidate, x0, room.near.stack)
    candidate[first], candidate[second] = x0[first], x0[second]
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
def _look_at_values(question: PairQuestion, row: Any, columns: Any, lists: Any, room: PairRoom) -> None:
    """Look at the pairs of values of two features, in `lists` from two values on; their joint effect is one number."""
    tried, follows, found, (x, y, more) = room.tried, room.tables.sides.next, room.found, lists
    threshold = Threshold(question.weights, question.rows.may[row])
    while x >= 0:
        here, other = tried.start[columns[0]] + x, y
        score = decision_of(threshold, tried.sums[here]) + more
        while other >= 0:
            there = tried.start[columns[1]] + other
            far, whole = tried.cost[here] + tried.cost[there], score + decision_of(threshold, tried.sums[there])
            if far <= found[LIMIT] and whole >= threshold.least:
                if keeps_rules(question, row, here, there, room):
                    _note(whole >= question.rows.sure[row], far, here, there, found)
                else:
                    room.tally[REFUSED] += 1
            other = np.int64(follows[1, other])
        x = np.int64(follows[0, x])


@inner
def _look_into(question: PairQuestion, row: Any, tables: Tables, base: Array, room: PairRoom) -> None:
    """Look at all pairs of values in tables that may be within the limit and turn the decision."""
    found, sides, tried = room.found, room.tables.sides, room.tried
    threshold, size = Threshold(question.weights, question.rows.may[row]), tried.start[tried.least.size]
    own = decision_of(threshold, base)
    for pair in range(tables.first.size):
        one, two, columns = tables.first[pair], tables.second[pair], tables.counts[2 * pair + 1]
        if tried.least[one] + tried.least[two] > found[LIMIT]:
            continue
        alone = SingleEffects(tried.sums[:size], base, tried.cost[:size], tried.zeros[:size], 0.0, found[LIMIT])
        sum_up(tables, pair, alone, threshold, sides)
        for a in range(tables.counts[2 * pair]):
            at = tables.place[pair] + a * columns
            added, least = tables.added[at : at + columns], sides.score[0, a] - own
            if not any_reaches(added, least, sides.score[1], threshold):  # -inf where no value is within the limit
                continue
            for b in range(columns):
                more = decision_of(threshold, added[b])
                near = sides.cost[0, a] + sides.cost[1, b] <= found[LIMIT]
                if near and least + sides.score[1, b] + more >= threshold.least:
                    lists = (np.int64(sides.first[0, a]), np.int64(sides.first[1, b]), more - own)
                    _look_at_values(question, row, (one, two), lists, room)


@inner
def fill_tables(question: PairQuestion, row: Any, count: Any, most: Any, room: PairRoom) -> Any:
    """Fill the tables that are laid out; return them, and how many numbers they have, < 0: too many for the room."""
    tables, tried, outputs = room.tables, room.tried, question.swept.sums.shape[2]
    size, values = tried.start[tried.least.size], tables.side[2 * count]
    cells = TriedCells(tried.cells[:size], tried.start, tried.before, tried.offset)
    asked = FeaturePairs(cells, tables.workspace.ends.shape[1] - 3, tables.number, tables.some)
    every = Rectangles(tables.spans, tables.leaf)
    rectangles = find_rectangles(question.swept.X[row], question.trees, asked, tables.workspace, every)
    first, second, place = tables.chosen_first[:count], tables.chosen_second[:count], tables.place[: count + 1]
    classes, side, counts = tables.classes[:values], tables.side[: 2 * count], tables.counts[: 2 * count]
    known = Tables(first, second, tried.start, classes, side, counts, place, tables.added[:0])
    if rectangles > len(tables.leaf):
        room.tally[MISSING] = rectangles
        return NOT_SETTLED, known
    found, ends = Rectangles(tables.spans[:rectangles], tables.leaf[:rectangles]), tables.ends[: values + 2 * count]
    find_classes(found, cells, tried.ranks[:size], ends, known)
    total = place[count]
    if total * outputs > most:
        return NOT_SETTLED, known
    added = tables.added[:total]
    added[:, :] = 0.0
    filled = Tables(first, second, tried.start, classes, side, counts, place, added)
    add_rectangles(found, question.trees.nodes.value, ends, filled)
    return total * outputs, filled


@inner
def _look_at_batch(question: PairQuestion, which: Any, most: Any, base: Array, room: PairRoom) -> Any:
    """Look at a row's pairs of features from one to another; return how many numbers tables have, < 0: too many."""
    row, begin, stop = which
    count = lay_out((begin, stop), room)
    if count == 0:
        return 0
    total, filled = fill_tables(question, row, count, most, room)
    if total >= 0:
        _look_into(question, row, filled, base, room)
    return total


@inner
def least_three(tried: TriedRoom) -> Any:
    """Return what the three cheapest changes of different features cost, ascending."""
    one, two, three = np.inf, np.inf, np.inf
    for group in range(tried.least.size):
        cost = tried.least[group]
        if cost < one:
            one, two, three = cost, one, two
        elif cost < two:
            two, three = cost, two
        elif cost < three:
            three = cost
    return one, two, three


@inner
def suits(question: PairQuestion, row: Any, at: Any, room: PairRoom) -> Any:
    """Whether the rules over several features allow a single change of those listed."""
    setting, x0, tried, candidate = question.setting, question.rows.X[row], room.tried, room.near.candidate
    column = setting.packed.column[tried.group[at]]
    candidate[column] = setting.packed.values[tried.place[at]]
    kept = keeps(setting.joint, 0, setting.joint.rule.size - 1, candidate, x0, room.near.stack)
    candidate[column] = x0[column]
    return kept


@inner
def _list_alone(question: PairQuestion, row: Any, count: Any, room: PairRoom) -> Any:
    """List the single changes that may turn the decision, nearest first in `room.order`; return how many."""
    tried, cell, listed = room.tried, question.setting.cell, 0
    threshold = Threshold(question.weights, question.rows.may[row])
    for at in range(count):
        score = decision_of(threshold, question.swept.sums[row, cell[tried.place[at]]])
        if score >= threshold.least:
            tried.gain[listed], tried.sorted_gain[listed], tried.sorted_group[listed] = tried.cost[at], score, at
            listed += 1
    sort_by(room.order, tried.gain, listed)
    return listed


@inner
def _look_alone(question: PairQuestion, row: Any, listed: Any, limit: Any, room: PairRoom) -> Any:
    """Return how many single changes the search verifies, and the nearest; see `FewChanges.nearest_singles`.

    < 0: some may not turn the decision, or are as near as the nearest.
    """
    tried, order, stop, at_once, best = room.tried, room.order, 0, 1, -1
    while listed > 0 and tried.gain[order[listed - 1]] > limit:
        listed -= 1
    while stop < listed and best < 0:
        far, at_once = loosened(tried.gain[order[min(stop + at_once, listed) - 1]]), 2 * at_once
        while stop < listed and tried.gain[order[stop]] <= far:
            here, at = order[stop], tried.sorted_group[order[stop]]
            if suits(question, row, at, room):
                if best >= 0 or tried.sorted_gain[here] < question.rows.sure[row]:
                    return -1, -1
                best, far = at, min(far, loosened(tried.cost[at]))
            stop += 1
    return np.int64(best >= 0), best


@inner
def _settle(question: PairQuestion, row: Any, most: Any, room: PairRoom, out: FoundPairs) -> None:
    """Write the nearest one or two changes of a row, if they settle it."""
    alone, tried, count = question.swept.alone[row], room.tried, list_changes(question, row, room)
    one, two, three = least_three(tried)
    if count < 2 or not np.isfinite(two):
        return
    single, ties, both = ALONE, -1, one + two
    if alone < 0:  # within what two changes cost at least, and then, if there is none, of all
        listed, ties = _list_alone(question, row, count, room), 0
        for limit in (both, np.inf):
            if ties == 0:
                ties, single = _look_alone(question, row, listed, limit, room)
        if ties < 0:
            return
        alone = tried.cost[single] if ties > 0 else np.inf
        single = tried.place[single] if ties > 0 else ALONE
        if alone < both * (1.0 - APART):
            out.places[row, 0], out.places[row, 1], out.ties[row] = single, ALONE, ties
    if alone > both * (1.0 + APART):
        _settle_by_two(question, (row, most, alone, single, ties), (one, two, three, count), room, out)


@inner
def _settle_by_two(question: PairQuestion, asked: Any, known: Any, room: PairRoom, out: FoundPairs) -> None:
    """Write the nearest two changes of a row, or a single one that is nearer, if they settle it."""
    (row, most, alone, single, ties), (one, two, three, count) = asked, known
    found, tried, cell = room.found, room.tried, base_cell(question, row, room.tried)
    base, need = question.swept.sums[row, cell], question.swept.lacks[row, cell]
    expected = _expected(question, row, need, count, room) if 0.0 < need < np.inf else 0.0
    if expected <= 0.0:
        return
    limit = loosened(alone)
    try_within(question, row, limit, (one, two), tried)
    order_cells(question, tried)
    pairs, first, values = pair_up(limit, expected * FARTHER, room)
    if values > VALUES_AT_ONCE:
        return
    found[:] = np.inf
    found[LIMIT], used = limit, 1
    for part in range(2):
        begin, stop = first * part, first if part == 0 else pairs
        if begin < stop:
            size = _look_at_batch(question, (row, begin, stop), most, base, room)
            doubtful = found[DOUBT] < np.inf and found[DOUBT] <= found[LIMIT]
            if size < 0 or doubtful or room.tally[REFUSED] > MOST_FOUND // 2:
                return
            if size > 0:
                used += 1 + size // PAIRS_PER_ROW
                most -= size
    if min(found[BEST], alone) < (one + two + three) * (1.0 - APART):
        _conclude((row, alone, single, ties, used), room, out)


@inner
def _conclude(asked: Any, room: PairRoom, out: FoundPairs) -> None:
    """Write what was found if nothing else is as near: another pair, or the single change."""
    (row, alone, single, ties, used), found, place = asked, room.found, room.tried.place
    best = found[BEST]
    if best < np.inf:
        if min(found[NEXT], alone) > best * (1.0 + APART):
            out.places[row, 0], out.places[row, 1] = place[int(found[ONE])], place[int(found[TWO])]
            out.used[row], out.ties[row] = used, ties
    elif alone < np.inf:
        out.places[row, 0], out.places[row, 1] = single, ALONE
        out.used[row], out.ties[row] = used, ties


@kernel
def nearest_pairs(question: PairQuestion, most: int, begin: int, room: PairRoom, out: FoundPairs) -> int:
    """Settle rows from one on; return how many are done: before one that there was no room for, see `PairRoom.tally`.

    Args:
        question: the rows, and what is known of them.
        most: numbers in the tables of a row.
        begin: the first row.
        room: to work in; out: where results are written.
    """
    for row in range(begin, len(question.rows.X)):
        out.places[row, 0], out.places[row, 1] = NOT_SETTLED, NOT_SETTLED
        room.tally[:] = 0
        _settle(question, row, most, room, out)
        if room.tally[MISSING] > 0:
            return row
    return len(question.rows.X)
