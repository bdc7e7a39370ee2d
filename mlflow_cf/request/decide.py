"""Whether a problem has an answer at all: searched, verified by the judge, and proved where nothing is found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mlflow_cf.explainers import Candidates, GeCo
from mlflow_cf.features import FeatureSpace
from mlflow_cf.proof.pipeline import Answer, Evidence, search, settle
from mlflow_cf.proof.verify import Case
from mlflow_cf.request.case import case_of
from mlflow_cf.request.request import Request
from mlflow_cf.request.rows import Row
from mlflow_cf.why_not.relax import Decision, Question, why_not
from mlflow_cf.words.result import Explanation

MOST_ASKED = 50_000  # evaluations to say why a row has no counterfactual; a second or two


class Decider:
    """Answers questions about one row, as long as there are evaluations and time.

    Half of both is kept for questions about the nearest answer: advice helps more than a shorter list of what blocks.
    """

    def __init__(self, space: FeatureSpace, case: Callable[[Question], Case], left: int, until: float | None) -> None:
        """Set up for a row; `case` makes its case; `left` evaluations may be used, up to a time of `perf_counter`."""
        self.space, self.case, self.left, self.until = space, case, left, until
        self._kept = left // 2
        now = time.perf_counter()
        self._half_time = None if until is None else now + (until - now) / 2

    def __call__(self, question: Question) -> Decision:
        """Return whether a question has an answer, and if wanted the nearest one."""
        left = self.left if question.nearest else self.left - self._kept
        until = self.until if question.nearest else self._half_time
        if left <= 0 or (until is not None and time.perf_counter() >= until):
            return Decision(None)
        case = self.case(question)
        case = replace(case, budget=case.budget.anew(left))
        case.budget.start(until, until)
        found = search(case, GeCo(last_resort=False).search, 0)
        if not question.nearest and isinstance(found, Candidates) and len(found.rows):
            self.left -= case.budget.used
            return Decision(True)  # what keeps a constraint in the list need not be asked of the judge
        judges = question.requirements.judges
        answer: Answer | Exception = (
            settle(judges, self.space, case, Candidates(found.rows)) if isinstance(found, Candidates) else found
        )
        self.left -= case.budget.used
        if not isinstance(answer, Answer) or answer.status not in ("found", "infeasible"):
            return Decision(None)
        if answer.proved is None or answer.status == "infeasible":
            return Decision(False)
        row = answer.proved.rows[0]
        probability = case.target.probability(answer.proved.outcome)[0]
        return Decision(True, row, float(case.distance(row[None, :])[0]), probability)


def reasoned(
    request: Request, space: FeatureSpace, row: Row, before: Explanation, evidence: Evidence | None, rows_left: int
) -> Explanation:
    """Add to an explanation without counterfactual what rules them out, and what would help most.

    `evidence` is how it is known that there is none; the time that is left is for `rows_left` rows.
    """
    now = time.perf_counter()
    until = None if request.deadline is None else now + max(request.deadline - now, 0.0) / rows_left

    def case(question: Question) -> Case:
        single = request.query.model_copy(update={"count": 1})
        left = replace(
            request, query=single, setting=question.setting, target=question.target, requirements=question.requirements
        )
        return case_of(left, space, row)

    left = min(request.max_evaluations - before.evaluations, MOST_ASKED)
    decide = Decider(space, case, left, until)
    asked = Question(request.setting, request.target, request.requirements, nearest=False)
    found = why_not(
        asked,
        row.codes,
        decide,
        lambda origin: request.caller.owner or origin.source == "request",
        proved=evidence is not None,
    )
    used = before.evaluations + left - decide.left
    if evidence in ("evident", "contradiction"):  # said already, and shorter
        reason = f"{found.advice}; {before.reason}" if found.advice else before.reason
    else:
        reason = found.reason if found.blocking or found.minimal else before.reason
    return replace(
        before, reason=reason, evaluations=used, diagnostics={**before.diagnostics, "why_not": found.to_dict()}
    )
