"""Search, then prove: from rows to verified answers.

Rows are inquired side by side: as generators that yield rows and are sent what the judge says about them. So one call
to the judge, whose price hardly depends on its size, serves all rows of a request.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

import numpy as np

from mlflow_cf.explainers import Candidates, Search
from mlflow_cf.features import CodedTable, FeatureSpace, Floats
from mlflow_cf.model.judge import Asked, AskedAlone, Decides, Outcome
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.functions import counted, with_failures
from mlflow_cf.plans.plan import Plan
from mlflow_cf.problem.binding import same
from mlflow_cf.proof.by_cost import certify_by_cost, lined_up
from mlflow_cf.proof.certify import at_once, bounded, certify
from mlflow_cf.proof.complete import complete, nearest_ones
from mlflow_cf.proof.verify import (
    Inquiry,
    RowTask,
    VerifiedAnswers,
    by_themselves,
    joined_outcomes,
    verify_rows,
)
from mlflow_cf.why_not.blame import contradiction, impossible, no_row_left
from mlflow_cf.words.reasons import NO_PLAN, NOTHING_LEFT, NOTHING_WANTED, hurried, stopped
from mlflow_cf.words.result import Optimum, Status
from mlflow_cf.words.statements import joined, say

# An exact search went through everything, one look at every group shows it, or some rules leave no combination.
# An explainer's own restrictions leave nothing: then constraints alone need not be what blocks.
Evidence = Literal["exhausted", "evident", "contradiction", "restricted"]
# What is said where there are fewer answers than asked for: nothing else exists, or nothing else was found.
NO_OTHERS: Final = {
    "near": ("no_other_levels_exist", "no_other_levels_found"),
    "sets": ("no_other_sets_exist", "no_other_sets_found"),
}
ROUNDING: Final = 1e-4  # of the efforts of plans: explainers may round them


@dataclass(frozen=True, eq=False)
class Answer:
    """What the pipeline says about one row.

    Attributes:
        status, reason: see `Explanation`.
        verified: verified counterfactuals, or None.
        plans: the plan of each, if they have plans; optima: what a solver says of each, if one did.
        diagnostics: statistics of the search.
        evidence: how it is known that nothing exists, if it is.
    """

    status: Status
    reason: str
    verified: VerifiedAnswers | None = None
    plans: tuple[Plan, ...] = ()
    optima: tuple[Optimum | None, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict)
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Proving:
    """How candidates become answers.

    Attributes:
        polish: whether needless changes are undone.
        keeps_order: whether answers stay in their explainer's own order.
    """

    polish: bool
    keeps_order: bool = False


@dataclass(frozen=True, eq=False)
class VerifiedRow:
    """The candidates that a search found for one row, and those of them that were verified."""

    task: RowTask
    candidates: Candidates
    verified: VerifiedAnswers

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan of each answer, if they have plans."""
        plans = self.candidates.plans
        return () if plans is None else tuple(plans[position] for position in self.verified.origin.tolist())


def search(task: RowTask, search_with: Search, seed: int) -> Answer | tuple[RowTask, Candidates]:
    """Search candidates for one row, or say at once why there are none.

    The task that is returned beside them knows what the search has found out about the row.
    """
    reason = "" if task.problem.plainly_possible else impossible(task.problem)
    if reason:
        return Answer("infeasible", reason, evidence="evident")
    # one generator per row: an answer does not depend on the rows next to it
    with counted() as failures:
        candidates = search_with(task.problem, task.budget, np.random.default_rng(seed))
    candidates = replace(candidates, diagnostics=with_failures(candidates.diagnostics, failures))
    steps = [step.row for plan in candidates.plans or () for step in plan]
    if steps and not task.problem.space.decode_exactly(np.array(steps))[1].all():
        raise ValueError("a step of a plan leads to what is no row")  # a reply could not show it
    task.budget.release()
    if candidates.engine is None:
        return task, candidates
    return replace(task, engine=candidates.engine), replace(candidates, engine=None)


