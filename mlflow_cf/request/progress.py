"""A bar for those who wait for many rows: in a terminal or a notebook, and only if it takes long."""

from __future__ import annotations

import sys
from functools import partial
from multiprocessing import parent_process
from typing import Final, Self

from tqdm import tqdm

LONG_S: Final = 2.0  # work that takes less needs no bar


class Progress:
    """Counts rows that were explained; use it as a context, so that the bar goes away however the work ends.

    Attributes:
        rows: how many there are in all.
    """

    def __init__(self, rows: int, *, watched: bool) -> None:
        """Set up for so many rows; nothing is ever shown to those who do not watch, such as clients of a server."""
        self.rows = rows
        shown = watched and parent_process() is None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        bar = partial(tqdm, total=rows, desc="explaining", unit="row", delay=LONG_S, leave=False)
        self._bar = bar() if shown else None

    def done(self, rows: int) -> None:
        """Count more rows."""
        if self._bar is not None:
            self._bar.update(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
