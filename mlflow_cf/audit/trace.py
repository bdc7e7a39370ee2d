"""Traces of what requests are answered: one for each explained row, written where no reply waits for it.

One row is one trace, because one row is what is asked about later: a search by status, decision or digest finds it, it
is computed again alone, and deleted alone when a person wants that. Rows of one request share the tag ``cf.request``.
"""

from __future__ import annotations

import logging
import math
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from threading import Lock, Thread, main_thread
from typing import Any, Final

import mlflow
import numpy as np
import pandas as pd
from mlflow.entities import SpanType

from mlflow_cf.audit.record import ATTRIBUTE, UNTRACED_TAG, AnsweredBy, AskedFor, Record, record_of, row_values
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import asked_explainer, explainer_to_dict
from mlflow_cf.features import Rows
from mlflow_cf.policy import Query
from mlflow_cf.records.document import canonical, query_values
from mlflow_cf.version import VERSION
from mlflow_cf.words.arrays import objects
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.result import Explanation, Status

NAME: Final = "counterfactual"
UNTRACED: Final[tuple[Status, ...]] = ("already", "skipped", "busy")  # nothing was searched
MOST_ROWS: Final = 256  # of one request
MOST_WAITING: Final = 512  # explanations; what comes on top while the store is slow is not traced
LINGER_S: Final = 10.0  # after the end of a program, to hand over what still waits
OWN: Final = "mlflow-cf"
ALWAYS: Final = ("mlflow", "numpy", "pandas", "scikit-learn", "scipy", "numba")
AT_TIMES: Final = ("xgboost", "lightgbm", "catboost", "torch", "onnxruntime", "highspy")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Noted:
    """What is known of a request once it is answered.

    Attributes:
        table: (m, d) its explained rows.
        answers: the explanation of each, by the number of the row in the request.
        params: its params.
        rows: how many rows it had.
        experiment_id: the experiment of the run in which it was made, if any.
        started_ns, ended_ns: when it came and was answered, in nanoseconds since 1970.
    """

    table: pd.DataFrame
    answers: Mapping[int, Explanation]
    params: Mapping[str, Any]
    rows: int
    experiment_id: str | None
    started_ns: int
    ended_ns: int


