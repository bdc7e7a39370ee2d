"""Whether all rows of a box meet the rules over several groups, and change few enough of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

import numpy as np

from mlflow_cf.constraints.expressions import Apply, Const, Expression, Ref
from mlflow_cf.constraints.rules import Atom, Bools, Rule
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.regions.axes import Axis
from mlflow_cf.regions.proving import Settled

MOST_COMBINATIONS: Final = 2**14  # of values of a box for which a rule is looked at: some milliseconds


@dataclass(frozen=True, eq=False)
class BoxRules:
    """The rules over several groups, around one counterfactual.

    Attributes:
        problem: the row to explain; row: (d,) its counterfactual.
        axes: along which boxes extend; start: (axes + 1,) where the pieces of every axis start among all.
    """

    problem: Problem
    row: Floats
    axes: tuple[Axis, ...]
    start: Codes

    def settle(self, box: Bools) -> Settled:
        """Return whether all rows of a box (P,) meet the rules, or one that does not, if one is known."""
        if self._too_many(box):
            return Settled(proved=False, known=True)
        decided = True
        for rule, numbers in self._linking:
            parts = [self.start[number] + np.flatnonzero(box[self._part(number)]) for number in numbers]
            values = [self._values(number, part) for number, part in zip(numbers, parts, strict=True)]
            if prod(map(len, values)) > MOST_COMBINATIONS and self._bends_nowhere(rule, numbers):
                values = [np.array([some.min(), some.max()]) for some in values]
            if prod(map(len, values)) > MOST_COMBINATIONS:
                decided = False
                continue
            Z = self._rows(numbers, values)
            if not rule.holds(Z, self.problem.x0).all():
                return Settled(proved=False, known=True)
        return Settled(proved=decided)

    def _part(self, number: int) -> slice:
        return slice(int(self.start[number]), int(self.start[number + 1]))

    def _values(self, number: int, pieces: Codes) -> Floats:
        """Return the values (v,) of some pieces of an axis that are looked at: both ends of each."""
        axis, places = self.axes[number], pieces - self.start[number]
        ends = [axis.first[places]] if axis.points == 1 else [axis.first[places], axis.last[places]]
        return np.concatenate(ends)

    def _rows(self, numbers: Sequence[int], values: Sequence[Floats]) -> Floats:
        """Return the rows (m, d) with all combinations of values of some axes."""
        grid = np.meshgrid(*values, indexing="ij")
        Z = np.tile(self.row, (prod(map(len, values)), 1))
        for number, some in zip(numbers, grid, strict=True):
            Z[:, self.axes[number].column] = some.ravel()
        return Z

    @cached_property
    def _linking(self) -> list[tuple[Rule, list[int]]]:
        """The rules over several groups, each with the axes that it is about, if there are any."""
        pairs = [(rule, rule.columns("x_cf")) for rule in self.problem.linking]
        found = [(rule, [n for n, axis in enumerate(self.axes) if axis.column in columns]) for rule, columns in pairs]
        return [(rule, numbers) for rule, numbers in found if numbers]

    def _bends_nowhere(self, rule: Rule, numbers: Sequence[int]) -> bool:
        """Whether a rule holds for all numbers of a box if it does at all corners."""
        return not rule.when and is_half_space(rule.then) and all(self.axes[number].numeric for number in numbers)

    def _too_many(self, box: Bools) -> bool:
        """Return whether some row of a box changes more groups than a limit allows."""
        if not self._limits:
            return False
        differs = sum(bool((self._changing(n) & box[self._part(n)]).any()) for n in range(len(self.axes)))
        return any(kept + differs > most for most, kept in self._limits)

    def _changing(self, number: int) -> Bools:
        """Return (p,) which pieces of an axis differ from the row's own value."""
        axis = self.axes[number]
        return np.asarray(np.arange(len(axis.first)) != axis.own)

    @cached_property
    def _limits(self) -> list[tuple[int, int]]:
        """Every limit with how many changes of the counterfactual it counts outside of the axes."""
        free, found = {axis.group for axis in self.axes}, []
        for limit in self.problem.limits:
            kept = [group for number, group in enumerate(self.problem.groups) if number not in free]
            counts = [limit.counts(g.columns, self.row[None, list(g.columns)], self.problem.x0)[0] for g in kept]
            found.append((limit.most, int(sum(counts))))
        return found


def is_checked(rule: Rule, continuous: frozenset[int]) -> bool:
    """Whether a rule that holds at both ends of intervals of some columns holds between them."""
    if any(atom.columns("x_cf") & continuous for atom in rule.when):
        return False
    return not rule.then.columns("x_cf") & continuous or is_half_space(rule.then)


def is_half_space(atom: Atom) -> bool:
    """Whether a comparison that holds for two rows holds for all between them."""
    return atom.sign in ("<", "<=", ">", ">=") and is_affine(atom.left) and is_affine(atom.right)


def is_affine(expression: Expression) -> bool:
    """Whether an expression is a weighted sum of values and a number."""
    match expression:
        case Const() | Ref():
            return True
        case Apply("+" | "-", of):
            return all(map(is_affine, of))
        case Apply("*", of):
            return all(map(is_affine, of)) and sum(not _is_constant(part) for part in of) <= 1
        case Apply("/", (first, *others)):
            return is_affine(first) and all(map(_is_constant, others))
    return False


def _is_constant(expression: Expression) -> bool:
    match expression:
        case Const():
            return True
        case Ref(side):
            return side == "x"
        case Apply(_, of):
            return all(map(_is_constant, of))
    return False
