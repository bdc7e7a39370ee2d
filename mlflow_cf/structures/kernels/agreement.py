"""The nearest candidates that enough of several models of trees may accept: boxes of values, the nearest ones first.

Sets of changed features come in the order of what they cost at least, each as a box of all its values (as Eppstein's
K shortest paths: of every set that comes up, the next feature in place of its last one, and beside it). What is left
of the leaves of a model bounds its score from above: where more models' bounds are too low than may refuse, whatever
the others say, a box is given up; else it is parted. The model that was closest to refusing the whole is asked first
about a part, and then those that refused others of its set. A box is parted at the feature whose values cost the most
beyond its cheapest one: what is far is put aside, and mostly never looked at (Land and Doig 1960, Econometrica 28, with
the costs as bounds).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mlflow_cf.kernel import called, inner, kernel
from mlflow_cf.structures.kernels.agreement_parts import cheapest, shave, where_to_part
from mlflow_cf.structures.kernels.agreement_state import (
    BEYOND,
    BOUNDS,
    CHANGES,
    CLOSEST,
    FREE,
    KNOWN,
    LAST,
    LISTED,
    OPEN,
    SET,
    SETS,
    SIZE,
    SLACK,
    USED,
    WAITING,
    Agreeing,
    ask_first,
    largest_score,
    largest_score_of_all,
)
from mlflow_cf.structures.kernels.heap import drop_least, push
from mlflow_cf.structures.kernels.needless import know_set, needless
from mlflow_cf.structures.kernels.trees import Array

ALL, SOME, CUT = range(3)  # whether all candidates are listed, more may come, or these are all that there is room for
# Models that may accept a box of several candidates before no more are asked. CPU of lists, ms: 60 rows of Credit, 100
# of Adult, 40 of German and 40 of a forest 529, 40, 48 and 594; with 6 of them 589, 45, 48 and 668; with 4 those of
# Credit take a tenth longer.
MODELS: Final = 5
# Models that refused boxes of a set last, which are asked first about its other boxes: without them, the rows of Credit
# take 1.4 to 1.5 times as long; with the last one alone 1.2 times.
REFUSERS: Final = 3
AWAIT: Final = 4096  # bounds, 2 ms, before it is asked whether models refuse all candidates, which takes up to 0.4 ms
NOT_BEGUN: Final = -1
REFUSED, MAY, SURE = range(3)


@inner
def _new_box(of: Agreeing) -> Any:
    """Return the number of a box that is free."""
    room = of.room
    if room.tally[FREE]:
        room.tally[FREE] -= 1
        return room.unused[room.tally[FREE]]
    room.tally[USED] += 1
    return room.tally[USED] - 1


@inner
def _release(box: Any, of: Agreeing) -> None:
    """Let a box be used again."""
    room = of.room
    room.unused[room.tally[FREE]] = box
    room.tally[FREE] += 1


@inner
def _push(box: Any, key: Any, of: Agreeing) -> None:
    """Look at a box when all that may cost less were looked at."""
    room = of.room
    push(key, box, room.tally[OPEN], room.keys, room.numbers)
    room.tally[OPEN] += 1


@called
def push_set(like: Any, size: Any, last: Any, key: Any, of: Agreeing) -> None:
    """Look later at a set of so many features: the last is a place in `cheapest`, the others are those of `like`."""
    room = of.room
    number, box = room.tally[SETS], _new_box(of)
    room.tally[SETS] += 1
    for at in range(size - 1):
        room.sets[number, at] = room.sets[like, at]
    room.sets[number, size - 1], room.sizes[number], room.closed[number] = last, size, 0
    for each in range(REFUSERS):
        room.refusers[number, each] = -1
    room.of[box], room.low[box, 0] = number, NOT_BEGUN
    _push(box, key, of)


@inner
def _push_next_sets(number: Any, key: Any, of: Agreeing) -> None:
    """Look later at the sets that come after one: those of as many features, and of one more."""
    row, _, _, room = of
    size = room.sizes[number]
    last = np.int64(room.sets[number, size - 1])
    if last + 1 == row.cheapest.size:
        return
    push_set(number, size, last + 1, key - row.least[last] + row.least[last + 1], of)
    if size < min(room.tally[CHANGES], room.sets.shape[1]):
        push_set(number, size + 1, last + 1, key + row.least[last + 1], of)
    elif size < room.tally[CHANGES]:
        room.near[BEYOND] = min(room.near[BEYOND], key + row.least[last + 1])


@inner
def _least_cost(of: Agreeing) -> Any:
    """Return what candidates of the box that is looked at cost at least."""
    row, _, _, room = of
    total, peak = 0.0, 0.0
    for level in range(room.tally[SIZE]):
        first, last, middle = room.first[level], room.last[level], row.middle[room.feature[level]]
        total += row.cost[cheapest(room.feature[level], first, last, of)]
        least = np.inf
        if first < middle:
            least = row.peak[min(last, middle - 1)]
        if last >= middle:
            least = min(least, row.peak[max(first, middle)])
        peak = max(peak, least)
    return total + row.c[0] * peak


@inner
def _write_box(box: Any, of: Agreeing) -> None:
    """Write what is looked at as a box, and look at it later."""
    room = of.room
    room.of[box] = room.tally[SET]
    room.closest[box] = room.tally[CLOSEST]
    for level in range(room.tally[SIZE]):
        room.low[box, level], room.high[box, level] = room.first[level], room.last[level]
    _push(box, _least_cost(of), of)


@inner
def _open_set(box: Any, key: Any, of: Agreeing) -> None:
    """Make a set of features the box of all their values, and look later at the sets that come after it."""
    row, _, _, room = of
    number = np.int64(room.of[box])
    _push_next_sets(number, key, of)
    room.tally[CLOSEST] = -1
    room.tally[SET], room.tally[SIZE] = number, room.sizes[number]
    for level in range(room.tally[SIZE]):
        feature = row.cheapest[room.sets[number, level]]
        room.feature[level] = feature
        room.first[level], room.last[level] = row.begin[feature], row.begin[feature + 1] - 1
    _write_box(box, of)


@inner
def _look_at(box: Any, of: Agreeing) -> Any:
    """Look at a box, the features of its set and their values; return whether each takes one value."""
    row, _, _, room = of
    number, single = room.of[box], True
    room.tally[SET], room.tally[SIZE] = number, room.sizes[number]
    for level in range(room.tally[SIZE]):
        room.feature[level] = row.cheapest[room.sets[number, level]]
        room.first[level], room.last[level] = room.low[box, level], room.high[box, level]
        single &= room.first[level] == room.last[level]
    return single


@inner
def _ask_at_first(model: Any, of: Agreeing) -> None:
    """Ask a model before all others, if there is one."""
    at = 0
    if model >= 0:
        while of.room.asked[at] != model:
            at += 1
        ask_first(at, of)


@inner
def _ask_likely(box: Any, of: Agreeing) -> None:
    """Ask first the model that was closest to refusing the whole of a box, then those that refused others of a set."""
    room = of.room
    for each in range(REFUSERS - 1, -1, -1):
        _ask_at_first(room.refusers[room.tally[SET], each], of)
    _ask_at_first(room.closest[box], of)


@inner
def _note_refuser(model: Any, of: Agreeing) -> None:
    """Note that a model has refused a box of the set that is looked at."""
    refusers, at = of.room.refusers[of.room.tally[SET]], 0
    while at < REFUSERS - 1 and refusers[at] != model:
        at += 1
    for place in range(at, 0, -1):
        refusers[place] = refusers[place - 1]
    refusers[0] = model


@inner
def _answer(single: Any, of: Agreeing) -> Any:
    """Return REFUSED if more models than may refuse all candidates of the box that is looked at, else MAY or SURE.

    About a box of several candidates no more models are asked once `MODELS` of them may accept one.
    """
    _, masks, _, room = of
    for group in range(room.spare.size):
        room.against[group], room.unsure[group] = 0, 0
    at, accepting, least = 0, 0, np.inf
    while at < room.asked.size and (single or accepting < MODELS):
        model = room.asked[at]
        group, score = room.group[model], largest_score(model, of) - room.may[model]
        room.tally[BOUNDS] += 1
        if score < 0:
            ask_first(at, of)
            _note_refuser(model, of)
            room.against[group] += 1
            if room.against[group] > room.spare[group]:
                return REFUSED
        else:
            accepting += 1
            if score < least:
                least, room.tally[CLOSEST], room.near[SLACK] = score, model, score
            room.unsure[group] += 1 if score + room.may[model] - masks.off[model] < room.sure[model] else 0
        at += 1
    found = SURE
    for group in range(room.spare.size):
        if room.against[group] + room.unsure[group] > room.spare[group]:
            found = MAY
    return found


@called
def _none_agrees(of: Agreeing) -> Any:
    """Whether more models than may refuse all candidates."""
    room, refused = of.room, False
    for group in range(room.spare.size):
        room.against[group] = 0
    for model in range(room.may.size):
        if largest_score_of_all(model, of) < room.may[model]:
            group = room.group[model]
            room.against[group] += 1
            refused |= room.against[group] > room.spare[group]
    return refused


@inner
def _part(box: Any, of: Agreeing) -> None:
    """Look at the parts of a box later."""
    room = of.room
    level, half = where_to_part(of)
    last = room.last[level]
    for part in range(2):
        if part == 1:
            room.first[level] = half
        room.last[level] = half - 1 if part == 0 else last
        _write_box(box if part == 0 else _new_box(of), of)


@inner
def _write(found: Array, sure: Any, key: Any, of: Agreeing) -> None:
    """Write the values of the candidate that is looked at, whether enough models certainly accept it, and its set."""
    room = of.room
    line, deepest = room.tally[LISTED], found.shape[1] - 2
    for level in range(deepest):
        found[line, level] = room.first[level] if level < room.tally[SIZE] else -1
    found[line, deepest], found[line, deepest + 1] = sure, room.tally[SET]
    room.tally[LISTED] += 1
    room.near[LAST] = key


@kernel
def begin_agreed(of: Agreeing, changes: int, bounds: int) -> None:
    """Begin with the set of the cheapest feature alone.

    Args:
        of: the row, the models, and the boxes that are left: none.
        changes: how many features may change at most.
        bounds: after how many it is asked whether models refuse all candidates.
    """
    room = of.room
    room.held[:], room.tally[:], room.near[:] = -1, 0, np.inf
    room.tally[CHANGES], room.tally[WAITING] = changes, bounds
    for model in range(room.asked.size):
        room.asked[model] = model
    if of.row.cheapest.size and changes:
        push_set(0, 1, 0, of.row.least[0], of)


@kernel
def list_agreed(of: Agreeing, limit: float, wanted: int, most: int, found: Array) -> int:
    """Write the next candidates that enough models may accept, the nearest ones first.

    Args:
        of: the row, the models, and the boxes that are left.
        limit: how far candidates are at most.
        wanted: how many candidates, and all others that are as near.
        most: bounds, until `tally[BOUNDS]` says so many.
        found: (n, k + 2) for their values, -1 after those of the features of a set, whether enough models certainly
            accept them, and their set; `tally[LISTED]` says how many there are.

    Returns:
        Whether these are all: see above.
    """
    room = of.room
    room.tally[LISTED], nearest = 0, min(limit, room.near[BEYOND])
    while room.tally[OPEN] and room.keys[0] <= nearest:
        key, box = room.keys[0], room.numbers[0]
        enough = room.tally[LISTED] >= wanted and key > room.near[LAST]
        if enough or room.tally[LISTED] == len(found) or room.tally[BOUNDS] >= most:
            return SOME
        if room.tally[USED] - room.tally[FREE] + 3 > room.of.size or room.tally[SETS] + 2 > room.sizes.size:
            return CUT
        drop_least(room.tally[OPEN], room.keys, room.numbers)
        room.tally[OPEN] -= 1
        if room.low[box, 0] == NOT_BEGUN:
            _open_set(box, key, of)
            nearest = min(limit, room.near[BEYOND])
            continue
        if 0 <= room.tally[WAITING] < room.tally[BOUNDS]:
            room.tally[WAITING] = -1
            if _none_agrees(of):
                room.tally[OPEN] = 0
                return ALL
        if room.closed[room.of[box]]:
            _release(box, of)
            continue
        single = _look_at(box, of)
        _ask_likely(box, of)
        answer = _answer(single, of)
        answer = REFUSED if answer != REFUSED and room.tally[KNOWN] and needless(of) else answer
        if answer != REFUSED and not single:
            if shave(of):
                _write_box(box, of)
            else:
                _part(box, of)
            continue
        if answer != REFUSED:
            if answer == SURE and room.undo.size:
                know_set(of)
            _write(found, answer == SURE, key, of)
        _release(box, of)
    return ALL if limit <= nearest else CUT
