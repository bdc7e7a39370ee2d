"""What is known of a row's values where several models of trees must agree, workspace, and bounds of one model.

A box says of each of some features from which to which of its values it may take; the others keep the row's own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from mlflow_cf.kernel import called, inner
from mlflow_cf.structures.kernels.leaf_masks import (
    LeafMasks,
    LeafRanges,
    largest_sum,
    largest_sum_of_words,
    smallest_sum_of_words,
)
from mlflow_cf.structures.kernels.trees import Array

ROWS: Final = 6  # of words that are read in one go: those of both ends of three features


class RowValues(NamedTuple):
    """The values that features of a row may take, feature after feature, without the row's own.

    Those of a feature cost the less, and add the less as largest change, the nearer they are to its middle.

    Attributes:
        kind: (models, n) which values of a feature a model cannot tell apart; own: (models, d) those of the row's own.
        cost, peak: (n,) what each adds to the distance.
        begin: (d + 1,) the first value of each feature; middle: (d,) the first one after the row's own.
        ranged: (models, d) whether the leaves that accept some of a range of values are those of its ends together.
        listed: (d,) whether some model must look at all values of a range instead.
        cheapest: (f,) the features that may change, by what that costs at least; least: (f,) that.
        c: (1,) weight of the largest peak in a distance.
    """

    kind: Array
    own: Array
    cost: Array
    peak: Array
    begin: Array
    middle: Array
    ranged: Array
    listed: Array
    cheapest: Array
    least: Array
    c: Array


class AgreementRoom(NamedTuple):
    """Sets of features, boxes that are still to be looked at, and workspace.

    Attributes:
        may, sure: (models,) from which score on each may accept, and certainly does.
        group: (models,) which group of models each is of; spare: (groups,) how many of a group may refuse.
        against, unsure: (groups,) how many refuse the box that is looked at, and how many may do so.
        asked: (models,) in which order models are asked: the last one that refused comes first.
        fixed: (slots, words) the leaves that the row's own values leave of features outside a set; held: (slots,
            models) of which set.
        common, some: (words,) of one model, those of a box and of some values; rows: (n,) where words of a box begin.
        sets: (s, k) features of sets, as places in `cheapest`; sizes: (s,) how many; closed: (s,) whether no more of
            their candidates are looked for; refusers: (s, n) the models that refused a box of each last; -1: no others.
        undo: (d,) whether candidates with a needless change of the feature are left out; empty: none are.
        known: (n,) sets of which a candidate is certainly accepted.
        of: (boxes,) the set of each box; closest: (boxes,) the model that came closest to refusing the one that it is a
            part of; low, high: (boxes, k) the first and last value of its features; -1: of a set that was not
            begun.
        keys, numbers: (boxes,) a heap of boxes by what their candidates cost at least.
        unused: (boxes,) numbers of those that are free again.
        feature, first, last: (k,) the features of the box that is looked at, and its values.
        near: (4,) what the last candidate costs, and how near candidates of larger sets than there is room for may be;
            by how much the closest model does not refuse a box, and by how much an end of one of its ranges.
        tally: (14,) numbers, see below.
    """

    may: Array
    sure: Array
    group: Array
    spare: Array
    against: Array
    unsure: Array
    asked: Array
    fixed: Array
    held: Array
    common: Array
    some: Array
    rows: Array
    sets: Array
    sizes: Array
    refusers: Array
    closed: Array
    undo: Array
    known: Array
    of: Array
    closest: Array
    low: Array
    high: Array
    keys: Array
    numbers: Array
    unused: Array
    feature: Array
    first: Array
    last: Array
    near: Array
    tally: Array


# Numbers in a tally: boxes in the heap, those that were ever used and those that are free again; sets; bounds of models
# and candidates so far; the set of the box that is looked at, and how many features it has; how many may change; how
# many bounds come before it is asked whether models refuse all candidates; the model that was closest to refusing it;
# sets of which a candidate is certainly accepted; the feature and the value from which on a box is parted, if an end is
# nearly refused.
OPEN, USED, FREE, SETS, BOUNDS, LISTED, SET, SIZE, CHANGES, WAITING, CLOSEST, KNOWN, PART, PART_AT = range(14)
LAST, BEYOND, SLACK, LOWEST = range(4)  # of `AgreementRoom.near`


class Agreeing(NamedTuple):
    """The values of a row, the leaves of models, and workspace."""

    row: RowValues
    masks: LeafMasks
    ranges: LeafRanges
    room: AgreementRoom


@inner
def ask_first(at: Any, of: Agreeing) -> None:
    """Ask the model that was asked as the one at a place before all others from now on: it has refused."""
    asked = of.room.asked
    model = asked[at]
    for place in range(at, 0, -1):
        asked[place] = asked[place - 1]
    asked[0] = model


@inner
def _hold_own(model: Any, slot: Any, of: Agreeing) -> None:
    """Write the leaves of a model that the row's own values leave of the features that are not in the set."""
    row, masks, ranges, room = of
    first, last = masks.first[model], masks.first[model + 1]
    for word in range(first, last):
        room.fixed[slot, word] = ~np.uint64(0)
    for feature in range(row.middle.size):
        free = masks.kinds[model, feature] < 2
        for at in range(room.tally[SIZE]):
            free |= room.feature[at] == feature
        if not free:
            where = masks.where[model, feature] + row.own[model, feature] * (last - first) - first
            for word in range(first, last):
                room.fixed[slot, word] &= ranges.words[where + word]


