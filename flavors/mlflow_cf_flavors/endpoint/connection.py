"""An endpoint with what it has said of the background: asked once, stored, and compared with what it says later."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from mlflow_cf.model.endpoint import Endpoint
from mlflow_cf.model.remote import Session
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.answers import Answers
from mlflow_cf_flavors.endpoint.body import digest_of, read, rows_of
from mlflow_cf_flavors.endpoint.client import Client

NEAR: Final = 1e-6  # numbers of one model that differ by rounding alone; relative above 1
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Probe:
    """Rows of the background, and what the model said of them when it was wrapped.

    Attributes:
        columns: of the table; rows: as JSON has them; answers: one per row.
    """

    columns: tuple[Any, ...] = ()
    rows: tuple[list[Any], ...] = ()
    answers: tuple[Any, ...] = ()

    def agrees(self, answers: Sequence[Any]) -> bool:
        """Return whether these are the same answers, but for rounding."""
        return all(map(same, self.answers, answers))


@dataclass(eq=False)
class _OfThread(threading.local):
    """What a thread is doing: the session of its request, and whether it learns."""

    session: Session | None = None
    learning: bool = False


@dataclass(eq=False)
class Connection:
    """A model that answers at an address; called with a table it returns an answer per row. Threads may share it.

    Attributes:
        endpoint: where, and how it may be asked.
        known: what it said of rows, by their digests; `learning` reads and adds to it.
        probe: rows that are asked about again.
    """

    endpoint: Endpoint
    known: dict[bytes, Any] = field(default_factory=dict)
    probe: Probe = field(default_factory=Probe)
    _changed: bool = False
    _probed: float = -math.inf

    def __post_init__(self) -> None:
        self._client, self._own, self._lock = Client(self.endpoint), _OfThread(), threading.Lock()

    @property
    def calls_per_row(self) -> int:
        """Most calls of the search for one row."""
        return self.endpoint.calls_per_row

    @property
    def rows_per_row(self) -> int:
        """Most rows asked about in the search for one row."""
        return self.endpoint.rows_per_row

    @contextmanager
    def asking(self) -> Iterator[Session]:
        """Enter a request: the calls of this thread belong to its session."""
        before, session = self._own.session, Session(trouble=self._trouble())
        self._own.session = session
        try:
            yield session
        finally:
            self._own.session = before

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Let what is known of rows stand for their answers, and note those of others."""
        before, self._own.learning = self._own.learning, True
        try:
            yield
        finally:
            self._own.learning = before

    def __call__(self, table: pd.DataFrame) -> Answers | pd.DataFrame:
        """Return the answers for the rows of a table.

        Raises:
            UnavailableError: the server cannot be asked; RefusedError: it refuses these rows.
        """
        columns, rows = list(table.columns), rows_of(table)
        if not self._own.learning:
            return read(self._asked(columns, rows))
        digests = list(map(digest_of, rows))
        new = {digest: row for digest, row in zip(digests, rows, strict=True) if digest not in self.known}
        self.known.update(zip(new, self._asked(columns, list(new.values())), strict=True))
        return read([self.known[digest] for digest in digests])

    def watch(self, table: pd.DataFrame) -> None:
        """Keep the first rows of a table, whose answers are known, as the probe."""
        some = table.iloc[: self.endpoint.probe_rows]
        rows = rows_of(some)
        answers = tuple(self.known[digest_of(row)] for row in rows)
        self.probe = Probe(tuple(some.columns), tuple(rows), answers)

    def answers(self, table: pd.DataFrame) -> Mapping[str, Any]:
        """Return what is known of the rows of a table, by their digests in hexadecimal."""
        digests = dict.fromkeys(map(digest_of, rows_of(table)))
        return {digest.hex(): self.known[digest] for digest in digests if digest in self.known}

    def _asked(self, columns: list[Any], rows: list[list[Any]]) -> list[Any]:
        found: list[Any] = []
        most, session = self.endpoint.rows_per_call, self._own.session or Session()
        for start in range(0, len(rows), most):
            part = rows[start : start + most]
            beside, calls = self._due(columns), session.calls
            try:
                answers = self._client.ask(columns, [*part, *beside.rows], session)
            finally:
                session.probed += (session.calls - calls) * len(beside.rows)
            if beside.rows:
                self._compare(beside, answers[len(part) :], session)
            found += answers[: len(part)]
        return found

    def _due(self, columns: list[Any]) -> Probe:
        """Return the probe, if it is time to ask again; an empty one otherwise."""
        with self._lock:
            now = time.perf_counter()
            if self._own.learning or columns != list(self.probe.columns):
                return Probe()
            if now - self._probed < self.endpoint.probe_every_s:
                return Probe()
            self._probed = now
            return self.probe

    def _compare(self, probe: Probe, answers: Sequence[Any], session: Session) -> None:
        changed = not probe.agrees(answers)
        if changed and not self._changed:
            _logger.warning("the endpoint answers other than when it was wrapped: another model may stand behind it")
        self._changed = changed
        session.trouble = self._trouble()

    def _trouble(self) -> str:
        return say("endpoint_changed") if self._changed and self.endpoint.on_change == "refuse" else ""

    def __reduce__(self) -> tuple[type[Connection], tuple[Endpoint, dict[bytes, Any], Probe]]:
        """Copy what is known; calls and failures are counted anew."""
        return Connection, (self.endpoint, self.known, self.probe)


def same(one: Any, other: Any) -> bool:
    """Return whether two answers are the same, but for rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers and abs(one - other) <= NEAR * max(1.0, abs(one))
    return type(one) is type(other) and bool(one == other)
