"""Bound policies with the constraints of requests, kept for requests with the same ones."""

from __future__ import annotations

from threading import Lock
from typing import Final

from mlflow_cf.constraints import Constraints, Pause
from mlflow_cf.constraints.actions import functions_in
from mlflow_cf.problem import BoundPolicy

MOST_KEPT: Final = 8  # bound policies of requests that stay; each may hold the tables of groups that it names


class Tightened:
    """Bound policies with the constraints of the last few requests, kept for those who send the same again.

    Threads may share it. To compile them takes a millisecond, and what is found out about leaving out some of them as
    long again.
    """

    def __init__(self) -> None:
        """Set up without any."""
        self._kept: dict[tuple[BoundPolicy, str], BoundPolicy] = {}
        self._lock = Lock()

    def of(self, bound_policy: BoundPolicy, asked: Constraints, pause: Pause) -> BoundPolicy:
        """Return a bound policy with constraints on top; `pause` is called while they are bound, and may end that.

        Raises:
            InputError: they do not fit the features, or would loosen the policy.
        """
        # what a Python function does is not in its name
        if asked.causal or functions_in(asked.actions, asked.relationships):
            return bound_policy.tightened(asked, pause)
        key = bound_policy, repr(asked)
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept[key] = found  # the last one used goes last
        return found if found is not None else self._keep(key, bound_policy.tightened(asked, pause))

    def _keep(self, key: tuple[BoundPolicy, str], made: BoundPolicy) -> BoundPolicy:
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
        return made
