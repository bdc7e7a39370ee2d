"""Additive causal functions: the sum of a slope, a table of points or a number per level of each parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlflow_cf.causal.inputs import usual_code
from mlflow_cf.constraints.equations import Coefficient
from mlflow_cf.features import Feature, Floats
from mlflow_cf.structures.layers.columns import level_cells


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
