"""Cells: the intervals or levels of a feature that a structure tells apart, as binary columns of a program.

Trees and tables of levels that look a feature up in the same way share the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.milp.program import Affine, Columns, Entries, Program, total
from mlflow_cf.milp.variables import Chosen, Pieces, Real, Variables
from mlflow_cf.structures.trees.cells import Lookup

Members = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CellColumns:
    """The cells that a feature may be in, with a binary column for each.

    Attributes:
        cells: (c,) their numbers, ascending; missing values may have one of their own.
        columns: (c,) columns that are 1 for the cell that it is in, and 0 for all others; one cell has none.
        prefix: (c - 1,) columns with the sums of the first 1, 2, .. of these.
    """

    cells: Columns
    columns: Columns
    prefix: Columns

    def among(self, members: Members) -> Affine:
        """Return an expression that is 1 if the feature is in one of the flagged cells (c,), else 0."""
        if members.all() or not members.any():
            return Affine.of(float(members.all()))
        steps = np.diff(members.astype(np.float64))
        at = np.flatnonzero(steps)
        return Affine(self.prefix[at], -steps[at], float(members[-1]), 0.0, 1.0)

    def chosen(self, values: Floats) -> Affine:
        """Return an expression that is the value of the feature's cell; `values` (c,) has one per cell."""
        return Affine.of(float(values[0])) if len(values) == 1 else Affine.chosen(self.columns, values)


@dataclass(frozen=True, eq=False)
class CellBook:
    """The cell columns of every pair of feature and lookup, added when they are first asked for.

    Attributes:
        program, variables: to which they are added.
    """

    program: Program
    variables: Variables
    _made: dict[tuple[int, int], tuple[Lookup, CellColumns]] = field(default_factory=dict, init=False, repr=False)

    def of(self, feature: int, lookup: Lookup) -> CellColumns:
        """Return the cell columns of a feature under a lookup."""
        key = feature, id(lookup)
        if key not in self._made:  # keeping the lookup keeps its id
            variable = self.variables.of(feature)
            if isinstance(variable, Real):
                cells, columns = self._of_real(variable, lookup)
            else:
                cells, columns = self._of_chosen(variable, feature, lookup)
            self._made[key] = lookup, CellColumns(cells, columns, self._prefix(columns))
        return self._made[key][1]

    def _of_chosen(self, variable: Chosen, feature: int, lookup: Lookup) -> tuple[Columns, Columns]:
        """Return the cells of a group's actions, and a column for each: a selector, or a sum of selectors."""
        cells, inverse = np.unique(lookup.cells(variable.values(feature)), return_inverse=True)
        if len(cells) == 1:
            return cells, np.empty(0, dtype=np.intp)
        return cells, self._sums(variable.selectors, inverse, len(cells))

    def _sums(self, parts: Columns, owner: Columns, count: int) -> Columns:
        """Return columns (count,) that are the sums of the columns `parts` (n,) with the same owner (n,)."""
        if len(parts) == count:
            return parts[np.argsort(owner)]
        columns = self.program.add_columns(np.zeros(count), np.ones(count))
        self._tie(columns, Entries(owner, parts, np.ones(len(parts))))
        return columns

    def _tie(self, columns: Columns, sums: Entries) -> None:
        """Require that columns (n,) equal sums of others; `sums` has a row of coefficients for each."""
        here = np.arange(len(columns))
        row, column = np.concatenate([sums.row, here]), np.concatenate([sums.column, columns])
        entries = Entries(row, column, np.concatenate([sums.value, np.full(len(columns), -1.0)]))
        self.program.add_rows(np.zeros(len(columns)), np.zeros(len(columns)), entries)

    def _of_real(self, variable: Real, lookup: Lookup) -> tuple[Columns, Columns]:
        """Return the cells that a real number can lie in, and a binary column for each."""
        known = not np.isnan(variable.own)
        low, high = min(variable.low, variable.origin), max(variable.high, variable.origin)
        first, last = np.searchsorted(lookup.cuts, [low, high]).tolist()
        places, cuts = lookup.place[first : last + 1], lookup.cuts[first:last]
        above, most = np.append(lookup.cuts[first - 1 : first], cuts), lookup.cuts[first : last + 1]
        above = above if first else np.append(-np.inf, above)
        own = int(np.searchsorted(cuts, variable.own)) if known else len(places)
        if not known:
            places = np.append(places, lookup.missing)
        pieces = self.program.add_binaries(len(places)) if len(places) > 1 else np.empty(0, dtype=np.intp)
        self.variables.pieces.setdefault(variable.column, []).append(Pieces(above, most, pieces[: len(above)]))
        if len(places) == 1:
            return places, pieces
        self.program.require([Affine(pieces, np.ones(len(places)), 0.0, 0.0, 1.0)], 1.0, 1.0)
        for sides, signs in zip(self._sides(variable, cuts, own), ((0.0, np.inf), (-np.inf, 0.0)), strict=True):
            shift = variable.shift
            inside = Affine(np.append(shift.columns, pieces), np.append(shift.coefficients, -sides), 0.0, -2.0, 2.0)
            self.program.require([inside], *signs)
        stays = Affine(pieces[own : own + 1], np.ones(1), 0.0, 0.0, 1.0)  # a number that stays is where it was
        self.program.require([total([variable.switch, stays])], 1.0, np.inf)
        cells, inverse = np.unique(places, return_inverse=True)  # a missing value may be filled with one of a cell
        return cells, self._sums(pieces, inverse, len(cells))

    def _sides(self, variable: Real, cuts: Floats, own: int) -> tuple[Floats, Floats]:
        """Return the least and the largest shift (p,), (p,) of a real number within each of its pieces.

        The last piece may be that of a missing value. "Above a cut" means by `strict` or more, or by half of the way to
        the next cut where that is less.
        """
        shift = variable.shift
        ends = np.clip((cuts - variable.origin) / variable.step, shift.low, shift.high)
        starts, stops = np.append(shift.low, ends), np.append(ends, shift.high)
        floors = starts + np.append(0.0, np.minimum(self.variables.strict, np.diff(stops) / 2.0))
        if own == len(starts):
            return np.append(floors, 0.0), np.append(stops, 0.0)
        floors[own], stops[own] = min(floors[own], 0.0), max(stops[own], 0.0)
        return floors, stops

    def _prefix(self, columns: Columns) -> Columns:
        """Return columns with the cumulative sums of `columns`, without that of all of them, which is 1."""
        if len(columns) <= 2:
            return columns[:1]
        count = len(columns) - 2
        prefix = np.append(columns[:1], self.program.add_columns(np.zeros(count), np.ones(count)))
        row = np.arange(count)
        entries = Entries(np.tile(row, 2), np.concatenate([prefix[:-1], columns[1:-1]]), np.ones(2 * count))
        self._tie(prefix[1:], entries)
        return prefix
