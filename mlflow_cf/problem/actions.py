"""Groups of features for one row, their actions (`ActionTable`), and rules over several groups.

A group is one feature, or several that change together. An action gives all its features a value. A candidate is
written as codes: for every group, the position of its action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.domains import Domain
from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.features import Floats
from mlflow_cf.structures.structure import Encoded

Codes = NDArray[np.intp]


class GroupActions(NamedTuple):
    """The actions that a group may take: what its rules leave of its domain, and the row's own values ("own action").

    Attributes:
        values: (t, columns) the actions, in ascending order; "code" is the position in it.
        weights: (t,) frequency in the background, by which actions are drawn; 0 for the own action.
        own: code of the query row's own action.
        cost, peak: (t,) what each action adds to the distance's sum, and its largest change; see `BoundDistance.parts`.
        ids: (t,) position of each action in the domain, -1 for an own action that is not there; None: not known.
    """

    values: Floats
    weights: Floats
    own: int
    cost: Floats
    peak: Floats
    ids: Codes | None = None


@dataclass(frozen=True, eq=False)
class Group:
    """A group of features, bound to the query row. Its actions and rules are made when they are first read.

    A candidate names one action of every group by its code, the position in `actions`.

    Attributes:
        columns: the group's columns.
        own_allowed: whether the rules accept the query row's own action; if not, this group must change.
        domain: the actions before the rules.
        ground: returns the rules; bind: returns the actions.
    """

    columns: tuple[int, ...]
    own_allowed: bool
    domain: Domain
    ground: Callable[[], tuple[Rule, ...]]
    bind: Callable[[], GroupActions]

    def taking(self, actions: GroupActions) -> Group:
        """Return the group with these actions."""
        return replace(self, bind=lambda: actions)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules about this group alone, with the row's own values filled in."""
        return self.ground()

    @cached_property
    def bound(self) -> GroupActions:
        """The actions, with what goes with them."""
        return self.bind()

    @property
    def actions(self) -> Floats:
        """(t, columns) the actions; see `GroupActions` for this and what follows."""
        return self.bound.values

    @property
    def weights(self) -> Floats:
        """(t,) frequency in the background."""
        return self.bound.weights

    @property
    def own(self) -> int:
        """Code of the query row's own action."""
        return self.bound.own

    @property
    def cost(self) -> Floats:
        """(t,) what each action adds to the distance's sum."""
        return self.bound.cost

    @property
    def peak(self) -> Floats:
        """(t,) the largest change of each action."""
        return self.bound.peak

    @property
    def ids(self) -> Codes | None:
        """(t,) position of each action in the domain."""
        return self.bound.ids

    @property
    def proposals(self) -> int:
        """How many actions other than its own the group may take."""
        return len(self.actions) - 1

    @property
    def admissible(self) -> Codes:
        """(k,) codes of the actions that it may take: all of them, but not its own one if the rules reject that."""
        codes = np.arange(len(self.actions))
        return codes if self.own_allowed else np.delete(codes, self.own)

    @property
    def mutable(self) -> bool:
        """Whether it may be anything but what the row has."""
        return self.proposals > 0 or (self.interval is not None and self.interval[0] < self.interval[1])

    @property
    def interval(self) -> tuple[float, float] | None:
        """Range of a single continuous number, or None."""
        return self.domain.interval


MOST_COMBINATIONS = 20_000  # of codes for which a rule is tabulated once per row to explain


@dataclass(frozen=True, eq=False)
class JointRule:
    """A rule over several groups that is checked on codes.

    Attributes:
        rule: the rule, grounded at a row.
        groups: the numbers of those it is about that have several actions.
        table: whether it holds for every combination of their codes; None if there are too many.
        whole: codes (m, G) -> (m,) whether it holds, by making their rows.
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
        sizes = [len(groups[number].actions) for number in own]
        table = None
        if prod(sizes) <= MOST_COMBINATIONS:
            every = np.tile(x0, (prod(sizes), 1))
            for number, codes in zip(own, np.indices(sizes), strict=True):
                every[:, groups[number].columns] = groups[number].actions[codes.ravel()]
            table = rule.holds(every, x0).reshape(sizes)
        return cls(rule, own, table, lambda codes: rule.holds(rows(codes), x0))

    def holds(self, codes: Codes) -> Bools:
        """Return (m,) truth of the rule for candidates (m, G)."""
        if self.table is None:
            return self.whole(codes)
        held = self.table[tuple(codes[:, number] for number in self.groups)]
        return np.broadcast_to(held, len(codes))  # one value for all where no group has several actions


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