class Audit:
    """Writes traces of what requests are answered; safe to share between threads.

    Attributes:
        explained: the model that answers.
        origin: what names it in a trace.
    """

    def __init__(self, explained: ExplainedModel, origin: AnsweredBy) -> None:
        """Set up for a model whose policy says what traces hold; nothing is started before the first request."""
        self.explained, self.origin = explained, origin
        self._lock, self._waiting, self._missed = Lock(), 0, 0
        self._untraced: Counter[str] = Counter()  # rows by status that no trace tells of yet
        self._line: deque[Noted] = deque()
        self._writer: Thread | None = None  # at work; Python itself waits for it when a program ends
        self._end = math.inf

    def __reduce__(self) -> tuple[Any, ...]:
        return Audit, (self.explained, self.origin)

    def note(self, rows: Rows, params: Mapping[str, Any] | None, answers: Explanations, started_ns: int) -> None:
        """Note the explained rows of a request, which came at `started_ns` of `time.time_ns`.

        They are traced in another thread. Nothing is raised: whatever is wrong with a trace, the reply must leave.
        """
        statuses = answers.statuses  # of long tables, to read explanations would make an object of each
        wanted = [number for number, status in enumerate(statuses) if status not in UNTRACED]
        kept = wanted[: self._reserve(min(len(wanted), MOST_ROWS))]
        self._count_untraced(np.delete(objects(statuses), kept).tolist())
        self._miss(len(wanted) - len(kept), f"at most {MOST_ROWS} of a request are, and {MOST_WAITING} wait for it")
        if not kept:
            return
        try:
            space, run = self.explained.space, mlflow.active_run()
            noted = Noted(
                # copies: the request is the caller's, and may change
                table=space.read(rows).iloc[kept].copy(),
                answers={number: answers[number] for number in kept},
                params=deepcopy(dict(params or {})),
                rows=len(answers),
                experiment_id=None if run is None else run.info.experiment_id,  # a run is known to its thread alone
                started_ns=started_ns,
                ended_ns=time.time_ns(),
            )
            # another thread writes it, for MLflow asks its store for the experiment before a trace begins
            with self._lock:
                if self._writer is None:
                    writer = Thread(target=self._write_all, name="mlflow-cf-audit")
                    writer.start()  # it waits for the lock; a program that ends may not start any
                    self._writer = writer
                self._line.append(noted)
        except Exception as error:  # noqa: BLE001  as above; a message may quote the row, so only the type is kept
            self._release(len(kept))
            self._miss(len(kept), type(error).__name__)

    def settle(self) -> None:
        """Wait until all that was noted so far has been handed to MLflow."""
        while (writer := self._writer) is not None:
            writer.join()

    def _write_all(self) -> None:
        while True:
            with self._lock:
                if not self._line:
                    self._writer = None
                    return
                noted = self._line.popleft()
            self._write(noted)

    def _write(self, noted: Noted) -> None:
        left = list(noted.answers)
        try:
            asked, request = self._asked(noted), uuid.uuid4().hex
            coded = row_values(self.explained.space, noted.table, range(len(noted.table)))
            for place, (number, one) in enumerate(noted.answers.items()):
                self._check_time()
                if place in coded:
                    values, mode = coded[place], self.explained.policy.trace
                    record = record_of(one, values, number, self.origin, asked, mode)
                    write(record, {"cf.request": request, **self._told_untraced()}, noted)
                else:  # it is no row of this model, as the reply says
                    self._count_untraced([one.status])
                self._release(1)
                left.remove(number)
        except Exception as error:  # noqa: BLE001  as in `note`
            self._release(len(left))
            self._miss(len(left), type(error).__name__)

    def _count_untraced(self, statuses: Sequence[str]) -> None:
        """Count answers without a trace of their own by status, for the next trace to tell."""
        with self._lock:
            self._untraced.update(statuses)

    def _told_untraced(self) -> dict[str, str]:
        """Return the tag that tells of rows without a trace, each of them once."""
        with self._lock:
            counts, self._untraced = self._untraced, Counter()
        return {UNTRACED_TAG: canonical(dict(counts))} if counts else {}

    def _check_time(self) -> None:
        """Raise once a program that has ended has been kept waiting for a slow store long enough."""
        if not main_thread().is_alive():
            self._end = min(self._end, time.monotonic() + LINGER_S)
        if time.monotonic() > self._end:
            raise TimeoutError

    def _asked(self, noted: Noted) -> AskedFor:
        explained = self.explained
        query = Query.read(noted.params.get("counterfactual") or {})
        explainer = explained.explainer
        if query.explainer is not None:
            explainer = asked_explainer(query.explainer, explainer)
        return AskedFor(
            query=query_values(query),
            target=explained.policy.target_for(query.target, explained.model).to_dict(),
            explainer=explainer_to_dict(explainer),
            max_evaluations=query.max_evaluations or explained.policy.limits.max_evaluations,
            rows=noted.rows,
        )

    def _reserve(self, wanted: int) -> int:
        """Return for how many explanations there is room to wait, at most so many, and count them as waiting."""
        with self._lock:
            granted = min(wanted, MOST_WAITING - self._waiting)
            self._waiting += granted
        return granted

    def _release(self, count: int) -> None:
        with self._lock:
            self._waiting -= count

    def _miss(self, count: int, why: str) -> None:
        """Count explanations that are not traced; say so at the first one, the tenth, the hundredth, ..."""
        if not count:
            return
        with self._lock:
            before, self._missed = self._missed, self._missed + count
            missed = self._missed
        if len(str(missed)) > len(str(before)) or not before:
            _logger.warning("explanations that have not been traced so far: %d, the latest because of: %s", missed, why)


def write(record: Record, tags: Mapping[str, str], noted: Noted) -> None:
    """Write one trace, with these tags beside those of the record; MLflow sends it from threads of its own."""
    model_id = record.origin.model_id
    span = mlflow.start_span_no_context(
        NAME,
        SpanType.TASK,
        inputs=record.inputs(),
        tags={**record.tags(), **tags},
        metadata={"mlflow.modelId": model_id} if model_id else None,  # lists it among the traces of the logged model
        experiment_id=noted.experiment_id,
        start_time_ns=noted.started_ns,
    )
    span.set_attribute(ATTRIBUTE, record.facts())
    span.end(outputs=record.answer, end_time_ns=noted.ended_ns)


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
