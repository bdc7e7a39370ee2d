"""What an opened model can say of boxes of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Problem
from mlflow_cf.problem.rater import Rater
from mlflow_cf.structures.links import Tokens
from mlflow_cf.structures.parts import Dense, Number
from mlflow_cf.structures.structure import Structure


@dataclass(frozen=True, eq=False)
class Reachable:
    """The bounds of a structure on boxes around one row.

    Attributes:
        problem: the row; rater: of the opened model.
        doubt: how far its sums may be from the model's, in units of max(1, |sum|).
    """

    problem: Problem
    rater: Rater
    doubt: float

    def bounded(self, columns: Sequence[int]) -> bool:
        """Return whether bounds over intervals of these columns hold: numbers are cut into cells, or enter linearly."""
        return all(self._is_bounded(column) for column in columns)

    def _is_bounded(self, column: int) -> bool:
        structure = self.rater.structure
        if not self.problem.space.features[column].numeric or structure.ends(column) is not None:
            return True
        parts = structure.parts() or ()
        if len(parts) != 1 or not isinstance(parts[0], Dense):
            return False
        return all(isinstance(entry, Number) for entry in parts[0].entries[column])

    def may_be_wanted(self, columns: Sequence[int], low: Floats, high: Floats) -> Bools:
        """Return (m,) in which boxes (m, d) a row may meet target and domains; only `columns` are not the row's own."""
        low, high = low.copy(), high.copy()
        for column in columns:
            low[:, column], high[:, column] = self._within(column, low[:, column], high[:, column])
        possible: Bools = np.all(low[:, columns] <= high[:, columns], axis=1)
        structure = self._restricted(tuple(columns))
        for at in np.flatnonzero(possible).tolist():
            allowed = [self._tokens(column, low[at, column], high[at, column]) for column in columns]
            ends = structure.bounds(allowed)
            cannot = self.rater.reach(ends[0][None], ends[1][None], self.doubt) < 0  # not where it is no number
            possible[at] = not cannot[0]
        return possible

    def _within(self, column: int, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return the ends (m,) of what an answer may have between these ends; in the wrong order if that is nothing."""
        group, own = self.problem.groups[self.problem.owner[column]], self.problem.x0[column]
        if group.interval is not None:
            least, most = np.nanmin([group.interval[0], own]), np.nanmax([group.interval[1], own])
            return np.maximum(low, least), np.minimum(high, most)
        values = self._values(column)
        first = np.append(values, np.inf)[np.searchsorted(values, low)]
        last = np.append(-np.inf, values)[np.searchsorted(values, high, side="right")]
        return first, last

    def _values(self, column: int) -> Floats:
        """Return the values (v,) that an answer may have, ascending, the row's own among them."""
        if column not in self._known:
            group = self.problem.groups[self.problem.owner[column]]
            values = np.unique(group.tuples[:, group.columns.index(column)])
            self._known[column] = values[~np.isnan(values)]
        return self._known[column]

    @cached_property
    def _known(self) -> dict[int, Floats]:
        return {}

    def _tokens(self, column: int, low: float, high: float) -> Tokens:
        """Return the tokens of all values between two ends, or of as few as bound them."""
        feature, structure = self.problem.space.features[column], self.rater.structure
        if not feature.numeric:
            codes = np.arange(np.ceil(low), np.floor(high) + 1)
            return structure.encode(column, codes)
        ends = self._cuts[column]
        if ends is None:
            return structure.encode(column, np.array([low, high]))
        inside = ends[np.searchsorted(ends, low) : np.searchsorted(ends, high)]
        return structure.encode(column, np.append(inside, high))

    @cached_property
    def _cuts(self) -> dict[int, Floats | None]:
        features = self.problem.space.features
        return {n: self.rater.structure.ends(n) for n, feature in enumerate(features) if feature.numeric}

    @cached_property
    def _row(self) -> list[Tokens]:
        return [tokens[0] for tokens in self.rater.tokens(range(len(self.problem.x0)), self.problem.x0[None])]

    @cached_property
    def _structures(self) -> dict[tuple[int, ...], Structure]:
        return {}

    def _restricted(self, columns: tuple[int, ...]) -> Structure:
        """Return the structure over some columns, the others as the row has them."""
        if columns not in self._structures:
            self._structures[columns] = self.rater.structure.restrict(self._row, columns)
        return self._structures[columns]
