"""A request's constraints bound to the background: once it has its place, and under its clock."""

from __future__ import annotations

import time
from dataclasses import replace

from mlflow_cf.request.request import Request


class LateError(Exception):
    """The time of a request was over before its constraints were bound."""


def asks_for_constraints(request: Request) -> bool:
    """Whether there are constraints to bind, if only to say that they do not fit."""
    return request.query.explain != "none" and bool(request.query.constraints.model_fields_set)


def with_constraints(request: Request) -> Request:
    """Return the request whose setting has its own constraints on top of the policy's.

    Raises:
        InputError: they do not fit the features, or would loosen the policy.
        LateError: its deadline has passed.
    """

    def pause() -> None:
        request.admission.give_way()
        if request.deadline is not None and time.perf_counter() > request.deadline:
            raise LateError

    setting = request.setting.tightened(request.query.constraints, pause)
    return request if setting is request.setting else replace(request, setting=setting)
