"""The nearest candidates of distinct changed sets of each row of a block, of a model with one layer of units.

What is looked at, and what counts as an evaluation, is the same as in the search of a single row (`engine.units`,
`explainers.geco.sweeps`). A row is settled where as many sets of one and two changes as answers are wanted are nearer
than any that are larger and may meet the target, and every candidate that is as near certainly does.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.larger_sets import next_set_within
from mlflow_cf.engine.thresholds import MOST_FOUND, MOST_SETS
from mlflow_cf.engine.units.kernels import TOO_MANY, leave_out, note_nearest, score_block, search_pairs
from mlflow_cf.engine.units.state import FOUND, NEAR, TOGETHER, Effects, PairLimits, UnitMoves, UnitRoom, UnitScore
from mlflow_cf.kernel import inner, kernel
from mlflow_cf.portfolio.kernels import (
    BlockRows,
    Nearest,
    Setting,
    cost_at,
    is_lawful,
    is_ranked,
    sort_by,
    stays_lawful,
)
from mlflow_cf.portfolio.pair_kernels import APART
from mlflow_cf.portfolio.set_notes import (
    SMALLEST,
    begin,
    begin_larger,
    choose_pairs,
    farthest_of,
    last_of,
    order_sets,
    write_sets,
)
from mlflow_cf.portfolio.set_room import CERTAIN, DOUBTFUL, FIRST, MISSES, SECOND, FoundSets, SetNotes
from mlflow_cf.portfolio.unit_kernels import RowUnits, read_row

Array = NDArray[Any]
NOTHING: Final = -1


class UnitBlocks(NamedTuple):
    """All values of all features in blocks, the last ones of a feature perhaps repeated: n values in b blocks.

    Attributes:
        added, low, high, owner, start: see `UnitMoves`.
        place: (n,) the position of each among all values; -1: it stands there before.
        weights, shift, floor: see `UnitScore`.
    """

    added: Array
    low: Array
    high: Array
    owner: Array
    start: Array
    place: Array
    weights: Array
    shift: Array
    floor: Array


class UnitQuestion(NamedTuple):
    """What is asked about a block of rows.

    Attributes:
        setting, rows: what to explain; blocks, units: what values and rows are to the model.
        misses, meets: (m,) from which scores downwards and upwards the structure certainly says so.
        most: pairs that are looked at for a row.
    """

    setting: Setting
    rows: BlockRows
    blocks: UnitBlocks
    units: RowUnits
    misses: Array
    meets: Array
    most: int


class UnitSetRoom(NamedTuple):
    """All arrays to work in, for d features and n values in blocks.

    Attributes:
        notes: of changed sets; near: a candidate, and the stack of rules.
        cost: (n,) of all lawful changes, inf of others; least: (d,) the least of every feature.
        alone: the effects of those beside which another change may be needed; the others are infinitely far.
        open: (n,) changes that may suffice alone; score: (n,) what each does alone.
        nearest: (b,) least costs of blocks, of the same.
        limits: how far pairs may be; search: to look at pairs.
        key, order: (n,) to put changes in order.
        ends: (2, width) the least and the most that units may be.
    """

    notes: SetNotes
    near: Nearest
    cost: Array
    least: Array
    alone: Effects
    open: Array
    score: Array
    nearest: Array
    limits: PairLimits
    search: UnitRoom
    key: Array
    order: Array
    ends: Array

    @classmethod
    def of(cls, setting: Setting, blocks: UnitBlocks, count: int) -> UnitSetRoom:
        """Return arrays for `count` answers."""
        d, n, width = len(setting.packed.column), len(blocks.place), len(blocks.weights)
        steps = len(setting.own_rules.program.does) + len(setting.joint.does)
        notes = SetNotes.of((blocks.place, blocks.owner), np.empty(1), d, count)
        (gain, near, cost, score, key), (order, front, places) = np.empty((5, n)), np.empty((3, n), dtype=np.int64)
        start, many = blocks.start * TOGETHER, np.empty(d, dtype=np.int64)
        return cls(
            notes=notes,
            near=Nearest.room(d, steps),
            cost=cost,
            least=np.empty(d),
            alone=Effects(gain, near, np.zeros(n), 0.0, start, order, front, many),
            open=np.empty(n, dtype=np.bool_),
            score=score,
            nearest=np.empty(n // TOGETHER),
            limits=PairLimits(True, np.empty(1), notes.nearest, notes.top_far, notes.top_set),
            search=UnitRoom.of(width, n // TOGETHER, MOST_FOUND),
            key=key,
            order=places,
            ends=np.empty((2, width)),
        )


@inner
def _list_feature(question: UnitQuestion, row: Any, feature: Any, room: UnitSetRoom) -> Any:
    """Write what the lawful changes of a feature cost; return how many there are, < 0: that is not known."""
    setting, rows, blocks, many = question.setting, question.rows, question.blocks, 0
    packed, x0 = setting.packed, rows.X[row]
    first, stop = blocks.start[feature] * TOGETHER, blocks.start[feature + 1] * TOGETHER
    room.cost[first:stop], room.least[feature] = np.inf, np.inf
    if setting.frozen[feature]:
        return 0
    mine = x0[packed.column[feature]]
    if packed.scaled.scale[feature] != 0 and not is_ranked(packed, feature, mine):
        return NOTHING
    for at in range(first, stop):
        place = blocks.place[at]
        if place >= 0 and packed.values[place] != mine and is_lawful(setting, x0, room.near, feature, place):
            room.cost[at] = cost_at(setting, rows, row, feature, place)
            room.least[feature] = min(room.least[feature], room.cost[at])
            many += 1
    return many


@inner
def _list_changes(question: UnitQuestion, row: Any, room: UnitSetRoom) -> bool:
    """Write what all lawful changes cost; return whether that is known, and two features may change."""
    features = 0
    for column in range(question.rows.X.shape[1]):
        room.near.candidate[column] = question.rows.X[row, column]
    for feature in range(room.least.size):
        many = _list_feature(question, row, feature, room)
        if many < 0:
            return False
        features += many > 0
    return features > 1


@inner
def _score_of(question: UnitQuestion, row: Any) -> UnitScore:
    """Return how the units of a row decide, after what rounding may move has widened its doubt."""
    blocks, rows, total = question.blocks, question.rows, question.units.total
    off = read_row(question.units, row, blocks.weights, blocks.shift[0])
    rows.may[row] -= off
    rows.sure[row] += off
    question.misses[row] -= off
    question.meets[row] += off
    base, floor = blocks.shift[0], blocks.floor[0]
    for unit in range(total.size):
        base += blocks.weights[unit] * max(floor, total[unit])
    sure = rows.sure[row]
    return UnitScore(
        total, question.units.own, blocks.weights, blocks.shift[0], floor, rows.may[row], sure, sure - base
    )


@inner
def _score_alone(moves: UnitMoves, score: UnitScore, feature: Any, room: UnitSetRoom) -> None:
    """Write what the changes of a feature do alone; note the nearest that certainly suffice, and drop all of these."""
    notes, alone = room.notes, room.notes.alone[feature]
    leave_out(score, feature, feature, room.search)
    for block in range(moves.start[feature], moves.start[feature + 1]):
        score_block(moves, score, NOTHING, block, room.search)
        moves.near[block] = np.inf
        for at in range(TOGETHER):
            here, reached = block * TOGETHER + at, room.search.scores[at]
            cost, sure = room.cost[here], reached >= score.sure
            room.score[here], room.open[here] = reached, reached >= score.may
            if sure and cost < alone[FIRST]:
                alone[FIRST], alone[SECOND] = cost, alone[FIRST]
            elif sure and cost < alone[SECOND]:
                alone[SECOND] = cost
            room.alone.cost[here] = np.inf if sure else cost
            moves.near[block] = min(moves.near[block], room.alone.cost[here])
    if alone[FIRST] < np.inf:
        note_nearest(feature, feature, alone[FIRST], notes)


@inner
def _note_alone(question: UnitQuestion, row: Any, feature: Any, room: UnitSetRoom) -> Any:
    """Note the nearest single change of a feature up to the second one that certainly suffices.

    Returns:
        How many there are that may suffice; < 0: rounding decides about some, or distances do not tell which.
    """
    notes, starts = room.notes, question.blocks.start
    farthest, doubtful, certain = notes.alone[feature, SECOND], 0, 0
    for at in range(starts[feature] * TOGETHER, starts[feature + 1] * TOGETHER):
        cost, sure = room.cost[at], room.score[at] >= question.rows.sure[row]
        if not room.open[at] or cost == np.inf or cost > farthest * (1.0 + APART):
            continue
        tied = cost > farthest * (1.0 - APART) and not (sure and cost == farthest)
        if tied or question.misses[row] < room.score[at] < question.meets[row]:
            return NOTHING
        doubtful, certain = doubtful + (not sure), certain + sure
        if room.score[at] >= question.meets[row] and cost < notes.far[feature, feature]:
            notes.far[feature, feature], notes.one[feature, feature] = cost, notes.place[at]
            notes.two[feature, feature] = NOTHING
    return doubtful + min(certain, 2)


@inner
def _look_alone(question: UnitQuestion, row: Any, moves: UnitMoves, score: UnitScore, room: UnitSetRoom) -> Any:
    """Look at all single changes; return how many may suffice, of every feature the nearest; < 0: it is not known."""
    scored = 0
    for feature in range(room.least.size):
        _score_alone(moves, score, feature, room)
        some = _note_alone(question, row, feature, room)
        if some < 0:
            return NOTHING
        scored += some
    return scored


@inner
def _order(moves: UnitMoves, base: Any, limit: Any, room: UnitSetRoom) -> None:
    """Put the changes of every feature that are near enough in the order of their costs."""
    alone = room.alone
    for feature in range(moves.start.size - 1):
        first, stop, count = alone.start[feature], alone.start[feature + 1], 0
        for at in range(first, stop):
            alone.gain[at] = room.score[at] - base
            if alone.cost[at] <= limit and alone.cost[at] < np.inf:
                room.key[count], alone.front[first + count] = alone.cost[at], at
                count += 1
        sort_by(room.order, room.key, count)
        for at in range(count):
            alone.order[first + at] = alone.front[first + room.order[at]]
        if first + count < stop:
            alone.order[first + count] = NOTHING


@inner
def _kind_of(question: UnitQuestion, row: Any, at: Any, room: UnitSetRoom) -> Any:
    """Return what is known of a pair that was found; one of which one change is enough is none."""
    found = room.search
    one, two, score = found.one[at], found.two[at], found.score[at]
    for reached in (score, room.score[one], room.score[two]):
        if question.misses[row] < reached < question.meets[row]:
            return DOUBTFUL
    if score <= question.misses[row] or max(room.score[one], room.score[two]) >= question.meets[row]:
        return MISSES
    return CERTAIN


@inner
def _see_pairs(question: UnitQuestion, row: Any, room: UnitSetRoom) -> bool:
    """Note the pairs that were found; return whether there is room for them."""
    found, seen = room.search, room.notes.seen
    if found.counts[FOUND] > seen.far.size:
        return False
    for at in range(found.counts[FOUND]):
        seen.one[at], seen.two[at], seen.far[at] = found.one[at], found.two[at], found.far[at]
        seen.kind[at] = _kind_of(question, row, at, room)
    seen.total[0], room.notes.limit[0] = found.counts[FOUND], room.limits.limit[0]
    return True


@inner
def _spread(moves: UnitMoves, score: UnitScore, feature: Any, far: Any, room: UnitSetRoom) -> None:
    """Let a feature change to any value that costs no more than `far`: widen the ends of units by what that adds."""
    (low, high), count = room.ends, 0
    for at in range(moves.start[feature] * TOGETHER, moves.start[feature + 1] * TOGETHER):
        if room.cost[at] <= far:
            room.order[count] = at
            count += 1
    for unit in range(score.weights.size):
        least, most = np.inf, -np.inf
        for at in range(count):
            value = moves.added[unit, room.order[at]]
            least, most = min(least, value), max(most, value)
        low[unit] += least - score.own[feature, unit]
        high[unit] += most - score.own[feature, unit]


@inner
def _may_suffice(moves: UnitMoves, score: UnitScore, depth: Any, limit: Any, room: UnitSetRoom) -> bool:
    """Whether the larger set may have a candidate within the limit that meets the target, as bounds of units tell."""
    larger, (low, high) = room.notes.larger, room.ends
    for unit in range(score.weights.size):
        low[unit] = high[unit] = score.total[unit]
    for at in range(depth):
        place = larger.chosen[at]
        far = limit - (larger.total[depth] - larger.cost[place])
        _spread(moves, score, larger.feature[place], far, room)
    bound = score.shift
    for unit in range(score.weights.size):
        weight = score.weights[unit]
        bound += weight * max(score.floor, high[unit] if weight > 0.0 else low[unit])
    return bound >= score.may


@inner
def _larger_sets(setting: Setting, moves: UnitMoves, score: UnitScore, room: UnitSetRoom) -> Any:
    """Return how many larger sets may cost as little as the last set wanted; < 0: some may meet the target."""
    last, larger = last_of(room.notes), room.notes.larger
    limit = last * (1.0 + APART)
    begin_larger(room.least, room.notes)
    while True:
        depth = next_set_within(larger, limit, SMALLEST, setting.most)
        if depth == 0:
            return larger.progress[2]
        near = larger.total[depth] > last * (1.0 - APART)  # as near as that, they may count or not
        if near or larger.progress[2] > MOST_SETS or _may_suffice(moves, score, depth, limit, room):
            return NOTHING


@inner
def _settle(question: UnitQuestion, row: Any, moves: UnitMoves, room: UnitSetRoom, out: FoundSets) -> None:
    """Write the candidates of a row whose changes are listed, if they settle it."""
    notes, score = room.notes, _score_of(question, row)
    begin(notes)
    scored = _look_alone(question, row, moves, score, room)
    if scored < 0:
        return
    cutoff = last_of(notes) if order_sets(notes) >= notes.top_far.size else np.inf
    room.limits.limit[0] = farthest_of(notes)
    _order(moves, score.sure - score.need, room.limits.limit[0], room)
    found = search_pairs(moves, score, room.limits, question.most, room.search)
    if found == TOO_MANY or not _see_pairs(question, row, room):
        return
    pairs = choose_pairs(notes, cutoff)
    many = order_sets(notes) if pairs >= 0 else 0
    if many < notes.top_far.size:
        return
    sets = _larger_sets(question.setting, moves, score, room)
    if sets >= 0:
        write_sets(row, many, (scored + pairs, 1 + room.search.counts[NEAR] + sets, 0), notes, out)


@kernel
def nearest_unit_sets(question: UnitQuestion, room: UnitSetRoom, out: FoundSets) -> None:
    """Settle rows."""
    blocks, rows, setting = question.blocks, question.rows, question.setting
    starts, (low, high) = blocks.start, (blocks.low, blocks.high)
    moves = UnitMoves(blocks.added, low, high, blocks.owner, starts, room.open, room.alone, room.nearest)
    for row in range(len(rows.X)):
        lawful = rows.lawful[row] and stays_lawful(setting, rows.X[row], room.near)
        if lawful and _list_changes(question, row, room):
            _settle(question, row, moves, room, out)
