"""Calls of a model server over HTTP: bounded in time and size, repeated where that may help, never redirected."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from http.cookiejar import DefaultCookiePolicy
from queue import Empty, LifoQueue
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from mlflow_cf.model.endpoint import VARIABLE, Endpoint, is_loopback
from mlflow_cf.model.remote import Session, UnavailableError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.endpoint.body import ReplyError, answers_of
from mlflow_cf_flavors.endpoint.pace import Breaker, Pace

AGAIN: Final = frozenset({429, 500, 502, 503, 504})
CHUNK: Final = 65_536
LEAST_S: Final = 1e-3  # a time-out of 0 would mean none
MOST_IDLE: Final = 8  # connections kept open


class RefusedError(Exception):
    """The server refuses these rows; it may answer others."""


class _FailedError(Exception):
    """A call that failed, and may be repeated.

    Attributes:
        kind: what went wrong; wait_s: how long the server asks to wait.
        counts: whether it speaks against the server.
    """

    def __init__(self, kind: str, wait_s: float = 0.0, *, counts: bool = True) -> None:
        super().__init__(kind)
        self.kind, self.wait_s, self.counts = kind, wait_s, counts


class Client:
    """Asks one endpoint; safe to share between threads.

    Attributes:
        endpoint: where, and how.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """Set up; nothing is sent."""
        self.endpoint = endpoint
        self._pace = Pace(endpoint.calls_per_s, endpoint.rows_per_s)
        self._breaker = Breaker(endpoint.failures, endpoint.pause_s)
        self._idle: LifoQueue[requests.Session] = LifoQueue(MOST_IDLE)

    def ask(self, body: bytes, rows: int, session: Session) -> list[Any]:
        """Return one answer per row for a body with so many rows; calls count in the session.

        Raises:
            UnavailableError: the server cannot be asked, fails or answers something else, or the time is over.
            RefusedError: it refuses these rows.
        """
        wait_s = self.endpoint.backoff_s
        for left in range(self.endpoint.retries, -1, -1):
            self._wait(rows, session)
            try:
                return self._once(body, rows, session)
            except _FailedError as error:
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
        if not self._breaker.enter():
            raise UnavailableError(say("endpoint_stopped", failures=self.endpoint.failures))
        wait_s = self._pace.reserve(rows, session.until)
        if wait_s is None:
            raise UnavailableError(say("endpoint_late"), late=True)
        time.sleep(wait_s)

    def _once(self, body: bytes, rows: int, session: Session) -> list[Any]:
        session.calls += 1
        session.rows += rows
        own_end = time.perf_counter() + self.endpoint.timeout_s
        end = own_end if session.until is None else min(own_end, session.until)
        headers = self._headers()
        try:
            http = self._idle.get_nowait()
        except Empty:
            http = self._connection()
        try:
            text = self._sent(http, body, headers, end)
        except (requests.RequestException, HTTPError, OSError) as error:
            http.close()
            timed_out = isinstance(error, requests.Timeout | TimeoutError) or time.perf_counter() >= end
            kind = "no answer in time" if timed_out else "no connection"
            raise _FailedError(kind, counts=not (timed_out and end < own_end)) from error
        except BaseException as error:
            http.close()
            if isinstance(error, UnavailableError | RefusedError):
                self._breaker.note(failed=isinstance(error, UnavailableError))  # who refuses rows is there
            raise
        with suppress(Exception):
            self._idle.put_nowait(http)
        try:
            answers = answers_of(text, rows)
        except ReplyError as error:
            self._breaker.note(failed=True)
            raise UnavailableError(say("endpoint_reply", fact=str(error))) from error
        self._breaker.note(failed=False)
        return answers

    def _sent(self, http: requests.Session, body: bytes, headers: Mapping[str, str], end: float) -> bytes:
        """Return the text of the reply, read until the clock shows `end`."""
        seconds = max(end - time.perf_counter(), LEAST_S)
        url = self.endpoint.url
        with http.post(url, body, headers=headers, timeout=seconds, allow_redirects=False, stream=True) as reply:
            status = reply.status_code
            if status in AGAIN:
                asked = reply.headers.get("Retry-After", "")
                raise _FailedError(f"status {status}", float(asked) if asked.isdecimal() else 0.0, counts=status != 429)
            if 300 <= status < 400:
                raise UnavailableError(say("endpoint_reply", fact=f"a redirect ({status}), which is not followed"))
            if status in (401, 403, 404, 405):
                raise UnavailableError(say("endpoint_fails", kind=f"status {status}"))
            if status != 200:
                raise RefusedError(f"status {status}")
            return self._read(reply, end)

    def _read(self, reply: requests.Response, end: float) -> bytes:
        parts, size = [], 0
        while part := reply.raw.read1(CHUNK):
            parts.append(part)
            size += len(part)
            if size > self.endpoint.reply_bytes:
                raise UnavailableError(say("endpoint_reply", fact=f"more than {self.endpoint.reply_bytes:,} bytes"))
            if time.perf_counter() >= end:
                raise requests.Timeout
        return b"".join(parts)

    def _headers(self) -> dict[str, str]:
        """Return the headers with the values of the environment variables that they name."""
        lost = next((name for name in self.endpoint.variables if not os.environ.get(name)), None)
        if lost is not None:
            raise UnavailableError(say("endpoint_variable", name=lost))
        filled = {
            name: VARIABLE.sub(lambda found: os.environ[found[1]], value)
            for name, value in self.endpoint.headers.items()
        }
        # compressed, a small reply may become a large one
        return {**filled, "Content-Type": "application/json", "Accept-Encoding": "identity"}

    def _connection(self) -> requests.Session:
        """Return a connection without cookies, and without passwords that files of the user name."""
        http = requests.Session()
        http.auth = _as_it_is
        http.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        http.trust_env = not is_loopback(urlsplit(self.endpoint.url).hostname or "")  # proxies, and authorities
        return http


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
