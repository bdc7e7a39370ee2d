"""What is left of the leaves of models where some features of a row have taken other values; see `agreement`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import called, inner
from mlflow_cf.structures.kernels.leaf_masks import LeafMasks, largest_value

Array = NDArray[Any]


class RowChanges(NamedTuple):
    """The values that features of a row may take: those of all features, concatenated, own ones among them.

    Attributes:
        kind: (models, n) which values of a feature a model cannot tell apart.
        own: (d,) the place of the row's own value; cost, peak: (n,) what each adds to the distance.
        order: (n - d,) places of each feature's changes, the cheapest first; start: (d + 1,) where those of each begin.
        tried, begin: the same of those that are looked at: all of them, or some.
        least: (d,) what a change of a feature costs at least.
    """

    kind: Array
    own: Array
    cost: Array
    peak: Array
    order: Array
    start: Array
    tried: Array
    begin: Array
    least: Array


class AgreementRoom(NamedTuple):
    """What is known of a row, and workspace. A level is a feature of the set, in the order in which they take values.

    Attributes:
        may: (models,) from which score on each may accept.
        within: (2,) how far candidates are at most, and the weight of the largest peak in that.
        asked: (models,) in which order models are asked: the last one that refused comes first.
        begun: (models,) whether the next four of a model are filled.
        near: (models, d) how many kinds a feature's changes have; offset: (models, d) where the first one's cost is.
        cost: what each of these costs at least, in ascending order.
        reach: the leaves that the first of these accepts, the first two and so on, as `LeafMasks.accepts`.
        fixed: (levels, words) the leaves that are left by the values that are taken; held: (levels, models) the node
            that they are of.
        free: (words,) those of them that are left by some changes of the features to come, but for the one that is
            looked at; rest: (models,) what trees add up to at most that do not test it; ready: (models,) the look that
            both are of.
        known: (models, kinds) what was found out about a kind of values, see `_accepts`.
        feature: (levels,) the features; least: (levels + 1,) what changes of those from one on cost at least.
        spent, peak: (levels + 1,) what the values cost that are taken; next: (levels,) the value that comes next.
        node: (levels,) the node that is looked at; survivor: (levels, n) the last one where each value may be accepted.
        places: (n,) values of features; many: (levels,) how many.
        scores: (kinds + 1,) of the kinds of values of the last feature.
        pairs: (p, 2) values of the last two features; planes: (m, q) scores of some models for the kinds of both, whose
            lines have a `width` (m,).
        tally: (7,) numbers, see below.
    """

    may: Array
    within: Array
    asked: Array
    begun: Array
    near: Array
    offset: Array
    cost: Array
    reach: Array
    fixed: Array
    held: Array
    free: Array
    rest: Array
    ready: Array
    known: Array
    feature: Array
    least: Array
    spent: Array
    peak: Array
    next: Array
    node: Array
    survivor: Array
    places: Array
    scores: Array
    many: Array
    pairs: Array
    planes: Array
    width: Array
    tally: Array


# Numbers in a tally: features of a set; sets, bounds of models, candidates, nodes and looks at their features so far;
# whether there was no room for a candidate.
DEPTH, SETS, BOUNDS, LISTED, NODES, LOOKS, FULL = range(7)


class Agreeing(NamedTuple):
    """The values of a row, the leaves of models, and workspace."""

    row: RowChanges
    masks: LeafMasks
    room: AgreementRoom


@called
def _begin_model(model: Any, of: Agreeing) -> None:
    """Write what a model's kinds of values cost, and which leaves they reach together."""
    row, masks, room = of
    size, known = masks.first[model + 1] - masks.first[model], room.known[model]
    for feature in range(row.own.size):
        count, begin, where = 0, room.offset[model, feature], masks.where[model, feature]
        for kind in range(masks.kinds[model, feature]):
            known[kind] = 0
        for at in range(row.start[feature], row.start[feature + 1]):
            place = row.order[at]
            kind = row.kind[model, place]
            if known[kind] < 0:
                continue
            known[kind], room.cost[begin + count] = -1, row.cost[place]
            for word in range(size):
                reached = masks.accepts[where + kind * size + word]
                if count:
                    reached |= room.reach[where + (count - 1) * size + word]
                room.reach[where + count * size + word] = reached
            count += 1
        room.near[model, feature] = count
    for kind in range(known.size):
        known[kind] = 0
    room.begun[model] = True


