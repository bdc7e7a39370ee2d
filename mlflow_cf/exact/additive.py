"""How far two changes are that suffice, if what each does to the model adds up: where it pays to look."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.kernel import kernel
from mlflow_cf.problem import Codes

Array = NDArray[Any]


class Changes(NamedTuple):
    """Changes of one group each, those that do most last.

    Attributes:
        gain: (n,) what each does towards the target, ascending.
        cost, peak: (n,) what each adds to the distance; group: (n,) what it changes.
    """

    gain: Array
    cost: Array
    peak: Array
    group: Array


@kernel
def find_nearest_two(changes: Changes, need: float, c: float, found: Array) -> None:
    """Write the distance of the nearest two changes of different groups that gain what is needed into `found` (1,).

    Partners come as they are needed, those that do most first; the nearest so far is known, and the nearest one of
    another group than that.
    """
    n = changes.gain.size
    first, second, partner = -1, -1, n
    for one in range(n):
        while partner > 0 and changes.gain[partner - 1] + changes.gain[one] >= need:
            partner -= 1
            cost, group = changes.cost[partner], changes.group[partner]
            if first < 0 or cost < changes.cost[first]:
                second = first if first >= 0 and changes.group[first] != group else second
                first = partner
            elif group != changes.group[first] and (second < 0 or cost < changes.cost[second]):
                second = partner
        other = second if first >= 0 and changes.group[first] == changes.group[one] else first
        if other >= 0:
            largest = max(changes.peak[one], changes.peak[other])
            found[0] = min(found[0], changes.cost[one] + changes.cost[other] + c * largest)


def nearest_two(gain: Floats, cost: Floats, peak: Floats, group: Codes, need: float, c: float) -> float:
    """Return the distance of the nearest two changes that together gain what is needed; inf where none do.

    Args:
        gain: (n,) what each change does towards the target.
        cost, peak: (n,) what each adds to the distance, which has `c` times the larger peak.
        group: (n,) what each changes; two changes are of different groups.
        need: what they are to gain.
    """
    order, found = np.argsort(gain, kind="stable"), np.array([np.inf])
    find_nearest_two(Changes(gain[order], cost[order], peak[order], group[order]), float(need), float(c), found)
    return float(found[0])
