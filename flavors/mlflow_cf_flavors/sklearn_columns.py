"""scikit-learn's preprocessing, read as encoded columns that each come from one raw feature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import Column, LevelColumn, NotOpenedError, NumberColumn

Transformer = Any  # scikit-learn carries no types


@dataclass(frozen=True, eq=False)
class RawLevels:
    """A raw feature of levels that no transformer has turned into numbers yet.

    Attributes:
        feature: raw column.
        values: (levels + 2) what the transformer sees: the levels, then an unseen one, then a missing value.
    """

    feature: int
    values: tuple[Any, ...]


Source = Column | RawLevels
_UNSEEN = object()  # equals no category


def raw_columns(space: FeatureSpace) -> list[Source]:
    """Return the model's input columns before any transformer."""
    sources: list[Source] = []
    for number, feature in enumerate(space.features):
        if feature.kind == "boolean":
            sources.append(LevelColumn(number, np.array([0.0, 1.0, np.nan, np.nan])))
        elif feature.levels:
            sources.append(RawLevels(number, (*feature.levels, _UNSEEN, None)))
        elif feature.kind == "date":
            raise NotOpenedError(f"the date {feature.name}")
        else:
            sources.append(NumberColumn(number))
    return sources


def transformed(step: Transformer, sources: Sequence[Source], names: Sequence[str]) -> list[Source]:
    """Return the columns after a fitted transformer.

    Args:
        step: transformer, pipeline, or 'passthrough'.
        sources: its input columns.
        names: their names, by which a ColumnTransformer picks them.

    Raises:
        NotOpenedError: a transformer that mixes columns, or that is not known here.
    """
    kind = type(step).__name__
    # a fitted ColumnTransformer has an identity function in the place of 'passthrough'
    if step is None or step == "passthrough" or (kind == "FunctionTransformer" and step.func is None):
        return list(sources)
    if kind == "Pipeline":
        for _, part in step.steps:
            sources = transformed(part, sources, names)
        return list(sources)
    if kind == "ColumnTransformer":
        return _column_transformer(step, sources, names)
    if kind in _LEVELS:
        return [column for number, source in enumerate(sources) for column in _LEVELS[kind](step, number, source)]
    if kind in _STEPS:
        return [_stepped(source, _STEPS[kind](step, number), kind) for number, source in enumerate(sources)]
    if kind == "SimpleImputer":
        return [_imputed(step, number, source) for number, source in enumerate(sources)]
    raise NotOpenedError(f"the step {kind}")


def _column_transformer(step: Transformer, sources: Sequence[Source], names: Sequence[str]) -> list[Source]:
    if step.transformer_weights:
        raise NotOpenedError("a ColumnTransformer with weights")
    placed: list[tuple[int, list[Source]]] = []
    for name, part, chosen in step.transformers_:
        where = step.output_indices_[name]
        if isinstance(part, str) and part == "drop":
            continue
        picked = _picked(chosen, names)
        outputs = transformed(part, [sources[i] for i in picked], [names[i] for i in picked])
        if where.stop - where.start != len(outputs):
            raise NotOpenedError(f"the columns of {name}")
        placed.append((where.start, outputs))
    return [column for _, outputs in sorted(placed, key=lambda item: item[0]) for column in outputs]


def _picked(chosen: Any, names: Sequence[str]) -> list[int]:
    """Return positions for what a ColumnTransformer accepts: names, numbers, a mask or a slice."""
    if isinstance(chosen, str | int):
        chosen = [chosen]
    index = pd.Series(range(len(names)), index=list(names))
    array = np.asarray(chosen) if not isinstance(chosen, slice) else chosen
    if isinstance(array, slice) and isinstance(array.start or array.stop, str):
        return [int(i) for i in index.loc[array]]
    if not isinstance(array, slice) and array.dtype.kind in "OUT":
        return [int(index[name]) for name in array.tolist()]
    return [int(i) for i in index.to_numpy()[array]] if isinstance(array, slice) or array.size else []


