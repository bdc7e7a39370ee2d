"""Long work as a generator, which pauses after every few hundredths of a second, so that a clock can stop it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]  # yields between two steps, and returns the result


def finished(steps: Steps[T]) -> T:
    """Take all steps without a pause; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
