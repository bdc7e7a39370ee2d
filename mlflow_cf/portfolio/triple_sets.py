"""The nearest candidates of three changes of a row of a block, where sets of three features may be nearer than others.

What is looked at, and what counts as an evaluation, is the same as in the search of a single row
(`engine.three_changes`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.larger_sets import next_set_within
from mlflow_cf.engine.thresholds import FIRST_TRIPLES, MORE_TRIPLES, MOST_SETS, MOST_TRIPLES, TRIPLES_PER_ROW
from mlflow_cf.kernel import inner
from mlflow_cf.portfolio.kernels import sort_by
from mlflow_cf.portfolio.pair_kernels import APART, list_changes
from mlflow_cf.portfolio.pair_room import NOT_SETTLED, PairQuestion
from mlflow_cf.portfolio.set_notes import SMALLEST, begin_larger, last_of, order_sets
from mlflow_cf.portfolio.set_room import SetRoom, TripleSets
from mlflow_cf.rounding import loosened
from mlflow_cf.structures.kernels.triple_grid import COMPLETE, AskedTriples, Grid
from mlflow_cf.structures.kernels.triples import list_triples

Array = NDArray[Any]
OWN = -1  # in place of a change: the row's own value


@inner
def _insert(total: Any, features: Any, count: Any, three: TripleSets) -> None:
    """Put three features in their place among so many sets: by what their changes cost at least, then by number."""
    at = count
    while at > 0:
        before, behind = three.features[at - 1], three.total[at - 1] > total
        if three.total[at - 1] == total:
            behind = (before[0], before[1], before[2]) > features
        if not behind:
            break
        three.total[at] = three.total[at - 1]
        for axis in range(3):
            three.features[at, axis] = before[axis]
        at -= 1
    three.total[at] = total
    three.features[at, 0], three.features[at, 1], three.features[at, 2] = features


@inner
def _sorted_features(one: Any, two: Any, three: Any) -> Any:
    """Return three numbers, ascending."""
    low, high = min(one, two), max(one, two)
    return min(low, three), max(low, min(high, three)), max(high, three)


@inner
def _list_sets(limit: Any, most: Any, room: SetRoom) -> Any:
    """List the sets of three features whose changes may be within a limit, nearest first; return how many.

    NOT_SETTLED: they are too many, or larger ones are.
    """
    larger, least, count, others = room.notes.larger, room.least, 0, 0
    begin_larger(least, room.notes)
    while True:
        depth = next_set_within(larger, limit, SMALLEST, most)
        if depth == 0:
            return count
        if max(count, others) == MOST_SETS:
            return NOT_SETTLED
        if depth > SMALLEST:
            others += 1
            continue
        chosen, feature = larger.chosen, larger.feature
        features = _sorted_features(feature[chosen[0]], feature[chosen[1]], feature[chosen[2]])
        total = least[features[0]] + least[features[1]] + least[features[2]]
        _insert(total, features, count, room.three)
        count += 1


@inner
def _put(place: Any, cell: Any, cost: Any, span: Any, grid: Grid, places: Array) -> None:
    """Put a value in its place among those of a feature, in a `span` so far."""
    begin, at = span
    while at > begin and grid.cell[at - 1] > cell:
        grid.cell[at], grid.cost[at], places[at] = grid.cell[at - 1], grid.cost[at - 1], places[at - 1]
        at -= 1
    grid.cell[at], grid.cost[at], places[at] = cell, cost, place


@inner
def _fill_feature(question: PairQuestion, row: Any, group: Any, span: Any, room: SetRoom) -> Any:
    """Write the cells that lawful changes of a feature lead to; return where they stop, < 0: it is not known.

    Args:
        question, row: which row; group: which feature.
        span: the limit, and what changes of two other features cost at least.
        room: to work in.
    """
    grid, places, tried, first = room.three.grid, room.three.place, room.pair.tried, question.trees.features.start
    begin, base = grid.start[group], first[group]
    own, missing = question.swept.own[row, group] - base, first[group + 1] - base - 1
    _put(OWN, own, 0.0, (begin, begin), grid, places)
    at, known = begin + 1, own != missing
    for each in range(tried.start[group], tried.start[group + 1]):
        if tried.cost[each] + span[1] <= span[0]:
            cell = question.setting.cell[tried.place[each]] - base
            _put(tried.place[each], cell, tried.cost[each], (begin, at), grid, places)
            at, known = at + 1, known and cell != missing
    return at if known or not question.trees.features.ordered[group] else NOT_SETTLED


@inner
def _describe(group: Any, cells: Any, before: Any, three: TripleSets) -> None:
    """Write what is known of the cells of a feature: the row's own, the least cost, and how many come before each."""
    grid, (begin, stop) = three.grid, (three.grid.start[group], three.grid.start[group + 1])
    grid.least[group], grid.ascending[group], own = np.inf, True, begin
    for at in range(begin, stop):
        three.group[at] = group
        if three.place[at] == OWN:
            own = at
        else:
            grid.least[group] = min(grid.least[group], grid.cost[at])
    for at in range(begin + 1, stop):
        step = grid.cost[at] - grid.cost[at - 1]
        if step > 0 if at <= own else step < 0:
            grid.ascending[group] = False
    grid.own[group], at = own, begin
    for cell in range(cells + 1):
        while at < stop and grid.cell[at] < cell:
            at += 1
        grid.before[before + cell] = at - begin


