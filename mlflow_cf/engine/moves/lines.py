"""Whether the values of a number are steps along one line, and what lies below their costs."""

from __future__ import annotations

from typing import Any, Final

from numpy.typing import NDArray

from mlflow_cf.kernel import kernel

Array = NDArray[Any]
STRAIGHT: Final = 1e-12  # relative: effects of a number's values that differ no more from a line are on it
LEAST_STEP: Final = 1e-9  # of a number's longest: shorter steps are not told apart from none


@kernel
def step_along(effects: Array, step: Array) -> Any:
    """Write how long every effect (t, width) is along the longest one; return which that is.

    It is -1 where they do not lie on one line, or where some are too short.
    """
    longest, size = 0, 0.0
    for action in range(len(effects)):
        for unit in range(effects.shape[1]):
            if abs(effects[action, unit]) > size:
                longest, size = action, abs(effects[action, unit])
    line, square = effects[longest], 1e-300
    for unit in range(effects.shape[1]):
        square += line[unit] * line[unit]
    for action in range(len(effects)):
        along = 0.0
        for unit in range(effects.shape[1]):
            along += effects[action, unit] * line[unit]
        along /= square
        if abs(along) < LEAST_STEP:
            return -1
        for unit in range(effects.shape[1]):
            if abs(effects[action, unit] - along * line[unit]) > STRAIGHT * size:
                return -1
        step[action] = along
    return longest


@kernel
def line_below(steps: Array, costs: Array, limits: Array) -> bool:
    """Write a fixed cost and a slope (2,) that steps (t,) cost no less than; False: they are not in order.

    Steps ascend, and what they cost does not fall. The slope is what further steps cost at least per length; no more
    than any costs per whole length, so that a line from nothing to the longest step lies below what shorter ones cost.
    """
    last = len(steps) - 1
    if last > 0 and steps[last] <= steps[0]:
        return False
    whole, least, straight = costs[0] / steps[0], 0.0, True
    even = (costs[last] - costs[0]) / (steps[last] - steps[0]) if last > 0 else 0.0
    for at in range(1, last + 1):
        length, more = steps[at] - steps[at - 1], costs[at] - costs[at - 1]
        if length <= 0.0 or more < 0.0:
            return False
        least = more / length if at == 1 else min(least, more / length)
        whole = min(whole, costs[at] / steps[at])
        off = abs(costs[at] - (costs[0] + even * (steps[at] - steps[0])))
        straight = straight and off <= STRAIGHT * max(1.0, costs[last])
    slope = min(even if straight else least, whole) * (1 - LEAST_STEP)
    fixed = costs[0] - slope * steps[0]
    for at in range(1, last + 1):
        fixed = min(fixed, costs[at] - slope * steps[at])
    limits[0], limits[1] = fixed, slope
    return True
