"""Levers and responsiveness of the rows of a request, with common calls of the judge."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Rows
from mlflow_cf.levers.nearest import LeverAnswers, nearest_of_levers
from mlflow_cf.levers.responses import Response, responses
from mlflow_cf.levers.sets import Groups, LeverSets, changeable, lever_sets, names_of
from mlflow_cf.model.judge import Asked, Outcome
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.proof.pipeline import Answer, run_inquiries
from mlflow_cf.proof.verify import RowTask
from mlflow_cf.request.replies import counterfactuals
from mlflow_cf.request.request import Request, asking, beside_answers, is_wanted, row_task, until_of_next
from mlflow_cf.request.rows import CodedRows, read_rows
from mlflow_cf.words.languages import levers_in
from mlflow_cf.words.levers import Levers
from mlflow_cf.words.reasons import stopped
from mlflow_cf.words.result import Explanation, LeverSet, Responsiveness, Share

ROWS_AT_ONCE: Final = 64  # whose searches stay in memory until the judge has answered
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class LeverRequest:
    """What a request asks about the levers of its rows.

    Attributes:
        request: with its constraints; space: covers its rows.
        wanted: the sets of levers; None: none are asked for.
    """

    request: Request
    space: FeatureSpace
    wanted: LeverSets | None

    @classmethod
    def of(cls, request: Request, space: FeatureSpace) -> LeverRequest | None:
        """Return what is asked; None: nothing.

        Raises:
            InputError: sets that name unknown or immutable features, or too many of them.
        """
        query = request.query
        wanted = None if query.levers is None else lever_sets(query.levers, request.bound_policy)
        return cls(request, space, wanted) if wanted or query.responsiveness else None

    def told(
        self, task_of: Callable[[int], RowTask], explained: Mapping[int, Explanation], proved: Collection[int]
    ) -> dict[int, Explanation]:
        """Return explanations of rows with their levers, in even shares of the time that is left.

        Args:
            task_of: the number of a row that needs a counterfactual -> its task.
            explained: the explanations of these rows so far, by number.
            proved: the rows of which it is proved that no lawful action turns the decision.
        """
        found, numbers = dict(explained), list(explained)
        for start in range(0, len(numbers), ROWS_AT_ONCE):
            some = numbers[start : start + ROWS_AT_ONCE]
            asked = [
                self._row(task_of(number), explained[number], len(numbers) - start - place, proved=number in proved)
                for place, number in enumerate(some)
            ]
            results = run_inquiries(self.request.judges, self.space, asked)
            for number, one in zip(some, results, strict=True):
                if isinstance(one, Exception):
                    _logger.warning("levers of a row failed with %s", type(one).__name__)
                else:
                    found[number] = one
        return found

    def _row(
        self, task: RowTask, before: Explanation, rows_left: int, *, proved: bool
    ) -> Generator[Asked, Outcome, Explanation]:
        """Return the explanation of one row with its levers."""
        request = self.request
        request.admission.give_way()
        budget = task.budget.anew(request.left(before.evaluations))
        task = replace(task, budget=budget)
        budget.start(until_of_next(request.deadline, rows_left), request.deadline)
        shown = before
        if request.query.responsiveness:
            shown = replace(shown, responsiveness=(yield from self._responsiveness(task, before, proved=proved)))
        if self.wanted is not None:
            shown = replace(shown, levers=(yield from self.of_task(task)))
        return replace(shown, evaluations=before.evaluations + budget.used)

    def of_task(self, task: RowTask) -> Generator[Asked, Outcome, tuple[LeverSet, ...]]:
        """Return what the sets can do for the row of a task."""
        if self.wanted is None:
            return ()
        request = self.request
        answers = yield from nearest_of_levers(task, self.wanted, request.judges.tolerance, request.seed)
        return lever_records(task, answers, request)

    def _responsiveness(
        self, task: RowTask, before: Explanation, *, proved: bool
    ) -> Generator[Asked, Outcome, Responsiveness]:
        request, sets = self.request, self._scored
        rng = np.random.default_rng(request.seed)
        reveal = request.bound_policy.reveal
        try:
            told = yield from responses(task, sets, request.judges.tolerance, rng, weighted=reveal)
        except UnavailableError as error:
            return Responsiveness(True if before.status == "found" else None, (), error.reason)
        turned = before.status == "found" or any(one.share > 0 for one in told or ())
        responsive = True if turned else False if proved else None
        if told is None:
            return Responsiveness(responsive, (), stopped(task.budget.cut or "evaluations", task.budget.used))
        return Responsiveness(responsive, tuple(map(self._share_of, told)))

    @cached_property
    def _scored(self) -> Sequence[Groups]:
        """The sets whose changes are counted: every group that may change, then the larger sets asked for."""
        alone = [(group,) for group in changeable(self.request.bound_policy)]
        larger = [] if self.wanted is None else [groups for groups in self.wanted.sets if len(groups) > 1]
        return list(dict.fromkeys([*alone, *larger]))

    def _share_of(self, one: Response) -> Share:
        low, high = one.interval or (None, None)
        names = names_of(one.groups, self.request.bound_policy)
        return Share(names, one.share, one.weighted_share, one.changes, low, high)


def levers_of(request: Request, rows: Rows) -> Levers:
    """Return what each set of levers asked for can do for a single row, without any other explanation.

    Args:
        request: with its constraints.
        rows: one row.

    Raises:
        InputError: more rows than one, a row that cannot be explained, or sets that do not fit.
    """
    with asking(request) as asked:
        return _levers_of(asked, rows)


def _levers_of(request: Request, rows: Rows) -> Levers:
    known = request.bound_policy.space
    table = known.read(rows)
    if len(table) != 1:
        raise InputError("row", f"there are {len(table):,}", "give a single row")
    coded = CodedRows.of(known, table)
    (row,) = read_rows(request.judges, coded)
    beside_answers(request, 1)
    trouble = row.fault if row.unanswered else "" if request.session is None else request.session.trouble
    if trouble:
        wanted = LeverRequest.of(request, coded.space)
        sets = () if wanted is None or wanted.wanted is None else wanted.wanted.sets
        names = (names_of(groups, request.bound_policy) for groups in sets)
        unknown = tuple(LeverSet(features, "budget", reason=trouble) for features in names)
        return Levers(levers_in(unknown, request.speaker.language), known.bare)
    if row.fault:
        raise InputError("row", row.fault, "check the values of the row")
    asked = LeverRequest.of(request, coded.space)
    if asked is None or asked.wanted is None or not is_wanted(request, row):
        return Levers((), known.bare, already=True)
    task = row_task(_one_answer(request), coded.space, row)
    task = replace(task, budget=task.budget.anew(request.left(0)))
    task.budget.start(request.deadline, request.deadline)
    task.budget.release()
    with request.admission.entered(request.caller.patience_s) as _:
        (told,) = run_inquiries(request.judges, coded.space, [asked.of_task(task)])
    if isinstance(told, Exception):
        raise told
    return Levers(levers_in(told, request.speaker.language), known.bare)


def lever_records(task: RowTask, answers: LeverAnswers, request: Request) -> tuple[LeverSet, ...]:
    """Return what the sets of levers of a row can do, as replies show it."""
    told = Answer("found", "", answers.verified)
    found = list(counterfactuals(task, told, request.bound_policy.space.bare, request))
    return tuple(
        LeverSet(
            names_of(one.groups, request.bound_policy),
            one.status,
            names_of(one.by, request.bound_policy),
            found[one.at] if one.at >= 0 else None,
            one.reason,
        )
        for one in answers.sets
    )


def _one_answer(request: Request) -> Request:
    return replace(request, query=request.query.model_copy(update={"count": 1}))
