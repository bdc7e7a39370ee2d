"""What every way to a model server does: it takes rows, and returns one answer each or says how that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.words.statements import say

AGAIN: Final = frozenset({429, 500, 502, 503, 504})
LEAST_S: Final = 1e-3  # a time-out of 0 would mean none


class RefusedError(Exception):
    """The server refuses these rows; it may answer others."""


class FailedError(Exception):
    """A call that failed, and may be repeated.

    Attributes:
        kind: what went wrong; wait_s: how long the server asks to wait.
        counts: whether it speaks against the server; late: whether the time of the call was over.
    """

    def __init__(self, kind: str, wait_s: float = 0.0, *, counts: bool = True, late: bool = False) -> None:
        super().__init__(kind)
        self.kind, self.wait_s, self.counts, self.late = kind, wait_s, counts, late


class Transport(Protocol):
    """A way to a model server; threads may share it."""

    def send(self, columns: Sequence[Any], rows: Sequence[Sequence[Any]], end: float) -> list[Any]:
        """Return one answer per row, as JSON has them; the call ends when `time.perf_counter` shows `end`.

        Raises:
            FailedError: the call may be repeated; RefusedError: the server refuses these rows.
            UnavailableError: it cannot be asked; ReplyError: it answers something else.
        """
        ...


def check_status(status: int, wait_s: float = 0.0) -> None:
    """Raise what the status of a reply means, unless it is 200; `wait_s` is how long the server asks to wait."""
    if status in AGAIN:
        raise FailedError(f"status {status}", wait_s, counts=status != 429)
    if 300 <= status < 400:
        raise UnavailableError(say("endpoint_reply", fact=f"a redirect ({status}), which is not followed"))
    if status in (401, 403, 404, 405):
        raise UnavailableError(say("endpoint_fails", kind=f"status {status}"))
    if status != 200:
        raise RefusedError(f"status {status}")


def check_size(size: int, most: int) -> None:
    """Refuse a reply of more bytes than an endpoint may send."""
    if size > most:
        raise UnavailableError(say("endpoint_reply", fact=f"more than {most:,} bytes"))
