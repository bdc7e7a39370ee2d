"""How much one row's explanation may cost: model evaluations first, wall-clock as a safety."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

LEAST_ROWS = 64  # scored in one go: a call to the model has its price whatever its size
FIRST_ROWS = 256  # in the first go, before the model's pace is known


class Budget:
    """Counts model evaluations (rows scored) and watches a deadline; every loop asks it.

    One budget belongs to one row and one thread. An answer is reproducible when the clock did not cut it.
    """

    def __init__(self, max_evaluations: int, reserve: int = 0, pause: Callable[[], None] | None = None) -> None:
        """Set up a budget.

        Args:
            max_evaluations: rows that may be scored in all.
            reserve: evaluations kept back from `take` until `release`, so that what is found can still be verified.
            pause: called before more is taken, to let others go first.
        """
        self.used = 0
        self.cut: Literal["", "evaluations", "clock"] = ""
        self._pause = pause
        self._left = max_evaluations - reserve
        self._reserve = reserve
        self._until: float | None = None
        self._deadline: float | None = None
        self._started = 0.0

    def anew(self, max_evaluations: int) -> Budget:
        """Return another budget that lets the same others go first."""
        return Budget(max_evaluations, pause=self._pause)

    def part(self, most: int, share: float = 1.0) -> Budget:
        """Return a budget of at most so many of the evaluations that are left, and of a share of the time.

        What it used is to be taken from this one, too.
        """
        part, until, left = self.anew(min(most, self.left)), self._until, self.seconds_left
        if until is not None and left is not None and share < 1.0:
            until -= (1.0 - share) * max(left, 0.0)
        part.start(until, self._deadline)
        return part

    def start(self, until: float | None, deadline: float | None) -> None:
        """Start the search; `until` ends it, and `deadline` verification and certificates, once `release` was called.

        Both are `time.perf_counter` values, or None without a limit.
        """
        self._until, self._deadline = until, deadline
        self._started = time.perf_counter()

    def take(self, wanted: int, *, even_late: bool = False) -> int:
        """Return how many of `wanted` rows may be scored now, and count them as used; 0: stop.

        `even_late` asks for the one batch after the clock has run out in which what was found is verified.
        """
        if self._pause is not None:
            self._pause()
        if not even_late and self.late:
            return 0
        granted = min(wanted, max(self._left, 0))
        if granted < wanted:
            self.cut = self.cut or "evaluations"
        self._left -= granted
        self.used += granted
        return granted

    def batch_size(self, wanted: int) -> int:
        """Return how many of `wanted` rows to score in one go, so that the clock is asked again in time.

        All of them, unless at the pace so far they would take more than half of the time that is left.
        """
        if self._until is None:
            return wanted
        if not self.used:
            return min(wanted, FIRST_ROWS)
        now = time.perf_counter()
        affordable = int((self._until - now) / 2 * self.used / max(now - self._started, 1e-9))
        return min(wanted, max(affordable, LEAST_ROWS))

    @property
    def left(self) -> int:
        """How many evaluations may still be taken."""
        return max(self._left, 0)

    @property
    def seconds_left(self) -> float | None:
        """How much time is left, 0 or less if none is; None without a limit."""
        return None if self._until is None else self._until - time.perf_counter()

    @property
    def spent(self) -> bool:
        """Whether nothing more can be taken."""
        return self._left <= 0 or self.late

    @property
    def late(self) -> bool:
        """Whether the clock has run out."""
        if self._until is None or time.perf_counter() < self._until:
            return False
        self.cut = "clock"  # whoever asks stops, and what is found depends on when that was
        return True

    def keep_back(self, most: int) -> int:
        """Keep so many evaluations back, or as many as are left; return how many."""
        kept = min(most, self.left)
        self._left -= kept
        return kept

    def give_back(self, kept: int) -> None:
        """Make evaluations available that were kept back."""
        self._left += kept

    def release(self) -> None:
        """Make what was kept back available."""
        self._left, self._reserve, self._until = self._left + self._reserve, 0, self._deadline

    def share(self, rows: int) -> None:
        """Give this row an even share of the time that is left for so many rows."""
        if self._deadline is not None:
            now = time.perf_counter()
            self._until = now + max(self._deadline - now, 0.0) / rows
