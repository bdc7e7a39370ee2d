"""Rules over several groups, answered by the codes of candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.features import Floats
from mlflow_cf.problem.group import Codes, Group

MOST_COMBINATIONS = 20_000  # of codes for which a rule is tabulated once per row to explain


@dataclass(frozen=True, eq=False)
class JointRule:
    """A rule over several groups, answered by code.

    Attributes:
        rule: the rule, grounded at a row.
        groups: the groups it speaks of that have a choice.
        table: its truth for every combination of their codes; None if there are too many.
        whole: candidates by code (m, G) -> its truth (m,), from whole rows.
    """

    rule: Rule
    groups: tuple[int, ...]
    table: Bools | None
    whole: Callable[[Codes], Bools]

    @classmethod
    def bind(cls, rule: Rule, groups: Sequence[Group], x0: Floats, rows: Callable[[Codes], Floats]) -> JointRule:
        """Tabulate a rule for a row (d,) where its groups have few enough combinations.

        Args:
            rule: the rule.
            groups: all groups; x0: the row.
            rows: candidates by code (m, G) -> their rows (m, d).
        """
        columns = rule.columns("x_cf")
        own = tuple(n for n, group in enumerate(groups) if columns & set(group.columns) and group.proposals)
        sizes = [len(groups[number].tuples) for number in own]
        table = None
        if prod(sizes) <= MOST_COMBINATIONS:
            every = np.tile(x0, (prod(sizes), 1))
            for number, codes in zip(own, np.indices(sizes), strict=True):
                every[:, groups[number].columns] = groups[number].tuples[codes.ravel()]
            table = rule.holds(every, x0).reshape(sizes)
        return cls(rule, own, table, lambda codes: rule.holds(rows(codes), x0))

    def holds(self, codes: Codes) -> Bools:
        """Return (m,) truth of the rule for candidates (m, G)."""
        if self.table is None:
            return self.whole(codes)
        held = self.table[tuple(codes[:, number] for number in self.groups)]
        return np.broadcast_to(held, len(codes))  # one answer for all where no group has a choice
