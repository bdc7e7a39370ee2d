"""Traces of what requests are answered: one for each explained row, written where no reply waits for it.

One row is one trace, because one row is what is asked about later: a search by status, decision or digest finds it, it
is computed again alone, and deleted alone when a person wants that. Rows of one request share the tag ``cf.request``.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from threading import BoundedSemaphore, Lock
from typing import Any, Final, NamedTuple

import mlflow
from mlflow.entities import SpanType

from mlflow_cf.audit.record import ATTRIBUTE, Asked, Origin, Record, query_values, record_of, row_values
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import asked_explainer, explainer_to_dict
from mlflow_cf.features import Rows
from mlflow_cf.problem import Query
from mlflow_cf.version import VERSION
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.result import Status

NAME: Final = "counterfactual"
UNTRACED: Final[tuple[Status, ...]] = ("already", "skipped", "busy")  # nothing was searched
MOST_ROWS: Final = 256  # of one request
MOST_WAITING: Final = 512  # records; what comes on top while the store is slow is not traced
OWN: Final = "mlflow-cf"
ALWAYS: Final = ("mlflow", "numpy", "pandas", "scikit-learn", "scipy", "numba")
AT_TIMES: Final = ("xgboost", "lightgbm", "catboost", "torch", "onnxruntime", "highspy")
_logger = logging.getLogger(__name__)


class Times(NamedTuple):
    """When a request came and was answered, in nanoseconds since 1970."""

    started_ns: int
    ended_ns: int


class Audit:
    """Writes traces of what requests are answered; safe to share between threads.

    Attributes:
        explained: the model that answers.
        origin: what names it in a trace.
    """

    def __init__(self, explained: ExplainedModel, origin: Origin) -> None:
        """Set up for a model whose policy says what traces hold; nothing is started before the first request."""
        self.explained, self.origin = explained, origin
        self._room, self._lock, self._missed = BoundedSemaphore(MOST_WAITING), Lock(), 0
        # MLflow asks its store for the experiment before a trace begins. Python waits for this thread when it ends.
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="mlflow-cf-audit")

    def __reduce__(self) -> tuple[Any, ...]:
        return Audit, (self.explained, self.origin)

    def note(self, rows: Rows, params: Mapping[str, Any] | None, answers: Explanations, started_ns: int) -> None:
        """Note the explained rows of a request, which started at `started_ns` of `time.time_ns`.

        They are traced in another thread. Nothing is raised: whatever is wrong with a trace, the reply must leave.
        """
        wanted = [number for number, one in enumerate(answers) if one.status not in UNTRACED]
        try:
            self._miss(len(wanted[MOST_ROWS:]), f"the request has more than {MOST_ROWS} of them")
            if wanted:
                self._note(rows, params, answers, wanted[:MOST_ROWS], Times(started_ns, time.time_ns()))
        except Exception as error:  # noqa: BLE001  as above; a message may quote the row, so only the type is kept
            self._miss(len(wanted), type(error).__name__)

    def settle(self) -> None:
        """Wait until all that was noted so far has been handed to MLflow."""
        self._writing.submit(lambda: None).result()

    def _note(
        self, rows: Rows, params: Mapping[str, Any] | None, answers: Explanations, numbers: list[int], times: Times
    ) -> None:
        explained = self.explained
        asked = self._asked(params, len(answers))
        values = row_values(explained.space, rows, numbers)  # now: the table is the caller's, and may change
        request, run = uuid.uuid4().hex, mlflow.active_run()
        experiment = None if run is None else run.info.experiment_id  # MLflow looks for a run in this thread alone
        for number in numbers:
            if number not in values:
                continue  # no row of this model; the reply says why
            record = record_of(answers[number], values[number], number, self.origin, asked, explained.policy.trace)
            self._hand_over(record, request, experiment, times)

    def _asked(self, params: Mapping[str, Any] | None, rows: int) -> Asked:
        explained = self.explained
        query = Query.read((params or {}).get("counterfactual") or {})
        explainer = explained.explainer
        if query.explainer is not None:
            explainer = asked_explainer(query.explainer, explainer)
        return Asked(
            query=query_values(query),
            target=explained.policy.target_for(query.target, explained.model).to_dict(),
            explainer=explainer_to_dict(explainer),
            max_evaluations=query.max_evaluations or explained.policy.limits.max_evaluations,
            rows=rows,
        )

    def _hand_over(self, record: Record, request: str, experiment: str | None, times: Times) -> None:
        if not self._room.acquire(blocking=False):
            self._miss(1, f"{MOST_WAITING} others wait for the tracking store")
            return
        try:
            self._writing.submit(self._write, record, request, experiment, times)
        except RuntimeError:  # Python is about to exit
            self._room.release()
            self._miss(1, "the process ends")

    def _write(self, record: Record, request: str, experiment: str | None, times: Times) -> None:
        try:
            write(record, request, experiment, times)
        except Exception as error:  # noqa: BLE001  as in `note`
            self._miss(1, type(error).__name__)
        finally:
            self._room.release()

    def _miss(self, count: int, why: str) -> None:
        """Count explanations that are not traced; say so at the first one, the tenth, the hundredth, ..."""
        if not count:
            return
        with self._lock:
            before, self._missed = self._missed, self._missed + count
            missed = self._missed
        if len(str(missed)) > len(str(before)) or not before:
            _logger.warning("%d explanations have not been traced so far; now because of this: %s", missed, why)


def write(record: Record, request: str, experiment_id: str | None, times: Times) -> None:
    """Write one trace; MLflow sends it from threads of its own."""
    model_id = record.origin.model_id
    span = mlflow.start_span_no_context(
        NAME,
        SpanType.TASK,
        inputs=record.inputs(),
        tags={**record.tags(), "cf.request": request},
        metadata={"mlflow.modelId": model_id} if model_id else None,  # lists it among the traces of the logged model
        experiment_id=experiment_id,
        start_time_ns=times.started_ns,
    )
    span.set_attribute(ATTRIBUTE, record.facts())
    span.end(outputs=record.answer, end_time_ns=times.ended_ns)


def used_libraries() -> list[str]:
    """Return the names of the libraries that take part in answers, as far as this process knows by now."""
    return [OWN, *ALWAYS, *(name for name in AT_TIMES if name in sys.modules)]


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of those that are installed."""
    known = {}
    for name in libraries:
        with suppress(PackageNotFoundError):
            known[name] = VERSION if name == OWN else version(name)
    return known
