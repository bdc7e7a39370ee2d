"""How many groups may change, and which features make a group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.expressions import Changed, Const, evaluate
from mlflow_cf.constraints.origin import Origin
from mlflow_cf.constraints.rules import Atom, Rule
from mlflow_cf.features import Floats

Columns = tuple[int, ...]


@dataclass(frozen=True)
class JoinedGroup:
    """Columns, ascending, that change together, and the constraint that says so."""

    columns: Columns
    origin: Origin


@dataclass(frozen=True)
class ChangeLimit:
    """Most groups that may differ from the query row.

    Attributes:
        most: how many.
        groups: the columns of every group as whoever set the limit counts them: the policy by its own groups, a
            request by those that it joins as well.
        origin: the constraint.
    """

    most: int
    groups: tuple[Columns, ...]
    origin: Origin

    @cached_property
    def rule(self) -> Rule:
        """The limit over whole rows."""
        return self._rule(self.groups)

    def parted(self, parts: Collection[int]) -> ChangeLimit:
        """Return the limit where the columns `parts` are no groups: each counts by itself."""
        split = (((column,) for column in group) if set(group) & set(parts) else (group,) for group in self.groups)
        return replace(self, groups=tuple(sorted(chain.from_iterable(split))))

    def inside(self, columns: Columns) -> tuple[Columns, ...]:
        """Return the groups that a group of `columns` joins."""
        return tuple(group for group in self.groups if set(group) <= set(columns))

    def within(self, columns: Columns) -> Rule | None:
        """Return the limit on what a group of `columns` changes alone; None if that is never too much."""
        inside = self.inside(columns)
        return self._rule(inside) if len(inside) > self.most else None

    def counts(self, columns: Columns, actions: Floats, x0: Floats) -> NDArray[np.intp]:
        """Return how many changes each of actions (t, len(columns)) of a group is in a row (d,)."""
        rows = np.tile(x0, (len(actions), 1))
        rows[:, columns] = actions
        return evaluate(Changed(self.inside(columns)), rows, x0).astype(np.intp)

    def _rule(self, groups: tuple[Columns, ...]) -> Rule:
        then = Atom(Changed(groups), "<=", Const(float(self.most)))
        return Rule((), then, self.origin, f"at most {self.most} {'change' if self.most == 1 else 'changes'}")
