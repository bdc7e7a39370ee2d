"""Methods explain the same rows in turns, so that whatever else the machine does costs all of them the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd

from mlflow_cf import ExplainedModel, Explanation
from mlflow_cf.explainers import EXPLAINERS, AnyExplainer, Candidates, Search
from mlflow_cf.problem import Budget, Problem

Row = dict[str, Any]
Say = Callable[[int], None]
# Where an explainer's own settings do not fit the data sets: many rows hold a number's least value, which freezes it in
# a box relative to it.
OPTIONS: Mapping[str, Mapping[str, Any]] = {"mdpso": {"box": "absolute"}}
WARM = 3  # rows every method explains before the clock runs
UNBOUND = 2**40  # evaluations: the clock alone ends a search


@dataclass(frozen=True, eq=False)
class Reply:
    """What a method says to one row.

    Attributes:
        row: the counterfactual, or None.
        reason: why there is none, or "".
        diagnostics: figures of the search.
        proved: whether it is certified that no counterfactual is nearer, or that there is none.
    """

    row: Row | None
    reason: str = ""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    proved: bool = False


def explainers() -> dict[str, AnyExplainer]:
    """Return every explainer by name, with the settings that fit the data sets."""
    return {name: kind(**OPTIONS.get(name, {})) for name, kind in EXPLAINERS.items()}


class Method(Protocol):
    """Explains one row (1, d)."""

    def __call__(self, row: pd.DataFrame) -> Reply:
        """Return the nearest counterfactual found."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One row, the reply it got, and the seconds that took."""

    x0: Row
    reply: Reply
    wall: float
    cpu: float

    @property
    def row(self) -> Row | None:
        """The counterfactual, if there is one."""
        return self.reply.row


@dataclass(frozen=True)
class Clocked:
    """An explainer that also tells the CPU seconds of its search alone; what it learned is given."""

    inner: AnyExplainer
    inner_search: Search

    @property
    def name(self) -> str:
        """That of the explainer."""
        return self.inner.name

    @property
    def polish(self) -> bool:
        """As the explainer wants it."""
        return self.inner.polish

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Search as usual; the seconds are among the diagnostics."""
        start = time.process_time()
        found = self.inner_search(problem, budget, rng)
        return replace(found, diagnostics={**found.diagnostics, "search_cpu": time.process_time() - start})


@dataclass(frozen=True, eq=False)
class Ours:
    """A method of this package: a wrapped model and an explainer.

    Attributes:
        explained: the model.
        explainer: what searches.
        time_limit_s: seconds for one row, and nothing but the clock ends a search; None: the policy's limits, no clock.
    """

    explained: ExplainedModel
    explainer: AnyExplainer
    time_limit_s: float | None = None

    @cached_property
    def clocked(self) -> Clocked:
        """The explainer with a clock; one that learns has learned when it is first asked for."""
        search = self.explained.searches.of(self.explainer, None)
        if search is None:
            raise RuntimeError("without a deadline there is always a search")
        return Clocked(self.explainer, search)

    def __call__(self, row: pd.DataFrame) -> Reply:
        """Explain one row as a server would."""
        (reply,) = self.in_one_call(row)
        return reply

    def in_one_call(self, rows: pd.DataFrame) -> list[Reply]:
        """Explain rows (m, d) in one call, in order."""
        limits = {}
        if self.time_limit_s is not None:
            limits = {"time_limit_s": self.time_limit_s * len(rows), "max_evaluations": UNBOUND}
        return [_reply(one) for one in self.explained.explain(rows, explainer=self.clocked, **limits)]


def _reply(explanation: Explanation) -> Reply:
    """Return the nearest counterfactual of an explanation."""
    found = explanation.counterfactuals
    proved = found[0].proof == "optimal" if found else explanation.status == "infeasible"
    return Reply(dict(found[0].row) if found else None, explanation.reason, explanation.diagnostics, proved)


def take_turns(methods: Mapping[str, Method], rows: pd.DataFrame, say: Say, warm: int = WARM) -> dict[str, list[Asked]]:
    """Let every method explain every row, one at a time; the first one changes with the row.

    Args:
        methods: by name.
        rows: (m, d) to explain.
        say: hears how many rows are done.
        warm: how many of the rows every method explains before that.
    """
    for method in methods.values():
        for position in range(min(warm, len(rows))):
            method(rows.iloc[[position]])  # what happens once, such as compiling, is not the price of a row
    asked: dict[str, list[Asked]] = {name: [] for name in methods}
    names = list(methods)
    for position, values in enumerate(rows.to_dict("records")):
        x0 = {str(name): value for name, value in values.items()}
        first = position % len(names)
        for name in names[first:] + names[:first]:
            asked[name].append(_ask(methods[name], x0, rows.iloc[[position]]))
        say(position + 1)
    return asked


def _ask(method: Method, x0: Row, row: pd.DataFrame) -> Asked:
    wall, cpu = time.perf_counter(), time.process_time()
    reply = method(row)
    return Asked(x0, reply, time.perf_counter() - wall, time.process_time() - cpu)


def teller(name: str, total: int) -> Say:
    """Return a function that prints how many of `total` rows are done, four times in all."""
    start = time.perf_counter()

    def say(done: int) -> None:
        if 4 * done // total > 4 * (done - 1) // total:
            print(f"  {name}: {done} of {total} rows after {time.perf_counter() - start:.1f} s", flush=True)

    return say
