"""The rows of a table explained: in blocks where few changes settle them, else by themselves, and some elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Search
from mlflow_cf.explainers.remote import sparing
from mlflow_cf.proof.pipeline import Answer
from mlflow_cf.request.block_answers import Found
from mlflow_cf.request.block_queue import BlockQueue
from mlflow_cf.request.expected import Predictions
from mlflow_cf.request.explaining import FIRST_ROWS, ROWS_AT_ONCE, Explaining, Whole, progress
from mlflow_cf.request.helpers import Helpers
from mlflow_cf.request.portfolio import FEW, Portfolio
from mlflow_cf.request.request import Request
from mlflow_cf.request.rows import Row, numbers_of
from mlflow_cf.structures.structure import Structure
from mlflow_cf.words.reasons import still_learning
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.statements import say

# Rows that are searched together while blocks of others are settled. Each group costs a call of the model: with 4, two
# cores took 6.3 s for a forest on 50,000 rows of Adult, with 32 4.7. XGBoost leaves 23 of 100,000 such rows in all.
BESIDE_BLOCKS: Final = 16
# Rows that all but the last blocks leave, which are small, are searched beside these however few they are: 3 of a
# network on Credit take 35 ms, of 190 for 100,000 rows.
LAST_BLOCKS: Final = 3
LEAST_ROW_S: Final = 1e-6  # no row takes less
PART_S: Final = 2.0  # of work on the rows of a long table that are explained together


class LateError(Exception):
    """The time of a request was over before its constraints were bound."""


class ExplainTable:
    """Explains rows of the table of a request; belongs to one thread.

    Attributes:
        request: the request with its constraints; search_with: what searches a single row.
        predictions: of all rows; table: these.
        found: the explanations so far.
    """

    def __init__(
        self, request: Request, search_with: Search, predictions: Predictions, table: pd.DataFrame, found: Found
    ) -> None:
        """Set up for rows of which some may still be to be predicted."""
        self.request, self.search_with, self.predictions = request, search_with, predictions
        self.table, self.found = table, found
        # other processes would count calls of a server by themselves, and each go as fast as it may
        clocked = request.deadline is not None and not request.caller.row_seconds
        self._together = clocked or request.session is not None
        self._whole, self._same = Whole(0, 0, 0.0), _SameRows()
        self._count: Callable[[int], object] = lambda _: None

    @classmethod
    def of(cls, predictions: Predictions, table: pd.DataFrame, found: Found) -> ExplainTable | Answer | Exception:
        """Return what explains rows of a table, or what all of them are answered instead.

        Raises:
            InputError: constraints that do not fit, or an explainer that cannot learn from this background; it could
                for no row.
        """
        ready = _ready(predictions.request)
        return cls(*ready, predictions, table, found) if isinstance(ready, tuple) else ready

    def explain(self, rows: Mapping[int, Row]) -> None:
        """Explain rows by their number: all together where they are few or have one deadline, else in batches."""
        started, self._whole = time.perf_counter(), Whole(len(rows), len(rows), 0.0)
        portfolio = Portfolio.of(self.request, self.predictions) if len(rows) > self.predictions.few else None
        with self._counted(len(rows)):
            if portfolio is None:
                self._one_by_one(rows, started)
            else:
                self._in_blocks(BlockQueue(portfolio, numbers_of(rows)), started)

    def explain_unpredicted(self) -> bool:
        """Predict all rows, and explain those that need it in blocks meanwhile; False: blocks cannot, nothing is done.

        Raises:
            InputError: the model can predict none of them.
        """
        started, portfolio = time.perf_counter(), Portfolio.of(self.request, self.predictions)
        if portfolio is None:
            return False
        with self._counted(len(self.table)):
            self._in_blocks(BlockQueue(portfolio, np.empty(0, dtype=np.intp)), started)
        return True

    @contextmanager
    def _counted(self, rows: int) -> Iterator[None]:
        """Show how many of so many rows are explained, for the time of a `with` block."""
        with progress(rows, watched=self.request.caller.owner) as self._count:
            yield

    def _in_blocks(self, queue: BlockQueue, started: float) -> None:
        """Explain the rows of a queue in blocks, and those that are left by themselves.

        Their searches run Python, which one thread at a time can do: some are explained here while other threads go on.
        """
        groups, passed = _Groups(self.predictions, self._same), 0
        beside = not self._together and bool(self.request.caller.further)

        def explain_group() -> bool:
            some = groups.next(queue.blocks) if beside else []
            if some:
                self._whole = Whole(queue.rows, queue.rows, 0.0)
                self._explain_some(self._rows(some), time.perf_counter())
            return bool(some)

        with closing(queue.answers(beside=explain_group)) as blocks:
            for block in blocks:
                self.found.blocks.extend(block.answers)
                self._count(sum(len(part.numbers) for part in block.answers) + queue.passed - passed)
                passed = queue.passed
                groups.left.append(block.left)
        while explain_group():
            pass
        self._count(queue.passed - passed)
        now, rows = time.perf_counter(), self._rows(groups.rest())
        self._whole = Whole(queue.rows, len(rows), now - started)
        self._one_by_one(rows, now)

    def _rows(self, numbers: Iterable[int]) -> Mapping[int, Row]:
        return {number: self.predictions.rows[number] for number in numbers}

    def _one_by_one(self, rows: Mapping[int, Row], started: float) -> None:
        """Explain rows by themselves, and those that are the same."""
        if len(rows) <= FEW or self._together:
            self._explain_some(rows, started)
        else:
            with Helpers(self.request, self.table, list(rows)) as helpers:
                self._with_helpers(helpers, rows)
        self._count(self._same.answer(self.found.single))

    def _with_helpers(self, helpers: Helpers, rows: Mapping[int, Row]) -> None:
        """Explain rows here, and in other processes where that is worth it."""
        size, row_s, single = FIRST_ROWS, 0.0, self.found.single
        while helpers.left or helpers.busy:
            part = {number: rows[number] for number in helpers.take(size)}
            if part:
                started = time.perf_counter()
                self._explain_some(part, started)
                row_s = max((time.perf_counter() - started) / len(part), LEAST_ROW_S)
                size = min(max(FIRST_ROWS, int(PART_S / row_s)), ROWS_AT_ONCE)
            elsewhere = dict(helpers.finished(patient=not part))
            self._count(len(elsewhere))
            single.update(elsewhere)
            if len(single) > FIRST_ROWS:  # the first ones may have waited for what is compiled
                helpers.keep_busy(row_s, size)

    def _explain_some(self, rows: Mapping[int, Row], started: float) -> None:
        """Explain rows together, and note the explanations with the seconds of each, also when this is interrupted.

        The seconds are those of the row's own search, and an even share of the time spent on all together.
        """
        explaining = Explaining(self.request, self.search_with, self.predictions, rows, self._whole, self._count)
        try:
            explaining.run()
        finally:
            own_s = explaining.search_s
            shared_s = (time.perf_counter() - started - sum(own_s.values())) / max(len(explaining.explained), 1)
            for number, one in explaining.explained.items():
                seconds = shared_s + own_s.get(number, 0.0)
                self.found.single[number] = replace(one, diagnostics={**one.diagnostics, "seconds": seconds})


@dataclass(frozen=True)
class _SameRows:
    """Rows with the same codes of which a model says the same: one of them is searched, the others have its answer.

    Attributes:
        first: by what they are, the number of the first one; others: the numbers of all others, and of the first one.
    """

    first: dict[tuple[bytes, ...], int] = field(default_factory=dict)
    others: list[tuple[int, int]] = field(default_factory=list)

    def new(self, predictions: Predictions, numbers: Iterable[int]) -> list[int]:
        """Return the numbers of the rows, of those with some numbers, that are the first ones of their kind."""
        kept = []
        for number in numbers:
            row = predictions.rows[number]
            said = () if row.outcome is None else (row.outcome.codes, row.outcome.scores, row.outcome.values)
            key = (row.codes.tobytes(), *(b"" if part is None else part.tobytes() for part in said))
            if self.first.setdefault(key, number) == number:
                kept.append(number)
            else:
                self.others.append((number, self.first[key]))
        return kept

    def answer(self, found: dict[int, Explanation]) -> int:
        """Give all others the explanation of the first one, which took them no time; return how many there are."""
        for number, first in self.others:
            one = found[first]
            found[number] = replace(one, diagnostics={**one.diagnostics, "seconds": 0.0})
        return len(self.others)


class _Groups:
    """Rows that blocks leave, in groups that are searched together, once all rows are predicted.

    Attributes:
        left: the numbers of those that each block leaves that was not looked at yet.
    """

    def __init__(self, predictions: Predictions, same: _SameRows) -> None:
        """Set up without any; of those that are the `same` one is searched."""
        self.left = deque[list[int]]()
        self._predictions, self._same, self._some, self._seen = predictions, same, list[int](), 0

    def next(self, blocks: int) -> list[int]:
        """Return the next group of rows that so many blocks leave; none, if there are too few, or none are left."""
        while self.left:
            self._look()
            if len(self._some) >= BESIDE_BLOCKS or (self._some and self._seen >= blocks - LAST_BLOCKS):
                found, self._some = self._some, []
                return found
        return []

    def rest(self) -> list[int]:
        """Return all that are left."""
        while self.left:
            self._look()
        return self._some

    def _look(self) -> None:
        self._some += self._same.new(self._predictions, self.left.popleft())
        self._seen += 1


def _ready(request: Request) -> tuple[Request, Search] | Answer | Exception:
    """Return the request with its constraints and the explainer's search, or what all rows are answered instead.

    Raises:
        InputError: see `ExplainTable.of`.
    """
    try:
        bound = with_constraints(request)
        search = request.searches.of(request.explainer, request.deadline, request.admission.give_way)
    except InputError:
        raise
    except LateError:
        return Answer("budget", say("late_constraints"))
    except Exception as error:  # noqa: BLE001  whatever goes wrong, the predictions must still leave
        return error
    if search is None:
        return Answer("budget", still_learning(request.explainer.name))
    remote = request.requirements.judge.model.remote
    if remote is None or request.session is None:
        return bound, search
    if request.session.trouble:
        return Answer("budget", request.session.trouble)
    return bound, sparing(search, remote, request.session, surrogate_for(request))


def surrogate_for(request: Request) -> Structure | None:
    """Return what may propose candidates in place of the explainer: it wants the nearest ones, of a single model."""
    requirements = request.requirements
    alone = getattr(request.explainer, "seeks_nearest", False) and not requirements.further
    return requirements.opened.surrogate if alone else None


def with_constraints(request: Request) -> Request:
    """Return the request whose bound policy has its own constraints on top of the policy's.

    Raises:
        InputError: they do not fit the features, or would loosen the policy.
        LateError: its deadline has passed.
    """

    def pause() -> None:
        request.admission.give_way()
        if request.deadline is not None and time.perf_counter() > request.deadline:
            raise LateError

    if not request.query.constraints.model_fields_set:
        return request
    return replace(request, bound_policy=request.tightened.of(request.bound_policy, request.query.constraints, pause))
