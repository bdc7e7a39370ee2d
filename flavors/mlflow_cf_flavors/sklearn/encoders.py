"""scikit-learn's encoders, discretizer and imputer, read as tables over the values of one raw feature each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures import ClippedLine, IntervalColumn, MonotoneStep, NotOpenedError, NumberColumn
from mlflow_cf_flavors.sklearn.sources import (
    CAST,
    UNSEEN,
    Combination,
    RawLevels,
    Source,
    Transformer,
    as_numbers,
    block_dtype,
    is_missing,
    missing_in,
    refusal,
    stepped,
    values_of,
)

UNKNOWN = -1  # position of a value that is no category


def one_hot(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return one column per category that is not dropped; infrequent ones share the last."""
    columns: list[Source] = []
    for number, source in enumerate(sources):
        values, column = values_of(source, _points(source, step.categories_[number]))
        position = _positions(values, step.categories_[number])
        groups, infrequent = _groups(step, number, step.categories_[number])
        unknown = infrequent if step.handle_unknown in ("infrequent_if_exist", "warn") else UNKNOWN
        group = np.where(position == UNKNOWN, unknown, groups[position])
        drop = None if step.drop_idx_ is None else step.drop_idx_[number]
        dropped = None if drop is None else groups[drop]
        columns += [column((group == k).astype(step.dtype)) for k in range(groups.max() + 1) if k != dropped]
    return columns


def ordinal(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the position of a value among the categories, with the encoder's numbers for unknown and missing ones."""
    columns: list[Source] = []
    unknown = np.nan if step.unknown_value is None else float(step.unknown_value)
    for number, source in enumerate(sources):
        categories = step.categories_[number]
        values, column = values_of(source, _points(source, categories))
        position = _positions(values, categories)
        gaps = isinstance(categories[-1], float) and np.isnan(categories[-1])
        groups = _groups(step, number, categories[:-1] if gaps else categories)[0].astype(np.float64)
        if gaps:
            groups = np.append(groups, step.encoded_missing_value)
        columns.append(column(np.where(position == UNKNOWN, unknown, groups[position]).astype(step.dtype)))
    return columns


def _points(source: Source, categories: NDArray[Any]) -> list[float]:
    """Return the categories of a number, ascending."""
    if not isinstance(source, NumberColumn):
        return []
    return sorted(float(category) for category in categories if not is_missing(category))


def _positions(values: Sequence[Any], categories: NDArray[Any]) -> NDArray[np.intp]:
    """Return the position of each value among the categories; None and NaN are different ones."""
    known = {_key(category): position for position, category in enumerate(categories.tolist())}
    return np.array(
        [UNKNOWN if value is UNSEEN else known.get(_key(value), UNKNOWN) for value in values], dtype=np.intp
    )


def _key(value: Any) -> Any:
    return ("missing", value is None) if is_missing(value) else value


def _groups(step: Transformer, number: int, categories: NDArray[Any]) -> tuple[NDArray[np.intp], int]:
    """Return the group of every category, and that of the infrequent ones (`UNKNOWN` if there are none)."""
    together = getattr(step, "infrequent_categories_", None)
    if together is None or together[number] is None:
        return np.arange(len(categories)), UNKNOWN
    infrequent = _positions(together[number].tolist(), categories)
    frequent = np.ones(len(categories), dtype=np.bool_)
    frequent[infrequent] = False
    last = int(frequent.sum())
    return np.where(frequent, frequent.cumsum() - 1, last), last


def binned(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the bin of a number, or one column per bin."""
    columns: list[Source] = []
    dtype = block_dtype(sources) if step.dtype is None else np.dtype(step.dtype)
    for number, given in enumerate(sources):
        inner, count = step.bin_edges_[number][1:-1], int(step.n_bins_[number])
        source = stepped(given, CAST, dtype)
        if source is None or isinstance(source, Combination):
            raise refusal(step, given)
        bins = _bins(source, inner)
        if step.encode == "ordinal":
            columns.append(replace(bins, table=bins.table.astype(dtype)))
        else:
            columns += [replace(bins, table=(bins.table == k).astype(dtype)) for k in range(count)]
    return columns


def _bins(source: Any, inner: NDArray[np.float64]) -> Any:
    """Return a column with the number of `inner` edges that are at most a value."""
    if isinstance(source, NumberColumn):
        table = np.append(np.arange(len(inner) + 1.0), np.nan)
        return IntervalColumn(source, np.nextafter(inner, -np.inf), table)
    table = inner.searchsorted(source.table, side="right").astype(np.float64)
    return replace(source, table=np.where(np.isnan(source.table), np.nan, table))


def imputed(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return columns without missing values, then those that tell where there were some.

    Raises:
        NotOpenedError: another value than None or NaN stands for missing ones.
    """
    if not is_missing(step.missing_values):
        raise NotOpenedError(f"a SimpleImputer of {step.missing_values!r}")
    dtype = block_dtype(sources)
    columns = []
    for number, source in enumerate(sources):
        fill = step.statistics_[number]
        if is_missing(fill) and not step.keep_empty_features:
            continue
        columns.append(_filled(step, source, fill, dtype))
    if step.indicator_ is not None:
        columns += [missing_in(sources[number], dtype) for number in step.indicator_.features_]
    return columns


def _filled(step: Transformer, given: Source, fill: Any, dtype: np.dtype[Any]) -> Source:
    source = as_numbers(given)
    if isinstance(source, RawLevels):
        if _key(source.values[-1]) != _key(step.missing_values):
            return source
        return replace(source, values=(*source.values[:-1], fill))
    number = dtype.type(fill) if isinstance(fill, int | float | np.number) else None
    if number is None:
        raise NotOpenedError(f"a SimpleImputer that fills numbers with {fill!r}")
    filled = stepped(
        source, MonotoneStep(lambda values: np.where(np.isnan(values), number, values), ClippedLine()), dtype
    )
    if filled is None:
        raise refusal(step, source)
    return filled
