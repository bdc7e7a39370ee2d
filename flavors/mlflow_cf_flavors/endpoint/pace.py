"""How often a server is asked: a limit on calls and rows per second, and a stop after failures in a row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Clock = Callable[[], float]


class Pace:
    """Lets calls pass at a steady rate; shared by all threads."""

    def __init__(self, calls_per_s: float | None, rows_per_s: float | None, clock: Clock = time.perf_counter) -> None:
        """Set up with rates, None for those without limit."""
        self._per_call = 0.0 if calls_per_s is None else 1.0 / calls_per_s
        self._per_row = 0.0 if rows_per_s is None else 1.0 / rows_per_s
        self._clock, self._free, self._lock = clock, 0.0, threading.Lock()

    def reserve(self, rows: int, until: float | None) -> float | None:
        """Return the seconds to wait before a call about so many rows; None: it would be later than `until`."""
        with self._lock:
            now = self._clock()
            start = max(self._free, now)
            if until is not None and start >= until:
                return None
            self._free = start + max(self._per_call, rows * self._per_row)
            return start - now


class Breaker:
    """Stops calls to a server that fails, and tries a single one after a pause; shared by all threads."""

    def __init__(self, failures: int, pause_s: float, clock: Clock = time.perf_counter) -> None:
        """Set up closed; so many failures in a row open it."""
        self._most, self._pause_s, self._clock = failures, pause_s, clock
        self._failed, self._tried, self._lock = 0, 0.0, threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether calls are stopped, but for a single one after each pause."""
        return self._failed >= self._most

    def enter(self) -> bool:
        """Return whether a call may be made now; while this is open, the first one after a pause."""
        with self._lock:
            if not self.is_open:
                return True
            now = self._clock()
            if now - self._tried < self._pause_s:
                return False
            self._tried = now
            return True

    def note(self, *, failed: bool) -> None:
        """Note how a call ended."""
        with self._lock:
            self._failed = self._failed + 1 if failed else 0
            if failed:
                self._tried = self._clock()
