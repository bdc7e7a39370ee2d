"""When work on a summary ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace


def _nothing(_: int) -> object:
    return None


@dataclass(frozen=True)
class Clock:
    """A deadline, and who is told how far the work is.

    Attributes:
        time_limit_s: seconds from the start; None: no limit.
        count: told how many more rows are done.
        started: when the work began, as `time.perf_counter` says.
    """

    time_limit_s: float | None = None
    count: Callable[[int], object] = _nothing
    started: float = field(default_factory=time.perf_counter)

    @property
    def left_s(self) -> float | None:
        """How many seconds are left, None without a limit."""
        return None if self.time_limit_s is None else self.time_limit_s - (time.perf_counter() - self.started)

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        left = self.left_s
        return left is not None and left <= 0

    def part(self, share: float) -> Clock:
        """Return a clock that ends after a share of the time that is left."""
        left = self.left_s
        if left is None or self.time_limit_s is None:
            return self
        return replace(self, time_limit_s=self.time_limit_s - (1.0 - share) * max(left, 0.0))