@inner
def _fill_grid(question: PairQuestion, row: Any, limit: Any, room: SetRoom) -> Any:
    """Write the cells that changes of a row lead to beside the cheapest two of others; return whether that is known."""
    grid, least, cost = room.three.grid, room.least, room.notes.larger.cost
    room.three.dearest[0] = 0.0
    for at in range(list_changes(question, row, room.pair)):
        room.three.dearest[0] = max(room.three.dearest[0], room.pair.tried.cost[at])
    both, first, sizes = cost[0] + cost[1], 0, question.trees.features.start
    for group in range(least.size):
        beside = both + cost[2] - least[group] if least[group] <= cost[2] else both
        grid.start[group] = first
        first = _fill_feature(question, row, group, (limit, beside), room)
        if first < 0:
            return False
        grid.start[group + 1] = first
        _describe(group, sizes[group + 1] - sizes[group], grid.offset[group], room.three)
    return True


@inner
def _keep_nearest(count: Any, span: Any, room: SetRoom) -> Any:
    """Note the nearest candidate of each of so many sets; return how many count, < 0: some may not be answers.

    `span`: those within its first number were counted before; those beyond its second one are too far.
    """
    (before, last), three, found, scored = span, room.three, room.three.found, 0
    for number in range(count):
        three.far[number] = np.inf
    for at in range(found.counts[0]):
        far, number = found.far[at], 0
        if not found.sure[at] or (last < np.inf and abs(far - last) <= APART * last):
            return NOT_SETTLED
        if far > last:
            continue
        scored += far > before
        features, group = three.features, three.group
        one, two, other = group[found.at[at, 0]], group[found.at[at, 1]], group[found.at[at, 2]]
        while features[number, 0] != one or features[number, 1] != two or features[number, 2] != other:
            number += 1
        if abs(far - three.far[number]) <= APART * far:
            return NOT_SETTLED  # which of them comes first depends on more than the distance
        if far < three.far[number]:
            three.far[number] = far
            for axis in range(3):
                room.notes.three[number, axis] = three.place[found.at[at, axis]]
    return scored


@inner
def _list_candidates(question: PairQuestion, row: Any, counts: Any, limit: Any, room: SetRoom) -> Any:
    """List the candidates that change three features of so many sets; return whether that is all.

    `counts`: of these sets, and of smaller ones that are in order.
    """
    sets, many = counts
    (features, grid, found), notes = (room.three.features[:sets], room.three.grid, room.three.found), room.notes
    for at in range(found.top.size):
        found.top[at] = notes.key[notes.order[at]] if at < many else np.inf
    found.counts[:], found.complete[0] = 0, np.inf
    may, sure = question.rows.may[row], question.rows.sure[row]
    asked = AskedTriples(features, question.weights, may, sure, 0.0, limit, MOST_TRIPLES, -1.0, True, 1)
    cells = Grid(
        grid.start,
        grid.cell,
        grid.cost,
        grid.peak,
        grid.own,
        grid.least,
        grid.ascending,
        grid.before,
        grid.offset,
        question.swept.X[row],
    )
    done = list_triples(asked, cells, question.trees, room.three.room, found)
    return done == COMPLETE and found.complete[0] == np.inf


@inner
def _first_limit(many: Any, room: SetRoom) -> Any:
    """Return how far candidates are looked at first: as far as the last answer, or as far as some are expected."""
    notes, cost = room.notes, room.notes.larger.cost
    if many >= notes.top_far.size:
        return last_of(notes)
    known = notes.key[notes.order[many - 1]] if many > 0 else 0.0
    return max(FIRST_TRIPLES * (cost[0] + cost[1] + cost[2]), known) if cost.size > 2 else np.inf


@inner
def _put_in_order(many: Any, sets: Any, room: SetRoom) -> Any:
    """Put the candidates of so many sets of three features in order with `many` smaller ones; return how many."""
    notes, far, smaller = room.notes, room.three.far, len(room.notes.far) ** 2
    for number in range(sets):
        if far[number] < np.inf:
            notes.key[many], notes.which[many] = far[number], smaller + number
            many += 1
    sort_by(notes.order, notes.key, many)
    return many


@inner
def add_triples(question: PairQuestion, row: Any, many: Any, room: SetRoom) -> Any:
    """Add sets of three features to `many` smaller ones that are in order, until there are as many as are wanted.

    Returns:
        How many there are now, < 0: some that may be answers are not known; how many candidates that are as near
        there were; and what looking at them counts as evaluations.
    """
    notes, three, most, wanted = room.notes, room.three, question.setting.most, room.notes.top_far.size
    begin_larger(room.least, notes)
    limit, before, scored, used, total = _first_limit(many, room), -1.0, 0, 0, notes.larger.cost[:3].sum()
    last, count = (limit if many >= wanted else np.inf), many
    while limit < np.inf:
        near = loosened(limit)
        sets = _list_sets(near, most, room)
        if sets <= 0 or not _fill_grid(question, row, near, room):
            return NOT_SETTLED, 0, 0
        if not _list_candidates(question, row, (sets, many), near, room):
            return NOT_SETTLED, 0, 0
        more = _keep_nearest(sets, (before, last), room)
        if more < 0:
            return NOT_SETTLED, 0, 0
        scored, used, before = scored + more, used + 1 + three.found.counts[1] // TRIPLES_PER_ROW, near
        count = _put_in_order(many, sets, room)
        if count >= wanted and last_of(notes) <= limit:
            begin_larger(room.least, notes)
            larger = next_set_within(notes.larger, last_of(notes) * (1.0 + APART), SMALLEST + 1, most)
            return (NOT_SETTLED if larger else count), scored, used
        limit = total + MORE_TRIPLES * (limit - total) if limit < SMALLEST * three.dearest[0] else np.inf
        count = order_sets(notes)
    return NOT_SETTLED, 0, 0
