"""What is known of states, by their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.plans.kernels import Ints

ROOM: Final = 4_096  # entries that there is room for at first


class Memory:
    """Two facts about each of many states."""

    def __init__(self) -> None:
        """Start with none."""
        self._places: defaultdict[int, int] = defaultdict(count().__next__)  # in the order in which they are met
        self._facts: Floats = np.empty((ROOM, 2))

    def facts(self, keys: NDArray[np.uint64], ask: Callable[[Ints], Floats], otherwise: tuple[float, float]) -> Floats:
        """Return what is known (m, 2) about the states of keys (m,).

        Args:
            keys: of the states.
            ask: what finds out (n, 2) about states met for the first time, given where their keys stand; it may leave
                out the last ones.
            otherwise: what holds for those that it has left out, from then on.
        """
        before = len(self._places)
        found = np.fromiter(map(self._places.__getitem__, keys.tolist()), np.int64, len(keys))
        fresh = np.flatnonzero(found >= before)
        if len(fresh):
            _, first = np.unique(found[fresh], return_index=True)
            told = ask(fresh[first])
            self._make_room(len(self._places))
            self._facts[before : len(self._places)] = otherwise
            self._facts[before : before + len(told)] = told
        return self._facts[found]

    def _make_room(self, entries: int) -> None:
        if entries > len(self._facts):
            more = np.empty((max(entries, 2 * len(self._facts)), 2))
            more[: len(self._facts)] = self._facts
            self._facts = more
