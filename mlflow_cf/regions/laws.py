"""Whether the rules over several features, and limits on changes, hold for every row of a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.compile import ChangeLimit
from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.features import Floats
from mlflow_cf.problem.problem import Problem
from mlflow_cf.regions.axes import Axis

MOST_COMBINATIONS: Final = 100_000  # of values for which a rule is tabulated; longer axes stay fixed


@dataclass(frozen=True, eq=False)
class Laws:
    """The rules over several features, tabulated over axes, and limits on changes.

    Attributes:
        tables: (columns, truth for every combination of their values) of each rule.
        limits: how many groups may differ; differs: per column, (t,) whether each value is another than the row's.
        start: (d + 1,) where the values of every axis start in a mask.
    """

    tables: tuple[tuple[tuple[int, ...], Bools], ...]
    limits: tuple[ChangeLimit, ...]
    differs: tuple[Bools, ...]
    start: NDArray[np.intp]

    def hold(self, mask: Bools) -> bool:
        """Return whether they hold for every row of the box `mask` (n,)."""
        parts = np.split(mask, self.start[1:-1])
        for columns, table in self.tables:
            if not table[np.ix_(*(parts[column] for column in columns))].all():
                return False
        if not self.limits:
            return True
        changes = [bool((part & other).any()) for part, other in zip(parts, self.differs, strict=True)]
        return all(
            sum(any(changes[column] for column in group) for group in limit.groups) <= limit.most
            for limit in self.limits
        )


def laws_of(problem: Problem, axes: Sequence[Axis]) -> tuple[Laws, list[Axis]]:
    """Return the laws over axes, and the axes, of which those stay fixed that would make a rule's table too large."""
    kept = list(axes)
    for rule in problem.linking:
        columns = sorted(rule.columns("x_cf"))
        while prod(len(kept[column].low) for column in columns) > MOST_COMBINATIONS:
            column = max(columns, key=lambda one: len(kept[one].low))
            kept[column] = _fixed(kept[column])
    tables = tuple(_table(problem, rule, kept) for rule in problem.linking)
    differs = tuple(~(axis.low == problem.x0[axis.column]) & ~_missing(problem, axis) for axis in kept)
    start = np.cumsum([0, *(len(axis.low) for axis in kept)])
    return Laws(tables, problem.limits, differs, start), kept


def _missing(problem: Problem, axis: Axis) -> Bools:
    return np.asarray(np.isnan(axis.low) & np.isnan(problem.x0[axis.column]))


def _fixed(axis: Axis) -> Axis:
    own = slice(axis.at, axis.at + 1)
    return replace(axis, low=axis.low[own], high=axis.high[own], encoded=axis.encoded[own], at=0)


def _table(problem: Problem, rule: Rule, axes: Sequence[Axis]) -> tuple[tuple[int, ...], Bools]:
    columns = tuple(sorted(rule.columns("x_cf")))
    sizes = [len(axes[column].low) for column in columns]
    rows: Floats = np.tile(np.array([axis.low[axis.at] for axis in axes]), (prod(sizes), 1))
    for column, places in zip(columns, np.indices(sizes), strict=True):
        rows[:, column] = axes[column].low[places.ravel()]
    return columns, rule.holds(rows, problem.x0).reshape(sizes)
