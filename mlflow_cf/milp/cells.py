"""Which cell of a structure's lookup a feature is in, as columns that leaves and tables of levels share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.milp.affine import Affine, Columns
from mlflow_cf.milp.program import Program
from mlflow_cf.milp.variables import Chosen, Real, Variables
from mlflow_cf.structures.cells import Lookup

Members = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CellColumns:
    """The cells that a feature may be in.

    Attributes:
        cells: (c,) their numbers, ascending; missing values may have one of their own.
        columns: (c,) columns that are 1 for the cell that it is in, and 0 for all others; one cell has none.
        prefix: (c - 1,) columns with the sums of the first 1, 2, .. of these; none where there are few cells.
    """

    cells: Columns
    columns: Columns
    prefix: Columns

    def among(self, members: Members) -> Affine:
        """Return 1 if it is in one of some of the cells (c,), else 0."""
        if members.all() or not members.any():
            return Affine.of(float(members.all()))
        if not len(self.prefix):
            return Affine(self.columns[members], np.ones(int(members.sum())), 0.0, 0.0, 1.0)
        steps = np.diff(members.astype(np.float64), prepend=0.0, append=0.0)
        at = np.flatnonzero(steps[1:-1])
        return Affine(self.prefix[at], -steps[1:-1][at], float(members[-1]), 0.0, 1.0)

    def chosen(self, values: Floats) -> Affine:
        """Return the value (c,) of the cell that it is in."""
        return Affine.of(float(values[0])) if len(values) == 1 else Affine.chosen(self.columns, values)


MOST_PLAIN: Final = 4  # cells whose sums need no columns of their own


@dataclass(frozen=True, eq=False)
class CellBook:
    """The cells of every feature by every lookup, made when they are first asked for.

    Attributes:
        program, variables: to which they are added.
    """

    program: Program
    variables: Variables
    _made: dict[tuple[int, int], tuple[Lookup, CellColumns]] = field(default_factory=dict, init=False, repr=False)

    def of(self, feature: int, lookup: Lookup) -> CellColumns:
        """Return the cells of a feature by a lookup."""
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
        """Return the cells of the codes, and selectors or sums of them."""
        cells, inverse = np.unique(lookup.cells(variable.values(feature)), return_inverse=True)
        if len(cells) == 1:
            return cells, np.empty(0, dtype=np.intp)
        if len(cells) == len(inverse):
            return cells, variable.selectors[np.argsort(inverse)]
        columns = self.program.add_columns(np.zeros(len(cells)), np.ones(len(cells)))
        sums = [Affine(variable.selectors[inverse == at], np.ones(int((inverse == at).sum())), 0.0, 0.0, 1.0)
                for at in range(len(cells))]  # fmt: skip
        self._tie(columns, sums)
        return cells, columns

    def _tie(self, columns: Columns, sums: list[Affine]) -> None:
        """Let columns be sums of others."""
        parts = [
            Affine(np.append(part.columns, column), np.append(part.coefficients, -1.0), part.constant, -1.0, 1.0)
            for column, part in zip(columns, sums, strict=True)
        ]
        self.program.require(parts, 0.0, 0.0)

    def _of_real(self, variable: Real, lookup: Lookup) -> tuple[Columns, Columns]:
        """Return the cells that a real number reaches, and a binary for each; the number is between its ends."""
        shift, step, origin = variable.shift, variable.step, variable.origin
        low, high = origin + step * shift.low, origin + step * shift.high
        first, last = np.searchsorted(lookup.cuts, [low, high]).tolist()
        ends = (np.clip(lookup.cuts[first:last], low, high) - origin) / step
        floors = np.append(shift.low, np.minimum(ends + self.variables.strict, shift.high))
        ceilings = np.append(ends, shift.high)
        places = lookup.place[first : last + 1]
        if np.isnan(variable.own):
            places = np.append(places, lookup.missing)
            floors, ceilings = np.append(floors, 0.0), np.append(ceilings, 0.0)
        if len(places) == 1:
            return places, np.empty(0, dtype=np.intp)
        pieces = self.program.add_binaries(len(places))
        ones = np.ones(len(places))
        self.program.require([Affine(pieces, ones, 0.0, 0.0, 1.0)], 1.0, 1.0)
        for sides, signs in ((floors, (0.0, np.inf)), (ceilings, (-np.inf, 0.0))):
            inside = Affine(np.append(shift.columns, pieces), np.append(shift.coefficients, -sides), 0.0, -2.0, 2.0)
            self.program.require([inside], *signs)
        if np.isnan(variable.own):  # it is missing if it stays as it is
            kept = Affine(np.append(variable.switch.columns, pieces[-1]), np.ones(2), 0.0, 0.0, 2.0)
            self.program.require([kept], 1.0, 1.0)
        return self._merged(places, pieces)

    def _merged(self, places: Columns, pieces: Columns) -> tuple[Columns, Columns]:
        """Return every cell once; missing values may be filled with a value of another one's cell."""
        cells, inverse = np.unique(places, return_inverse=True)
        if len(cells) == len(places):
            return cells, pieces[np.argsort(inverse)]
        columns = self.program.add_columns(np.zeros(len(cells)), np.ones(len(cells)))
        self._tie(columns, [
            Affine(pieces[inverse == at], np.ones(int((inverse == at).sum())), 0.0, 0.0, 1.0)
            for at in range(len(cells))
        ])  # fmt: skip
        return cells, columns

    def _prefix(self, columns: Columns) -> Columns:
        """Return columns with the sums of the first 1, 2, .. columns but the last."""
        if len(columns) <= MOST_PLAIN:
            return np.empty(0, dtype=np.intp)
        count = len(columns) - 1
        prefix = self.program.add_columns(np.zeros(count), np.ones(count))
        before = [Affine(columns[:1], np.ones(1), 0.0, 0.0, 1.0)]
        before += [Affine(np.array([prefix[at - 1], columns[at]]), np.ones(2), 0.0, 0.0, 1.0) for at in range(1, count)]
        self._tie(prefix, before)
        return prefix
