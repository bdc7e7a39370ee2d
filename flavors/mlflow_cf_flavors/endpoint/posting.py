"""Rows posted to an address: bounded in time and size, never redirected, without cookies and stored passwords."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.cookiejar import DefaultCookiePolicy
from queue import Empty, LifoQueue
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from mlflow_cf.model.endpoint import VARIABLE, Endpoint, is_loopback
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.endpoint.body import answers_of, body_of
from mlflow_cf_flavors.endpoint.transport import LEAST_S, FailedError, check_size, check_status

CHUNK: Final = 65_536
MOST_IDLE: Final = 8  # connections kept open


class Posting:
    """Posts rows to the address of an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Set up; nothing is sent."""
        self._endpoint = endpoint
        self._idle: LifoQueue[requests.Session] = LifoQueue(MOST_IDLE)

    def send(self, columns: Sequence[Any], rows: Sequence[Sequence[Any]], end: float) -> list[Any]:
        """Return one answer per row; see `Transport`."""
        headers, body = self._headers(), body_of(columns, rows)
        try:
            http = self._idle.get_nowait()
        except Empty:
            http = self._connection()
        try:
            text = self._sent(http, body, headers, end)
        except (requests.RequestException, HTTPError, OSError) as error:
            http.close()
            late = isinstance(error, requests.Timeout | TimeoutError) or time.perf_counter() >= end
            raise FailedError("no answer in time" if late else "no connection", late=late) from error
        except BaseException:
            http.close()
            raise
        with suppress(Exception):
            self._idle.put_nowait(http)
        return answers_of(text, len(rows))

    def _sent(self, http: requests.Session, body: bytes, headers: Mapping[str, str], end: float) -> bytes:
        """Return the text of the reply, read until the clock shows `end`."""
        seconds = max(end - time.perf_counter(), LEAST_S)
        url = self._endpoint.url
        with http.post(url, body, headers=headers, timeout=seconds, allow_redirects=False, stream=True) as reply:
            asked = reply.headers.get("Retry-After", "")
            check_status(reply.status_code, float(asked) if asked.isdecimal() else 0.0)
            return self._read(reply, end)

    def _read(self, reply: requests.Response, end: float) -> bytes:
        parts, size = [], 0
        while part := reply.raw.read1(CHUNK):
            parts.append(part)
            size += len(part)
            check_size(size, self._endpoint.reply_bytes)
            if time.perf_counter() >= end:
                raise requests.Timeout
        return b"".join(parts)

    def _headers(self) -> dict[str, str]:
        """Return the headers with the values of the environment variables that they name."""
        lost = next((name for name in self._endpoint.variables if not os.environ.get(name)), None)
        if lost is not None:
            raise UnavailableError(say("endpoint_variable", name=lost))
        filled = {
            name: VARIABLE.sub(lambda found: os.environ[found[1]], value)
            for name, value in self._endpoint.headers.items()
        }
        # compressed, a small reply may become a large one
        return {**filled, "Content-Type": "application/json", "Accept-Encoding": "identity"}

    def _connection(self) -> requests.Session:
        """Return a connection without cookies, and without passwords that files of the user name."""
        http = requests.Session()
        http.auth = _as_it_is
        http.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        http.trust_env = not is_loopback(urlsplit(self._endpoint.url).hostname or "")  # proxies, and authorities
        return http


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
