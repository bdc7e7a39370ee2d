"""Groups of one column, laid end to end: one pass binds them all to a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints import Domain, Rule
from mlflow_cf.constraints.expressions import Const, Ref
from mlflow_cf.constraints.rules import Atom, Bools, Comparison
from mlflow_cf.features import Floats
from mlflow_cf.kernel import kernel
from mlflow_cf.problem.distance import BoundDistance, Formula
from mlflow_cf.problem.group import Tuples

Array = NDArray[Any]
SIGNS: Final[tuple[Comparison, ...]] = ("==", "!=", "<", "<=", ">", ">=")
NO_COLUMN: Final = -1


class Compared(NamedTuple):
    """What rules compare the value of each group with: all that is plain enough for a kernel.

    Attributes:
        start: (n + 1,) where the comparisons of every group start.
        sign: place of each in `SIGNS`.
        column: the column of the row beside it, or -1: then the `constant` is.
        constant, unknown_from, tolerance: as in `Atom`.
    """

    start: Array
    sign: Array
    column: Array
    constant: Array
    unknown_from: Array
    tolerance: Array

    @classmethod
    def of(cls, groups: Sequence[Sequence[Atom]]) -> Compared:
        """Return the simple atoms of groups together."""
        atoms = [atom for some in groups for atom in some]
        right = [atom.right for atom in atoms]
        return cls(
            np.cumsum([0, *map(len, groups)]),
            np.array([SIGNS.index(atom.sign) for atom in atoms], dtype=np.int64),
            np.array([one.column if isinstance(one, Ref) else NO_COLUMN for one in right], dtype=np.int64),
            np.array([one.value if isinstance(one, Const) else np.nan for one in right], dtype=np.float64),
            np.array([atom.unknown_from for atom in atoms], dtype=np.float64),
            np.array([atom.tolerance for atom in atoms], dtype=np.float64),
        )


@dataclass(frozen=True, eq=False)
class SimpleRules:
    """The rules that compare the column of a group with another of the row, or with a constant, whatever else holds.

    Attributes:
        atoms: those of every group that has some, by its number.
    """

    atoms: Mapping[int, Sequence[Atom]]
    _tables: dict[tuple[int, ...], Compared] = field(default_factory=dict, init=False, repr=False)

    def of(self, numbers: tuple[int, ...]) -> Compared:
        """Return those of some groups, made once."""
        if numbers not in self._tables:
            self._tables[numbers] = Compared.of([self.atoms.get(number, ()) for number in numbers])
        return self._tables[numbers]


class Lines(NamedTuple):
    """The values of groups, group after group, ascending.

    Attributes:
        start: (n + 1,) where every group starts; column: (n,) its column.
        values, weights: (t,) as in `Domain`; positions: (t,) on the line along which changes are measured.
        scale, unknown_from, weight: (n,) of the columns, as in `BoundDistance`.
    """

    start: Array
    column: Array
    values: Array
    weights: Array
    positions: Array
    scale: Array
    unknown_from: Array
    weight: Array


class Row(NamedTuple):
    """A row that groups are bound to.

    Attributes:
        x0: (d,) its codes; own_at: (n,) where its own values stand among the positions of the groups.
        refused: (t,) which values other rules refuse; own_refused: (n,) which of its own; both empty without them.
    """

    x0: Array
    own_at: Array
    refused: Array
    own_refused: Array


class BoundLines(NamedTuple):
    """The tuples of groups, as in `Tuples`, group after group.

    Attributes:
        start: (n + 1,) where every group starts; own: (n,) the place of the row's own value in it.
        allowed: (n,) whether the rules accept the row's own value.
        values, weights, cost, peak, places: (t + n,) of all.
    """

    start: Array
    own: Array
    allowed: Array
    values: Array
    weights: Array
    cost: Array
    peak: Array
    places: Array

    @classmethod
    def room(cls, groups: int, values: int) -> BoundLines:
        """Return arrays for so many groups with so many values."""
        size = groups + values
        counts, table = np.empty((2, groups + 1), dtype=np.intp), np.empty((4, size))
        allowed, places = np.empty(groups, dtype=np.bool_), np.empty(size, dtype=np.intp)
        return cls(counts[0], counts[1], allowed, table[0], table[1], table[2], table[3], places)

    def tuples(self, at: int) -> Tuples:
        """Return the tuples of one of the groups."""
        part = slice(self.start[at], self.start[at + 1])
        own, values = int(self.own[at]), self.values[part, None]
        return Tuples(values, self.weights[part], own, self.cost[part], self.peak[part], self.places[part])


@numba.njit(inline="always")
def _compare(sign: Any, left: Any, right: Any, unknown_from: Any, tolerance: Any) -> Any:
    """Whether a comparison of two bare values holds, as `compare` and `Atom` say."""
    missing, other_missing = np.isnan(left), np.isnan(right)
    same = left == right or (missing and other_missing)
    if sign == 0:
        return same or (tolerance > 0 and abs(left - right) <= tolerance)
    if sign == 1:
        return not same
    if same and sign in (3, 5):
        return True
    if missing or other_missing or left >= unknown_from or right >= unknown_from:
        return False
    return left < right if sign < 4 else left > right


@numba.njit(inline="always")
def _lawful(group: Any, value: Any, compared: Compared, x0: Array) -> Any:
    """Whether all simple rules of a group accept a value."""
    for at in range(compared.start[group], compared.start[group + 1]):
        column = compared.column[at]
        right = x0[column] if column >= 0 else compared.constant[at]
        if not _compare(compared.sign[at], value, right, compared.unknown_from[at], compared.tolerance[at]):
            return False
    return True


@numba.njit(inline="always")
def _put_own(at: Any, group: Any, own: Any, out: BoundLines) -> None:
    """Write the row's own value of a group; it is no change."""
    out.values[at], out.weights[at], out.cost[at], out.peak[at], out.places[at] = own, 0.0, 0.0, 0.0, -1
    out.own[group] = at - out.start[group]


