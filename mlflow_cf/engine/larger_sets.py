"""Sets of features whose least changes cost no more than a limit together, one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.thresholds import MOST_SETS
from mlflow_cf.features import Floats
from mlflow_cf.kernel import inner, kernel

Array = NDArray[Any]


class LargerSets(NamedTuple):
    """The next set, of d features in the order of their costs.

    Attributes:
        feature: (d,) which feature is where in that order; cost: (d,) what a change of each costs at least.
        chosen, total: (d,), (d + 1,) the places of the set, and what the first ones cost together.
        progress: (3,) how many features the set has, the place to go on with, and how many sets there were.
    """

    feature: Array
    cost: Array
    chosen: Array
    total: Array
    progress: Array

    @classmethod
    def room(cls, d: int) -> LargerSets:
        """Return arrays for so many features."""
        numbers, progress = np.empty((2, d), dtype=np.int64), np.zeros(3, dtype=np.int64)
        return cls(numbers[0], np.empty(d), numbers[1], np.zeros(d + 1), progress)


@inner
def begin_sets(larger: LargerSets) -> None:
    """Begin with the first set of features whose order and costs are written."""
    larger.progress[:], larger.total[0] = 0, 0.0


@inner
def next_set_within(larger: LargerSets, limit: Any, fewest: Any, most: Any) -> Any:
    """Go on to the next set of `fewest` to `most` features whose least changes cost no more than a limit together.

    Returns:
        How many features it has, the first ones of `LargerSets.chosen`; 0: there is none.
    """
    depth, place = larger.progress[0], larger.progress[1]
    while True:
        lacking = max(fewest - depth, 1)
        total, near = larger.total[depth], depth < most and place + lacking <= larger.cost.size
        for at in range(place, place + lacking if near else place):
            total += larger.cost[at]
        if near and total <= limit:
            larger.chosen[depth], larger.total[depth + 1] = place, larger.total[depth] + larger.cost[place]
            depth, place = depth + 1, place + 1
            if depth >= fewest:
                larger.progress[0], larger.progress[1] = depth, place
                larger.progress[2] += 1
                return depth
        elif depth == 0:
            return 0
        else:
            depth -= 1
            place = larger.chosen[depth] + 1


@kernel
def list_sets(larger: LargerSets, limit: float, fewest: int, most: int, sets: Array) -> int:
    """Write which features are in each set into `sets` (s, d) until that is full; return how many there are."""
    begin_sets(larger)
    count = 0
    while count < len(sets):
        depth = next_set_within(larger, limit, fewest, most)
        if depth == 0:
            break
        for at in range(depth):
            sets[count, larger.feature[larger.chosen[at]]] = True
        count += 1
    return count


def sets_within(least: Floats, limit: float, fewest: int, most: int) -> Bools | None:
    """Return the sets (s, d) of features whose least changes cost no more than a limit together; None: too many.

    Args:
        least: (d,) what a change of each feature costs at least.
        limit: as said.
        fewest, most: how many features they have.
    """
    larger = LargerSets.room(len(least))
    larger.feature[:] = np.argsort(least, kind="stable")
    larger.cost[:] = least[larger.feature]
    sets = np.zeros((MOST_SETS + 1, len(least)), dtype=np.bool_)
    count = list_sets(larger, limit, fewest, most, sets)
    return sets[:count] if count <= MOST_SETS else None
