"""Coded rows as vectors and back: where distances, swarms, neighbours and networks are Euclidean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features.feature import Feature, Floats
from mlflow_cf.features.space import FeatureSpace

Bools = NDArray[np.bool_]
Columns = NDArray[np.intp]
Scale = Literal["range", "deviation", "mad"]
UNIT_MISMATCH = math.sqrt(0.5)  # the level weight that makes one mismatch of levels a Euclidean distance of 1
_ROUNDING = 4 * float(np.finfo(np.float64).eps)  # what scaling there and back may lose, relative to what it adds up


@dataclass(frozen=True, eq=False)
class Embedding:
    """How coded rows (m, d) become vectors (m, width) and vectors become rows.

    * A number, a date or the rank of an ordinal: one coordinate, ``(code - centre) / scale``. Where the scale is 0,
      because the background knows a single value, it is [changed]: 0 for that value and 1 for any other.
    * A boolean: one coordinate, 0 or 1.
    * A category: one coordinate a level, `level_weight` at the level that the row has and 0 elsewhere; a level that
      the background never had is 0 everywhere.
    * A missing value, and an ordinal's level without a rank, stand where `fill` does.

    Attributes:
        space: the features.
        centre, scale: (d,) of numbers, dates and ordinals; 0 elsewhere.
        fill: (d,) median of numbers, dates and ordinals, most frequent level of the others (ties: the lower code).
        level_weight: coordinate of a level that is there; two rows that differ in one category are ``sqrt(2)`` times
            it apart, two that differ in one boolean 1.
    """

    space: FeatureSpace
    centre: Floats
    scale: Floats
    fill: Floats
    level_weight: float

    @classmethod
    def fit(
        cls, space: FeatureSpace, background: Floats, scale: Scale = "range", level_weight: float = 1.0
    ) -> Embedding:
        """Take the facts from coded background rows (n, d).

        Args:
            space: the features.
            background: the rows.
            scale: numbers by their range (the lowest is 0, the highest 1), or about the mean by the standard deviation
                (ddof 1), or about the median by the median absolute deviation.
            level_weight: coordinate of a level that is there: 1, or `UNIT_MISMATCH`.
        """
        facts = [_facts(feature, background[:, at], scale) for at, feature in enumerate(space.features)]
        centre, widths, fill = np.array(facts, dtype=np.float64).T
        return cls(space, centre, widths, fill, level_weight)

    def to_arrays(self) -> dict[str, Floats]:
        """Return the facts as arrays by name."""
        return {
            "centre": self.centre,
            "scale": self.scale,
            "fill": self.fill,
            "level_weight": np.array(self.level_weight),
        }

    @classmethod
    def from_arrays(cls, space: FeatureSpace, arrays: Mapping[str, Floats]) -> Embedding:
        """Rebuild an embedding from `to_arrays`."""
        return cls(space, arrays["centre"], arrays["scale"], arrays["fill"], float(arrays["level_weight"]))

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """The coordinates of every feature, in order."""
        return tuple(slice(a, b) for a, b in zip(self._starts.tolist(), self._ends.tolist(), strict=True))

    @property
    def width(self) -> int:
        """How many coordinates a vector has."""
        return int(self._ends[-1])

    @cached_property
    def owner(self) -> Columns:
        """(width,) the feature of every coordinate."""
        return np.arange(len(self.space)).repeat(self._ends - self._starts)

    @property
    def numeric(self) -> Bools:
        """(width,) whether a coordinate is that of a number, a date or an ordinal."""
        return self._ordered[self.owner]

    def filled(self, Z: Floats) -> Bools:
        """Return (m, d) where the vectors of rows hold `fill`: for missing values, and ordinals without a rank."""
        stands_in: Bools = np.isnan(Z) | (self._ordered & ~(self._unknown_from > Z))
        return stands_in

    def unseen(self, Z: Floats) -> Bools:
        """Return (m, d) where rows have a level of a category that has no coordinate."""
        without: Bools = ~self._ordered & (self._unknown_from <= Z)
        return without

    def vectors(self, Z: Floats) -> Floats:
        """Return the vectors (m, width) of coded rows (m, d)."""
        Z = np.where(self.filled(Z), self.fill, Z)
        V = np.zeros((len(Z), self.width))
        ordered, booleans, categories = self._columns
        away, scale = Z[:, ordered] - self.centre[ordered], self.scale[ordered]
        V[:, self._starts[ordered]] = np.where(scale > 0, away / np.where(scale > 0, scale, 1.0), away != 0)
        V[:, self._starts[booleans]] = Z[:, booleans]
        row, at = np.nonzero(~self.unseen(Z)[:, categories])
        level = Z[row, categories[at]].astype(np.intp)
        V[row, self._starts[categories[at]] + level] = self.level_weight
        return V

    def rows(self, V: Floats, like: Floats | None = None, choice: Bools | None = None) -> Floats:
        """Return coded rows (m, d) of vectors (m, width); `problem` and column type may not admit their numbers.

        A number that rounding alone keeps from a value of the background is that value; an ordinal is the nearest rank
        (ties: the lower one), a boolean true from 0.5 on, a category its level of largest coordinate (ties: the lower
        code). Without `like` no value is missing and no level unseen.

        Args:
            V: the vectors.
            like: (d,) coded row; a feature with exactly its coordinates gets its code, even if missing or unseen.
            choice: (width,) which coordinates of categories may be chosen; all by default.
        """
        W, Z = np.ascontiguousarray(V.T), np.empty((len(self.space), len(V)))  # one column after the other: faster
        for column in self._ordered.nonzero()[0].tolist():
            away = W[self._starts[column]] * self.scale[column]
            slack = _ROUNDING * (np.abs(away) + abs(self.centre[column]))
            Z[column] = _restored(self.space.features[column], away + self.centre[column], slack)
        _, booleans, categories = self._columns
        Z[booleans] = W[self._starts[booleans]] >= 0.5
        for column in categories.tolist():
            block = self.blocks[column]
            Z[column] = _largest(W[block], None if choice is None else choice[block])
        if like is not None:
            own = self.vectors(like[None])[0]
            same = np.logical_and.reduceat(own[:, None] == W, self._starts, axis=0)
            Z = np.where(same, like[:, None], Z)
        return np.ascontiguousarray(Z.T)

    @cached_property
    def _ordered(self) -> Bools:
        return np.array([feature.has_order for feature in self.space.features])

    @cached_property
    def _unknown_from(self) -> Floats:
        return np.array([feature.unknown_from for feature in self.space.features])

    @cached_property
    def _columns(self) -> tuple[Columns, Columns, Columns]:
        """The columns with an order, of booleans, and of categories."""
        booleans = np.array([feature.kind == "boolean" for feature in self.space.features])
        categories = ~self._ordered & ~booleans
        return np.flatnonzero(self._ordered), np.flatnonzero(booleans), np.flatnonzero(categories)

    @cached_property
    def _ends(self) -> Columns:
        sizes = np.ones(len(self.space), dtype=np.intp)
        for column in self._columns[2].tolist():
            sizes[column] = len(self.space.features[column].levels)
        return sizes.cumsum()

    @cached_property
    def _starts(self) -> Columns:
        return np.append(0, self._ends[:-1])


def borders(values: Floats) -> Floats:
    """Return (t - 1,) up to where numbers belong to each of ascending values (t,), not to the next: the middle."""
    return np.minimum(values[:-1] + np.diff(values) / 2, np.nextafter(values[1:], -np.inf))


def _facts(feature: Feature, codes: Floats, scale: Scale) -> tuple[float, float, float]:
    """Return centre, scale and fill of a feature with background codes (n,)."""
    known = codes[codes < feature.unknown_from]  # not a missing one either
    if not feature.has_order:
        levels, counts = np.unique(known, return_counts=True)
        return 0.0, 0.0, float(levels[counts.argmax()]) if len(levels) else 0.0
    middle = float(np.median(known)) if len(known) else feature.low
    if scale == "range":
        return feature.low, feature.high - feature.low, middle
    if not len(known) or known.min() == known.max():  # the deviation of equal fractions may be their rounding error
        return middle, 0.0, middle
    if scale == "mad":
        return middle, feature.mad, middle
    return float(np.mean(known)), float(np.std(known, ddof=1)), middle


def _restored(feature: Feature, numbers: Floats, slack: Floats) -> Floats:
    """Return numbers (m,) as the values of the background that they are but for `slack` (m,), or as nearest ranks."""
    if feature.levels:
        return np.ceil(numbers - 0.5).clip(0, len(feature.levels) - 1)
    values = feature.values
    if not len(values):
        return numbers
    known = values[borders(values).searchsorted(numbers)]
    return np.where(np.abs(known - numbers) <= slack, known, numbers)


def _largest(W: Floats, choice: Bools | None) -> Columns:
    """Return which of the rows of W (k, m) that may be chosen (k,) is largest at each place (m,); ties: the first."""
    chosen = np.arange(len(W)) if choice is None else choice.nonzero()[0]
    codes = np.full(W.shape[1], chosen[0] if len(chosen) else 0)
    best = W[codes[0]].copy() if len(codes) else W[0]
    for code in chosen[1:].tolist():
        better = W[code] > best
        codes[better] = code
        np.maximum(best, W[code], out=best)
    return codes
