"""One row to explain, with everything an explainer needs to search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.domains import Domain
from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.problem.rater import Rater
from mlflow_cf.problem.rating import Rating
from mlflow_cf.structures.structure import Tokens

Codes = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Group:
    """The unit of change, bound to the query row: the tuples it may take.

    A candidate names one tuple of every group by its code, the position in `tuples`.

    Attributes:
        columns: the group's columns.
        tuples: (t, len(columns)) ascending; what the rules leave of the domain, plus the query row's own tuple.
        weights: (t,) frequency in the background; 0 for the own tuple, which is never drawn.
        own: code of the query row's own tuple.
        own_allowed: whether the rules accept it; if not, this group must change.
        part, top: (t,) what each tuple adds to the distance, see `BoundDistance.parts`.
        rules: the grounded rules that speak of this group alone.
        domain: the tuples before the rules.
    """

    columns: tuple[int, ...]
    tuples: Floats
    weights: Floats
    own: int
    own_allowed: bool
    part: Floats
    top: Floats
    rules: tuple[Rule, ...]
    domain: Domain

    @property
    def proposals(self) -> int:
        """How many tuples other than its own the group may take."""
        return len(self.tuples) - 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """Range of a lone continuous number, or None."""
        return self.domain.interval


@dataclass(frozen=True, eq=False)
class Problem:
    """A query row bound to its constraints, distance and target.

    Attributes:
        space: features, with codes for the row's unseen levels.
        x0: (d,) codes of the row to explain.
        groups: the units of change in order.
        order: the groups in the order in which they are repaired.
        joint_rules: rules over several groups, grounded.
        never: rules that no counterfactual of this row can meet.
        bound_distance: the distance.
        max_changes: most groups that may differ, or None.
        count: how many answers are wanted.
        rate: rows (m, d) -> rating, by the fastest scoring that agrees with the model.
        background: (n, d) coded background rows; `rate_background` rates them without asking the model.
        rater: rates candidates by code without decoding them, if the model could be opened and knows no more of the
            row's levels than the background does.
        opened: whether the model could be opened.
        check: rows (m, d) -> (m,) whether each meets every constraint and `values` as a whole row.
    """

    space: FeatureSpace
    x0: Floats
    groups: tuple[Group, ...]
    order: tuple[int, ...]
    joint_rules: tuple[Rule, ...]
    never: tuple[Rule, ...]
    bound_distance: BoundDistance
    max_changes: int | None
    count: int
    rate: Callable[[Floats], Rating]
    background: Floats
    rate_background: Callable[[], Rating]
    check: Callable[[Floats], Bools]
    rater: Rater | None = None
    opened: bool = False

    @cached_property
    def own(self) -> Codes:
        """(G,) codes of the query row."""
        return np.array([group.own for group in self.groups], dtype=np.intp)

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """Columns of every group."""
        return tuple(group.columns for group in self.groups)

    def rows(self, codes: Codes) -> Floats:
        """Return candidate rows (m, d) for codes (m, G)."""
        Z = np.empty((len(codes), len(self.space)))
        for number, group in enumerate(self.groups):
            Z[:, group.columns] = group.tuples[codes[:, number]]
        return Z

    def rate_codes(self, codes: Codes) -> Rating:
        """Rate candidates by code (m, G), by the fastest scoring there is."""
        if self.rater is None:
            return self.rate(self.rows(codes))
        return self.rater.rate_tokens(self.tokens(codes))

    def tokens(self, codes: Codes) -> list[Tokens]:
        """Return the structure's tokens of candidates by code (m, G), one array per column."""
        return [table[codes[:, number]] for table, number in zip(self.token_tables, self.owner.tolist(), strict=True)]

    @cached_property
    def owner(self) -> Codes:
        """(d,) the group of every column."""
        owner = {column: number for number, columns in enumerate(self.columns) for column in columns}
        return np.array([owner[column] for column in range(len(self.space))], dtype=np.intp)

    @cached_property
    def token_tables(self) -> list[Tokens]:
        """For every column, the tokens of its group's tuples."""
        tables: dict[int, Tokens] = {}
        for group in self.groups:
            if self.rater is not None:
                tables.update(zip(group.columns, self.rater.tokens(group.columns, group.tuples), strict=True))
        return [tables[column] for column in range(len(self.space))]

    def distance(self, codes: Codes) -> Floats:
        """Return the distance (m,) of codes (m, G), bit for bit that of their rows."""
        total, top = np.zeros(len(codes)), np.zeros(len(codes))
        for number, group in enumerate(self.groups):
            total += group.part[codes[:, number]]
            if self.bound_distance.c:
                top = np.maximum(top, group.top[codes[:, number]])
        return total + self.bound_distance.c * top

    def changed(self, Z: Floats) -> Bools:
        """Return (m, G) flags of the groups in which rows Z (m, d) differ from the query row."""
        differs: Bools = (self.x0 != Z) & ~(np.isnan(self.x0) & np.isnan(Z))
        if len(self.groups) == len(self.space):  # every feature by itself, in order
            return differs
        return np.column_stack([differs[:, columns].any(axis=1) for columns in self.columns])
