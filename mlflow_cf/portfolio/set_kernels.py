"""The nearest candidates of distinct changed sets of each row of a block, where sets of up to three changes suffice.

What is looked at, and what counts as an evaluation, is the same as in the search of a single row
(`explainers.geco.sweeps`, `engine.first_of_sets`). A row is settled where as many sets as answers are wanted are nearer
than any larger ones, and every candidate that is as near certainly turns the decision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.thresholds import PAIRS_PER_ROW, VALUES_AT_ONCE
from mlflow_cf.kernel import inner, kernel
from mlflow_cf.portfolio.kernels import sort_by, stays_lawful
from mlflow_cf.portfolio.pair_kernels import (
    base_cell,
    fill_tables,
    keeps_rules,
    lay_out,
    least_three,
    list_changes,
    order_cells,
    pair_up,
    suits,
    try_within,
)
from mlflow_cf.portfolio.pair_room import LIMIT, MISSING, NOT_SETTLED, PairQuestion
from mlflow_cf.portfolio.set_notes import (
    begin,
    choose_pairs,
    farthest_of,
    limit_of,
    none_larger,
    note_alone,
    order_sets,
    see,
    singles_known,
    write_sets,
)
from mlflow_cf.portfolio.set_room import CERTAIN, DOUBTFUL, LAWFUL, FoundSets, MostPairs, SetRoom
from mlflow_cf.portfolio.triple_sets import add_triples
from mlflow_cf.structures.kernels.blocks import SingleEffects, Tables, Threshold, any_reaches, decision_of, sum_up

Array = NDArray[Any]


@inner
def _drop_enough(question: PairQuestion, row: Any, noting: Any, room: SetRoom) -> None:
    """Of the changes listed, keep those beside which another one may be needed; note what suffices alone if wanted."""
    tried, cell, threshold = room.pair.tried, question.setting.cell, Threshold(question.weights, question.rows.may[row])
    kept = 0
    for group in range(tried.least.size):
        begin, stop = tried.start[group], tried.start[group + 1]
        tried.start[group] = kept
        for at in range(begin, stop):
            score = decision_of(threshold, question.swept.sums[row, cell[tried.place[at]]])
            sure = score >= question.rows.sure[row]
            if score >= threshold.least and suits(question, row, at, room.pair):
                if noting:
                    note_alone(group, tried.place[at], tried.cost[at], sure, room.notes)
                if sure:
                    continue
            tried.place[kept], tried.group[kept], tried.cost[kept] = tried.place[at], group, tried.cost[at]
            kept += 1
    tried.start[tried.least.size] = kept


@inner
def _pairs_within(limit: Any, room: SetRoom) -> Any:
    """Return how many pairs of the changes kept there are within a limit."""
    tried, counts, count = room.pair.tried, room.counts, room.pair.tried.start[room.counts.size]
    counts[:] = 0
    for at in range(count):
        counts[tried.group[at]] += room.beside[at] <= limit
    total, squares = 0, 0
    for group in range(counts.size):
        total, squares = total + counts[group], squares + counts[group] * counts[group]
    return (total * total - squares) // 2


@inner
def _first_limit(limit: Any, least: Any, few: Any, room: SetRoom) -> Any:
    """Return the largest distance, at most `limit`, within which pairs are `few`; see `FewChanges._limit_of`."""
    tried, count = room.pair.tried, room.pair.tried.start[room.counts.size]
    for at in range(count):
        other = least[1] if tried.least[tried.group[at]] == least[0] else least[0]
        room.beside[at] = tried.cost[at] + other
    if count == 0 or _pairs_within(limit, room) <= few:
        return limit
    sort_by(room.notes.order, room.beside, count)
    low, high = 0, count  # pairs are few within the distances before `low`, and too many from `high` on
    while low < high:
        middle = (low + high) // 2
        step = room.beside[room.notes.order[middle]]
        if step <= limit and _pairs_within(step, room) <= few:
            low = middle + 1
        else:
            high = middle
    return room.beside[room.notes.order[max(low - 1, 0)]]


@inner
def _look_at_values(question: PairQuestion, row: Any, columns: Any, lists: Any, room: SetRoom) -> None:
    """Look at the pairs of values of two features, in `lists` from two values on; their joint effect is one number."""
    tried, follows, (x, y, more) = room.pair.tried, room.pair.tables.sides.next, lists
    may, sure = question.rows.may[row], question.rows.sure[row]
    threshold = Threshold(question.weights, may)
    limit = limit_of(columns[0], columns[1], room.notes)
    while x >= 0:
        here, other = tried.start[columns[0]] + x, y
        first = decision_of(threshold, tried.sums[here])
        while other >= 0:
            there = tried.start[columns[1]] + other
            far, second = tried.cost[here] + tried.cost[there], decision_of(threshold, tried.sums[there])
            whole = first + more + second
            if far <= limit and whole >= may and keeps_rules(question, row, here, there, room.pair):
                kind = CERTAIN
                if whole < sure or may <= first < sure or may <= second < sure:
                    kind = DOUBTFUL
                elif first >= may or second >= may:
                    kind = LAWFUL
                see(here, there, far, kind, room.notes)
                limit = limit_of(columns[0], columns[1], room.notes)
            other = np.int64(follows[1, other])
        x = np.int64(follows[0, x])


@inner
def _look_into(question: PairQuestion, row: Any, tables: Tables, base: Array, room: SetRoom) -> None:
    """Look at all pairs of values in tables that may be answers."""
    tried, sides = room.pair.tried, room.pair.tables.sides
    threshold, size = Threshold(question.weights, question.rows.may[row]), tried.start[tried.least.size]
    own = decision_of(threshold, base)
    for pair in range(tables.first.size):
        one, two, columns = tables.first[pair], tables.second[pair], tables.counts[2 * pair + 1]
        limit = limit_of(one, two, room.notes)
        if tried.least[one] + tried.least[two] > limit:
            continue
        alone = SingleEffects(tried.sums[:size], base, tried.cost[:size], tried.zeros[:size], 0.0, limit)
        sum_up(tables, pair, alone, threshold, sides)
        for a in range(tables.counts[2 * pair]):
            at = tables.place[pair] + a * columns
            added, least = tables.added[at : at + columns], sides.score[0, a] - own
            if not any_reaches(added, least, sides.score[1], threshold):  # -inf where no value is within the limit
                continue
            for b in range(columns):
                more = decision_of(threshold, added[b])
                near = sides.cost[0, a] + sides.cost[1, b] <= limit_of(one, two, room.notes)
                if near and least + sides.score[1, b] + more >= threshold.least:
                    lists = (np.int64(sides.first[0, a]), np.int64(sides.first[1, b]), more - own)
                    _look_at_values(question, row, (one, two), lists, room)


@inner
def _look(question: PairQuestion, row: Any, span: Any, base: Array, room: SetRoom) -> Any:
    """Look at all pairs of changes within a limit; return how many evaluations that counts, < 0: they are too many."""
    limit, least, most = span
    pair = room.pair
    try_within(question, row, limit, least, pair.tried)
    order_cells(question, pair.tried)
    pairs, first, values = pair_up(limit, 0.0, pair)
    if first > 0 or values > VALUES_AT_ONCE:
        return NOT_SETTLED
    pair.found[:] = np.inf
    pair.found[LIMIT], room.notes.seen.total[0] = limit, 0
    count = lay_out((0, pairs), pair)
    if count == 0:
        return 1
    size, tables = fill_tables(question, row, count, most, pair)
    if size < 0:
        return NOT_SETTLED
    pair.found[LIMIT] = min(limit, farthest_of(room.notes))
    _look_into(question, row, tables, base, room)
    return NOT_SETTLED if room.notes.seen.total[0] > room.notes.seen.far.size else 2 + size // PAIRS_PER_ROW


@inner
def _conclude(question: PairQuestion, row: Any, known: Any, room: SetRoom, out: FoundSets) -> None:
    """Write the nearest candidates of distinct changed sets if these settle the row."""
    (scored, paired, cutoff), tripled = known, 0
    pairs = choose_pairs(room.notes, cutoff)
    many = order_sets(room.notes) if pairs >= 0 else 0
    if pairs < 0:
        return
    scored += pairs
    if many < room.notes.top_far.size or not none_larger(room.least, question.setting.most, room.notes):
        if not room.three.looked_at[0]:
            return
        many, triples, tripled = add_triples(question, row, many, room)
        scored += triples
    if many > 0:
        write_sets(row, many, (scored, paired, tripled), room.notes, out)


@inner
def _settle(question: PairQuestion, row: Any, most: MostPairs, room: SetRoom, out: FoundSets) -> None:
    """Write the candidates of a row, if they settle it."""
    pair, scored, used, near, farthest, cutoff = room.pair, 0, 0, 0.0, np.inf, np.inf
    one, two = np.inf, np.inf
    if not question.rows.lawful[row] or not stays_lawful(question.setting, question.rows.X[row], pair.near):
        return
    begin(room.notes)
    for part in range(2):  # near pairs often suffice, and else they tell how far the others may be
        if list_changes(question, row, pair) < 2:
            return
        if part == 0:
            one, two, _ = least_three(pair.tried)
            for group in range(room.least.size):
                room.least[group] = pair.tried.least[group]
        base = question.swept.sums[row, base_cell(question, row, pair.tried)]
        _drop_enough(question, row, part == 0, room)
        farthest = min(farthest, farthest_of(room.notes))
        if part == 0:
            cutoff = room.notes.top_far[room.notes.top_far.size - 1]
            scored, near = singles_known(room.notes), _first_limit(farthest, (one, two), most.first, room)
            if scored < 0 or not np.isfinite(two):
                return
        limit = near if part == 0 else farthest
        more = _look(question, row, (limit, (one, two), most.numbers), base, room)
        if more < 0:
            return
        used, farthest = used + more, min(farthest, farthest_of(room.notes))
        if not near < farthest:
            break
    _conclude(question, row, (scored, used, cutoff), room, out)


@kernel
def nearest_sets(question: PairQuestion, most: MostPairs, begin: int, room: SetRoom, out: FoundSets) -> int:
    """Settle rows from one on; return how many are done: before one that there was no room for, see `PairRoom.tally`.

    Args:
        question: the rows, and what is known of them.
        most: how much is looked at for a row.
        begin: the first row.
        room: to work in; out: where results are written.
    """
    for row in range(begin, len(question.rows.X)):
        room.pair.tally[:] = 0
        _settle(question, row, most, room, out)
        if room.pair.tally[MISSING] > 0:
            return row
    return len(question.rows.X)