def verify_all(
    judge: Decides,
    space: FeatureSpace,
    found: Sequence[tuple[RowTask, Candidates]],
    proving: Proving,
    beside: Sequence[Inquiry] = (),
) -> list[VerifiedRow | Exception]:
    """Verify the candidates of many rows side by side; an exception stands for the row it ended.

    Inquiries `beside` them share their calls of the judge; their results are not returned.
    """
    proofs = [_verify_candidates(judge, task, candidates, proving) for task, candidates in found]
    return _verified_results(found, run_inquiries(judge, space, [*proofs, *beside])[: len(found)])


def certify_all(
    judge: Decides, space: FeatureSpace, verified_rows: Sequence[VerifiedRow], proving: Proving, rows_left: int
) -> list[VerifiedRow | Exception]:
    """Prove side by side that what was verified is the nearest; the time that is left is shared by `rows_left` rows."""
    proofs = [_certified(judge, one, proving, rows_left - place) for place, one in enumerate(verified_rows)]
    return [_with_checked_plans(one) for one in run_inquiries(judge, space, proofs)]


def settle(
    judge: Decides, task: RowTask, candidates: Candidates, *, certified: bool = True
) -> Generator[Asked, Outcome, Answer]:
    """Verify and polish the candidates of a single row, and prove what there is if it is to be `certified`."""
    proving = Proving(polish=True)
    verified_row = VerifiedRow(task, candidates, (yield from _verify_candidates(judge, task, candidates, proving)))
    if certified:
        verified_row = yield from _certified(judge, verified_row, proving, 1)
    return answer_of(verified_row)


def _verified_results(
    found: Sequence[tuple[RowTask, Candidates]], results: Sequence[VerifiedAnswers | Exception]
) -> list[VerifiedRow | Exception]:
    """Return what was verified, or what went wrong, also with the plan of an answer: it ends this row, and no other."""
    return [
        _with_checked_plans(result if isinstance(result, Exception) else VerifiedRow(task, candidates, result))
        for (task, candidates), result in zip(found, results, strict=True)
    ]


def _with_checked_plans(one: VerifiedRow | Exception) -> VerifiedRow | Exception:
    """Return what was verified, or what is wrong with the plan of an answer."""
    if isinstance(one, VerifiedRow) and one.candidates.action_model is not None:  # without, nothing is known of steps
        try:
            for plan in one.plans:
                _check_plan(one.candidates.action_model, one.task.problem.x0, plan)
        except Exception as error:  # noqa: BLE001  whatever is wrong, the prediction must still leave
            return error
    return one


def _check_plan(action_model: ActionModel, x0: Floats, plan: Plan) -> None:
    """Refuse a plan from x0 (d,) whose steps are not those of its course.

    Raises:
        ValueError: an action that is unknown, done twice or not possible, or other facts than the plan says.
    """
    numbers = {action.name: number for number, action in enumerate(action_model.actions)}
    state = x0
    for place, step in enumerate(plan, start=1):
        number = numbers.pop(step.action, None)
        if number is None:
            raise ValueError(f"step {place} of a plan is no action, or is done twice")
        action = action_model.actions[number]
        outcome = step.row[[action.column]]
        done = action_model.step(number, state[None], outcome)
        grid = action_model.space.features[action.column].step or 0.0  # rounding to it may lead beyond a range
        allowed = action.allows(state[None], outcome, float(action_model.least_changes[action.column]) + grid / 2)
        if not (done.valid[0] and allowed[0] and same(done.states, step.row).all()):
            raise ValueError(f"step {place} of a plan cannot be done")
        if abs(done.effort[0] - step.effort) > ROUNDING or abs(done.discount[0] - step.discount) > ROUNDING:
            raise ValueError(f"step {place} of a plan costs something else")
        state = step.row


