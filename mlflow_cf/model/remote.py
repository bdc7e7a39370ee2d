"""What the rest of the package knows of a model that another server answers for: calls cost, and may fail."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


class UnavailableError(Exception):
    """The model could not be asked; its predictions are unknown, and never made up.

    Attributes:
        reason: what a reply says.
        late: whether the time of the request was over, instead of the model being at fault.
    """

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(str(reason))
        self.reason, self.late = reason, late


@dataclass(eq=False)
class Session:
    """The calls of one request, which belong to its thread.

    Attributes:
        until: `time.perf_counter` value after which nothing more is asked; None: without limit.
        calls, rows: how many calls were made, and rows asked about in them, those of repeated calls included.
        most_calls: value of `calls` beyond which nothing more is asked; None: without limit.
        probed: how many of the rows were asked about to notice another model, which belongs to no request.
        trouble: why nothing may be explained now, or "".
    """

    until: float | None = None
    calls: int = 0
    rows: int = 0
    most_calls: int | None = None
    probed: int = 0
    trouble: str = ""


class Remote(Protocol):
    """How a model is asked that another server answers for.

    Attributes:
        calls_per_row, rows_per_row: most calls, and rows in them, that the search for one row may take.
    """

    @property
    def calls_per_row(self) -> int:
        """Most calls of the search for one row."""
        ...

    @property
    def rows_per_row(self) -> int:
        """Most rows asked about in the search for one row."""
        ...

    def asking(self) -> AbstractContextManager[Session]:
        """Return the context of a request: the calls of this thread in it belong to the session."""
        ...

    def learning(self) -> AbstractContextManager[None]:
        """Return a context in which what was said of a row before need not be asked again."""
        ...