@kernel
def bind_lines(lines: Lines, compared: Compared, row: Row, formula: Formula, out: BoundLines) -> None:
    """Write what the rules leave of all groups for a row."""
    at = 0
    for group in range(lines.column.size):
        own, scale, weight = row.x0[lines.column[group]], lines.scale[group], lines.weight[group]
        unknown_from = lines.unknown_from[group]
        ranked, waits, known = scale != 0 and own < unknown_from, True, -1
        out.start[group] = at
        for place in range(lines.start[group], lines.start[group + 1]):
            value = lines.values[place]
            if waits and value >= own:  # a missing one comes last
                _put_own(at, group, own, out)
                waits = False
                at += 1
            if value == own:
                known = place - lines.start[group]
                continue
            if (row.refused.size and row.refused[place]) or not _lawful(group, value, compared, row.x0):
                continue
            change = 1.0
            if ranked and value < unknown_from:
                change = max(abs(lines.positions[place] - row.own_at[group]) / scale, formula.least)
            change *= weight
            changed = weight if change != 0 else 0.0
            out.values[at], out.weights[at], out.places[at] = value, lines.weights[place], place - lines.start[group]
            out.cost[at] = (formula.a * changed + formula.b * change) / formula.all_weights
            out.peak[at] = change / formula.top_weight
            at += 1
        if waits:
            _put_own(at, group, own, out)
            at += 1
        out.places[out.start[group] + out.own[group]] = known
        own_refused = row.own_refused.size and row.own_refused[group]
        out.allowed[group] = not own_refused and _lawful(group, own, compared, row.x0)
    out.start[lines.column.size] = at


@kernel
def find_members(lines: Lines, Z: Array, changed: Array, found: Array) -> None:
    """Unmark those rows `found` of Z (m, d) of which a value that `changed` (m, d) is none of its group's."""
    for row in range(found.size):
        for group in range(lines.column.size):
            column = lines.column[group]
            if not changed[row, column]:
                continue
            low, high, value = lines.start[group], lines.start[group + 1], Z[row, column]
            last = high
            while low < high:
                middle = (low + high) // 2
                if lines.values[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            found[row] &= low < last and lines.values[low] == value


@dataclass(frozen=True, eq=False)
class Lone:
    """Groups of one column each.

    Attributes:
        numbers: which of all groups they are; domains: theirs.
        bound_distance: the distance; lines: their values.
    """

    numbers: tuple[int, ...]
    domains: tuple[Domain, ...]
    bound_distance: BoundDistance
    lines: Lines

    @classmethod
    def of(cls, numbers: Sequence[int], domains: Sequence[Domain], distance: BoundDistance) -> Lone:
        """Lay out some groups of all `domains`."""
        some = tuple(domains[number] for number in numbers)
        column = np.array([domain.columns[0] for domain in some], dtype=np.intp)
        sizes = [len(domain.tuples) for domain in some]
        values = np.concatenate([np.empty(0), *(domain.tuples[:, 0] for domain in some)])
        weights = np.concatenate([np.empty(0), *(domain.weights for domain in some)])
        positions = distance.positions(column.repeat(sizes), values)
        of_columns = distance.scale[column], distance.unknown_from[column], distance.weights[column]
        lines = Lines(np.cumsum([0, *sizes]), column, values, weights, positions, *of_columns)
        return cls(tuple(numbers), some, distance, lines)

    def bind(self, simple: SimpleRules, others: Mapping[int, Sequence[Rule]], x0: Floats) -> BoundLines:
        """Bind the groups to a row (d,): a proposed value is not its own.

        Args:
            simple: the rules that the kernel knows; others: further grounded ones, by the number of their group.
            x0: the row.
        """
        lines = self.lines
        own_at = self.bound_distance.positions(lines.column, x0[lines.column])
        row = Row(x0, own_at, *self._refused(others, x0))
        bound = BoundLines.room(len(self.numbers), len(lines.values))
        bind_lines(lines, simple.of(self.numbers), row, self.bound_distance.formula, bound)
        return bound

    def find_members(self, Z: Floats, changed: Bools, found: Bools) -> None:
        """Unmark, in place, the rows `found` (m,) of Z (m, d) with a `changed` value (m, d) that its group has not."""
        find_members(self.lines, np.ascontiguousarray(Z), np.ascontiguousarray(changed), found)

    def _refused(self, others: Mapping[int, Sequence[Rule]], x0: Floats) -> tuple[Bools, Bools]:
        """Return which values (t,), and which own ones (n,), the rules of groups refuse that are not simple."""
        mine = [(at, rule) for at, number in enumerate(self.numbers) for rule in others.get(number, ())]
        if not mine:
            return _NONE, _NONE
        refused, own = np.zeros(len(self.lines.values), np.bool_), np.zeros(len(self.numbers), np.bool_)
        for at, rule in mine:
            start, stop = self.lines.start[at : at + 2]
            refused[start:stop] |= ~_holds(rule, self.lines.values[start:stop], x0)
            own[at] |= not rule.holds(x0[None], x0)[0]
        return refused, own


_NONE: Final = np.empty(0, dtype=np.bool_)


def _holds(rule: Rule, values: Floats, x0: Floats) -> Bools:
    """Return whether a rule holds for values (t,) of the only column that it reads."""
    return rule.holds(np.broadcast_to(values[:, None], (len(values), len(x0))), x0)
