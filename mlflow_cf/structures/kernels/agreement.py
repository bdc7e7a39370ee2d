"""All candidates that change a set of features and that several models of trees may accept, by their leaves' bits.

Features take their values one after the other, next always the one with the fewest values that may be accepted (forward
checking and minimum remaining values: Haralick and Elliott 1980, Artificial Intelligence 14). What is left of the
leaves of a model bounds its score from above: where one model's bound is too low, whatever the others say, the
candidates are given up. The model that refused last is asked first. Values that a model cannot tell apart are asked
about once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import called, inner, kernel
from mlflow_cf.structures.kernels.agreement_pairs import list_pairs, write_line
from mlflow_cf.structures.kernels.agreement_state import (
    BOUNDS,
    DEPTH,
    FULL,
    LISTED,
    LOOKS,
    NODES,
    SETS,
    Agreeing,
    ask_first,
    begin_look,
)
from mlflow_cf.structures.kernels.leaf_masks import add_leaves, largest_value

Array = NDArray[Any]
# CPU of searches of 20 rows of Credit, 30 of Adult and 30 of German, ms a row: 38, 9 and 8; with 2 and 16 of the former
# 39, 9, 9 and 48, 12, 9; with 1 and 16 of the latter (8 of the former) 48, 13, 8 and 39, 11, 8.
MODELS: Final = 4  # that are asked about a value beside one more feature; beside two four times as many, and so on
WEIGHT: Final = 4  # a feature is not asked about if it has so many times more values than another that were accepted
FEW: Final = 6  # values of a feature; with fewer, those of the last one are looked at for each


@inner
def _accepts(level: Any, place: Any, left: Any, of: Agreeing) -> Any:
    """Return 1 if all models may accept a candidate whose feature of a level takes the value at a place, else 0.

    -1: some model refuses all candidates of the node. `left` is what they may cost beyond the least. What is known of a
    kind of values is twice the number of the look, and one more if the model may accept it.
    """
    row, masks, room = of
    feature, look, found = room.feature[level], room.tally[LOOKS], 1
    for at in range(min(room.asked.size, MODELS << (2 * (room.tally[DEPTH] - level - 2)))):
        model = room.asked[at]
        if room.ready[model] != look and not begin_look(model, level, left, of):
            found = -1
        else:
            kind = row.kind[model, place]
            if room.known[model, kind] >> 1 != look:
                first, last = masks.first[model], masks.first[model + 1]
                where = masks.where[model, feature] + kind * (last - first) - first
                tested = masks.tested[feature, first : first + masks.split[model, feature]]
                most = largest_value(room.free, masks.accepts, where, tested, masks.several[model], masks)
                room.known[model, kind] = 2 * look + np.int64(room.rest[model] + most >= room.may[model])
                room.tally[BOUNDS] += 1
            found = room.known[model, kind] & 1
        if found < 1:
            ask_first(at, of)
            break
    return found


@inner
def _swap(one: Any, two: Any, of: Agreeing) -> None:
    """Exchange the features of two levels, and write what those from each level on cost at least."""
    row, _, room = of
    feature = room.feature[one]
    room.feature[one] = room.feature[two]
    room.feature[two] = feature
    room.least[room.tally[DEPTH]] = 0.0
    for at in range(room.tally[DEPTH] - 1, -1, -1):
        room.least[at] = room.least[at + 1] + row.least[room.feature[at]]


@inner
def _open(level: Any, of: Agreeing) -> Any:
    """Write the places of the values that a level's feature may still take, the cheapest first; return how many."""
    row, _, room = of
    count, feature, limit, c = 0, room.feature[level], room.within[0], room.within[1]
    spent, peak = room.spent[level] + room.least[level + 1], room.peak[level]
    for at in range(row.begin[feature], row.begin[feature + 1]):
        place = row.tried[at]
        if spent + row.cost[place] + c * peak > limit:
            break
        near = spent + row.cost[place] + c * max(peak, row.peak[place]) <= limit
        if near and (level == 0 or room.survivor[level - 1, place] == room.node[level - 1]):
            room.places[count] = place
            count += 1
    return count


@inner
def _left(level: Any, of: Agreeing) -> Any:
    """Return what candidates of a node may cost beyond the least ones."""
    room = of.room
    return room.within[0] - room.spent[level] - room.least[level] - room.within[1] * room.peak[level]


@inner
def _survivors(level: Any, of: Agreeing) -> Any:
    """Note which values of the feature of a level all models may accept beside any of later ones; return how many."""
    room = of.room
    room.tally[LOOKS] += 1
    kept, left = 0, _left(level, of)
    for each in range(_open(level, of)):
        place = room.places[each]
        accepted = _accepts(level, place, left, of)
        if accepted < 0:
            return 0
        if accepted:
            room.survivor[level, place] = room.node[level]
            kept += 1
    return kept


