"""One request: predictions for all rows first, then explanations under one clock."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Candidates, Explainer
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.model.judge import Judge, Label, Outcome
from mlflow_cf.problem import BoundTarget, Budget, Query, Rater, Rating, Setting, Target, spread_of
from mlflow_cf.proof.pipeline import NOTHING, Answer, prove_all, search
from mlflow_cf.proof.verify import Case
from mlflow_cf.request.admission import Admission
from mlflow_cf.request.clock import Clock
from mlflow_cf.request.decide import Decider
from mlflow_cf.request.replies import counterfactuals
from mlflow_cf.structures import Structure
from mlflow_cf.why_not.relax import CONSTRAINTS, MAX_CHANGES, Question, why_not
from mlflow_cf.words.result import Explanation

ROWS_AT_ONCE = 256  # rows searched before they are proved together; what a search needs stays in memory until then
FIRST_ROWS = 8  # fewer at first where there is a deadline: how long proofs take is not known yet
MOST_ASKED = 50_000  # evaluations to say why a row has no counterfactual; a second or two
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Request:
    """Everything the rows of one request share.

    Attributes:
        judge: decides.
        structure: scores for the search in place of the model, if it could be opened.
        setting: policy and request, bound to the background.
        target: the wanted outcome.
        background: the judge's outcome for the background rows.
        explainer: searches.
        query: the request's options.
        seed: seed of every row.
        certified: whether answers are proved to be the nearest.
        max_evaluations: rows scored per explained row.
        deadline: `time.perf_counter` value for all explanations together, or None.
        admission: lets the request in to be explained.
        patience_s: seconds to wait for a place before its rows are answered as busy; None: as long as it takes.
        owner: whether advice may be to relax what the policy seals.
    """

    judge: Judge
    structure: Structure | None
    setting: Setting
    target: Target
    background: Outcome
    explainer: Explainer
    query: Query
    seed: int
    certified: bool
    max_evaluations: int
    deadline: float | None
    admission: Admission
    patience_s: float | None
    owner: bool


@dataclass(frozen=True, eq=False)
class _Row:
    """A row with its codes and the model's prediction; `fault` says why it cannot be explained, if so."""

    codes: Floats
    fault: str
    prediction: Label | None
    outcome: Outcome | None


