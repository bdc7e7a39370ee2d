"""The columns between scikit-learn's steps, each with the raw feature it comes from.

Also its linear maps: steps that mix columns, which become part of the first layer that takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.structures import (
    ClippedLine,
    Column,
    CurveColumn,
    IntervalColumn,
    LevelColumn,
    MonotoneStep,
    NotOpenedError,
    NumberColumn,
)
from mlflow_cf.words.statements import say

Transformer = Any  # scikit-learn carries no types
DOUBLE = np.dtype(np.float64)
UNSEEN = object()  # equals no category
CAST = MonotoneStep(lambda values: values, ClippedLine())  # a cast to the precision of a block alone


@dataclass(frozen=True, eq=False)
class RawLevels:
    """A raw feature of levels that no transformer has turned into numbers yet.

    Attributes:
        feature: raw column, and its `name`.
        values: (levels + 2) what the transformer sees: the levels, then an unseen one, then a missing value.
        told_apart: the categories of all encoders that were read so far: they may be more than the levels.
    """

    feature: int
    name: str
    values: tuple[Any, ...]
    told_apart: set[Any] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class RawDate:
    """A raw date; no transformer known here reads one."""

    feature: int
    name: str


@dataclass(frozen=True, eq=False)
class Combination:
    """A linear combination of columns; the first layer of a linear model or network can take one, no tree can.

    Attributes:
        made_by: the step that combines them.
        columns: those that have a weight; weights: (columns,); offset: added to the sum.
    """

    made_by: str
    columns: tuple[Column, ...]
    weights: Floats
    offset: float


Raw = Column | RawLevels | RawDate
Source = Raw | Combination


def raw_columns(space: FeatureSpace, names: Sequence[str] = ()) -> list[Raw]:
    """Return the model's input columns before any transformer; the model takes `names`, or all in order."""
    return [_raw(space.index[name], space[name]) for name in names or space.names]


def _raw(number: int, feature: Feature) -> Raw:
    if feature.kind == "boolean":
        return LevelColumn(number, np.array([0.0, 1.0, np.nan, np.nan]))
    if feature.kind == "date":
        return RawDate(number, feature.name)
    if feature.numeric:
        return NumberColumn(number, (), feature.stored if feature.stored.kind in "iuf" else DOUBLE)
    missing = None if feature.dtype == "object" and not feature.nan else np.nan
    return RawLevels(number, feature.name, (*feature.levels, UNSEEN, missing))


def finished(sources: Sequence[Source], last: str, *, curved: bool = False) -> list[Column]:
    """Return the columns an estimator, `last`, sees.

    Args:
        sources: what it is given; last: its name.
        curved: whether it takes any function of a number, as layers do, and trees do not.

    Raises:
        NotOpenedError: levels or dates that no step has turned into numbers, or combinations of several columns.
    """
    columns: list[Column] = []
    for source in map(as_numbers, sources):
        if isinstance(source, RawLevels | RawDate | Combination):
            raise refusal(last, source)
        if isinstance(source, CurveColumn) and not curved:
            raise NotOpenedError(say("curved_columns", kind=last))
        columns.append(source)
    return columns


def refusal(step: Any, source: Source) -> NotOpenedError:
    """Return the error of a step that needs the numbers of one feature, for a source of another kind."""
    kind = step if isinstance(step, str) else type(step).__name__
    if isinstance(source, Combination):
        return NotOpenedError(say("mixed_columns", kind=kind, before=source.made_by))
    if isinstance(source, RawDate):
        return NotOpenedError(say("on_date", kind=kind, feature=source.name))
    if isinstance(source, RawLevels):
        return NotOpenedError(say("on_levels_of", kind=kind, feature=source.name))
    return NotOpenedError(say("on_levels", kind=kind))


def as_numbers(source: Source) -> Source:
    """Return levels that are numbers themselves as a column of numbers."""
    if isinstance(source, RawLevels) and all(isinstance(value, int | float) for value in source.values[:-2]):
        return LevelColumn(source.feature, np.array([*source.values[:-2], np.nan, np.nan], dtype=np.float64))
    return source


def block_dtype(sources: Sequence[Source]) -> np.dtype[Any]:
    """Return the precision scikit-learn calculates in for columns that it transforms together."""
    together = np.result_type(*map(type_of, sources))
    return together if together.kind == "f" else DOUBLE


def type_of(source: Source) -> np.dtype[Any]:
    """Return what holds the values of a source."""
    if isinstance(source, NumberColumn | CurveColumn):
        return source.dtype
    return source.table.dtype if isinstance(source, LevelColumn | IntervalColumn) else DOUBLE


def stepped(by: Transformer, source: Source, step: MonotoneStep, dtype: np.dtype[Any]) -> Column | Combination:
    """Return a column after a step in `dtype`, which is done `by` a transformer.

    Raises:
        NotOpenedError: it has no numbers that the step can be applied to.
    """
    source = as_numbers(source)
    if isinstance(source, NumberColumn):
        cast = replace(step, operation=lambda values: step.operation(values.astype(dtype, copy=False)))
        return replace(source, steps=(*source.steps, cast), dtype=dtype)
    if isinstance(source, LevelColumn | IntervalColumn):
        return replace(source, table=step.operation(source.table.astype(dtype)))
    if isinstance(source, CurveColumn):
        before = source.function
        return replace(source, function=lambda codes: step.operation(before(codes).astype(dtype)), dtype=dtype)
    affine = step.affine
    if isinstance(source, Combination) and affine is not None and np.isinf([affine.low, affine.high]).all():
        offset = affine.slope * source.offset + affine.offset
        return replace(source, weights=affine.slope * source.weights, offset=offset)
    raise refusal(by, source)