def _verify_candidates(judge: Decides, task: RowTask, candidates: Candidates, proving: Proving) -> Inquiry:
    """Verify and polish as wanted, until the judge also accepts each answer alone."""
    order, kinds = lined_up(task.problem, candidates, keeps_order=proving.keeps_order)
    polish = proving.polish and candidates.plans is None
    while True:
        rows, in_order, promise = candidates.rows[order], proving.keeps_order, candidates.promise
        verified = yield from verify_rows(task, rows, polish=polish, keeps_order=in_order, kinds=kinds, promise=promise)
        refused = len(task.refused)
        alone = yield from by_themselves(task, replace(verified, origin=order[verified.origin]))
        if candidates.more and len(alone.rows) < task.problem.count and not task.budget.spent:
            # polishing has made some equal
            candidates = replace(candidates, rows=np.concatenate([candidates.rows, candidates.more()]), more=None)
            order, kinds = lined_up(task.problem, candidates, keeps_order=proving.keeps_order)
            continue
        if len(task.refused) == refused or task.budget.spent:
            if candidates.bound is not None:
                return bounded(task, alone, candidates.bound)
            few = len(alone.rows) < task.problem.count or (task.problem.variety.near and task.problem.count > 1)
            if candidates.complete and few and len(alone.rows) and not task.budget.spent:
                look = nearest_ones if task.problem.variety.near else complete
                completed = yield from look(task, alone, judge.tolerance)
                return (yield from by_themselves(task, completed))
            return (yield from at_once(task, alone, judge.tolerance)) if candidates.certify and polish else alone


def _certified(
    judge: Decides, verified_row: VerifiedRow, proving: Proving, rows_left: int
) -> Generator[Asked, Outcome, VerifiedRow]:
    """Certify what was verified, in an even share of the time, until the judge also accepts each answer alone."""
    task, verified = verified_row.task, verified_row.verified
    if verified_row.candidates.bound is not None:
        return verified_row
    task.budget.share(rows_left)
    if proving.keeps_order:
        return VerifiedRow(
            task, *(yield from certify_by_cost(task, verified, verified_row.candidates, judge.tolerance))
        )
    while True:
        certified = yield from certify(task, verified, judge.tolerance)
        refused = len(task.refused)
        alone = yield from by_themselves(task, certified)
        if len(task.refused) == refused or task.budget.spent:
            return replace(verified_row, verified=alone)
        verified = yield from _verify_candidates(judge, task, verified_row.candidates, proving)


def _why_fewer(task: RowTask, verified: VerifiedAnswers) -> str:
    budget, variety = task.budget, task.problem.variety
    if budget.cut:
        why = stopped(budget.cut, budget.used)
    else:
        exist, found = NO_OTHERS["near" if variety.near else "sets"]
        why = say(exist if verified.exhausted else found, percent=100 * variety.min_difference)
    return say("fewer", found=len(verified.rows), asked=task.problem.count, why=why)


