"""The loop over the rows of a request: all are searched and verified before proofs and reasons take time.

`RowClock` shares the time limit of a request among its rows. Also a bar for those who wait for many rows: in a terminal
or a notebook, and only if it takes long.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from typing import Final, NamedTuple

import numpy as np
from tqdm import tqdm

from mlflow_cf.explainers import Candidates, Search
from mlflow_cf.explainers.explainer import keeps_order
from mlflow_cf.proof.pipeline import (
    Answer,
    Evidence,
    Proving,
    VerifiedRow,
    answer_of,
    certify_all,
    run_inquiries,
    search,
    verify_all,
)
from mlflow_cf.proof.verify import RowTask, VerifiedAnswers
from mlflow_cf.request.decide import QUICK, Reasons
from mlflow_cf.request.expected import Predictions
from mlflow_cf.request.levers import LeverRequest
from mlflow_cf.request.reasons import ReasonRequest
from mlflow_cf.request.replies import explanation, with_probabilities
from mlflow_cf.request.request import Request, beside_answers, row_task, until_of_next
from mlflow_cf.request.rows import Row
from mlflow_cf.request.widening import with_regions
from mlflow_cf.why_not.relax import Deciding
from mlflow_cf.words.reasons import Uncertified, stopped
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.statements import joined, say

ROWS_AT_ONCE: Final = 256  # searched before they are verified together; what a search needs stays in memory until then
SHORTEST_S: Final = 1e-3  # of a round of certificates
FIRST_ROWS: Final = 8  # fewer at first under a clock: how long they take is not known yet
_logger = logging.getLogger(__name__)


class Unsettled(NamedTuple):
    """A row whose answers are still to be certified, after so many evaluations."""

    candidates: Candidates
    verified: VerifiedAnswers
    evaluations: int


class Whole(NamedTuple):
    """All rows that a request explains.

    Attributes:
        rows: how many; left: how many of them are searched one by one.
        seconds: that the others took.
    """

    rows: int
    left: int
    seconds: float


class Explaining:
    """Rows of a request at work; belongs to one thread.

    Attributes:
        explained: the explanations so far, by the number of their row.
        search_s: the seconds that the search of each row took; proofs are made side by side and belong to none.
    """

    def __init__(
        self,
        request: Request,
        search_with: Search,
        predictions: Predictions,
        rows: Mapping[int, Row],
        whole: Whole,
        count: Callable[[int], object],
    ) -> None:
        """Set up for `rows` by their number, some of the `whole` ones.

        Some of the `predictions` may be made here; `count` is told how many rows were explained. The deadline of the
        request leaves each row the time that it may take beyond the time limit of all.
        """
        if request.deadline is not None:
            until = time.perf_counter() + request.caller.row_seconds * len(rows)
            request = replace(request, deadline=max(request.deadline, until))
        if request.session is not None:
            request.session.until = request.deadline
        self.request, self.search_with, self.predictions, self.rows = request, search_with, predictions, rows
        self.space, self.whole, self.count = predictions.space, whole, count
        self.proving = Proving(request.explainer.polish, keeps_order(request.explainer))
        self.explained: dict[int, Explanation] = {}
        self.search_s: dict[int, float] = {}
        self._clock = RowClock(request.deadline)
        self._unsearched: list[int] = []
        self._unsettled: dict[int, Unsettled] = {}
        self._tasks: dict[int, RowTask] = {}  # of the first unsettled rows; those of others are made again when needed
        self._blocked: dict[int, Evidence | None] = {}
        self._fixed: set[int] = set()  # rows that no lawful action turns, as is proved
        asked = request.query.levers is not None or request.query.responsiveness
        self._levers = LeverRequest.of(request, self.space) if asked else None
        self._asks_more = self._levers is not None or bool(request.query.region)  # of the problems of rows
        self._reasons = ReasonRequest.of(request, self.space) if request.query.reasons else None
        self._kept: dict[int, RowTask] = {}  # of the first rows, for what is asked after their answers
        self._doubted: set[int] = set()  # rows that are answered as those of a model that is not opened

    def run(self) -> None:
        """Answer all rows, certify answers where that is wanted, give reasons to rows without, then tell of levers."""
        started, numbers, done = time.perf_counter(), list(self.rows), 0
        exact = self._reasons.exact(self.rows) if self._reasons is not None else {}
        while done < len(numbers):
            most = ROWS_AT_ONCE if self.request.deadline is None else min(max(FIRST_ROWS, done), ROWS_AT_ONCE)
            chunk = numbers[done : done + most]
            self._clock.share(len(chunk), len(numbers) - done)
            self._answer(self.request, chunk)
            done += len(chunk)
            self.count(len(chunk))
        seconds, searched = time.perf_counter() - started, len(self.rows) - len(self._unsearched)
        for number in self._unsearched if searched else ():
            needed = self.whole.seconds + seconds * self.whole.left / searched  # if they are as fast as the others
            reason = say("time_needed", stopped=stopped("clock", 0), seconds=needed, rows=self.whole.rows)
            self.explained[number] = replace(self.explained[number], reason=reason)
        self._certify()
        beside_answers(self.request, len(self.rows))
        if self.request.query.region:
            self.explained |= with_regions(self.request, self._known, self.explained)
        self.explained |= with_probabilities(self.request, self.space, self.rows, self.explained)
        if self.request.why_not and self._blocked:
            self._reason(started)
        if self._levers is not None:
            self.explained = self._levers.told(self._known, self.explained, self._fixed)
        if self._reasons is not None:
            self.explained = self._reasons.told(self.rows, self.explained, exact)

    def _reason(self, started: float) -> None:
        """Give reasons for rows without counterfactual, in even shares of the time, with common calls of the judge.

        Quick ones may take a share of the seconds there were when all this `started`.
        """
        reasons, blocked = Reasons(self.request, self.space), list(self._blocked.items())
        ends = self.request.deadline
        if ends is not None and reasons.quick:
            ends = min(ends, time.perf_counter() + QUICK * max(ends - started, 0.0))
        for start in range(0, len(blocked), ROWS_AT_ONCE):
            asked: list[Deciding[Explanation | VerifiedAnswers]] = []
            for place, (number, evidence) in enumerate(blocked[start : start + ROWS_AT_ONCE], start):
                until = partial(until_of_next, ends, len(blocked) - place)
                asked.append(reasons.added(self.rows[number], self.explained[number], evidence, until))
            told = run_inquiries(self.request.judges, self.space, [*asked, self.predictions.asked()])
            for (number, _), one in zip(blocked[start : start + ROWS_AT_ONCE], told, strict=False):
                if isinstance(one, Explanation):
                    self.explained[number] = one
                else:
                    _logger.warning("no reasons for a row without counterfactual: %s", type(one).__name__)

    def _answer(self, request: Request, numbers: Sequence[int]) -> None:
        """Search rows one by one, and verify together what was found."""
        found: dict[int, tuple[RowTask, Candidates]] = {}
        for number in numbers:
            request.admission.give_way()
            until = self._clock.row_end(len(found))
            if until is not None and until <= time.perf_counter():
                self._unsearched.append(number)
                self._say(number, None, Answer("budget", stopped("clock", 0)))
                continue
            task = None
            try:
                task = row_task(request, self.space, self.rows[number])
                if self._asks_more and (number in self._kept or len(self._kept) < ROWS_AT_ONCE):
                    self._kept[number] = task
                task.budget.start(until, request.deadline)
                began = time.perf_counter()
                result = search(task, self.search_with, request.seed)
                self.search_s[number] = time.perf_counter() - began
            except Exception as error:  # noqa: BLE001  whatever goes wrong, the prediction must still leave
                self._say(number, task, error)
                continue
            if isinstance(result, Answer):
                self._say(number, task, result)
            else:
                found[number] = result
        started = time.perf_counter()
        # rows without a candidate leave it for later, beside what is asked to say why
        beside = [self.predictions.asked()] if any(len(some.rows) for _, some in found.values()) else []
        verified_rows = verify_all(request.judges, self.space, list(found.values()), self.proving, beside)
        self._clock.learn(len(found), time.perf_counter() - started)
        doubted = [
            n for (n, (task, _)), one in zip(found.items(), verified_rows, strict=True) if self._note(n, task, one)
        ]
        if doubted:
            _logger.warning(
                "the opened model and the logged one disagree on %d rows; searched without opening", len(doubted)
            )
            self._clock.again(len(doubted))
            self._doubted |= set(doubted)
            self._answer(self._unopened(), doubted)

    def _unopened(self) -> Request:
        """Return the request of rows of which the opened model and the logged one disagree."""
        unopened = replace(self.request.requirements, unopened=Uncertified("disagree"))
        return replace(self.request, requirements=unopened)

    def _known(self, number: int) -> RowTask:
        """Return the task of a row once more, with what its search knows of it where that was kept."""
        if number in self._kept:
            return self._kept[number]
        return row_task(self._unopened() if number in self._doubted else self.request, self.space, self.rows[number])

    def _note(self, number: int, task: RowTask, verified_row: VerifiedRow | Exception) -> bool:
        """Note what was verified; return whether the judge refused all that the opened model predicts as wanted."""
        if isinstance(verified_row, Exception):
            self._say(number, task, verified_row)
            return False
        candidates, verified = verified_row.candidates, verified_row.verified
        opened, settled = task.problem.scorer is not None, verified.proofs == ("optimal",) * task.problem.count
        answer = answer_of(verified_row, briefly=opened and bool(self.request.why_not))  # reasons follow
        if opened and answer.status == "not_found" and task.problem.check(candidates.rows).any():
            return True
        if (self.request.certified or candidates.certify) and not settled:
            self.explained[number] = explanation(self.request, self.rows[number], task, answer)
            self._unsettled[number] = Unsettled(candidates, verified, task.budget.used)
            if len(self._tasks) < ROWS_AT_ONCE:
                self._tasks[number] = task
            return False
        self._say(number, task, answer)
        return False

    def _say(self, number: int, task: RowTask | None, answer: Answer | Exception) -> None:
        """Note a row's explanation, and whether reasons are to be added because it has no counterfactual."""
        self.explained[number] = explanation(self.request, self.rows[number], task, answer)
        if isinstance(answer, Answer) and answer.status == "infeasible" and answer.evidence != "restricted":
            self._fixed.add(number)
        if task is None or task.problem.scorer is None or not isinstance(answer, Answer):
            return
        if answer.status in ("infeasible", "not_found") and answer.evidence != "restricted":
            self._blocked[number] = answer.evidence

    def _certify(self) -> None:
        """Certify in rounds: rows cut off by the clock get another round if that gives them twice the time."""
        waiting, share = list(self._unsettled), 0.0
        while waiting and (left := self._left() / len(waiting)) >= 2 * share:
            share, cut = max(left, SHORTEST_S), []
            for start in range(0, len(waiting), ROWS_AT_ONCE):
                if not self._left():
                    self._too_late(waiting[start:])
                    break
                chunk = waiting[start : start + ROWS_AT_ONCE]
                some = [VerifiedRow(self._task(number), *self._unsettled[number][:2]) for number in chunk]
                judges = self.request.judges
                certified = certify_all(judges, self.space, some, self.proving, len(waiting) - start)
                triples = zip(chunk, some, certified, strict=True)
                cut += [number for number, before, after in triples if self._settle(number, before, after)]
            waiting = cut if self.request.deadline is not None else []  # without a clock, nothing was cut by it

    def _too_late(self, numbers: Sequence[int]) -> None:
        """Say of rows without any certificate that there was no time for one."""
        for number in numbers:
            if not self._unsettled[number].verified.proofs:
                before = self.explained[number]
                self.explained[number] = replace(before, reason=joined(Uncertified("late").reason, before.reason))

    def _left(self) -> float:
        """Return the seconds that are left."""
        deadline = self.request.deadline
        return np.inf if deadline is None else max(deadline - time.perf_counter(), 0.0)

    def _settle(self, number: int, before: VerifiedRow, certified: VerifiedRow | Exception) -> bool:
        """Note a certificate, or what there is of it; return whether the clock cut it."""
        self._say(number, before.task, certified if isinstance(certified, Exception) else answer_of(certified))
        if isinstance(certified, Exception) or certified.verified.exhausted or certified.verified.note:
            return False
        if not before.task.budget.left:
            return False
        self._blocked.pop(number, None)
        self._unsettled[number] = Unsettled(certified.candidates, certified.verified, before.task.budget.used)
        return True

    def _task(self, number: int) -> RowTask:
        """Return the task of a row with the evaluations that are left to it."""
        if number in self._tasks:
            return self._tasks[number]
        task = row_task(self.request, self.space, self.rows[number])
        task.budget.start(None, self.request.deadline)
        task.budget.release()
        task.budget.take(self._unsettled[number].evaluations)
        return task


