"""Causal functions as linear expressions: tables of points, and formulas as far as these are piecewise linear.

A part of a formula that depends on one feature with few values is tabulated, whatever it computes; a product with such
a part is one product with a number for each value. Anything else that is not piecewise linear cannot be expressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Final

import numpy as np

from mlflow_cf.causal.forms import PIECEWISE, Additive, ByLevel, CausalFormula, Slope, bends
from mlflow_cf.constraints.expressions import Apply, Const, Expression, Ref, evaluate, references
from mlflow_cf.features import Floats
from mlflow_cf.milp.embed import rectified
from mlflow_cf.milp.program import Affine, Columns, NotLinearError, Program, difference, total
from mlflow_cf.milp.variables import Chosen, Real, Variables
from mlflow_cf.plaf import Function
from mlflow_cf.words.statements import say

POINTS: Final = 65  # of a curve; lines between them are off by 1/32,768 of its curvature over the whole range


def embed_additive(program: Program, variables: Variables, parents: Sequence[int], function: Additive) -> Affine:
    """Return the value of an additive function of the parents."""
    parts: list[Affine] = []
    for parent, term in zip(parents, function.terms, strict=True):
        variable = variables.of(parent)
        if isinstance(variable, Chosen):
            parts.append(Affine.chosen(variable.selectors, term.of(variable.values(parent))))
        elif isinstance(term, ByLevel):
            raise TypeError("a real number has no levels")
        elif isinstance(term, Slope):
            parts.append(_filled(variables, parent, term.usual).times(term.per))
        else:
            parts.append(_piecewise(program, _filled(variables, parent, term.usual), term.at, term.added))
    return total(parts).plus(function.constant)


def _filled(variables: Variables, parent: int, usual: float) -> Affine:
    """Return the expression of a real number that counts as `usual` where it stays missing."""
    missing, value = variables.missing(parent), variables.value(parent)
    if missing.fixed:
        return value
    whole = total([value, missing.times(usual)])
    return replace(whole, low=min(value.low, usual), high=max(value.high, usual))


def _piecewise(program: Program, number: Affine, at: Floats, added: Floats) -> Affine:
    """Return the piecewise linear function through the points (`at`, `added`) of a number.

    Its segments are filled one after the other: the incremental model of a piecewise linear function.
    """
    inside = (at > number.low) & (at < number.high)
    ends = np.array([number.low, *at[inside], number.high])
    levels = np.interp(ends, at, added)
    widths, rises = np.diff(ends), np.diff(levels)
    if number.low == number.high:
        return Affine.of(float(levels[0]))
    if len(widths) == 1:
        slope = float(rises[0] / widths[0])
        return number.plus(-float(ends[0])).times(slope).plus(float(levels[0]))
    filled = program.add_columns(len(widths))
    full = program.add_binaries(len(widths) - 1)
    one = np.ones(2) * [1.0, -1.0]
    rows = [Affine(np.array([before, mark]), one, 0.0, -1.0, 1.0) for before, mark in zip(filled, full, strict=False)]
    rows += [Affine(np.array([mark, after]), one, 0.0, -1.0, 1.0) for mark, after in zip(full, filled[1:], strict=True)]
    program.require(rows, 0.0, np.inf)
    unit = number.high - number.low
    here = Affine(filled, widths, float(ends[0]), number.low, number.high)
    program.require([difference(number, here).times(1.0 / unit)], 0.0, 0.0)
    some = rises != 0
    return Affine(filled[some], rises[some], float(levels[0]), float(levels.min()), float(levels.max()))


def embed_formula(
    program: Program, variables: Variables, parents: Sequence[int], formula: CausalFormula
) -> tuple[Affine, bool]:
    """Return a formula of the parents as an expression, and whether that is exact.

    Values for which it is undefined cannot be chosen. A part that is not linear in one real number is approximated by
    straight lines between points of it, but not in programs for lower bounds, which must be exact.

    Raises:
        NotLinearError: it is not linear in several features together, or must be exact.
    """
    embedding = _Embedding(program, variables, tuple(parents), formula.usual)
    return embedding.of(formula.expression), not embedding.curved


@dataclass(frozen=True, eq=False)
class _Embedding:
    """The state in which the parts of one formula become linear expressions.

    Attributes:
        parents: the columns that the places of its references stand for.
        usual: (p,) what a missing value of each parent counts as.
        curved: the parts so far that are approximated.
    """

    program: Program
    variables: Variables
    parents: tuple[int, ...]
    usual: Floats
    curved: list[Expression] = field(default_factory=list)

    def of(self, expression: Expression) -> Affine:
        """Return a part of the formula as an expression.

        Raises:
            NotLinearError: see `embed_formula`.
        """
        if (table := self._tabled(expression)) is not None:
            return Affine.chosen(*table)
        places = {part.column for part in references(expression)}
        if len(places) == 1 and self.variables.strict and any(True for _ in bends(expression)):
            return self._approximated(expression, *places)
        match expression:
            case Ref(_, place):
                return _filled(self.variables, self.parents[place], float(self.usual[place]))
            case Apply("*" | "/" as sign, (left, right)):
                return self._scaled(left, right, quotient=sign == "/")
            case Apply("+" | "-" as sign, (left, right)):
                return total([self.of(left), self.of(right).times(1.0 if sign == "+" else -1.0)])
            case Apply(function, several):
                return self._applied(function, [self.of(part) for part in several])
        raise NotLinearError(say("other_formula"))

    def _approximated(self, expression: Expression, place: int) -> Affine:
        """Return straight lines between points of a part that is not linear in one real number."""
        number = _filled(self.variables, self.parents[place], float(self.usual[place]))
        at = np.linspace(number.low, number.high, POINTS)
        codes = np.zeros((POINTS, len(self.parents)))
        codes[:, place] = at
        values = evaluate(expression, codes, self.usual)
        if np.isnan(values).any():
            raise NotLinearError(say("undefined_formula"))
        self.curved.append(expression)
        return _piecewise(self.program, number, at, values)

    def _applied(self, function: Function, lines: Sequence[Affine]) -> Affine:
        """Return a function of expressions; ``abs``, ``min`` and ``max`` can be expressed."""
        if function == "abs":
            lines = [lines[0], lines[0].times(-1.0)]
        elif function not in PIECEWISE:
            raise NotLinearError(say("function_of_any", function=function))
        sign = -1.0 if function == "min" else 1.0
        return reduce(partial(_larger, self.program), [line.times(sign) for line in lines]).times(sign)

    def _tabled(self, expression: Expression) -> tuple[Columns, Floats] | None:
        """Return the selectors (n,) of a group's actions and a part's values (n,); undefined ones are forbidden.

        A constant has no selectors and a single value. None: the part depends on several groups, or on a real number.
        """
        places = sorted({part.column for part in references(expression)})
        owners = {id(owner): owner for owner in (self.variables.of(self.parents[place]) for place in places)}
        if not owners:
            return np.empty(0, dtype=np.intp), evaluate(expression, np.zeros((1, len(self.parents))), self.usual)
        variable = next(iter(owners.values()))
        if len(owners) > 1 or isinstance(variable, Real):
            return None
        codes = np.zeros((len(variable.codes), len(self.parents)))
        for place in places:
            values = variable.values(self.parents[place])
            codes[:, place] = np.where(np.isnan(values), self.usual[place], values)
        found = evaluate(expression, codes, self.usual)
        unknown = np.isnan(found)
        if unknown.any():
            self.program.require([variable.where(unknown)], -np.inf, 0.0)
        return variable.selectors, np.where(unknown, found[~unknown][:1].sum(), found)

    def _scaled(self, left: Expression, right: Expression, *, quotient: bool) -> Affine:
        """Return a product, or a quotient, one operand of which is constant or tabulated."""
        if quotient:
            right = Apply("/", (Const(1.0), right))
        for factor, other in ((right, left), (left, right)):
            if (table := self._tabled(factor)) is not None:
                if np.isnan(table[1]).any():
                    raise NotLinearError(say("quotient_by_zero"))
                return self._times(self.of(other), *table)
        raise NotLinearError(say("product_of_any"))

    def _times(self, line: Affine, selectors: Columns, values: Floats) -> Affine:
        """Return an expression times the value (n,) of the selector that is 1, by a copy for every distinct value."""
        distinct, inverse = np.unique(values, return_inverse=True)
        if len(distinct) == 1:
            return line.times(float(distinct[0]))
        middle = line.plus(-line.low)  # copies are 0 where another value is chosen
        copies = self.program.add_columns(len(distinct), 0.0, middle.high)
        parts = []
        for at, copy in enumerate(copies.tolist()):
            chosen = selectors[inverse == at]
            ones = np.append(1.0, np.full(len(chosen), -middle.high))
            parts.append(Affine(np.append(copy, chosen), ones, 0.0, -middle.high, middle.high))
        self.program.require(parts, -np.inf, 0.0)
        whole = Affine(copies, np.ones(len(copies)), 0.0, 0.0, middle.high)
        self.program.require([difference(whole, middle)], 0.0, 0.0)
        ends = np.outer(distinct, [line.low, line.high])
        shift = Affine.chosen(selectors, values * line.low)
        found = total([Affine(copies, distinct, 0.0, 0.0, 0.0), shift])
        return replace(found, low=float(ends.min()), high=float(ends.max()))


def _larger(program: Program, left: Affine, right: Affine) -> Affine:
    """Return the larger of two expressions."""
    over = rectified(program, difference(left, right))
    return replace(total([right, over]), low=max(left.low, right.low), high=max(left.high, right.high))