def _stepped(source: Source, step: Callable[[Floats], Floats], kind: str) -> Source:
    if isinstance(source, NumberColumn):
        return replace(source, steps=(*source.steps, step))
    if isinstance(source, LevelColumn):
        return replace(source, table=step(source.table))
    raise NotOpenedError(f"{kind} on levels")


def _standard(step: Transformer, number: int) -> Callable[[Floats], Floats]:
    mean = step.mean_[number] if step.with_mean else 0.0
    scale = step.scale_[number] if step.with_std else 1.0
    return lambda values: (values - mean) / scale


def _min_max(step: Transformer, number: int) -> Callable[[Floats], Floats]:
    scale, shift = step.scale_[number], step.min_[number]
    low, high = step.feature_range if step.clip else (-np.inf, np.inf)
    return lambda values: np.clip(values * scale + shift, low, high)


def _robust(step: Transformer, number: int) -> Callable[[Floats], Floats]:
    center = step.center_[number] if step.with_centering else 0.0
    scale = step.scale_[number] if step.with_scaling else 1.0
    return lambda values: (values - center) / scale


def _max_abs(step: Transformer, number: int) -> Callable[[Floats], Floats]:
    scale = step.scale_[number]
    return lambda values: values / scale


_STEPS: dict[str, Callable[[Transformer, int], Callable[[Floats], Floats]]] = {
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "RobustScaler": _robust,
    "MaxAbsScaler": _max_abs,
}


def _imputed(step: Transformer, number: int, source: Source) -> Source:
    if step.indicator_ is not None or (isinstance(step.missing_values, float) and not np.isnan(step.missing_values)):
        raise NotOpenedError("a SimpleImputer with an indicator or a special missing value")
    fill = step.statistics_[number]
    if isinstance(source, RawLevels):
        return replace(source, values=tuple(fill if value is None else value for value in source.values))
    return _stepped(source, lambda values: np.where(np.isnan(values), float(fill), values), "SimpleImputer")


def _one_hot(step: Transformer, number: int, source: Source) -> list[Source]:
    if not isinstance(source, RawLevels):
        raise NotOpenedError("a OneHotEncoder on numbers")
    infrequent = getattr(step, "infrequent_categories_", None)
    if infrequent is not None and infrequent[number] is not None:
        raise NotOpenedError("a OneHotEncoder with infrequent categories")
    dropped = None if step.drop_idx_ is None else step.drop_idx_[number]
    return [
        LevelColumn(source.feature, np.array([float(_same(value, category)) for value in source.values]))
        for position, category in enumerate(step.categories_[number])
        if position != dropped
    ]


def _ordinal(step: Transformer, number: int, source: Source) -> list[Source]:
    if not isinstance(source, RawLevels):
        raise NotOpenedError("an OrdinalEncoder on numbers")
    infrequent = getattr(step, "infrequent_categories_", None)
    if infrequent is not None and infrequent[number] is not None:
        raise NotOpenedError("an OrdinalEncoder with infrequent categories")
    unknown = np.nan if step.unknown_value is None else float(step.unknown_value)
    table = []
    for value in source.values:
        found = [k for k, category in enumerate(step.categories_[number]) if _same(value, category)]
        if value is None and (not found or isinstance(step.encoded_missing_value, float)):
            table.append(float(step.encoded_missing_value))
        else:
            table.append(float(found[0]) if found else unknown)
    return [LevelColumn(source.feature, np.array(table))]


_LEVELS: dict[str, Callable[[Transformer, int, Source], list[Source]]] = {
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
}


def _same(value: Any, category: Any) -> bool:
    """Whether a level is a category; None stands for every kind of missing value."""
    missing = category is None or (isinstance(category, float) and np.isnan(category))
    return missing if value is None else bool(not missing and value == category)
