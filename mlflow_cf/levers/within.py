"""The problem of a row in which only a set of groups may change, and inquiries that share their calls of the judge."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from mlflow_cf.engine.engine import Engine
from mlflow_cf.features import Floats
from mlflow_cf.model.judge import Asked, AskedAlone, Outcome
from mlflow_cf.problem import Budget, Group, Problem
from mlflow_cf.problem.actions import GroupActions
from mlflow_cf.proof.verify import RowTask

T = TypeVar("T")


def within(task: RowTask, groups: Collection[int], budget: Budget) -> RowTask:
    """Return the task in which all groups but these keep the row's own values."""
    return replace(task, engine=Engine(confined(task.problem, groups)), budget=budget)


def confined(problem: Problem, groups: Collection[int]) -> Problem:
    """Return the problem in which all groups but these keep the row's own values."""
    every = enumerate(problem.groups)
    return replace(problem, groups=tuple(one if number in groups else _fixed(one) for number, one in every))


def _fixed(group: Group) -> Group:
    """Return a group that has no action but the row's own."""

    def own() -> GroupActions:
        bound, at = group.bound, [group.own]
        ids = None if bound.ids is None else bound.ids[at]
        return GroupActions(bound.values[at], bound.weights[at], 0, bound.cost[at], bound.peak[at], ids)

    return replace(group, domain=replace(group.domain, interval=None), bind=own)


def together(inquiries: Sequence[Generator[Asked, Outcome, T]]) -> Generator[Asked, Outcome, list[T]]:
    """Run inquiries about one row side by side: what they ask in a round goes to the judge in one call."""
    results: dict[int, T] = {}
    said: dict[int, Outcome | None] = dict.fromkeys(range(len(inquiries)))
    while said:
        rows: dict[int, Floats] = {}
        alone: dict[int, AskedAlone] = {}
        for number, outcome in said.items():
            try:
                asked = next(inquiries[number]) if outcome is None else inquiries[number].send(outcome)
            except StopIteration as end:
                results[number] = end.value
                continue
            if isinstance(asked, AskedAlone):
                alone[number] = asked
            else:
                rows[number] = asked
        said = {}
        if rows:
            outcome = yield np.concatenate(list(rows.values()))
            start = 0
            for number, some in rows.items():
                said[number] = outcome.take(slice(start, start + len(some)))
                start += len(some)
        for number, one in alone.items():
            said[number] = yield one
    return [results[number] for number in range(len(inquiries))]
