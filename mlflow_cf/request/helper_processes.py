"""Helper processes that explain rows of a long table, because only one thread at a time runs Python.

The rows are handed out in parts from the end of the table while this process goes on from its beginning, so that the
seconds that a process takes to start are not lost. Every row gets the same answer as without helpers.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from multiprocessing import parent_process
from typing import Final, Self

import pandas as pd
from loky import ProcessPoolExecutor

from mlflow_cf.request.admission import Admission
from mlflow_cf.request.request import Work
from mlflow_cf.words.result import Explanation

WORTH_S: Final = 10.0  # of work for each helper; a start takes some seconds
MOST: Final = 8  # each holds MLflow and the model, some hundred megabytes
AHEAD: Final = 2  # parts that a helper is given beforehand, so that it need not wait
# Modules of processes that have only one core to themselves (tasks of Spark), so that they start no helpers.
CROWDED: Final = ("pyspark.daemon", "pyspark.worker")
ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_logger = logging.getLogger(__name__)


class Helpers:
    """Processes that explain rows of one table; use it as a context, so that none of them stays.

    Attributes:
        left: the numbers of the rows that nobody explains yet.
    """

    def __init__(self, work: Work, frame: pd.DataFrame, admission: Admission, rows: Sequence[int]) -> None:
        """Set up for some `rows` of a table, by number, and the `work` that explains a part of it elsewhere."""
        self.left = deque(rows)
        self._work, self._frame, self._admission = work, frame, admission
        self._stack, self._places = ExitStack(), 0
        self._pool: ProcessPoolExecutor | None = None
        self._alone = parent_process() is not None or any(name in sys.modules for name in CROWDED)
        self._parts: dict[Future[tuple[Explanation, ...]], list[int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=self.busy)
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
        wanted = min(int(row_s * len(self.left) / WORTH_S), MOST)
        if wanted and self._pool is None and not self._alone:
            self._places = self._stack.enter_context(self._admission.more(wanted))
            self._alone = not self._places
            if self._places:
                self._pool = ProcessPoolExecutor(
                    self._places, initializer=_begin, initargs=(self._work,), env=ONE_THREAD
                )
        while self._pool is not None and self.left and len(self._parts) < AHEAD * self._places:
            rows = [self.left.pop() for _ in range(min(part, len(self.left)))][::-1]
            try:
                self._parts[self._pool.submit(_explained, self._frame.iloc[rows])] = rows
            except Exception as error:  # noqa: BLE001  a model may hold what lives in this process alone
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


_WORK: Final[list[Work]] = []  # filled in helper processes only


def _begin(work: Work) -> None:
    _WORK[:] = [work]


def _explained(rows: pd.DataFrame) -> tuple[Explanation, ...]:
    return tuple(_WORK[0](rows))
