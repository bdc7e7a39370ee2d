"""Explanations of rows, as replies show them, with the probability of the wanted outcome after each step of a plan."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mlflow_cf.errors import frames
from mlflow_cf.features import FeatureSpace, Floats, Level
from mlflow_cf.goal import BoundTarget, Requirements
from mlflow_cf.model.judge import Label, Outcome, classes_of
from mlflow_cf.model.remote import Session, UnavailableError
from mlflow_cf.plans.functions import counted, with_failures
from mlflow_cf.plans.plan import Plan, plan_steps
from mlflow_cf.plans.walk import cheapest_plan
from mlflow_cf.policy.survival import share_held
from mlflow_cf.problem import Codes
from mlflow_cf.proof.pipeline import Answer
from mlflow_cf.proof.verify import RowTask
from mlflow_cf.request.request import Request
from mlflow_cf.request.rows import PredictedRows, Row
from mlflow_cf.words.changes import changes_between
from mlflow_cf.words.result import Counterfactual, Explanation, Status, Survived
from mlflow_cf.words.sentences import Speaker
from mlflow_cf.words.statements import say

_logger = logging.getLogger(__name__)


def bare(request: Request, row: Row) -> Explanation:
    """Return what a row gets that is not searched for: invalid, not asked for, or already as wanted."""
    prediction = None if row.prediction != row.prediction else row.prediction  # NaN is null in a reply
    name, space = request.explainer.name, request.bound_policy.space.bare
    said = None if row.expected else row.outcome  # the logged model will give the probability later
    likely = None if said is None else request.bound_target(row.own).probability(said)[0]
    status: Status = "skipped" if request.query.explain == "none" else "already"
    if row.fault:
        status = "budget" if row.unanswered else "invalid"
    asked = request.query, request.caller.served
    return Explanation(
        status,
        row.fault,
        prediction,
        likely,
        explainer=name,
        seed=request.seed,
        asked=asked,
        language=request.speaker.language,
        space=space,
    )


def predicted(request: Request, rows: PredictedRows, numbers: Codes) -> tuple[list[Label | None], Floats]:
    """Return what `bare` tells of rows (m,) that were predicted together: predictions, and probabilities, NaN without.

    Args:
        request: the request; rows: all rows; numbers: (m,) which ones.
    """
    places = rows.place[numbers]
    labels: list[Label | None] = [rows.labels[place] for place in places.tolist()]
    outcome, likely = rows.outcome.take(places), np.empty(len(places))
    for own in classes_of(outcome.codes):
        some = np.flatnonzero(outcome.codes == own)
        likely[some] = request.bound_target(own).probability(outcome.take(some))
    return [None if label != label else label for label in labels], likely  # noqa: PLR0124  NaN


def explanation(request: Request, row: Row, task: RowTask | None, answer: Answer | Exception) -> Explanation:
    """Return the explanation of a row that was searched for."""
    plain = bare(request, row)
    if isinstance(answer, UnavailableError):
        used = 0 if task is None else task.budget.used
        return replace(plain, status="budget", reason=answer.reason, evaluations=used)
    if isinstance(answer, Exception):
        kind = type(answer).__name__
        _logger.warning("an explanation failed with %s", kind)
        _logger.debug("%s", frames(answer), exc_info=answer if request.bound_policy.reveal else None)
        return replace(plain, status="invalid", reason=say("failed", kind=kind))
    with counted() as failures:
        found = () if task is None else tuple(counterfactuals(task, answer, plain.space, request))
    return replace(
        plain,
        status=answer.status,
        reason=answer.reason,
        counterfactuals=found,
        evaluations=0 if task is None else task.budget.used,
        diagnostics=with_failures(answer.diagnostics, failures),
    )


def counterfactuals(
    task: RowTask, answer: Answer, bare_space: FeatureSpace | None, request: Request
) -> Iterator[Counterfactual]:
    """Yield the counterfactuals of a row, with what is proved of each and the plan that leads there."""
    verified, plans, optima = answer.verified, answer.plans, answer.optima
    if verified is None:
        return
    target, space, speaker = task.target, task.problem.space, request.speaker
    survived = survived_by(request.requirements, task.further, verified.outcome)
    likely = target.probability(verified.outcome)
    distance = task.distance(verified.rows)
    old, x0, action_model = space.values(task.problem.x0), task.problem.x0, task.problem.action_model
    for position, codes in enumerate(verified.rows):
        new = space.values_beside(codes, x0, old)
        changes = changes_between(old, new)
        prediction = target.prediction(verified.outcome, position)
        plan: Plan = plans[position] if plans else ()
        if not plans and action_model is not None:  # the order that costs least, where it is declared what changes cost
            plan = cheapest_plan(action_model, x0, codes)
        yield Counterfactual(
            row=new,
            changes=changes,
            prediction=prediction,
            probability=likely[position],
            distance=float(distance[position]),
            n_changed=len(changes),
            proof=verified.proofs[position] if verified.proofs else "none",
            bound=verified.bounds[position] if verified.bounds else None,
            solver=optima[position] if optima else None,
            plan=plan_steps(space, old, plan) if plan else (),
            text=speaker.surviving(speaker.answer(changes, prediction), survived[position] if survived else None),
            survival=survived[position] if survived else None,
            space=bare_space,
        )


def survived_by(requirements: Requirements, targets: Sequence[BoundTarget], outcome: Outcome) -> list[Survived]:
    """Return how surely each answer holds under models that retraining may give; empty where that is not required.

    Args:
        requirements: of the request; targets: of the further ones.
        outcome: what all judges say of the answers.
    """
    for requirement, target, said in zip(requirements.further, targets, outcome.further, strict=False):
        if requirement.promise is not None and target.votes is not None:
            promise, of = requirement.promise, target.votes.of
            return [
                Survived(share_held(agreeing, of), float(promise.holds), float(promise.confidence), agreeing, of)
                for agreeing in target.agreeing(said).tolist()
            ]
    return []


def with_probabilities(
    request: Request, space: FeatureSpace, rows: Mapping[int, Row], explained: Mapping[int, Explanation]
) -> dict[int, Explanation]:
    """Return those explanations that have plans, with the probability after each step, and with the steps as text.

    They all come from one call of the model. Steps have no probability where the model cannot predict the rows between,
    or no time or evaluations are left.
    """
    told: dict[int, Explanation] = {}
    planned = {number: one for number, one in explained.items() if any(found.plan for found in one.counterfactuals)}
    if not planned:
        return told
    between = {number: [s.row for cf in one.counterfactuals for s in cf.plan[:-1]] for number, one in planned.items()}
    asked = {n: some for n, some in between.items() if planned[n].evaluations + len(some) <= request.max_evaluations}
    outcome = _outcome(request, space, [row for some in asked.values() for row in some])
    start = 0
    for number, one in planned.items():
        size, used = len(between[number]), 0
        likely: list[float | None] = [None] * size
        if outcome is not None and number in asked:
            likely = request.bound_target(rows[number].own).probability(outcome.take(slice(start, start + size)))
            start, used = start + size, size
        said = iter(likely)
        with_steps = tuple(_with(found, said, request.speaker) for found in one.counterfactuals)
        told[number] = replace(one, counterfactuals=with_steps, evaluations=one.evaluations + used)
    return told


def _outcome(request: Request, space: FeatureSpace, rows: list[Mapping[str, Level | None]]) -> Outcome | None:
    """Return the model's predictions of rows; None: it fails, or there is no time."""
    if not rows or (request.deadline is not None and time.perf_counter() >= request.deadline):
        return None
    try:
        return request.judges.verdict(space.from_values(rows))
    except Exception as error:  # noqa: BLE001  any model, any error
        _logger.info("the model cannot predict what steps of plans lead to (%s)", type(error).__name__)
        return None


def _with(found: Counterfactual, likely: Iterator[float | None], speaker: Speaker) -> Counterfactual:
    """Return a counterfactual whose steps take their probabilities from an iterator; the last step has the answer's.

    The plan in words is added to its text.
    """
    if not found.plan:
        return found
    *steps, last = found.plan
    between = [replace(step, probability=next(likely)) for step in steps]
    plan = (*between, replace(last, probability=found.probability))
    old = {**found.row, **{change.feature: change.old for change in found.changes}}
    return replace(found, plan=plan, text=f"{found.text}\n{speaker.plan(plan, old)}")


def costed(one: Explanation, session: Session | None) -> Explanation:
    """Return the explanation with what the whole request has asked of a model that another server answers for."""
    if session is None:
        return one
    return replace(one, judge_calls=session.calls, judged_rows=session.rows - session.probed)
