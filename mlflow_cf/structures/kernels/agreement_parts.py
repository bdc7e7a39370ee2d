"""How a box of candidates is made smaller, and parted.

Ends of ranges are shaved off that the model refuses which came closest to refusing the box. An end of which it says
much less than of the box is soon refused, and becomes a part; where there is none, a box is parted by what its values
cost. (Probing, as in Savelsbergh 1994, ORSA Journal on Computing 6.)
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mlflow_cf.kernel import called, inner
from mlflow_cf.structures.kernels.agreement_state import (
    BOUNDS,
    CLOSEST,
    LOWEST,
    PART,
    PART_AT,
    SIZE,
    SLACK,
    Agreeing,
    largest_score,
)

# An end becomes a part if at most this share of the slack is left there, by which the closest model's bound of the box
# exceeds what it asks for. CPU of lists in ms: two rows of Adult that need seven changes, two of Credit that need five,
# and the mean of 15 rows of a forest.
#   without shaving 373 and 483, 3,182 and 3,091, 13
#   parted by cost alone 284 and 234, 1,985 and 2,420, 12
#   0.5 201 and 115, 1,113 and 1,539, 11
#   0.8 113 and 88, 727 and 941, 13
#   0.9 109 and 96, 677 and 915, 15
#   1.0 107 and 102, 821 and 1,090, 95
LEFT: Final = 0.8


@inner
def cheapest(feature: Any, first: Any, last: Any, of: Agreeing) -> Any:
    """Return which of some values of a feature costs least."""
    row = of.row
    middle = row.middle[feature]
    if last < middle:
        return last
    if first >= middle:
        return first
    return middle - 1 if row.cost[middle - 1] <= row.cost[middle] else middle


@inner
def _widest(of: Agreeing) -> Any:
    """Return which feature of the box is parted.

    First those of which some model must look at all values of a range, then the one whose values differ most in cost.
    """
    row, _, _, room = of
    found, most = np.int64(0), -1.0
    for level in range(room.tally[SIZE]):
        first, last, feature = room.first[level], room.last[level], room.feature[level]
        if first < last:
            if row.listed[feature]:
                return np.int64(level)
            spread = max(row.cost[first], row.cost[last]) - row.cost[cheapest(feature, first, last, of)]
            if spread > most:
                found, most = np.int64(level), spread
    return found


@inner
def _half(level: Any, of: Agreeing) -> Any:
    """Return where the second part of a feature's values begins: after the middle, or that cost more than the mean."""
    row, _, _, room = of
    low, high, feature = room.first[level], room.last[level], room.feature[level]
    middle = row.middle[feature]
    if low < middle <= high:
        return middle
    if row.listed[feature]:
        return (low + high + 1) >> 1
    ascending, mean = low >= middle, 0.5 * (row.cost[low] + row.cost[high])
    low += 1  # the first of a part that has at least one value, and leaves at least one
    while low < high:
        at = (low + high) >> 1
        if (row.cost[at] > mean) == ascending:
            high = at
        else:
            low = at + 1
    return low


@inner
def _score_of_end(level: Any, end: Any, at: Any, of: Agreeing) -> Any:
    """Return what the closest model says at most of the first part of some values, before a place, or of the last."""
    room = of.room
    first, last = room.first[level], room.last[level]
    if end == 0:
        room.last[level] = at - 1
    else:
        room.first[level] = at
    score = largest_score(room.tally[CLOSEST], of)
    room.tally[BOUNDS] += 1
    room.first[level], room.last[level] = first, last
    return score


@called
def shave(of: Agreeing) -> Any:
    """Take halves away from the ends of ranges as long as the closest model refuses them; whether there were any.

    Of the halves that it does not refuse, that with the lowest bound is noted. Where some models may refuse, nothing is
    shaved unless as many of them refuse the whole box: then one more is too many.
    """
    room = of.room
    model, shaved = room.tally[CLOSEST], False
    room.tally[PART], room.near[LOWEST] = -1, np.inf
    if model < 0 or room.against[room.group[model]] < room.spare[room.group[model]]:
        return False
    for level in range(room.tally[SIZE]):
        for end in range(2):
            refused = True
            while refused and room.first[level] < room.last[level]:
                at = (room.first[level] + room.last[level] + 1) >> 1
                slack = _score_of_end(level, end, at, of) - room.may[model]
                refused = slack < 0
                if refused and end == 0:
                    room.first[level] = at
                elif refused:
                    room.last[level] = at - 1
                elif slack < room.near[LOWEST]:
                    room.near[LOWEST], room.tally[PART], room.tally[PART_AT] = slack, level, at
                shaved |= refused
    return shaved


@inner
def where_to_part(of: Agreeing) -> Any:
    """Return which feature of the box is parted, and where its second part begins."""
    room = of.room
    if room.tally[PART] >= 0 and room.near[LOWEST] < LEFT * room.near[SLACK]:
        return np.int64(room.tally[PART]), np.int64(room.tally[PART_AT])
    level = _widest(of)
    return level, np.int64(_half(level, of))
