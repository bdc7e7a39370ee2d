"""What waits in an exact search, least possible key first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.entries import Box, Key, Leaf, Leaves
from mlflow_cf.exact.needless import Needless
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes

FIRST_TESTED, MOST_TESTED = 16, 1024  # candidates at once: often the first one closes their changed set


class Waiting:
    """Boxes, and candidates by what they change.

    Attributes:
        closed: changed sets (G,) as bytes; candidates with one of them are dropped.
    """

    def __init__(self, own: Codes, needless: Needless | None) -> None:
        """Let nothing wait. Candidates beside a row with tuples `own` (G,) are dropped if a change is `needless`."""
        self._own, self._needless = own, needless
        self.closed: set[bytes] = set()
        self._serial = count()
        self._heap: list[tuple[Key, int, Leaves | Box]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[tuple[Key, Leaves | Box]]:
        return ((key, entry) for key, _, entry in self._heap)

    @property
    def low(self) -> float:
        """Nothing that waits is nearer than this."""
        return self._heap[0][0][0] if self._heap else np.inf

    def add_box(self, key: Key, box: Box) -> None:
        """Let a box wait that has no candidate with a lesser key."""
        heapq.heappush(self._heap, (key, next(self._serial), box))

    def add(self, codes: Codes, distance: Floats, certain: Bools, checked: Bools) -> None:
        """Let candidates (m, G) wait, without a needless change of the groups `checked` (G,); see `Leaves`."""
        if len(codes):
            for leaves in Leaves.by_set(self._own, codes, distance, certain, checked):
                self._wait(leaves)

    def add_leaf(self, leaf: Leaf) -> None:
        """Let a candidate wait that was returned."""
        certain, everything = np.array([leaf.certain]), np.ones(len(self._own), dtype=np.bool_)
        (leaves,) = Leaves.by_set(self._own, leaf.codes[None], np.array([leaf.key[0]]), certain, everything)
        self._wait(leaves)

    def pop(self, limit: float, budget: Budget) -> Leaf | tuple[Key, Box] | None:
        """Return the next candidate or box, None if there is none within a limit or the budget is used up before."""
        while self._heap and self.low <= limit:
            key, _, least = heapq.heappop(self._heap)
            if isinstance(least, Box):
                return key, least
            if self._closes(least.changed):
                continue
            if least.tested:
                self._wait(least.after(1))
                return least.leaf(0)
            spent = budget.spent
            self._wait(least if spent else self._tested(least))
            if spent:
                return None
        return None

    def doubtful(self, most: int) -> list[Codes]:
        """Return the codes of some candidates that may be refused, at most so many."""
        found: list[Codes] = []
        for _, _, entry in self._heap[: 4 * most]:  # the nearest stand near the front
            if isinstance(entry, Leaves) and not self._closes(entry.changed):
                found += list(entry.codes[: entry.tested][~entry.certain[: entry.tested]])
        return found[:most]

    def _closes(self, changed: Bools) -> bool:
        return changed.tobytes() in self.closed

    def _wait(self, leaves: Leaves) -> None:
        if len(leaves.codes) and not self._closes(leaves.changed):
            heapq.heappush(self._heap, (leaves.key, next(self._serial), leaves))

    def _tested(self, leaves: Leaves) -> Leaves:
        """Test the first of some candidates; the longer all had a needless change, the more of them."""
        first = leaves.codes[: min(max(FIRST_TESTED, leaves.dropped), MOST_TESTED)]
        none = np.zeros(len(first), dtype=np.bool_)
        return leaves.without(none if self._needless is None else self._needless.of(first, leaves.checked))