@inner
def _score_kinds(model: Any, feature: Any, of: Agreeing) -> None:
    """Write the scores of the kinds of values of the only feature that is left."""
    _, masks, room = of
    first, last, kinds = masks.first[model], masks.first[model + 1], masks.kinds[model, feature]
    for kind in range(kinds + 1):
        room.scores[kind] = 0.0
    if masks.spanned[model, feature]:
        add_leaves(model, feature, room.free, masks, room.scores)
        return
    tested, where = masks.tested[feature, first : first + masks.split[model, feature]], masks.where[model, feature]
    for kind in range(kinds):
        at = where + kind * (last - first) - first
        room.scores[kind] = largest_value(room.free, masks.accepts, at, tested, masks.several[model], masks)


@called
def _last_survivors(level: Any, of: Agreeing) -> Any:
    """Do the same for the last feature, where a model scores all values in one go."""
    row, _, room = of
    room.tally[LOOKS] += 1
    count, feature, left = _open(level, of), room.feature[level], _left(level, of)
    for at in range(room.asked.size if count else 0):
        model = room.asked[at]
        if begin_look(model, level, left, of):
            _score_kinds(model, feature, of)
            kept, least = 0, room.may[model] - room.rest[model]
            for each in range(count):
                place = room.places[each]
                room.places[kept] = place
                kept += 1 if room.scores[row.kind[model, place]] >= least else 0
            count = kept
        else:
            count = 0
        if count == 0:
            ask_first(at, of)
            break
    for each in range(count):
        room.survivor[level, room.places[each]] = room.node[level]
    return count


@inner
def _enter(level: Any, found: Array, of: Agreeing) -> Any:
    """Begin with a node: its feature is the one with the fewest values that may be accepted; False: one has none."""
    room = of.room
    room.tally[NODES] += 1
    room.node[level] = room.tally[NODES]
    if level == room.tally[DEPTH] - 1:
        room.next[level] = of.row.begin[room.feature[level]]
        return _last_survivors(level, of) > 0
    for at in range(level, room.tally[DEPTH]):
        _swap(level, at, of)
        room.many[at] = _open(level, of)
        _swap(level, at, of)
    fewest = np.int64(0)
    for at in range(level, room.tally[DEPTH]):
        for other in range(at + 1, room.tally[DEPTH]):  # those with the fewest values first
            if room.many[other] < room.many[at]:
                room.many[other], room.many[at] = room.many[at], room.many[other]
                _swap(other, at, of)
        _swap(level, at, of)
        if at > level and fewest * WEIGHT << (2 * (room.tally[DEPTH] - level - 2)) <= room.many[at]:
            count = _open(level, of)  # to ask about them takes longer than to look at what is left without
            for each in range(count):
                room.survivor[level, room.places[each]] = room.node[level]
        else:
            count = _survivors(level, of)
        if count == 0:
            return False
        if at == level or count < fewest:
            fewest = count
            room.many[at] = room.many[level]
        else:
            _swap(level, at, of)
    if level == room.tally[DEPTH] - 2 and fewest >= FEW and list_pairs(level, found, of):
        return False
    room.next[level] = of.row.begin[room.feature[level]]
    return True


@inner
def _list_set(of: Agreeing, most: Any, found: Array) -> Any:
    """Write the candidates of the present set; return whether that is all, within so many bounds."""
    row, _, room = of
    room.spent[0], room.peak[0], room.tally[FULL] = 0.0, 0.0, 0
    level, last, enters = np.int64(0), room.tally[DEPTH] - 1, True  # a plain 0 would compile all of it twice
    while level >= 0:
        if enters:
            enters = False
            if not _enter(level, found, of):
                level -= 1
            continue
        at = room.next[level]
        if at == row.begin[room.feature[level] + 1]:
            level -= 1
            continue
        place, room.next[level] = row.tried[at], at + 1
        if room.survivor[level, place] != room.node[level]:
            continue
        if room.tally[BOUNDS] > most or room.tally[FULL]:
            return False
        if level < last:
            room.spent[level + 1] = room.spent[level] + row.cost[place]
            room.peak[level + 1] = max(room.peak[level], row.peak[place])
            level, enters = level + 1, True
            continue
        line = write_line(last, found, of)
        if line >= 0:
            found[line, last] = place
    return room.tally[FULL] == 0


@kernel
def list_agreed(sets: Array, of: Agreeing, most: int, found: Array) -> int:
    """Write the candidates of sets of features that all models may accept, set after set, until they are many.

    Args:
        sets: (s, k) the features, from the set `tally[SETS]` on.
        of: the row and the models; `within` says how far candidates are at most.
        most: bounds, at most.
        found: (n, k) for the places of values.

    Returns:
        1: all candidates of the sets before `tally[SETS]` were written, `tally[LISTED]` in all. 0: the next set has
        more than fit, or takes too many bounds; only some of its candidates were written.
    """
    room = of.room
    room.tally[DEPTH], room.tally[LISTED] = sets.shape[1], 0
    while room.tally[SETS] < len(sets) and 2 * room.tally[LISTED] <= len(found) and room.tally[BOUNDS] <= most:
        for level in range(sets.shape[1]):
            room.feature[level] = sets[room.tally[SETS], level]
        _swap(np.int64(0), np.int64(0), of)
        before = room.tally[LISTED]
        if room.least[0] <= room.within[0] and not _list_set(of, most, found):
            if before == 0:
                return 0
            room.tally[LISTED] = before  # it is looked at again, with the whole room and what the others have shown
            return 1
        room.tally[SETS] += 1
    return 1