@inner
def ask_first(at: Any, of: Agreeing) -> None:
    """Ask the model that was asked as the one at a place before all others from now on: it has refused."""
    asked = of.room.asked
    model = asked[at]
    for place in range(at, 0, -1):
        asked[place] = asked[place - 1]
    asked[0] = model


@inner
def _reached(model: Any, level: Any, left: Any, of: Agreeing) -> Any:
    """Return where `reach` has the leaves of a level's changes that cost no more than the least of them and `left`.

    -1: there is none.
    """
    _, masks, room = of
    feature = room.feature[level]
    begin, low, high = room.offset[model, feature], 0, room.near[model, feature]
    budget = left + room.least[level] - room.least[level + 1]
    while low < high:
        middle = (low + high) // 2
        if room.cost[begin + middle] <= budget:
            low = middle + 1
        else:
            high = middle
    size = masks.first[model + 1] - masks.first[model]
    return masks.where[model, feature] + (low - 1) * size if low else np.int64(-1)


@called
def _hold_own(model: Any, of: Agreeing) -> None:
    """Write the leaves of a model that the row's own values leave of the features that are not in the set."""
    row, masks, room = of
    if not room.begun[model]:
        _begin_model(model, of)
    first, last = masks.first[model], masks.first[model + 1]
    for word in range(first, last):
        room.fixed[0, word] = ~np.uint64(0)
    for feature in range(row.own.size):
        free = masks.kinds[model, feature] < 2
        for at in range(room.tally[DEPTH]):
            free |= room.feature[at] == feature
        if not free:
            where = masks.where[model, feature] + row.kind[model, row.own[feature]] * (last - first) - first
            for word in range(first, last):
                room.fixed[0, word] &= masks.accepts[where + word]


@called
def hold(model: Any, level: Any, of: Agreeing) -> None:
    """Write the leaves of a model that are left at a node, and at those above it, once."""
    row, masks, room = of
    above = level
    while above >= 0 and room.held[above, model] != room.node[above]:
        above -= 1
    first, last = masks.first[model], masks.first[model + 1]
    for at in range(above + 1, level + 1):
        room.held[at, model] = room.node[at]
        if at == 0:
            _hold_own(model, of)
            continue
        feature, place = room.feature[at - 1], row.tried[room.next[at - 1] - 1]
        where = masks.where[model, feature] + row.kind[model, place] * (last - first) - first
        for word in range(first, last):
            room.fixed[at, word] = room.fixed[at - 1, word] & masks.accepts[where + word]


@called
def begin_look(model: Any, level: Any, left: Any, of: Agreeing) -> Any:
    """Write what a model has left where the feature of a level varies; return whether it may accept any candidate.

    They cost no more than the least ones and `left`.
    """
    _, masks, room = of
    first, last, feature = masks.first[model], masks.first[model + 1], room.feature[level]
    room.ready[model] = room.tally[LOOKS]
    hold(model, level, of)
    for word in range(first, last):
        room.free[word] = room.fixed[level, word]
    for at in range(level + 1, room.tally[DEPTH]):
        where = _reached(model, at, left, of) - first
        if where < -first:
            return False
        for word in range(first, last):
            room.free[word] &= room.reach[where + word]
    where = _reached(model, level, left, of) - first
    if where < -first:
        return False
    split, several = first + masks.split[model, feature], masks.several[model]
    others, tested = masks.tested[feature, split:last], masks.tested[feature, first:split]
    room.rest[model] = masks.base[model] + largest_value(room.free, room.free, 0, others, several, masks)
    room.tally[BOUNDS] += 1
    return room.rest[model] + largest_value(room.free, room.reach, where, tested, several, masks) >= room.may[model]
