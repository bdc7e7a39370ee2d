"""Cells: the intervals or levels of a feature that a structure tells apart, as binary columns of a program.

Trees and tables of levels that look a feature up in the same way share the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.milp.program import Affine, Columns, Entries, Program, total
from mlflow_cf.milp.variables import Pieces, Real, Variables
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
                places, parts = self._pieces(variable, lookup)
            else:
                places, parts = lookup.cells(variable.values(feature)), variable.selectors
            cells, owner = np.unique(places, return_inverse=True)  # a missing value may be filled with one of a cell
            columns = self._sums(parts, owner, len(cells))
            self._made[key] = lookup, CellColumns(cells, columns, self._prefix(columns))
        return self._made[key][1]

    def _sums(self, parts: Columns, owner: Columns, count: int) -> Columns:
        """Return columns (count,), each the sum of its own of the columns `parts` (n,); a single one needs none."""
        if count == 1:
            return parts[:0]
        if len(parts) == count:
            return parts[np.argsort(owner)]
        columns = self.program.add_columns(count)
        self.program.add_rows(count, 0.0, 0.0, Entries(owner, parts, 1.0), Entries(np.arange(count), columns, -1.0))
        return columns

    def _pieces(self, variable: Real, lookup: Lookup) -> tuple[Columns, Columns]:
        """Return the cell of every piece of a real number, and a binary column for each; a single one has none."""
        known = not np.isnan(variable.own)
        low, high = min(variable.low, variable.origin), max(variable.high, variable.origin)
        first, last = np.searchsorted(lookup.cuts, [low, high]).tolist()
        places, cuts = lookup.place[first : last + 1], lookup.cuts[first:last]
        above, most = np.append(-np.inf, lookup.cuts)[first : last + 1], lookup.cuts[first : last + 1]
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
        return places, pieces

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
        prefix = np.append(columns[:1], self.program.add_columns(count))
        row = np.arange(count)
        sums = Entries(row, prefix[:-1], 1.0), Entries(row, columns[1:-1], 1.0)
        self.program.add_rows(count, 0.0, 0.0, *sums, Entries(row, prefix[1:], -1.0))
        return prefix