def answer(request: Request, frame: pd.DataFrame) -> list[Explanation]:
    """Answer the rows of `frame` (m, d) in order: predict all, search one by one, prove all together.

    Raises:
        InputError: missing columns, or no rows.
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError("rows", f"a {type(frame).__name__} is not a table", "pass a pandas DataFrame")
    if not len(frame):
        raise InputError("rows", "there are none", "send at least one row")
    frame = request.setting.space.select(frame).reset_index(drop=True)
    space = request.setting.space.covering(frame)
    with request.admission.predicting():
        rows = _read(request, space, frame)
    wanted = {number: row for number, row in enumerate(rows) if _is_wanted(request, row)}
    found: dict[int, Explanation] = {}
    if wanted:  # every row has its prediction by now: explanations wait for their place, predictions never do
        with request.admission.entered(request.patience_s) as admitted:
            found = _explain_all(request, space, wanted) if admitted else _turned_away(request, wanted)
    return [found[number] if number in found else _bare(request, row) for number, row in enumerate(rows)]


def _explain_all(request: Request, space: FeatureSpace, rows: dict[int, _Row]) -> dict[int, Explanation]:
    """Explain rows by their number, a chunk at a time."""
    started = time.perf_counter()
    numbers = list(rows)
    found: dict[int, Explanation] = {}
    clock = Clock(request.deadline)
    while len(found) < len(rows):
        size = ROWS_AT_ONCE if request.deadline is None else min(max(FIRST_ROWS, len(found)), ROWS_AT_ONCE)
        chunk = {number: rows[number] for number in numbers[len(found) : len(found) + size]}
        clock.share(len(chunk), len(rows) - len(found))
        found.update(_explain(request, space, chunk, clock))
    seconds = (time.perf_counter() - started) / len(rows)
    return {
        number: replace(explanation, diagnostics={**explanation.diagnostics, "seconds": seconds})
        for number, explanation in found.items()
    }


def _turned_away(request: Request, rows: dict[int, _Row]) -> dict[int, Explanation]:
    places = request.admission.places
    reason = f"all places for explanations ({places}) are taken; the prediction stands, ask again in a moment"
    return {number: replace(_bare(request, row), status="busy", reason=reason) for number, row in rows.items()}


def _explain(request: Request, space: FeatureSpace, rows: dict[int, _Row], clock: Clock) -> dict[int, Explanation]:
    """Explain some rows by their number: search one by one, prove all together."""
    answers: dict[int, Answer | Exception] = {}
    cases: dict[int, Case] = {}
    found: dict[int, Candidates] = {}
    for number, row in rows.items():
        request.admission.give_way()
        until = clock.row_end(len(found))
        if until is not None and until <= time.perf_counter():
            answers[number] = Answer("budget", "stopped by the time limit after 0 evaluations")
            continue
        try:
            cases[number] = case = _case(request, space, row)
            case.budget.start(until, request.deadline)
            result = search(case, request.explainer, request.seed)
        except InputError as error:
            if error.path.split(".")[0] in ("count", "explainer"):
                raise  # the request is wrong for every row alike
            answers[number] = error
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the prediction must still leave
            answers[number] = error
        else:
            if isinstance(result, Candidates):
                found[number] = result
            else:
                answers[number] = result
    pairs = [(cases[number], candidates) for number, candidates in found.items()]
    started = time.perf_counter()
    proved = prove_all(request.judge, space, pairs, polish=request.explainer.polish, certified=request.certified)
    answers.update(zip(found, proved, strict=True))
    told = {number: _explanation(request, row, cases.get(number), answers[number]) for number, row in rows.items()}
    clock.proved(len(found), time.perf_counter() - started)
    doubted = {n: rows[n] for n in found if _is_doubted(cases[n], found[n], answers[n])}
    told.update(_without_structure(request, space, doubted, clock))
    blocked = [n for n in cases if told[n].status in ("infeasible", "not_found") and cases[n].problem.rater is not None]
    for place, number in enumerate(blocked):
        told[number] = _reasoned(request, space, rows[number], told[number], len(blocked) - place)
    return told


def _reasoned(request: Request, space: FeatureSpace, row: _Row, told: Explanation, rows_left: int) -> Explanation:
    """Add to an explanation without counterfactual what rules them out, and what would help most."""
    now = time.perf_counter()
    until = None if request.deadline is None else now + max(request.deadline - now, 0.0) / rows_left

    def case(setting: Setting, target: Target) -> Case:
        single = request.query.model_copy(update={"count": 1})
        return _case(replace(request, setting=setting, target=target, query=single), space, row)

    def may_relax(path: str) -> bool:
        if request.owner or path == MAX_CHANGES:
            return request.owner or request.setting.constraints.max_changes is None
        return bool(request.query.constraints.model_fields_set) and path.startswith(CONSTRAINTS)

    left = min(request.max_evaluations - told.evaluations, MOST_ASKED)
    decide = Decider(request.judge, space, case, left, until)
    asked = Question(request.setting, request.target, nearest=False)
    why = why_not(asked, row.codes, decide, may_relax, proved=told.status == "infeasible")
    used = told.evaluations + left - decide.left
    if told.reason != NOTHING and told.status == "infeasible" and told.reason:  # plain to see without a search
        reason = f"{told.reason}; {why.advice}" if why.advice else told.reason
    else:
        reason = why.reason if why.blocking or why.minimal else told.reason
    return replace(told, reason=reason, evaluations=used, diagnostics={**told.diagnostics, "why_not": why.told()})


def _without_structure(
    request: Request, space: FeatureSpace, rows: dict[int, _Row], clock: Clock
) -> dict[int, Explanation]:
    """Explain rows anew for which the opened model and the logged one disagree."""
    if not rows:
        return {}
    _logger.warning("the opened model and the logged one disagree on %d rows; searched without opening", len(rows))
    return _explain(replace(request, structure=None), space, rows, clock)


def _is_doubted(case: Case, candidates: Candidates, answer: Answer | Exception) -> bool:
    """Whether the judge refused everything that the opened model believed in."""
    refused = isinstance(answer, Answer) and answer.proved is None and answer.status == "not_found"
    return refused and case.problem.rater is not None and len(candidates.rows) > 0


def _read(request: Request, space: FeatureSpace, frame: pd.DataFrame) -> list[_Row]:
    """Predict all rows at once; rows that make the model fail are predicted one by one and marked."""
    codes, faults = space.encode_rows(frame)
    good = np.array([row for row in range(len(frame)) if row not in faults], dtype=np.intp)
    rows: dict[int, _Row] = {}
    try:
        labels, outcome = request.judge.predict(space.decode(codes[good]))
        for position, row in enumerate(good.tolist()):
            rows[row] = _Row(codes[row], "", labels[position], outcome.take(np.array([position])))
    except Exception:  # noqa: BLE001  any model, any error: the rows it can predict must still be answered
        for row in good.tolist():
            rows[row] = _single(request, space.decode(codes[[row]]), codes[row], "")
    for row, fault in faults.items():
        rows[row] = _single(request, frame.iloc[[row]], codes[row], fault)
    if not any(row.outcome for row in rows.values()):
        fault = rows[0].fault
        raise InputError("rows", f"the model can predict none of them ({fault})", "check the values of the rows")
    return [rows[row] for row in range(len(frame))]


def _single(request: Request, frame: pd.DataFrame, codes: Floats, fault: str) -> _Row:
    try:
        labels, outcome = request.judge.predict(frame)
    except Exception as error:  # noqa: BLE001  see above; the message may quote the row, so only the type is kept
        return _Row(codes, fault or f"the model cannot predict this row ({type(error).__name__})", None, None)
    return _Row(codes, fault, labels[0], outcome)


def _is_wanted(request: Request, row: _Row) -> bool:
    """Whether there is something to search for."""
    if row.fault or row.outcome is None or request.query.explain == "none":
        return False
    return request.target.differs or not bool(_bound(request, row).rate(row.outcome).favourable[0])


def _case(request: Request, space: FeatureSpace, row: _Row) -> Case:
    target, judge = _bound(request, row), request.judge
    count, most = request.query.count, request.max_evaluations
    # what the structure takes a level for that is not in the background, the model may know
    opened = None if (row.codes >= request.setting.bound_distance.unknown_from).any() else request.structure
    rater = None if opened is None else Rater(opened, target)

    def rate(Z: Floats) -> Rating:
        request.admission.give_way()
        return target.rate(judge.outcome(space.decode(Z)))

    problem = request.setting.bind(
        row.codes,
        space=space,
        count=count,
        rate=rater.rate if rater else rate,
        rate_background=lambda: target.rate(request.background),
        rater=rater,
    )
    problem = replace(problem, opened=request.structure is not None)
    reserve = min(most // 4, 8 * count * (len(problem.groups) + 1))
    return Case(problem, target, Budget(most, reserve))


def _bound(request: Request, row: _Row) -> BoundTarget:
    spread = spread_of(request.background) if request.target.interval else 1.0
    own = -1 if row.outcome is None else int(row.outcome.codes[0])
    return BoundTarget(request.target, request.judge.model, own, spread)


def _bare(request: Request, row: _Row) -> Explanation:
    """Return what a row gets that is not searched for: invalid, not asked for, or already as wanted."""
    prediction = None if row.prediction != row.prediction else row.prediction  # NaN is null in a reply
    bare = Explanation("skipped", "", prediction, None, explainer=request.explainer.name, seed=request.seed)
    if row.outcome is not None:
        bare = replace(bare, probability=_bound(request, row).probability(row.outcome)[0])
    if row.fault:
        return replace(bare, status="invalid", reason=row.fault)
    return bare if request.query.explain == "none" else replace(bare, status="already")


def _explanation(request: Request, row: _Row, case: Case | None, answer: Answer | Exception) -> Explanation:
    bare = _bare(request, row)
    if isinstance(answer, Exception):
        kind = type(answer).__name__
        _logger.warning("an explanation failed with %s", kind, exc_info=answer if _logger.isEnabledFor(10) else None)
        return replace(bare, status="invalid", reason=f"the explanation failed ({kind})")
    return replace(
        bare,
        status=answer.status,
        reason=answer.reason,
        counterfactuals=() if case is None or answer.proved is None else tuple(counterfactuals(case, answer.proved)),
        evaluations=0 if case is None else case.budget.used,
        diagnostics=answer.diagnostics,
    )
