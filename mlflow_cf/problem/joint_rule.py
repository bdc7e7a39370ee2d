"""Rules over several groups, answered by the codes of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.problem.group import Codes

if TYPE_CHECKING:
    from mlflow_cf.problem.problem import Problem

MOST_COMBINATIONS = 20_000  # of codes for which a rule is tabulated once per row to explain


@dataclass(frozen=True, eq=False)
class JointRule:
    """A rule over several groups, answered by code.

    Attributes:
        problem, rule: the rule, grounded at the problem's row.
        groups: the groups it speaks of that have a choice.
        table: its truth for every combination of their codes; None if there are too many.
    """

    problem: Problem
    rule: Rule
    groups: tuple[int, ...]
    table: Bools | None

    @classmethod
    def bind(cls, problem: Problem, rule: Rule) -> JointRule:
        """Tabulate `rule` where its groups have few enough combinations."""
        columns = rule.columns("x_cf")
        groups = tuple(n for n, group in enumerate(problem.groups) if columns & set(group.columns) and group.proposals)
        sizes = [len(problem.groups[number].tuples) for number in groups]
        if prod(sizes) > MOST_COMBINATIONS:
            return cls(problem, rule, groups, None)
        rows = np.tile(problem.x0, (prod(sizes), 1))
        for number, codes in zip(groups, np.indices(sizes), strict=True):
            rows[:, problem.columns[number]] = problem.groups[number].tuples[codes.ravel()]
        return cls(problem, rule, groups, rule.holds(rows, problem.x0).reshape(sizes))

    def holds(self, codes: Codes) -> Bools:
        """Return (m,) truth of the rule for candidates (m, G)."""
        if self.table is None:
            return self.rule.holds(self.problem.rows(codes), self.problem.x0)
        held = self.table[tuple(codes[:, number] for number in self.groups)]
        return np.broadcast_to(held, len(codes))  # one answer for all where no group has a choice
