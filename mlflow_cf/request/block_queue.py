"""The rows of a long table: predicted part by part, and settled block by block, by several threads.

Rows are settled while others are still predicted. To predict is mostly Python, which one thread at a time can run, and
to settle is mostly kernels, so that two threads that do both side by side wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from threading import Condition
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.problem import Codes
from mlflow_cf.request.block_answers import SettledBlock
from mlflow_cf.request.portfolio import Portfolio
from mlflow_cf.request.request import Request, is_wanted, unmet
from mlflow_cf.request.rows import Predicted
from mlflow_cf.structures import Layers

ROWS_AT_ONCE: Final = 1_024  # of a block, if each has several answers
ROWS_JUDGED, LAYERS_JUDGED = 8_192, 16_384  # if each has one: a call costs 1 to 16 ms of Python however few rows
# Blocks of several threads: each takes half of its share of what is left, so that they end together, and rows that
# the first blocks leave are searched beside the last. With a quarter, a row costs 12 to 40 % more, with twice 0 to 12 %
# less. Of layers a row takes 2 to 20 us, and a block some 2 ms of Python whatever its size: two cores are 1.65 times
# one with 512 rows for a linear model on 100,000 rows of Adult, with 1,024 and 2,048 1.75, with 6,144 1.72. Of a
# forest, a row of which takes 0.5 ms, 1.86 with 512, with 2,048 1.71.
LEAST_ROWS: Final = 512
LEAST_OF_LAYERS: Final = 2_048
# A first block, while other rows are still predicted: with 1,024 and 2,048 rows two cores are 1.65 times one for a
# linear model on 100,000 rows of Credit, with 3,072 1.58; for a network 1.76 with 2,048, 1.71 with 3,072.
EARLY: Final = 2_048
# Where several models must accept answers, a row takes 0.3 to 300 ms: blocks are smaller, and so is what they leave.
ROWS_LISTED: Final = 256
LEAST_LISTED: Final = 32

Task = Callable[[], None]
Beside = Callable[[], bool]  # does some other work of the one who reads answers; returns whether there was some


class BlockSizes(NamedTuple):
    """How rows are put into blocks for as many threads as there may be.

    Attributes:
        threads: how many there may be.
        most: how many rows a block has at most; least: how few as half of its share of what is left; fewest: how few
            as all of it.
    """

    threads: int
    most: int
    least: int
    fewest: int

    @classmethod
    def of(cls, request: Request) -> BlockSizes:
        """Return how large blocks of a request are."""
        threads, requirements = request.admission.threads(request.caller.further), request.requirements
        if requirements.further:
            return cls(threads, ROWS_LISTED, LEAST_LISTED, LEAST_LISTED)
        if request.query.count > 1:
            return cls(threads, ROWS_AT_ONCE, LEAST_ROWS, LEAST_ROWS)
        if isinstance(requirements.structure, Layers):
            return cls(threads, LAYERS_JUDGED, LEAST_OF_LAYERS, LEAST_ROWS)
        return cls(threads, ROWS_JUDGED, LEAST_ROWS, LEAST_ROWS)

    def early(self, expected: int) -> float:
        """Return how many rows are worth a block while others of `expected` ones are still predicted."""
        return np.inf if self.threads == 1 else min(self.most, max(EARLY, expected // (2 * self.threads)))

    def early_blocks(self, rows: Codes, size: float) -> list[Codes]:
        """Return rows (m,), by their number, in blocks that are worth about so many rows."""
        return np.array_split(rows, -(-len(rows) // min(int(1.25 * size), self.most)))

    def last_blocks(self, rows: Codes) -> list[Codes]:
        """Return the last rows (m,) in blocks, the smallest ones last."""
        if self.threads == 1 and len(rows):
            return np.array_split(rows, -(-len(rows) // self.most))
        ends = [0]
        while (left := len(rows) - ends[-1]) > 0:
            size = min(self.most, -(-left // (2 * self.threads)))
            size = size if size >= self.least else max(-(-left // self.threads), self.fewest)
            ends += [ends[-1] + size * done for done in range(1, self.threads + 1)]
        return [block for block in np.split(rows, ends[1:]) if len(block)]


class BlockQueue:
    """What is still to be done for the rows of a table; its threads share it.

    Which rows are in a block does not depend on which thread is first.

    Attributes:
        rows: how many rows are to be explained; blocks: in how many blocks.
        passed: of how many rows that are predicted here nothing is to be explained. All may grow until all rows are
            `predicted`.
    """

    def __init__(self, portfolio: Portfolio, numbers: Codes) -> None:
        """Set up for the rows that are still to be predicted, and those of the others (n,) that are to be explained."""
        self._portfolio, self._reading = portfolio, portfolio.predictions.reading
        self._sizes = BlockSizes.of(portfolio.request)
        self.rows, self.blocks, self.passed = 0, 0, 0
        self._parts, self._begun, self._added = len(self._reading.left), 0, 0  # parts that are predicted here
        self._told = dict[int, tuple[Codes, Codes]]()  # their rows, and which are to be explained, until all before are
        self._seen = len(self._reading.codes) - sum(map(len, self._reading.left))
        self._uncut, self._cut, self._done = list[Codes](), deque[tuple[int, Codes]](), dict[int, SettledBlock]()
        self._given, self._predicting, self._settling = 0, 0, 0
        self._changed, self._closed, self._error = Condition(), False, list[BaseException]()
        self._add(numbers)

    @property
    def predicted(self) -> bool:
        """Whether all rows are predicted."""
        return self._added == self._parts

    def answers(self, beside: Beside) -> Generator[SettledBlock, None, None]:
        """Yield what was found of the rows of each block, in order, as long as there is time.

        The thread that reads them works, too, where the next one is not ready. Once all rows are predicted, it does
        first what is to be done `beside` the blocks.
        """
        tasks, request = self.blocks if self.predicted else len(self._reading.codes), self._portfolio.request
        with request.admission.crew(self._work_off, min(request.caller.further, tasks - 1)):
            try:
                while True:
                    while self._is_next_done:
                        self._given += 1
                        yield self._done.pop(self._given - 1)
                    if self.predicted and beside():
                        continue
                    task = self._next(patient=True)
                    if task is not None:
                        self._do(task)
                    elif self._error:
                        raise self._error[0]
                    elif not self._is_next_done:
                        return
            finally:
                self._close()

    @property
    def _is_next_done(self) -> bool:
        return self._given in self._done

    def _work_off(self) -> None:
        """Do tasks as long as there are any."""
        while (task := self._next(patient=False)) is not None:
            self._do(task)

    def _do(self, task: Task) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001  it is raised where answers are read
            self._close(error)

    def _close(self, *error: BaseException) -> None:
        """Begin no further task."""
        with self._changed:
            self._closed = True
            self._error += error
            self._changed.notify_all()

    def _next(self, *, patient: bool) -> Task | None:
        """Return the next task; None if there is none, or, for those who are `patient`, if the next block is done."""
        with self._changed:
            while not self._closed and not (patient and self._is_next_done):
                if self._reading.left and not (self._predicting and self._cut):
                    self._predicting += 1
                    self._begun += 1
                    return partial(self._predict, self._begun - 1, self._reading.left.popleft())
                if self._cut:
                    self._settling += 1
                    return partial(self._settle, *self._cut.popleft())
                if not self._predicting and not (patient and self._settling):
                    return None
                self._changed.wait()
        return None

    def _predict(self, part: int, rows: Codes) -> None:
        """Predict the rows of a part, and put those into blocks that are to be explained."""
        predicted = None
        try:
            predicted = self._reading.predict(rows)
        finally:
            with self._changed:
                self._predicting -= 1
                if predicted is None:
                    self._reading.left.appendleft(rows)  # it was interrupted
                else:
                    self._reading.note(*predicted)
                    self._told[part] = rows, self._wanted(*predicted)
                    self._add_parts()
                self._changed.notify_all()

    def _wanted(self, some: Codes, told: Predicted) -> Codes:
        """Return which rows are to be explained of those of which the model says so."""
        request = self._portfolio.request
        if isinstance(told, dict):
            return np.array([number for number, row in told.items() if is_wanted(request, row)], dtype=np.intp)
        return some[unmet(request, told[1])]

    def _add_parts(self) -> None:
        """Add the parts that are predicted, as all before them are."""
        while self._added in self._told:
            some, wanted = self._told.pop(self._added)
            self._added += 1
            self._seen += len(some)
            self.passed += len(some) - len(wanted)
            self._add(wanted)

    def _add(self, numbers: Codes) -> None:
        """Add rows to those that wait, and put these into blocks if they are worth one, or are the last ones."""
        self._uncut.append(numbers)
        self.rows += len(numbers)
        expected = self.rows * len(self._reading.codes) // max(self._seen, 1)
        size = 0.0 if self.predicted else self._sizes.early(expected)
        if sum(map(len, self._uncut)) < size:
            return
        waiting, self._uncut = np.concatenate(self._uncut), []
        blocks = self._sizes.last_blocks(waiting) if self.predicted else self._sizes.early_blocks(waiting, size)
        self._portfolio.prepare(waiting)
        self._cut.extend(enumerate(blocks, self.blocks))
        self.blocks += len(blocks)

    def _settle(self, number: int, block: Codes) -> None:
        settled = self._portfolio.timely(block)
        with self._changed:
            self._settling -= 1
            self._done[number] = settled
            self._changed.notify_all()