def answer_of(verified_row: VerifiedRow, *, briefly: bool = False) -> Answer:
    """Return what is said of a row by what is known of it so far.

    Where nothing was tried, the reason names the constraints that no background row meets, unless it is told `briefly`
    because more is said later.
    """
    task, candidates, verified = verified_row.task, verified_row.candidates, verified_row.verified
    budget = task.budget
    diagnostics = {**candidates.diagnostics, "cut": budget.cut}
    if len(verified.rows):
        origin = verified.origin.tolist()
        if candidates.costs is not None:
            diagnostics["costs"] = candidates.costs[origin].tolist()
        reasons: list[str] = [verified.note.reason] if verified.note else []
        proofs = verified.proofs
        if len(verified.rows) < task.problem.count:
            reasons.append(_why_fewer(task, verified))
        elif budget.cut and set(proofs) != {"optimal"} and (budget.cut == "clock" or proofs):
            # what a proof leaves open, or what depends on how fast the machine was: there may be nearer ones
            reasons.append(hurried(budget.cut, budget.used))
        known = candidates.optima
        optima = tuple(known[at] if at < len(known) else None for at in origin) if known else ()
        return Answer("found", joined(*reasons) if reasons else "", verified, verified_row.plans, optima, diagnostics)
    if candidates.bound is not None and np.isinf(candidates.bound):
        return Answer("infeasible", NOTHING_LEFT, diagnostics=diagnostics, evidence="restricted")
    if verified.exhausted:
        planned = candidates.least_cost is not None
        evidence: Evidence = "restricted" if planned else "exhausted"
        return Answer("infeasible", NO_PLAN if planned else NOTHING_WANTED, diagnostics=diagnostics, evidence=evidence)
    if budget.cut:
        return Answer("budget", stopped(budget.cut, budget.used), diagnostics=diagnostics)
    reason = contradiction(task.problem)
    if reason:
        return Answer("infeasible", reason, diagnostics=diagnostics, evidence="contradiction")
    untried = not budget.used and not len(candidates.rows)
    reason = no_row_left(task.problem) if untried and not briefly else ""
    reason = reason or say("not_found", used=budget.used)
    return Answer("not_found", reason, diagnostics=diagnostics)


T = TypeVar("T")


def run_inquiries(
    judge: Decides, space: FeatureSpace, inquiries: Sequence[Generator[Asked, Outcome, T]]
) -> list[T | Exception]:
    """Run inquiries side by side, one call to the judge per round for all of them.

    Returns:
        The result of each, or the exception that ended it; the failure of one does not touch the others.
    """
    results: dict[int, T | Exception] = {}
    answers: dict[int, Outcome | Exception | None] = dict.fromkeys(range(len(inquiries)))
    while answers:
        asked: dict[int, Asked] = {}
        for number, answer in answers.items():
            try:
                if isinstance(answer, Exception):
                    asked[number] = inquiries[number].throw(answer)
                    continue
                asked[number] = next(inquiries[number]) if answer is None else inquiries[number].send(answer)
            except StopIteration as end:
                results[number] = end.value
            except Exception as error:  # noqa: BLE001  kept for the row it belongs to
                results[number] = error
        answers = dict(zip(asked, _judged(judge, space, list(asked.values())), strict=True))
    return [results[number] for number in range(len(inquiries))]


def _judged(judge: Decides, space: FeatureSpace, batches: list[Asked]) -> list[Outcome | Exception]:
    """Ask the judge about all batches at once; one by one if it fails, so that only the culprit suffers."""
    together = iter(_in_one_call(judge, space, [batch for batch in batches if not isinstance(batch, AskedAlone)]))
    return [_one_by_one(judge, space, batch) if isinstance(batch, AskedAlone) else next(together) for batch in batches]


def _one_by_one(judge: Decides, space: FeatureSpace, batch: AskedAlone) -> Outcome | Exception:
    """Ask the judge about row after row, of which each costs a call."""
    said: list[Outcome] = []
    for row in batch.rows:
        if batch.late():
            break
        outcome = _in_one_call(judge, space, [row[None]])[0]
        if isinstance(outcome, Exception):
            return outcome
        said.append(outcome)
    return joined_outcomes(said) if said else Outcome(np.empty(0, dtype=np.intp), None)


def _in_one_call(judge: Decides, space: FeatureSpace, batches: list[Floats]) -> list[Outcome | Exception]:
    if not batches:
        return []
    try:
        outcome = judge.verdict(CodedTable(space, np.concatenate(batches)))
    except UnavailableError as error:  # to ask again for each batch would not help
        return [error] * len(batches)
    except Exception as error:  # noqa: BLE001  any model, any error
        return [error] if len(batches) == 1 else [_in_one_call(judge, space, [batch])[0] for batch in batches]
    ends = np.cumsum([len(batch) for batch in batches])
    return [outcome.take(slice(end - len(batch), end)) for batch, end in zip(batches, ends.tolist(), strict=True)]
