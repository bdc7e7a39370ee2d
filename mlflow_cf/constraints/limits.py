"""Limits on how many feature groups may change, and the declared groups."""

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
    """A declared feature group: ascending columns that change together, and the constraint that declares it."""

    columns: Columns
    origin: Origin


@dataclass(frozen=True)
class ChangeLimit:
    """A limit on the number of groups that differ from the query row.

    Attributes:
        most: the largest number.
        groups: the columns of every group that counts as one: for a policy its own groups, for a request also those
            that it joins.
        origin: the constraint.
    """

    most: int
    groups: tuple[Columns, ...]
    origin: Origin

    @cached_property
    def rule(self) -> Rule:
        """The limit as a rule over whole rows."""
        return self._rule(self.groups)

    def parted(self, parts: Collection[int]) -> ChangeLimit:
        """Return the limit with the groups of the columns `parts` dissolved: each column counts by itself."""
        split = (((column,) for column in group) if set(group) & set(parts) else (group,) for group in self.groups)
        return replace(self, groups=tuple(sorted(chain.from_iterable(split))))

    def inside(self, columns: Columns) -> tuple[Columns, ...]:
        """Return the groups of this limit that lie within a group of `columns`."""
        return tuple(group for group in self.groups if set(group) <= set(columns))

    def within(self, columns: Columns) -> Rule | None:
        """Return the limit as a rule over one group of `columns`; None if that group alone never exceeds it."""
        inside = self.inside(columns)
        return self._rule(inside) if len(inside) > self.most else None

    def counts(self, columns: Columns, actions: Floats, x0: Floats) -> NDArray[np.intp]:
        """Return (t,) how many changes each action (t, len(columns)) of a group counts as, in a row x0 (d,)."""
        rows = np.tile(x0, (len(actions), 1))
        rows[:, columns] = actions
        return evaluate(Changed(self.inside(columns)), rows, x0).astype(np.intp)

    def _rule(self, groups: tuple[Columns, ...]) -> Rule:
        then = Atom(Changed(groups), "<=", Const(float(self.most)))
        return Rule((), then, self.origin, f"at most {self.most} {'change' if self.most == 1 else 'changes'}")
