"""Causal functions that are formulas of the parents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.causal.inputs import usual_code
from mlflow_cf.constraints import CausalEquation
from mlflow_cf.constraints.expressions import Apply, Const, Expression, Ref, Sum, evaluate, references
from mlflow_cf.constraints.formulas import formula_of
from mlflow_cf.features import FeatureSpace, Floats

PIECEWISE: Final = ("abs", "min", "max")


@dataclass(frozen=True, eq=False)
class CausalFormula:
    """A formula of the parents; its value is NaN where it is undefined, such as at a division by 0.

    Attributes:
        expression: over ``x_cf``, whose columns are the positions of the parents.
        usual: (p,) what a missing value counts as.
        text: as it was written.
    """

    expression: Expression
    usual: Floats
    text: str

    @classmethod
    def of(cls, equation: CausalEquation, text: str, space: FeatureSpace, path: str) -> CausalFormula:
        """Return the formula of an equation.

        Raises:
            InputError: the text is no formula of the parents.
        """
        usual = np.array([usual_code(space[name]) for name in equation.parents])
        return cls(formula_of(equation, text, space, path), usual, text)

    @property
    def kind(self) -> str:
        """Its kind, for `describe()`."""
        curved = next(bends(self.expression), None)
        return f"formula {self.text}" + ("" if curved is None else f" (with {curved}: not piecewise linear)")

    def values(self, codes: Floats) -> Floats:
        """Return the values (m,) for the codes of the parents (m, p)."""
        filled = np.where(np.isnan(codes), self.usual, codes)
        return evaluate(self.expression, filled, np.zeros(filled.shape[1]))


def bends(expression: Expression) -> Iterator[str]:
    """Yield, in words, each part of an expression that is not piecewise linear."""
    match expression:
        case Sum(sign, left, right):
            yield from bends(left)
            yield from bends(right)
            if sign == "*" and _varies(left) and _varies(right):
                yield "a product of what may change"
            elif sign == "/" and _varies(right):
                yield "a quotient by what may change"
        case Apply(function, several):
            for part in several:
                yield from bends(part)
            if function not in PIECEWISE and _varies(expression):
                yield f"{function}()"
        case Const() | Ref():
            pass


def _varies(expression: Expression) -> bool:
    return any(True for _ in references(expression))