SEARCH_SHARE = 0.8  # of the time there is; the rest is for the proof of what the search found
LEAST_S = 0.05  # of a search: a shorter one finds nothing
MOST_GUESSED_S = 0.03  # of the proof of a row, before any was proved: as long as its search, but no longer than this


class RowClock:
    """Gives every row its time; belongs to one request and one thread."""

    def __init__(self, deadline: float | None) -> None:
        """Set up a clock; `deadline` is a `time.perf_counter` value, None: all the time there is."""
        self._deadline = deadline
        self._search_end = 0.0
        self._rows = 0  # still to be searched, of those that share the time now
        self._others = 0  # that share it later
        self._proof_s: float | None = None
        self._started, self._searched = 0.0, 0  # since when, and how many rows of those that share the time now

    def share(self, rows: int, rows_left: int) -> None:
        """Start to search the next `rows` in an even share of the time that is left for `rows_left`."""
        self._rows, self._others = rows, rows_left - rows
        if self._deadline is not None:
            now = time.perf_counter()
            self._started, self._searched = now, 0
            left = SEARCH_SHARE * max(self._deadline - now, 0.0)
            # some rows answered are better than none: if it is too little for all, the first get enough
            self._search_end = now + min(max(left * rows / rows_left, LEAST_S * rows), left)

    def again(self, rows: int) -> None:
        """Start to search `rows` once more, beside those that are still to come."""
        self.share(rows, rows + self._others)

    def row_end(self, found: int) -> float | None:
        """Return when the search of the next row must end: at once if the `found` rows need the rest to be proved."""
        if self._deadline is None:
            return None
        now = time.perf_counter()
        proof_s = self._proof_s
        if proof_s is None:
            proof_s = min((now - self._started) / max(self._searched, 1), MOST_GUESSED_S)
        self._searched += 1
        left = max(min(self._search_end, self._deadline - (found + 1) * proof_s) - now, 0.0)
        rows, self._rows = max(self._rows, 1), self._rows - 1
        return now + min(max(left / rows, LEAST_S), left)

    def learn(self, rows: int, seconds: float) -> None:
        """Learn from the proof of `rows` how long the next will take."""
        if rows:
            self._proof_s = seconds / rows


LONG_S: Final = 2.0  # work that takes less needs no bar


@contextmanager
def progress(rows: int, *, watched: bool, doing: str = "explaining") -> Iterator[Callable[[int], object]]:
    """Yield what counts rows that were explained, of so many; the bar goes away however the `with` block ends.

    Nothing is ever shown to those who do not watch, such as clients of a server.
    """
    if watched and parent_process() is None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        with tqdm(total=rows, desc=doing, unit="row", delay=LONG_S, leave=False) as bar:
            yield bar.update
    else:
        yield lambda _: None
