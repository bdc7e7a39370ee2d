"""One request answered: predictions for all rows first, then explanations under one clock."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Search
from mlflow_cf.explainers.explainer import check_explainer
from mlflow_cf.features import FeatureSpace, Rows, as_rows
from mlflow_cf.proof.pipeline import Answer
from mlflow_cf.request.case import is_wanted
from mlflow_cf.request.explaining import Explaining
from mlflow_cf.request.replies import bare, explanation
from mlflow_cf.request.request import Request
from mlflow_cf.request.rows import Row, read_rows
from mlflow_cf.words.explanations import Explanations
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
    """Explain rows by their number."""
    started = time.perf_counter()
    if request.deadline is not None:
        request = replace(request, deadline=max(request.deadline, started + request.row_time_s * len(rows)))
    search_with = _search_of(request)
    if isinstance(search_with, Answer | Exception):
        return {number: explanation(request, row, None, search_with) for number, row in rows.items()}
    found = Explaining(request, search_with, space, rows).run()
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
