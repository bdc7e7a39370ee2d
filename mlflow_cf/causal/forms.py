"""Causal functions that users give: additive ones, and formulas of the parents.

An additive function is the sum of a slope, a table of points or a number per level of each parent. Inputs are numbers
scaled to between 0 and 1, and one column for every level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.expressions import Apply, Expression, evaluate, references
from mlflow_cf.constraints.model import Coefficient
from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.structures import ClippedLine, Column, LevelColumn, MonotoneStep, NumberColumn
from mlflow_cf.structures.layers.columns import level_cells
from mlflow_cf.words.statements import say


@dataclass(frozen=True, eq=False)
class Slope:
    """A linear term of a number: `per` unit; a missing number counts as `usual`."""

    per: float
    usual: float

    def of(self, codes: Floats) -> Floats:
        """Return the values (n,) of the term for codes (n,)."""
        added: Floats = np.where(np.isnan(codes), self.usual, codes) * self.per
        return added


@dataclass(frozen=True, eq=False)
class Table:
    """A piecewise linear term of a number, constant beyond the first and the last point.

    Attributes:
        at: (k,) numbers, ascending; added: (k,) the values of the term at these.
        usual: what a missing number counts as.
    """

    at: Floats
    added: Floats
    usual: float

    def of(self, codes: Floats) -> Floats:
        """Return the values (n,) of the term for codes (n,)."""
        added: Floats = np.interp(np.where(np.isnan(codes), self.usual, codes), self.at, self.added)
        return added


@dataclass(frozen=True, eq=False)
class ByLevel:
    """A term of a category: a value per level (levels + 2,); the last two are for unseen levels and missing values."""

    added: Floats

    def of(self, codes: Floats) -> Floats:
        """Return the values (n,) of the term for codes (n,)."""
        added: Floats = self.added[level_cells(codes, len(self.added) - 2)]
        return added


Term = Slope | Table | ByLevel


@dataclass(frozen=True, eq=False)
class Additive:
    """The sum of a constant and one term per parent, in the order of the parents."""

    constant: float
    terms: tuple[Term, ...]

    @property
    def kind(self) -> str:
        """Its kind, for `describe()`."""
        return "piecewise linear" if any(isinstance(term, Table) for term in self.terms) else "linear"

    def values(self, codes: Floats) -> Floats:
        """Return the sums (m,) for the codes of the parents (m, p)."""
        total = np.full(len(codes), self.constant)
        for term, column in zip(self.terms, codes.T, strict=True):
            total += term.of(column)
        return total


def term_of(feature: Feature, coefficient: Coefficient) -> Term:
    """Return the term of a parent by its coefficient, which fits it."""
    if isinstance(coefficient, tuple):
        codes = [feature.code(value) for value, _ in coefficient]
        at = np.array([np.nan if code is None else code for code in codes])
        return Table(at, np.array([float(added) for _, added in coefficient]), usual_code(feature))
    if feature.numeric and not isinstance(coefficient, Mapping):
        return Slope(float(coefficient), usual_code(feature))
    levels = coefficient if isinstance(coefficient, Mapping) else {str(True): coefficient}
    added = np.array([float(levels.get(str(level), 0.0)) for level in feature.levels])
    return ByLevel(np.append(added, [0.0, added[int(usual_code(feature))]]))


def input_columns(space: FeatureSpace, parents: Sequence[int]) -> list[Column]:
    """Return the encoded columns that a learned function reads, parent after parent.

    * A number or date is its place between the lowest (0) and the highest value (1), an ordinal that of its rank, a
      boolean is 0 or 1.
    * A category has one input a level, which is 1 where the row has that level; one that the background never had is
      none of them.
    * A missing value counts as the median, or as the most frequent level; so does a level without a rank.
    """
    return [column for parent in parents for column in _inputs(space.features[parent], parent)]


def _inputs(feature: Feature, at: int) -> list[Column]:
    usual = usual_code(feature)
    if feature.numeric:
        low = feature.low
        width = feature.high - low if feature.high > low else np.inf  # of one value alone the input is 0
        scaling = MonotoneStep(partial(_scaled, usual, low, width), ClippedLine(1.0 / width, -low / width))
        return [NumberColumn(at, (scaling,))]
    ranks = np.arange(len(feature.levels), dtype=np.float64)
    if feature.kind == "category":
        return [LevelColumn(at, np.append(ranks == level, [0.0, usual == level])) for level in ranks]
    return [LevelColumn(at, np.append(ranks, [usual, usual]) / max(len(ranks) - 1, 1))]


def usual_code(feature: Feature) -> float:
    """Return the code that a missing value counts as: the median of a number or rank, else the most frequent level."""
    if not len(feature.values):
        return feature.low
    if feature.has_order:
        return float(np.median(np.repeat(feature.values, feature.counts.astype(np.intp))))
    return float(feature.values[feature.counts.argmax()])


def _scaled(usual: float, low: float, width: float, codes: NDArray[Any]) -> Floats:
    scaled: Floats = (np.where(np.isnan(codes), usual, codes) - low) / width
    return scaled


PIECEWISE: Final = ("+", "-", "*", "/", "abs", "min", "max")


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
        case Apply(function, several):
            yield from chain.from_iterable(map(bends, several))
            varies = [any(references(part)) for part in several]
            if function == "*" and all(varies):
                yield say("product")
            elif function == "/" and varies[1]:
                yield say("quotient")
            elif function not in PIECEWISE and any(varies):
                yield f"{function}()"
