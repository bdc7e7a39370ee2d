"""Calls of a model server: bounded in number, rate and time, repeated where that may help, stopped where it fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mlflow_cf.model.endpoint import Endpoint
from mlflow_cf.model.remote import Session, UnavailableError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.endpoint.body import ReplyError
from mlflow_cf_flavors.endpoint.deployment import Deployment
from mlflow_cf_flavors.endpoint.pace import Breaker, Pace
from mlflow_cf_flavors.endpoint.posting import Posting
from mlflow_cf_flavors.endpoint.transport import FailedError, RefusedError, Transport


class Client:
    """Asks one endpoint; safe to share between threads.

    Attributes:
        endpoint: where, and how.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """Set up; nothing is sent."""
        self.endpoint = endpoint
        self._transport: Transport = (
            Posting(endpoint) if endpoint.deployed is None else Deployment(endpoint, *endpoint.deployed)
        )
        self._pace = Pace(endpoint.calls_per_s, endpoint.rows_per_s)
        self._breaker = Breaker(endpoint.failures, endpoint.pause_s)

    def ask(self, columns: Sequence[Any], rows: Sequence[Sequence[Any]], session: Session) -> list[Any]:
        """Return one answer per row; calls count in the session.

        Raises:
            UnavailableError: the server cannot be asked, fails or answers something else, or the time is over.
            RefusedError: it refuses these rows.
        """
        wait_s = self.endpoint.backoff_s
        for left in range(self.endpoint.retries, -1, -1):
            self._wait(len(rows), session)
            try:
                return self._once(columns, rows, session)
            except FailedError as error:
                self._breaker.note(failed=error.counts)
                pause = max(wait_s, error.wait_s)
                if not left:
                    raise UnavailableError(say("endpoint_fails", kind=error.kind)) from None
                if session.until is not None and time.perf_counter() + pause >= session.until:
                    raise UnavailableError(say("endpoint_fails", kind=error.kind), late=not error.counts) from None
                time.sleep(min(pause, self.endpoint.timeout_s))
                wait_s *= 2
        raise AssertionError  # the last failure is raised above

    def _wait(self, rows: int, session: Session) -> None:
        """Wait until a call may be made."""
        if session.until is not None and time.perf_counter() >= session.until:
            raise UnavailableError(say("endpoint_late"), late=True)
        if session.most_calls is not None and session.calls >= session.most_calls:
            raise UnavailableError(say("endpoint_spent"), late=True)
        if not self._breaker.enter():
            raise UnavailableError(say("endpoint_stopped", failures=self.endpoint.failures))
        wait_s = self._pace.reserve(rows, session.until)
        if wait_s is None:
            raise UnavailableError(say("endpoint_late"), late=True)
        time.sleep(wait_s)

    def _once(self, columns: Sequence[Any], rows: Sequence[Sequence[Any]], session: Session) -> list[Any]:
        session.calls += 1
        session.rows += len(rows)
        own_end = time.perf_counter() + self.endpoint.timeout_s
        end = own_end if session.until is None else min(own_end, session.until)
        try:
            answers = self._transport.send(columns, rows, end)
        except FailedError as error:
            error.counts = error.counts and not (
                error.late and end < own_end
            )  # it may take longer than the request has
            raise
        except (UnavailableError, RefusedError) as error:
            self._breaker.note(failed=isinstance(error, UnavailableError))  # who refuses rows is there
            raise
        except ReplyError as error:
            self._breaker.note(failed=True)
            raise UnavailableError(say("endpoint_reply", fact=str(error))) from error
        self._breaker.note(failed=False)
        return answers
