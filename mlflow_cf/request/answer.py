"""One request answered: predictions for all rows first, then explanations under one clock."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Candidates, Search
from mlflow_cf.explainers.explainer import check_explainer, keeps_order
from mlflow_cf.features import FeatureSpace, Rows, as_rows
from mlflow_cf.proof.pipeline import Answer, Evidence, Proving, prove_all, search
from mlflow_cf.proof.verify import Case
from mlflow_cf.request.case import case_of, is_wanted
from mlflow_cf.request.clock import Clock
from mlflow_cf.request.decide import reasoned
from mlflow_cf.request.replies import bare, explanation
from mlflow_cf.request.request import Request
from mlflow_cf.request.rows import Row, read_rows
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.reasons import Uncertified, stopped
from mlflow_cf.words.result import Explanation

ROWS_AT_ONCE = 256  # rows searched before they are proved together; what a search needs stays in memory until then
FIRST_ROWS = 8  # fewer at first where there is a deadline: how long proofs take is not known yet
_logger = logging.getLogger(__name__)


def answer(request: Request, rows: Rows) -> Explanations:
    """Answer rows (m, d) in order: predict all, search one by one, prove all together.

    Raises:
        InputError: no table, missing columns, no rows, or an explainer that refuses the request.
    """
    check_explainer(request.explainer, request.searches.facts, request.query.count)
    known = request.setting.space
    table = known.select(as_rows(rows, known.columns))
    if not len(table):
        raise InputError("rows", "there are none", "send at least one row")
    frame = table.reset_index(drop=True)
    space = known.covering(frame)
    with request.admission.predicting():
        predicted = read_rows(request.judge, space, frame)
    wanted = {number: row for number, row in enumerate(predicted) if is_wanted(request, row)}
    found: dict[int, Explanation] = {}
    if wanted:  # every row has its prediction by now: explanations wait for their place, predictions never do
        with request.admission.entered(request.patience_s) as admitted:
            found = _explain_all(request, space, wanted) if admitted else _turned_away(request, wanted)
    answers = [found[number] if number in found else bare(request, row) for number, row in enumerate(predicted)]
    return Explanations(tuple(answers), table.index, known.bare)


def _explain_all(request: Request, space: FeatureSpace, rows: dict[int, Row]) -> dict[int, Explanation]:
    """Explain rows by their number, a chunk at a time."""
    started = time.perf_counter()
    search_with = _search_of(request)
    if isinstance(search_with, Answer | Exception):
        return {number: explanation(request, row, None, search_with) for number, row in rows.items()}
    numbers = list(rows)
    found: dict[int, Explanation] = {}
    clock = Clock(request.deadline)
    while len(found) < len(rows):
        size = ROWS_AT_ONCE if request.deadline is None else min(max(FIRST_ROWS, len(found)), ROWS_AT_ONCE)
        chunk = {number: rows[number] for number in numbers[len(found) : len(found) + size]}
        clock.share(len(chunk), len(rows) - len(found))
        found.update(_explain(request, search_with, space, chunk, clock))
    seconds = (time.perf_counter() - started) / len(rows)
    return {
        number: replace(explanation, diagnostics={**explanation.diagnostics, "seconds": seconds})
        for number, explanation in found.items()
    }


def _search_of(request: Request) -> Search | Answer | Exception:
    """Return the explainer's search, or what all rows are answered instead.

    Raises:
        InputError: the explainer cannot learn from this background; it could for no row.
    """
    try:
        ready = request.searches.of(request.explainer, request.deadline)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  whatever goes wrong, the predictions must still leave
        return error
    return ready or Answer("budget", "stopped by the time limit while the explainer learned")


def _turned_away(request: Request, rows: dict[int, Row]) -> dict[int, Explanation]:
    places = request.admission.places
    reason = f"all places for explanations ({places}) are taken; the prediction stands, ask again in a moment"
    return {number: replace(bare(request, row), status="busy", reason=reason) for number, row in rows.items()}


def _explain(
    request: Request, search_with: Search, space: FeatureSpace, rows: dict[int, Row], clock: Clock
) -> dict[int, Explanation]:
    """Explain some rows by their number: search one by one, prove all together."""
    answers: dict[int, Answer | Exception] = {}
    cases: dict[int, Case] = {}
    found: dict[int, Candidates] = {}
    for number, row in rows.items():
        request.admission.give_way()
        until = clock.row_end(len(found))
        if until is not None and until <= time.perf_counter():
            answers[number] = Answer("budget", stopped("clock", 0))
            continue
        try:
            cases[number] = case = case_of(request, space, row)
            case.budget.start(until, request.deadline)
            result = search(case, search_with, request.seed)
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the prediction must still leave
            answers[number] = error
        else:
            if isinstance(result, Candidates):
                found[number] = result
            else:
                answers[number] = result
    pairs = [(cases[number], candidates) for number, candidates in found.items()]
    started = time.perf_counter()
    explainer = request.explainer
    proving = Proving(explainer.polish, request.certified, keeps_order(explainer))
    proved = prove_all(request.judge, space, pairs, proving)
    answers.update(zip(found, proved, strict=True))
    explained = {number: explanation(request, row, cases.get(number), answers[number]) for number, row in rows.items()}
    clock.proved(len(found), time.perf_counter() - started)
    doubted = {n: rows[n] for n in found if _is_doubted(cases[n], found[n], answers[n])}
    explained.update(_without_structure(request, search_with, space, doubted, clock))
    blocked = _blocked({n: case for n, case in cases.items() if n not in doubted}, answers)
    for place, (number, evidence) in enumerate(blocked.items()):
        explained[number] = reasoned(request, space, rows[number], explained[number], evidence, len(blocked) - place)
    return explained


def _blocked(cases: dict[int, Case], answers: dict[int, Answer | Exception]) -> dict[int, Evidence | None]:
    """Return the rows that have no counterfactual and whose opened model can tell why, with what is known of that."""
    blocked: dict[int, Evidence | None] = {}
    for number, case in cases.items():
        answer = answers[number]
        if isinstance(answer, Answer) and answer.status in ("infeasible", "not_found") and case.problem.rater:
            blocked[number] = answer.evidence
    return blocked


def _without_structure(
    request: Request, search_with: Search, space: FeatureSpace, rows: dict[int, Row], clock: Clock
) -> dict[int, Explanation]:
    """Explain rows anew for which the opened model and the logged one disagree."""
    if not rows:
        return {}
    _logger.warning("the opened model and the logged one disagree on %d rows; searched without opening", len(rows))
    clock.again(len(rows))
    closed = replace(request, structure=None, obstacle=Uncertified("disagree"))
    return _explain(closed, search_with, space, rows, clock)


def _is_doubted(case: Case, candidates: Candidates, answer: Answer | Exception) -> bool:
    """Whether the judge refused everything lawful that the opened model believed in."""
    refused = isinstance(answer, Answer) and answer.proved is None and answer.status == "not_found"
    return refused and case.problem.rater is not None and bool(case.problem.check(candidates.rows).any())
