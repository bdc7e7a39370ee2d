"""What a search tells of itself."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Statistics:
    """Counts of one search, in plain numbers.

    Attributes:
        cells_naive, cells_delta: values its candidates take as whole rows, and as it writes them.
    """

    def __init__(self, operators: Sequence[str]) -> None:
        """Set up the clocks of some operators."""
        self.cells_naive, self.cells_delta = 0, 0
        self._seconds = dict.fromkeys(operators, 0.0)

    @contextmanager
    def timed(self, operator: str) -> Iterator[None]:
        """Count the seconds of the body for an operator."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[operator] += time.perf_counter() - started

    def made(self, operator: str, blocks: Iterable[T]) -> Iterator[T]:
        """Yield `blocks` and count the seconds it takes to make them."""
        making = iter(blocks)
        while True:
            with self.timed(operator):
                block = next(making, None)
            if block is None:
                return
            yield block

    def summary(self, generations: int, candidates: int) -> dict[str, int | float]:
        """Return the diagnostics of a search; the seconds of each operator are named after it."""
        return {
            "generations": generations,
            "candidates": candidates,
            "cells_naive": self.cells_naive,
            "cells_delta": self.cells_delta,
            **{f"{operator}_s": seconds for operator, seconds in self._seconds.items()},
        }