@inner
def _narrow(narrowed: Any, model: Any, slot: Any, one: Any, two: Any, of: Agreeing) -> None:
    """Keep of the leaves of the box, or of the set if the box has none yet, those in two rows of words."""
    _, masks, ranges, room = of
    first, words = masks.first[model], ranges.words
    for word in range(masks.first[model + 1] - first):
        before = room.common[word] if narrowed else room.fixed[slot, first + word]
        room.common[word] = before & words[one + word] & words[two + word]


@inner
def _narrow_to_some(narrowed: Any, model: Any, slot: Any, level: Any, of: Agreeing) -> None:
    """Do the same with the leaves that accept one of a feature's values."""
    row, masks, ranges, room = of
    first, size = masks.first[model], masks.first[model + 1] - masks.first[model]
    where, words = masks.where[model, room.feature[level]], ranges.words
    for word in range(size):
        room.some[word] = np.uint64(0)
    for place in range(room.first[level], room.last[level] + 1):
        at = where + row.kind[model, place] * size
        for word in range(size):
            room.some[word] |= words[at + word]
    for word in range(size):
        room.common[word] = (room.common[word] if narrowed else room.fixed[slot, first + word]) & room.some[word]


@inner
def _leaves_left(model: Any, together: Any, of: Agreeing) -> Any:
    """Prepare a bound of the box that is looked at: write where the rows of words begin that it leaves of a model.

    Rows beyond those that are read in one go are combined first, or all of them with `together`; return whether some
    were, into `room.common`.
    """
    row, masks, _, room = of
    number, size = room.tally[SET], masks.first[model + 1] - masks.first[model]
    slot, part, count = number % len(room.held), masks.accepts.size, 0
    narrowed = together
    if room.held[slot, model] != number:
        room.held[slot, model] = number
        _hold_own(model, slot, of)
    if narrowed:
        _narrow(False, model, slot, 3 * part, 3 * part, of)
    for level in range(room.tally[SIZE]):
        feature = room.feature[level]
        low, high = row.kind[model, room.first[level]], row.kind[model, room.last[level]]
        where = masks.where[model, feature]
        if masks.kinds[model, feature] < 2:
            continue
        if room.first[level] == room.last[level] or (row.ranged[model, feature] and low == high):
            room.rows[count] = where + low * size
            count += 1
        elif row.ranged[model, feature]:
            room.rows[count], room.rows[count + 1] = part + where + high * size, 2 * part + where + low * size
            count += 2
        else:
            _narrow_to_some(narrowed, model, slot, np.int64(level), of)
            narrowed = True
    room.rows[count] = 3 * part
    while count > (0 if together else ROWS):
        count = max(count - 2, 0)
        _narrow(narrowed, model, slot, room.rows[count], room.rows[count + 1], of)
        narrowed = True
    for at in range(count, ROWS):
        room.rows[at] = 3 * part
    return narrowed


@inner
def largest_score(model: Any, of: Agreeing) -> Any:
    """Return what a model says at most of the candidates of the box that is looked at."""
    _, masks, ranges, room = of
    several = masks.several[model]  # what it may have several of is looked at in one row of words
    narrowed = _leaves_left(model, several, of)
    if several:
        return largest_sum_of_words(model, room.common, masks)
    if narrowed:
        return largest_sum(model, room.common, 0, room.rows, masks, ranges)
    slot = room.tally[SET] % len(room.held)
    return largest_sum(model, room.fixed[slot], masks.first[model], room.rows, masks, ranges)


@called
def smallest_score(model: Any, of: Agreeing) -> Any:
    """Return what a model says at least of the candidates of the box that is looked at."""
    _, masks, _, room = of
    _leaves_left(model, True, of)
    return smallest_sum_of_words(model, room.common, masks) - masks.off[model]


@inner
def largest_score_of_all(model: Any, of: Agreeing) -> Any:
    """Return what a model says at most of all candidates, and of the row itself."""
    row, masks, ranges, room = of
    size, part, words = masks.first[model + 1] - masks.first[model], masks.accepts.size, ranges.words
    for word in range(size):
        room.common[word] = ~np.uint64(0)
    for feature in range(row.middle.size):
        first, last, own = row.begin[feature], row.begin[feature + 1], np.int64(row.own[model, feature])
        where = masks.where[model, feature]
        if masks.kinds[model, feature] < 2:
            continue
        if row.ranged[model, feature] and first < last:
            low, high = min(own, row.kind[model, first]), max(own, row.kind[model, last - 1])
            for word in range(size):
                ends = words[part + where + high * size + word] & words[2 * part + where + low * size + word]
                room.common[word] &= ends
            continue
        for word in range(size):
            room.some[word] = words[where + own * size + word]
        for place in range(first, last):
            at = where + row.kind[model, place] * size
            for word in range(size):
                room.some[word] |= words[at + word]
        for word in range(size):
            room.common[word] &= room.some[word]
    return largest_sum_of_words(model, room.common, masks)
