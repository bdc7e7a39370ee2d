"""The actions of a row, group after group: all that its groups have, or those that a search looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.problem.group import Codes
from mlflow_cf.structures.links import Encoded


class ActionArrays(NamedTuple):
    """An `ActionTable` for kernels.

    Attributes:
        code, cost, peak: (t,), start: (G + 1,), own, own_code: (G,) as in the table.
    """

    code: Codes
    cost: Floats
    peak: Floats
    start: Codes
    own: Codes
    own_code: Codes


class Within(NamedTuple):
    """Which candidates count, for kernels: those nearer than `limit` that change at most, and at least, so many groups.

    The distance is the sum of the costs and `c` times the largest peak.
    """

    c: float
    limit: float
    most: int
    least: int = 1


@dataclass(frozen=True, eq=False)
class ActionTable:
    """Actions of a row, group after group.

    Attributes:
        cost, peak: (t,) what each adds to the distance, as in `GroupActions`.
        start: (G + 1,) where the actions of each group start.
        own_code: (G,) the number of the row's own action.
        owner: (d,) the group of every column.
        encode: makes, for every column, the encoded values of all actions of its group; none without structure.
        taken: the group of each and its number in the group, where these are some of all actions; None: all of them,
            in the order of their numbers.
    """

    cost: Floats
    peak: Floats
    start: Codes
    own_code: Codes
    owner: Codes
    encode: Callable[[], list[Encoded]]
    taken: tuple[Codes, Codes] | None = None

    @cached_property
    def group(self) -> Codes:
        """(t,) the group of each action."""
        return np.repeat(np.arange(len(self.own_code)), np.diff(self.start)) if self.taken is None else self.taken[0]

    @cached_property
    def code(self) -> Codes:
        """(t,) the number of each among the actions of its group."""
        return np.arange(len(self.cost)) - self.start[self.group] if self.taken is None else self.taken[1]

    def take(self, ids: Codes) -> ActionTable:
        """Return the table of some actions (n,), group after group; without copies where these are all of them."""
        if len(ids) == len(self.cost) and (ids == np.arange(len(ids))).all():
            return self
        if self.taken is None:  # of many thousand actions a few are taken
            group = np.searchsorted(self.start, ids, side="right") - 1
            code = ids - self.start[group]
        else:
            group, code = self.group[ids], self.code[ids]
        start = np.searchsorted(group, np.arange(len(self.start)))
        taken = group, code
        return ActionTable(self.cost[ids], self.peak[ids], start, self.own_code, self.owner, self.encode, taken)

    def candidates(self, ids: Codes) -> Codes:
        """Return the candidates (m, G) that take the actions `ids` (m, n), each of another group."""
        codes = np.repeat(self.own_code[None], len(ids), axis=0)
        for at in ids.T:
            codes[np.arange(len(ids)), self.group[at]] = self.code[at]
        return codes

    @cached_property
    def arrays(self) -> ActionArrays:
        """The same for kernels."""
        return ActionArrays(self.code, self.cost, self.peak, self.start, self.own, self.own_code)

    @cached_property
    def own(self) -> Codes:
        """(G,) the row's own action of every group, -1 where it is not among these."""
        if self.taken is None:
            return self.start[:-1] + self.own_code
        own = np.full(len(self.own_code), -1)
        mine = np.flatnonzero(self.code == self.own_code[self.group])
        own[self.group[mine]] = mine
        return own

    @cached_property
    def encoded(self) -> list[Encoded]:
        """For every column, the structure's encoded values of the actions of its group; none without structure."""
        tables = self.encode()
        if self.taken is None or not tables:
            return tables
        parts = [self.code[self.start[number] : self.start[number + 1]] for number in self.owner.tolist()]
        return [table[part] for table, part in zip(tables, parts, strict=True)]

    def encoded_candidates(self, codes: Codes) -> list[Encoded]:
        """Return the encoded values of candidates by code (m, G), one array per column."""
        return [table[codes[:, number]] for table, number in zip(self.encode(), self.owner.tolist(), strict=True)]

    @cached_property
    def columns(self) -> Codes:
        """The actions of every column, column after column."""
        return np.concatenate([np.arange(self.start[n], self.start[n + 1]) for n in self.owner])
