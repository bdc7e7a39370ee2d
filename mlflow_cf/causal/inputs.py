"""Inputs of structural functions: numbers scaled to between 0 and 1, and one column for every level."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.structures import ClippedLine, Column, LevelColumn, MonotoneStep, NumberColumn


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
    if feature.numeric:
        return [_number(feature, at, feature.low, _width(feature))]
    ranks, usual = np.arange(len(feature.levels), dtype=np.float64), usual_code(feature)
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


def _width(feature: Feature) -> float:
    """Return the range of a number; infinite where it has one value, so that the input is 0."""
    return feature.high - feature.low if feature.high > feature.low else np.inf


def _number(feature: Feature, at: int, low: float, width: float) -> NumberColumn:
    return NumberColumn(
        at, (MonotoneStep(partial(_scaled, usual_code(feature), low, width), ClippedLine(1.0 / width, -low / width)),)
    )


def _scaled(usual: float, low: float, width: float, codes: NDArray[Any]) -> Floats:
    scaled: Floats = (np.where(np.isnan(codes), usual, codes) - low) / width
    return scaled