def function_of(column: Column, function: Callable[[NDArray[Any]], NDArray[Any]], dtype: np.dtype[Any]) -> Column:
    """Return a function of the encoded values (n,) of a column: a table stays one, numbers make a curve in `dtype`."""
    if isinstance(column, LevelColumn | IntervalColumn):
        return replace(column, table=function(column.table))
    return CurveColumn(column.feature, partial(_composed, column.encode, function), dtype)


def _composed(
    encode: Callable[[NDArray[Any]], NDArray[Any]], function: Callable[[NDArray[Any]], NDArray[Any]], codes: Floats
) -> NDArray[Any]:
    return function(encode(codes))


def values_of(source: Source, points: Sequence[float] = ()) -> tuple[list[Any], Callable[[NDArray[Any]], Column]]:
    """Return the values a source can have, and how numbers for them become a column.

    A number can have any value: returned are those at and between ascending `points`, where those between are unseen.
    """
    if isinstance(source, RawLevels):
        return list(source.values), partial(LevelColumn, source.feature)
    if isinstance(source, LevelColumn | IntervalColumn):
        return list(source.table.tolist()), lambda table: replace(source, table=table)
    if isinstance(source, CurveColumn):
        raise NotOpenedError(say("curved_columns", kind="an encoder"))
    if isinstance(source, RawDate | Combination):
        raise refusal("an encoder", source)
    ends = np.asarray(points, dtype=np.float64)
    cuts = np.column_stack([np.nextafter(ends, -np.inf), ends]).ravel()
    values = [UNSEEN, *(value for point in ends.tolist() for value in (point, UNSEEN)), np.nan]
    return values, partial(IntervalColumn, source, cuts)


def missing_in(source: Source, dtype: np.dtype[Any]) -> Column:
    """Return the column that is 1 where a source is missing, and 0 elsewhere, in the precision of its block."""
    values, column = values_of(source)
    return column(np.array([is_missing(value) for value in values], dtype=dtype))


def is_missing(value: Any) -> bool:
    """Whether a value stands for a missing one: None, NaN or pandas' NA."""
    return value is None or value is pd.NA or (isinstance(value, float) and bool(np.isnan(value)))


def _linear_map(sources: Sequence[Source], last: str) -> tuple[list[Column], Floats, Floats]:
    """Return columns of one raw feature each, a matrix and an offset: ``columns @ matrix + offset`` are the `sources`.

    Raises:
        NotOpenedError: one of the sources, which `last` sees, has no numbers.
    """
    columns: list[Column] = []
    entries: list[tuple[int, int, float]] = []
    position: dict[int, int] = {}
    offset = np.zeros(len(sources))
    for seen, source in enumerate(sources):
        if isinstance(source, Combination):
            parts, weights = source.columns, source.weights
            offset[seen] = source.offset
        else:
            parts, weights = tuple(finished([source], last, curved=True)), np.ones(1)
        for part, weight in zip(parts, weights, strict=True):
            if id(part) not in position:
                position[id(part)] = len(columns)
                columns.append(part)
            entries.append((position[id(part)], seen, weight))
    matrix = np.zeros((len(columns), len(sources)))
    for row, seen, weight in entries:
        matrix[row, seen] += weight
    return columns, matrix, offset


def unmixed(sources: Sequence[Source], last: str, weights: Floats, bias: Floats) -> tuple[list[Column], Floats, Floats]:
    """Return the columns behind those that `last` sees, and its first layer over them.

    Args:
        sources: what it sees.
        weights, bias: its first layer over these, (sources, width) and (width,).
    """
    if not any(isinstance(source, Combination) for source in sources):
        return finished(sources, last, curved=True), weights, bias
    columns, matrix, offset = _linear_map(sources, last)
    return columns, matrix @ weights, bias + offset @ weights


def principal(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the components of a PCA, divided by their deviations where it whitens them."""
    matrix = step.components_.T.astype(np.float64)
    if step.whiten:
        deviation = np.sqrt(step.explained_variance_)
        matrix = matrix / np.maximum(deviation, np.finfo(deviation.dtype).eps)  # as scikit-learn does
    return _mixed(step, sources, matrix, -step.mean_ @ matrix)


def projected(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the components of a TruncatedSVD."""
    matrix = step.components_.T.astype(np.float64)
    return _mixed(step, sources, matrix, np.zeros(matrix.shape[1]))


def discriminants(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the discriminants of a LinearDiscriminantAnalysis; its other solver, lsqr, transforms nothing."""
    most = len(step.explained_variance_ratio_) if step.n_components is None else step.n_components
    matrix = step.scalings_[:, :most].astype(np.float64)
    centre = step.xbar_ if step.solver == "svd" else np.zeros(len(matrix))
    return _mixed(step, sources, matrix, -centre @ matrix)


def _mixed(step: Transformer, sources: Sequence[Source], matrix: Floats, offset: Floats) -> list[Source]:
    """Return the columns ``sources @ matrix + offset``, each as a combination of what comes from one raw feature."""
    kind = type(step).__name__
    if not (np.isfinite(matrix).all() and np.isfinite(offset).all()):
        raise NotOpenedError(say("infinite", kind=kind))
    columns, before, shift = _linear_map(sources, kind)
    weights, offsets = before @ matrix, shift @ matrix + offset
    return [Combination(kind, tuple(columns), weights[:, k], float(offsets[k])) for k in range(weights.shape[1])]
