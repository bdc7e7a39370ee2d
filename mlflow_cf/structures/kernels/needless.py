"""Boxes all of whose candidates have a change that they do not need: without it, enough models accept them, too.

Candidates come nearest first, so that one without a change came before the one with it. So only sets are looked at
without one of their features of which a candidate is known to be accepted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlflow_cf.kernel import called, inner
from mlflow_cf.structures.kernels.agreement_state import BOUNDS, KNOWN, SET, SIZE, Agreeing, smallest_score


@inner
def know_set(of: Agreeing) -> None:
    """Note that a candidate is certainly accepted whose set is that of the box that is looked at."""
    room = of.room
    for at in range(room.tally[KNOWN]):
        if room.known[at] == room.tally[SET]:
            return
    if room.tally[KNOWN] < room.known.size:
        room.known[room.tally[KNOWN]] = room.tally[SET]
        room.tally[KNOWN] += 1


@called
def needless(of: Agreeing) -> Any:
    """Whether one and the same change is needless in all candidates of the box that is looked at.

    Then its set is noted as known, because some of these candidates may be accepted.
    """
    room = of.room
    number = room.tally[SET]
    for at in range(room.tally[KNOWN]):
        level = _left_out(number, room.known[at], of)
        if level >= 0 and room.undo[room.feature[level]]:
            last = room.tally[SIZE] - 1
            _swap(level, last, of)
            room.tally[SET], room.tally[SIZE] = room.known[at], last
            found = _enough_accept_all(of)
            room.tally[SET], room.tally[SIZE] = number, last + 1
            _swap(level, last, of)
            if found:
                know_set(of)
                return True
    return False


@inner
def _left_out(number: Any, smaller: Any, of: Agreeing) -> Any:
    """Return where the one feature stands in a set that a smaller one lacks; -1: it lacks others, or has some more."""
    room, after = of.room, 0
    size = room.sizes[smaller]
    if room.sizes[number] != size + 1:
        return -1
    level = np.int64(size)
    for at in range(size):
        if after == 0 and room.sets[smaller, at] != room.sets[number, at]:
            level, after = np.int64(at), 1
        if room.sets[smaller, at] != room.sets[number, at + after]:
            return -1
    return level


@inner
def _swap(level: Any, last: Any, of: Agreeing) -> None:
    """Let two features of the box that is looked at change places."""
    for some in (of.room.feature, of.room.first, of.room.last):
        some[level], some[last] = some[last], some[level]


@inner
def _enough_accept_all(of: Agreeing) -> Any:
    """Whether enough models certainly accept all candidates of the box that is looked at."""
    room = of.room
    for group in range(room.spare.size):
        room.unsure[group] = 0
    for at in range(room.asked.size):
        model = room.asked[at]
        group = room.group[model]
        room.tally[BOUNDS] += 1
        if smallest_score(model, of) < room.sure[model]:
            room.unsure[group] += 1
            if room.unsure[group] > room.spare[group]:
                return False
    return True
