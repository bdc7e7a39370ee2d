"""The values of a row in the order in which lists of what several models accept look at them.

Those of a feature come by the kinds of cells that models tell apart, if they cost the less then the nearer they are to
the row's own value: then a range of them is told by its ends. Else they come by what they cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlflow_cf.kernel import called, inner, kernel
from mlflow_cf.structures.kernels.agreement_state import RowValues
from mlflow_cf.structures.kernels.trees import Array


class GridValues(NamedTuple):
    """The values that features of a row may take, feature after feature, the row's own among them.

    Attributes:
        kind: (models, n) which values of a feature a model cannot tell apart.
        total: (n,) these, added up over all models.
        cost, peak: (n,) what each adds to the distance.
        start: (d + 1,) the first value of each feature; own: (d,) the row's own values.
    """

    kind: Array
    total: Array
    cost: Array
    peak: Array
    start: Array
    own: Array


@inner
def _comes_before(one: Any, other: Any, keys: Array, ties: Array) -> Any:
    """Whether a place comes before another one: it has the smaller key, of the same keys the smaller tie."""
    if keys[one] != keys[other]:
        return keys[one] < keys[other]
    if ties[one] != ties[other]:
        return ties[one] < ties[other]
    return one < other


@inner
def _sink(order: Array, first: Any, count: Any, keys: Array, ties: Array, at: Any) -> None:
    """Let a place sink in a heap of so many, of which the last in order is on top."""
    held = order[first + at]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and _comes_before(order[first + child], order[first + child + 1], keys, ties):
            child += 1
        if not _comes_before(held, order[first + child], keys, ties):
            break
        order[first + at] = order[first + child]
        at = child
    order[first + at] = held


@called
def _sort_places(order: Array, first: Any, last: Any, keys: Array, ties: Array) -> None:
    """Write the places from `first` up to `last` in ascending order of their keys; of the same ones as they come."""
    count, ascends = last - first, True
    for place in range(first, last):
        order[place] = place
        ascends &= place == first or not _comes_before(place, place - 1, keys, ties)
    if ascends:
        return
    for at in range(count // 2 - 1, -1, -1):
        _sink(order, first, count, keys, ties, at)
    for end in range(count - 1, 0, -1):
        order[first], order[first + end] = order[first + end], order[first]
        _sink(order, first, end, keys, ties, 0)


@inner
def _place_of(value: Any, order: Array, first: Any) -> Any:
    """Return where a value comes in an order, which is known to have it from `first` on."""
    at = first
    while order[at] != value:
        at += 1
    return at


@inner
def _falls_then_rises(some: Array, order: Array, first: Any, last: Any, own: Any) -> Any:
    """Whether numbers, in an order, fall up to the row's own value, and then rise."""
    found = True
    for at in range(first + 1, last):
        rise = some[order[at]] - some[order[at - 1]]
        found &= rise >= 0 if at > own else rise <= 0
    return found


@inner
def _note_feature(grid: GridValues, spanned: Array, feature: Any, falls: Any, order: Array, row: RowValues) -> None:
    """Write of every model whether it is told by the ends of ranges of a feature, and the kinds of all its values."""
    first, last = grid.start[feature], grid.start[feature + 1]
    own, begin, listed = grid.own[feature], grid.start[feature] - feature, False
    for model in range(grid.kind.shape[0]):
        ranged, before, at = falls, -1, begin
        for place in range(first, last):
            kind = grid.kind[model, order[place]]
            ranged &= before <= kind < spanned[model, feature]
            before = kind
            if order[place] != own:
                row.kind[model, at] = kind
                at += 1
        row.own[model, feature], row.ranged[model, feature] = grid.kind[model, own], ranged
        listed |= not ranged
    row.listed[feature] = listed


@called
def note_values(grid: GridValues, spanned: Array, row: RowValues, places: Array, order: Array) -> Any:
    """Write what is known of a row's values, and return how many features may change.

    Args:
        grid: the values; spanned: see `LeafRanges`.
        row: what is written; of `cheapest` and `least`, only so many are.
        places: (n - d,) where the values come in the grid, in their order.
        order: (n,) workspace.
    """
    changing, features = 0, grid.own.size
    for feature in range(features):
        first, last = grid.start[feature], grid.start[feature + 1]
        _sort_places(order, first, last, grid.total, grid.total)
        own = _place_of(grid.own[feature], order, first)
        falls = _falls_then_rises(grid.cost, order, first, last, own)
        falls &= _falls_then_rises(grid.peak, order, first, last, own)
        if not falls:
            _sort_places(order, first, last, grid.cost, grid.peak)
            own = _place_of(grid.own[feature], order, first)
        begin = first - feature
        row.begin[feature], row.middle[feature] = begin, own - feature
        at = begin
        for place in range(first, last):
            if place != own:
                places[at], row.cost[at], row.peak[at] = order[place], grid.cost[order[place]], grid.peak[order[place]]
                at += 1
        _note_feature(grid, spanned, feature, falls, order, row)
        changing += at > begin
    row.begin[features] = grid.start[features] - features
    _note_cheapest(row)
    return changing


@inner
def _note_cheapest(row: RowValues) -> None:
    """Write which features may change, those that cost the least first."""
    count = 0
    for feature in range(row.middle.size):
        first, last = row.begin[feature], row.begin[feature + 1]
        if first == last:
            continue
        least = row.cost[first]
        for at in range(first + 1, last):
            least = min(least, row.cost[at])
        at = count
        while at > 0 and row.least[at - 1] > least:
            row.least[at], row.cheapest[at] = row.least[at - 1], row.cheapest[at - 1]
            at -= 1
        row.least[at], row.cheapest[at] = least, feature
        count += 1


@kernel
def write_values(grid: GridValues, spanned: Array, row: RowValues, places: Array, order: Array) -> int:
    """Do the same for a single row; return how many features may change."""
    return note_values(grid, spanned, row, places, order)  # type: ignore[no-any-return]
