"""All values of the last two features that several models of trees may accept: each scores them in one go.

The leaves that are left each accept a rectangle of values of both features, so that a model's scores are a sum of
rectangles. That takes less time than the values one by one, where many of the first feature are left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import called, inner
from mlflow_cf.structures.kernels.agreement_state import BOUNDS, FULL, LISTED, Agreeing, ask_first, hold
from mlflow_cf.structures.kernels.leaf_masks import add_lines_of, add_rectangles_of

Array = NDArray[Any]


@inner
def write_line(level: Any, found: Array, of: Agreeing) -> Any:
    """Write the values that are taken above a level into the next line; return its number, or -1: there is no room."""
    room = of.room
    line = room.tally[LISTED]
    if line == len(found):
        room.tally[FULL] = 1
        return -1
    for each in range(level):
        found[line, each] = of.row.tried[room.next[each] - 1]
    room.tally[LISTED] += 1
    return line


@inner
def _score_pairs(model: Any, level: Any, part: Any, of: Agreeing) -> Any:
    """Write the scores of pairs of kinds of values of the last two features into a plane; return the width of a line.

    The lines are those of the first feature, if the width is positive. 0: leaves accept kinds of neither feature that
    are one after the other, or the plane is too small.
    """
    _, masks, room = of
    first, second, sign = room.feature[level], room.feature[level + 1], 1
    if not masks.spanned[model, first]:
        first, second, sign = second, first, -1
        if not masks.spanned[model, first]:
            return 0
    if (masks.kinds[model, first] + 1) * (masks.kinds[model, second] + 1) > room.planes.shape[1]:
        return 0
    hold(model, level, of)
    plane = room.planes[part]
    for at in range((masks.kinds[model, first] + 1) * (masks.kinds[model, second] + 1)):
        plane[at] = 0.0
    if masks.spanned[model, second]:
        add_rectangles_of(model, first, second, room.fixed[level], masks, plane)
    else:
        add_lines_of(model, first, second, room.fixed[level], masks, plane)
    room.tally[BOUNDS] += 16
    return sign * (masks.kinds[model, second] + 1)


@inner
def _place_of(kind: Array, one: Any, two: Any, width: Any) -> Any:
    """Return where a plane has the score of two values."""
    return kind[one] * width + kind[two] if width > 0 else kind[one] - kind[two] * width


@inner
def _some_refuses(models: Any, one: Any, two: Any, of: Agreeing) -> Any:
    """Whether one of the first models refuses two values, by its plane."""
    row, masks, room = of
    for at in range(models):
        model = room.asked[at]
        place = _place_of(row.kind[model], one, two, room.width[at])
        if masks.base[model] + room.planes[at, place] < room.may[model]:
            return True
    return False


@inner
def _pairs(level: Any, models: Any, of: Agreeing) -> Any:
    """Write the pairs of values that the last two features may take by the planes of the first models.

    Returns how many, or -1: more than fit.
    """
    row, _, room = of
    sizes, count = (0, 0), 0
    for part in range(2):
        feature = room.feature[level + part]
        for at in range(row.begin[feature], row.begin[feature + 1]):
            if room.survivor[level, row.tried[at]] == room.node[level]:
                room.places[count] = row.tried[at]
                count += 1
        sizes = (count, 0) if part == 0 else (sizes[0], count)
    count, limit, c = 0, room.within[0] - room.spent[level], room.within[1]
    for one in range(sizes[0]):
        first = room.places[one]
        left = limit - row.cost[first] - c * room.peak[level]
        for two in range(sizes[0], sizes[1]):
            second = room.places[two]
            if row.cost[second] > left:  # they ascend
                break
            peak = max(room.peak[level], row.peak[first], row.peak[second])
            if row.cost[first] + row.cost[second] + c * peak <= limit and not _some_refuses(models, first, second, of):
                if count == len(room.pairs):
                    return -1
                room.pairs[count, 0], room.pairs[count, 1] = first, second
                count += 1
    room.tally[BOUNDS] += sizes[0] * (sizes[1] - sizes[0]) // 64
    return count


@inner
def _kept_pairs(count: Any, at: Any, of: Agreeing) -> Any:
    """Keep those of the pairs that the model at a place may accept, by its plane, the first one; return how many."""
    row, masks, room = of
    kept, model = 0, room.asked[at]
    least, kind, width = room.may[model] - masks.base[model], row.kind[model], room.width[0]
    for pair in range(count):
        one, two = room.pairs[pair, 0], room.pairs[pair, 1]
        room.pairs[kept, 0], room.pairs[kept, 1] = one, two
        kept += 1 if room.planes[0, _place_of(kind, one, two, width)] >= least else 0
    return kept


@called
def list_pairs(level: Any, found: Array, of: Agreeing) -> Any:
    """Write the candidates of a node with two features that are left; return whether that was done."""
    room = of.room
    models = min(room.asked.size, len(room.planes))
    for at in range(models):
        room.width[at] = _score_pairs(room.asked[at], level, np.int64(at), of)
        if room.width[at] == 0:
            return False
    count = _pairs(level, models, of)
    if count < 0:
        return False
    for at in range(models, room.asked.size if count else 0):
        model = room.asked[at]
        room.width[0] = _score_pairs(model, level, np.int64(0), of)
        if room.width[0] == 0:
            return False
        count = _kept_pairs(count, at, of)
        if count == 0:
            ask_first(at, of)
            break
    for pair in range(count):
        line = write_line(level, found, of)
        if line < 0:
            break
        found[line, level], found[line, level + 1] = room.pairs[pair, 0], room.pairs[pair, 1]
    return True
