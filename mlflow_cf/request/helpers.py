"""Rows of a long table explained in other processes, because only one thread at a time runs Python."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Final, Self

import pandas as pd
from loky import ProcessPoolExecutor

from mlflow_cf.request.request import Request, Work
from mlflow_cf.words.result import Explanation

WORTH_S: Final = 10.0  # of work for each helper process; a start takes some seconds
MOST_HELPERS: Final = 8  # each holds MLflow and the model, some hundred megabytes
AHEAD: Final = 2  # parts that a helper is given beforehand, so that it need not wait
ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_logger = logging.getLogger(__name__)


class Helpers:
    """Processes that explain rows of one long table, each row with the same answer as without them.

    The rows are handed out in parts from the end of the table while this process goes on from its beginning, so that
    the seconds that a process takes to start are not lost. Use it as a context, so that none of them stays.

    Attributes:
        left: the numbers of the rows that nobody explains yet.
    """

    def __init__(self, request: Request, frame: pd.DataFrame, rows: Sequence[int]) -> None:
        """Set up for some `rows` of a request's table, by number."""
        self.left = deque(rows)
        self._work, self._frame, self._admission = request.elsewhere, frame, request.admission
        self._most = min(request.caller.further, MOST_HELPERS)
        self._stack, self._places, self._alone = ExitStack(), 0, False
        self._starting: Future[ProcessPoolExecutor] | None = None
        self._pool: ProcessPoolExecutor | None = None
        self._parts: dict[Future[tuple[Explanation, ...]], list[int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=self.busy)
        elif self._starting is not None:
            self._starting.add_done_callback(_stop)
        self._stack.close()

    @property
    def busy(self) -> bool:
        """Whether rows are being explained elsewhere."""
        return bool(self._parts)

    def take(self, most: int) -> list[int]:
        """Return the next rows, at most so many, for this process to explain."""
        return [self.left.popleft() for _ in range(min(most, len(self.left)))]

    def keep_busy(self, row_s: float, part: int) -> None:
        """Hand out parts of so many rows; start helpers first, if rows that take so many seconds each are worth it."""
        wanted = min(int(row_s * len(self.left) / WORTH_S), self._most)
        if wanted and self._starting is None and self._pool is None and not self._alone:
            self._places = self._stack.enter_context(self._admission.more(wanted))
            self._alone = not self._places
            if self._places:
                self._starting = _started(self._places, self._work)
        if self._starting is not None and self._starting.done():
            starting, self._starting = self._starting, None
            try:
                self._pool = starting.result()
            except Exception as error:  # noqa: BLE001  a model may hold what lives in this process alone
                self._failed([], error)
        while self._pool is not None and self.left and len(self._parts) < AHEAD * self._places:
            rows = [self.left.pop() for _ in range(min(part, len(self.left)))][::-1]
            try:
                self._parts[self._pool.submit(_explained, self._frame.iloc[rows])] = rows
            except Exception as error:  # noqa: BLE001  see above
                self._failed(rows, error)

    def finished(self, *, patient: bool) -> Iterator[tuple[int, Explanation]]:
        """Yield rows that were explained elsewhere; a `patient` caller waits for some."""
        done, _ = wait(self._parts, None if patient else 0, FIRST_COMPLETED)
        for part in done:
            rows = self._parts.pop(part)
            try:
                yield from zip(rows, part.result(), strict=True)
            except Exception as error:  # noqa: BLE001  whatever happens elsewhere, each row is explained somewhere
                self._failed(rows, error)

    def _failed(self, rows: list[int], error: Exception) -> None:
        _logger.warning("a helper process failed with %s; explaining without", type(error).__name__)
        self.left.extend(rows)
        if self._pool is not None:
            self._pool.shutdown(wait=False, kill_workers=True)
        self._pool, self._alone = None, True


def _started(places: int, work: Work) -> Future[ProcessPoolExecutor]:
    """Start processes in a thread of its own: each is handed the work once it has imported what that needs."""

    def start() -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(places, initializer=_begin, initargs=(work,), env=ONE_THREAD)
        pool.submit(os.getpid)
        return pool

    starter = ThreadPoolExecutor(1, "mlflow-cf")
    starting = starter.submit(start)
    starter.shutdown(wait=False)
    return starting


def _stop(starting: Future[ProcessPoolExecutor]) -> None:
    """Stop processes that nobody needs any more."""
    if starting.exception() is None:
        starting.result().shutdown(wait=True, kill_workers=True)


_WORK: Final[list[Work]] = []  # filled in helper processes only


def _begin(work: Work) -> None:
    _WORK[:] = [work]


def _explained(rows: pd.DataFrame) -> tuple[Explanation, ...]:
    return tuple(_WORK[0](rows))
