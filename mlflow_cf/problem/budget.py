"""How much one row's explanation may cost: model evaluations first, wall-clock as a safety."""

from __future__ import annotations

import time
from typing import Literal

SEARCH_SHARE = 0.8  # of the time until the deadline; the rest is for the proof of what the search found


class Budget:
    """Counts model evaluations (rows scored) and watches a deadline; every loop asks it.

    One budget belongs to one row and one thread. An answer is reproducible when the clock did not cut it.
    """

    def __init__(self, max_evaluations: int, deadline: float | None = None, reserve: int = 0) -> None:
        """Set up a budget.

        Args:
            max_evaluations: rows that may be scored in all.
            deadline: `time.perf_counter` value after which nothing new is started; None: no limit.
            reserve: evaluations kept back from `take` until `release`, so that what is found can still be proved.
                A share of the time is kept back in the same way.
        """
        now = time.perf_counter()
        self.used = 0
        self.cut: Literal["", "evaluations", "clock"] = ""
        self._left = max_evaluations - reserve
        self._reserve = reserve
        self._deadline = deadline
        self._until = None if deadline is None else now + SEARCH_SHARE * (deadline - now)

    def take(self, wanted: int) -> int:
        """Return how many of `wanted` rows may be scored now, and count them as used; 0: stop."""
        if self._late():
            self.cut = "clock"
            return 0
        granted = min(wanted, max(self._left, 0))
        if granted < wanted:
            self.cut = self.cut or "evaluations"
        self._left -= granted
        self.used += granted
        return granted

    @property
    def spent(self) -> bool:
        """Whether nothing more can be taken."""
        return self._left <= 0 or self._late()

    def release(self) -> None:
        """Make what was kept back available."""
        self._left, self._reserve, self._until = self._left + self._reserve, 0, self._deadline

    def _late(self) -> bool:
        return self._until is not None and time.perf_counter() >= self._until
