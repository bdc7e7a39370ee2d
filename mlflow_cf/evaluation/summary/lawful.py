"""Which common changes the constraints allow, for many rows at once.

A constraint about one feature is checked once per move of that feature. One about several features is checked for pairs
of changes of two of them alone; a pair that changes one of them is as lawful as that single change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from mlflow_cf.constraints import Domain
from mlflow_cf.constraints.compile import ChangeLimit
from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.programs import Checks
from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.evaluation.summary.bits import Words, flags_of, packed
from mlflow_cf.evaluation.summary.changes import Move
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.problem.binding import admissible

AT_ONCE: Final = 2**18  # changed rows that are checked together


class Demand(Protocol):
    """A constraint on rows with some of their columns changed."""

    @property
    def columns(self) -> frozenset[int]:
        """The columns of the changed row that it looks at."""
        ...

    def holds(self, Z: Floats, X: Floats) -> Bools:
        """Return (m,) whether rows Z (m, d) meet it as changes of rows X (m, d)."""
        ...


@dataclass(frozen=True, eq=False)
class RulesAbout:
    """Rules about the same columns."""

    columns: frozenset[int]
    checks: Checks

    def holds(self, Z: Floats, X: Floats) -> Bools:
        """Return (m,) whether rows Z (m, d) meet them as changes of rows X (m, d)."""
        held = np.ones(len(Z), dtype=np.bool_)
        self.checks.refuse(Z, X, held)
        return held


@dataclass(frozen=True, eq=False)
class Together:
    """Features that change together, to combinations that the background has."""

    domain: Domain

    @property
    def columns(self) -> frozenset[int]:
        """The columns of the group."""
        return frozenset(self.domain.columns)

    def holds(self, Z: Floats, X: Floats) -> Bools:
        """Return (m,) whether rows Z (m, d) keep their own combination, or have one that may be proposed."""
        columns = list(self.domain.columns)
        changed = differing(Z[:, columns], X[:, columns]).any(axis=1)
        return np.asarray(~changed | admissible(self.domain, Z[:, columns], X[:, columns]))


def demands_of(bound_policy: BoundPolicy) -> list[Demand]:
    """Return all constraints of a policy but its limits on how much changes; rules about the same columns as one."""
    about: dict[frozenset[int], list[Rule]] = {}
    for rule in bound_policy.rules:
        about.setdefault(rule.columns("x_cf"), []).append(rule)
    found: list[Demand] = [RulesAbout(columns, Checks.of(rules)) for columns, rules in about.items()]
    return [*found, *(Together(domain) for domain in bound_policy.domains if len(domain.columns) > 1)]


@dataclass(frozen=True, eq=False)
class LawfulMoves:
    """Moves of rows, and what the constraints say of each by itself and of two together.

    Attributes:
        bound_policy: with the constraints; space: the features.
        X: (n, d) coded rows.
        moves: (s,) the moves.
    """

    bound_policy: BoundPolicy
    space: FeatureSpace
    X: Floats
    moves: tuple[Move, ...]

    @cached_property
    def moved(self) -> Words:
        """(s, w) which rows each move changes."""
        features = self.space.features
        flags = [move.moved(self.X[:, move.column], features[move.column].unknown_from) for move in self.moves]
        return packed(np.array(flags, dtype=np.bool_).reshape(len(flags), len(self.X)))

    @cached_property
    def alone(self) -> Words:
        """(s, w) for which rows the constraints on the moved feature alone hold, whether the row is changed or not."""
        found = np.full(self.moved.shape, ~np.uint64(0))
        for demand in self._single:
            mine = np.array([move.column in demand.columns for move in self.moves], dtype=np.bool_)
            found[mine] &= self._held(demand)[mine]
        return found

    @cached_property
    def single(self) -> Words:
        """(s, w) which rows each move changes lawfully while everything else stays as it is."""
        found = self.moved & self.alone
        for held in self._linked_held:
            found &= held
        for at, move in enumerate(self.moves):
            found[at] &= self._others((move.column,))
        for limit in self.bound_policy.limits:
            if limit.most < 1:
                found[np.array([_counts(limit, move.column) for move in self.moves], dtype=np.bool_)] = 0
        return found

    def joined(self, first: Sequence[int], second: Sequence[int], block: Words) -> None:
        """Keep of the rows that pairs of moves turn (a, b, w) those that are changed lawfully, in place.

        Args:
            first, second: (a,) and (b,) moves of two columns.
            block: which rows each pair of them turns, if the constraints allow it.
        """
        one, two = self.moves[first[0]].column, self.moves[second[0]].column
        left, right = self.alone[first] & self._others((one, two)), self.alone[second]
        for demand, held in zip(self._linked, self._linked_held, strict=True):
            if two not in demand.columns:  # it looks at the first column, or at neither
                left &= held[first]
            elif one not in demand.columns:
                right = right & held[second]
        block &= left[:, None]
        block &= right
        for limit in self.bound_policy.limits:
            self._limit(limit, first, second, block)
        for demand in self._linked:
            if {one, two} <= demand.columns:
                self._check(demand, first, second, block)

    def _limit(self, limit: ChangeLimit, first: Sequence[int], second: Sequence[int], block: Words) -> None:
        """Keep the pairs that change no more groups than a limit allows, in place."""
        one, two = self.moves[first[0]].column, self.moves[second[0]].column
        counted = [_counts(limit, column) for column in (one, two)]
        together = any({one, two} <= set(group) for group in limit.groups)
        if limit.most < 1:
            block &= ~(self.moved[first] if counted[0] else np.zeros_like(self.moved[first]))[:, None]
            block &= ~(self.moved[second] if counted[1] else np.zeros_like(self.moved[second]))
        elif limit.most == 1 and all(counted) and not together:
            block &= ~(self.moved[first][:, None] & self.moved[second])

    def _check(self, demand: Demand, first: Sequence[int], second: Sequence[int], block: Words) -> None:
        """Keep the pairs that meet a demand about both columns, in place."""
        rows, own = len(self.X), flags_of(self.moved[second], len(self.X))
        for at, move in enumerate(first):
            flags = flags_of(block[at], rows)
            places, some = np.nonzero(flags)
            mine = flags_of(self.moved[move], rows)
            for part in np.split(np.arange(len(some)), range(AT_ONCE, len(some), AT_ONCE)):
                X, other = self.X[some[part]], places[part]
                Z = X.copy()
                Z[mine[some[part]], self.moves[move].column] = self.moves[move].code
                codes = np.array([self.moves[each].code for each in second])[other]
                column = self.moves[second[0]].column
                Z[:, column] = np.where(own[other, some[part]], codes, Z[:, column])
                flags[other, some[part]] = demand.holds(Z, X)
            block[at] = packed(flags)

    @cached_property
    def _demands(self) -> list[Demand]:
        return demands_of(self.bound_policy)

    @cached_property
    def _single(self) -> list[Demand]:
        return [demand for demand in self._demands if len(demand.columns) == 1]

    @cached_property
    def _linked(self) -> list[Demand]:
        """The demands about several columns, or none."""
        return [demand for demand in self._demands if len(demand.columns) != 1]

    @cached_property
    def linking(self) -> frozenset[int]:
        """The columns that a constraint compares with others."""
        return frozenset[int]().union(*(demand.columns for demand in self._linked))

    @cached_property
    def _linked_held(self) -> list[Words]:
        """Per demand about several columns, (s, w) for which rows it holds after each move."""
        return [self._held(demand) for demand in self._linked]

    @cached_property
    def _own_held(self) -> list[tuple[int, Words]]:
        """The column of every demand about a single one, and (w,) the rows that meet it with their own values."""
        return [(min(demand.columns), packed(demand.holds(self.X, self.X))) for demand in self._single]

    def _others(self, columns: tuple[int, ...]) -> Words:
        """Return (w,) the rows whose own values of all columns but these meet the demands about a single one."""
        found = np.full(self.moved.shape[1], ~np.uint64(0))
        for column, held in self._own_held:
            if column not in columns:
                found &= held
        return found

    def _held(self, demand: Demand) -> Words:
        """Return (s, w) for which rows a demand holds after each move."""
        found, Z = np.empty_like(self.moved), self.X.copy()
        unchanged = packed(demand.holds(Z, self.X))
        for at, move in enumerate(self.moves):
            if move.column not in demand.columns:
                found[at] = unchanged
                continue
            own = self.X[:, move.column]
            Z[:, move.column] = np.where(flags_of(self.moved[at], len(self.X)), move.code, own)
            found[at] = packed(demand.holds(Z, self.X))
            Z[:, move.column] = own
        return found


def _counts(limit: ChangeLimit, column: int) -> bool:
    return any(column in group for group in limit.groups)
