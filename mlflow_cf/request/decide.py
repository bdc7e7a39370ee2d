"""Whether relaxed problems have an answer, for the reasons why a row has none: search, verify, and prove."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.explainers import Candidates, GeCo
from mlflow_cf.features import FeatureSpace
from mlflow_cf.problem import Budget
from mlflow_cf.proof.pipeline import Answer, Evidence, run_inquiries, search, settle
from mlflow_cf.proof.verify import RowTask
from mlflow_cf.request.request import Request, row_task
from mlflow_cf.request.rows import Row
from mlflow_cf.why_not.blame import no_row_left
from mlflow_cf.why_not.relax import Deciding, Decision, Question, Relaxations, Unanswered, why_not
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.statements import joined, say

MOST_ASKED: Final = 50_000  # evaluations to say fully why a row has no counterfactual; a second or two
QUICK: Final = 0.1  # share of the time and the evaluations for quick reasons


class Decider:
    """Answers questions about one row, as long as there are evaluations and time.

    Half of both is kept for questions about the nearest answer: advice helps more than a shorter list of constraints.
    """

    def __init__(self, reasons: Reasons, row: Row, left: int, until: float | None) -> None:
        """Set up for a row: `left` evaluations may be used for its `reasons`, up to a time of `perf_counter`.

        Quick reasons do not prove that an answer is the nearest, and keep nothing, because such questions come first.
        """
        self.reasons, self.row, self.left, self.until = reasons, row, left, until
        self._kept = 0 if reasons.quick else left // 2
        now = time.perf_counter()
        self._half_time = until if until is None or reasons.quick else now + (until - now) / 2

    def __call__(self, question: Question) -> Deciding[Decision]:
        """Return whether a question has an answer, and if wanted the nearest one."""
        left = self.left if question.nearest else self.left - self._kept
        until = self.until if question.nearest else self._half_time
        if left <= 0 or (until is not None and time.perf_counter() >= until):
            return Decision(None)
        task = self.reasons.task(self.row, question)
        task = replace(task, budget=task.budget.anew(left))
        task.budget.start(until, until)
        if task.engine.beyond_reach(SCORE_TOLERANCES * question.requirements.judges.tolerance):
            self.left -= 1
            return Decision(False)
        explore = GeCo(last_resort=False).explore if question.nearest else _any_of
        found = search(task, lambda _, budget, rng: explore(task.engine, budget, rng), 0)
        if not question.nearest and not isinstance(found, Answer) and len(found[1].rows):
            self.left -= task.budget.used
            return Decision(True, found[1].rows[0])  # only answers that are shown need the judge
        answer = found if isinstance(found, Answer) else (yield from self._settled(question, *found))
        self.left -= task.budget.used
        if not isinstance(answer, Answer) or answer.status not in ("found", "infeasible"):
            return Decision(None)
        if answer.verified is None or answer.status == "infeasible":
            return Decision(False)
        row = answer.verified.rows[0]
        probability = task.target.probability(answer.verified.outcome)[0]
        return Decision(True, row, float(task.distance(row[None, :])[0]), probability)

    def _settled(self, question: Question, task: RowTask, found: Candidates) -> Deciding[Answer | Exception]:
        """Verify what was found; a question that leaves out judges asks those that are left, by itself."""
        judges, rows = question.requirements.judges, Candidates(found.rows)
        settling = settle(judges, task, rows, certified=not self.reasons.quick or not len(found.rows))
        if len(judges.further) == len(self.reasons.request.requirements.further):
            return (yield from settling)
        return run_inquiries(judges, self.reasons.space, [settling])[0]


def _any_of(engine: Engine, budget: Budget, rng: np.random.Generator) -> Candidates:
    """Return candidates if there are any: by changing what raises the score most in every group, else by a search."""
    few = engine.few if engine.exact and budget.take(len(engine.given.groups)) else None
    if few is not None and len(codes := few.steepest()):
        return Candidates(engine.problem.rows(codes))
    return GeCo(last_resort=False).explore(engine, budget, rng)


class Reasons:
    """Why rows of one table have no counterfactual; belongs to one thread.

    What rows have in common is made once: the bound policies and models that relaxed questions are about. What is
    found out about a row is not used for others, so that its reply does not depend on the rows beside it.
    """

    def __init__(self, request: Request, space: FeatureSpace) -> None:
        """Set up for the rows of a request, coded by `space`."""
        self.request, self.space = request, space
        asked = Question(request.bound_policy, request.target, request.requirements, nearest=False)
        self.relaxations, self.quick = Relaxations(asked), request.why_not == "quick"
        self._single = request.query.model_copy(update={"count": 1})

    def added(
        self, row: Row, before: Explanation, evidence: Evidence | None, until: Callable[[], float | None]
    ) -> Deciding[Explanation]:
        """Return an explanation without counterfactual with what rules them out, and what would help most.

        `evidence` is how it is known that there is none; what is not found out in time is left out (`until`, which is
        asked once it is this row's turn).
        """
        request = self.request
        left = min(request.max_evaluations - before.evaluations, MOST_ASKED)
        left = min(left, int(QUICK * MOST_ASKED)) if self.quick else left
        decide = Decider(self, row, left, until())
        found = yield from why_not(
            Unanswered(self.relaxations, self.space, row.codes, decide),
            lambda origin: request.caller.owner or origin.source == "request",
            proved=evidence is not None,
            quick=self.quick,
        )
        used = before.evaluations + left - decide.left
        if evidence in ("evident", "contradiction"):  # said already, and shorter
            reason = joined(found.advice, before.reason)
        elif found.blocking or found.minimal:
            reason = found.reason
        else:
            untried = not before.evaluations
            reason = no_row_left(self.task(row, self.relaxations.asked).problem) if untried else ""
            reason = reason or before.reason
            if found.missed:
                acted = request.bound_policy.action_model is not None
                reason = say("missed_plan" if acted else "missed", reason=reason)
        diagnostics = {**before.diagnostics, "why_not": found.to_dict()}
        return replace(before, reason=reason, evaluations=used, diagnostics=diagnostics)

    def task(self, row: Row, question: Question) -> RowTask:
        """Return the task of a row for a question about it."""
        left = replace(
            self.request,
            query=self._single,
            bound_policy=question.bound_policy,
            target=question.target,
            requirements=question.requirements,
        )
        return row_task(left, self.space, row)
