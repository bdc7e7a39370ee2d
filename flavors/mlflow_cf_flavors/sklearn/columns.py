"""scikit-learn's preprocessing, read as encoded columns: of one raw feature each, or linear combinations of these.

Encoders, the discretizer and the imputer are tables over the values of one raw feature each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.structures import (
    ClippedLine,
    CurveColumn,
    IntervalColumn,
    LevelColumn,
    MonotoneStep,
    NotOpenedError,
    NumberColumn,
)
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.sklearn.curves import powers, splines
from mlflow_cf_flavors.sklearn.rising import is_rising, of_function, powered, quantiles
from mlflow_cf_flavors.sklearn.sources import (
    CAST,
    UNSEEN,
    Combination,
    RawDate,
    RawLevels,
    Source,
    Transformer,
    as_numbers,
    block_dtype,
    discriminants,
    is_missing,
    missing_in,
    principal,
    projected,
    refusal,
    stepped,
    values_of,
)

# What can be opened in place of some steps, behind their names.
Block = Callable[[Transformer, Sequence[Source]], list[Source]]


def transformed(step: Transformer, sources: Sequence[Source], names: Sequence[str]) -> list[Source]:
    """Return the columns after a fitted transformer.

    Args:
        step: transformer, pipeline, or 'passthrough'.
        sources: its input columns.
        names: their names, by which a ColumnTransformer picks them.

    Raises:
        NotOpenedError: a transformer that is not known here, or that cannot take what those before it made.
    """
    kind = type(step).__name__
    # a fitted ColumnTransformer has an identity function in the place of 'passthrough'
    if step is None or step == "passthrough" or (kind == "FunctionTransformer" and step.func is None):
        return list(sources)
    if kind == "FunctionTransformer" and is_rising(step):
        return of_function(step, sources)
    if kind == "Pipeline":
        return through([part for _, part in step.steps], sources, names)[0]
    if kind == "ColumnTransformer":
        return _column_transformer(step, sources, names)
    if kind not in _BLOCKS:
        raise NotOpenedError(say("function_step" if kind == "FunctionTransformer" else "step", kind=kind))
    return _BLOCKS[kind](step, sources)


def through(
    steps: Sequence[Transformer], sources: Sequence[Source], names: Sequence[str]
) -> tuple[list[Source], Sequence[str]]:
    """Return the columns after some steps, and their names, by which a ColumnTransformer picks them."""
    for step in steps:
        before, sources = len(sources), transformed(step, sources, names)
        try:
            names = [str(name) for name in step.get_feature_names_out()]
        except (AttributeError, ValueError):  # the step has no names; its columns are picked by position
            names = names if before == len(sources) else [str(number) for number in range(len(sources))]
    return list(sources), names


def _column_transformer(step: Transformer, sources: Sequence[Source], names: Sequence[str]) -> list[Source]:
    if step.transformer_weights:
        raise NotOpenedError(say("weighted_columns"))
    placed: list[tuple[int, list[Source]]] = []
    for name, part, chosen in step.transformers_:
        where = step.output_indices_[name]
        if isinstance(part, str) and part == "drop":
            continue
        places = picked(chosen, names)
        if not places:
            continue
        outputs = transformed(part, [sources[i] for i in places], [names[i] for i in places])
        if where.stop - where.start != len(outputs):
            raise NotOpenedError(say("columns_of", name=str(name)))
        placed.append((where.start, outputs))
    return [column for _, outputs in sorted(placed, key=lambda item: item[0]) for column in outputs]


def picked(chosen: Any, names: Sequence[str]) -> list[int]:
    """Return positions for what a ColumnTransformer accepts: names, numbers, a mask or a slice."""
    index = pd.Series(range(len(names)), index=list(names))
    if isinstance(chosen, slice):
        by_name = isinstance(chosen.start, str) or isinstance(chosen.stop, str)
        return [int(i) for i in (index.loc[chosen] if by_name else index.iloc[chosen])]
    array = np.asarray([chosen] if isinstance(chosen, str | int) else chosen)
    if array.dtype.kind in "OUT":
        return [int(index[name]) for name in array.tolist()]
    return [int(i) for i in index.to_numpy()[array]] if array.size else []


def _scaled(step_of: Callable[[Transformer, int], MonotoneStep]) -> Block:
    """Return how a scaler acts on a block; it calculates in the precision of the whole block."""

    def scale(step: Transformer, sources: Sequence[Source]) -> list[Source]:
        dtype = block_dtype(sources)
        return [stepped(step, source, step_of(step, number), dtype) for number, source in enumerate(sources)]

    return scale


def _standard(scaler: Transformer, number: int) -> MonotoneStep:
    mean = scaler.mean_[number] if scaler.with_mean else None
    scale = scaler.scale_[number] if scaler.with_std else None

    def operation(values: NDArray[Any]) -> NDArray[Any]:
        if mean is not None:
            values = values - mean.astype(values.dtype)
        return values if scale is None else values / scale.astype(values.dtype)

    return MonotoneStep(operation, _less_and_over(mean, scale))


# The other scalers calculate in float64, and round to the block's precision after every operation.
def _min_max(scaler: Transformer, number: int) -> MonotoneStep:
    scale, shift = scaler.scale_[number], scaler.min_[number]

    def operation(values: NDArray[Any]) -> NDArray[Any]:
        values = (values * scale).astype(values.dtype)
        values = (values + shift).astype(values.dtype)
        return np.clip(values, *scaler.feature_range) if scaler.clip else values

    ends = map(float, scaler.feature_range) if scaler.clip else ()
    return MonotoneStep(operation, ClippedLine(float(scale), float(shift), *ends))


def _robust(scaler: Transformer, number: int) -> MonotoneStep:
    """Return the step of a RobustScaler, or of a MaxAbsScaler, which has no centre."""
    center = scaler.center_[number] if getattr(scaler, "with_centering", False) else None
    scale = scaler.scale_[number] if getattr(scaler, "with_scaling", True) else None

    def operation(values: NDArray[Any]) -> NDArray[Any]:
        if center is not None:
            values = (values - center).astype(values.dtype)
        return values if scale is None else (values / scale).astype(values.dtype)

    return MonotoneStep(operation, _less_and_over(center, scale))


def _less_and_over(centre: float | None, scale: float | None) -> ClippedLine:
    """Return the formula of what subtracts a centre, then divides by a scale; None: it does not."""
    unit = 1.0 if scale is None else float(scale)
    return ClippedLine(1.0 / unit, 0.0 if centre is None else -float(centre) / unit)


def _selected(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the columns that a selector keeps, cast to the precision of the whole block."""
    dtype = block_dtype(sources)
    kept = [as_numbers(source) for source, keeps in zip(sources, step.get_support(), strict=True) if keeps]
    return [one if isinstance(one, RawLevels | RawDate) else stepped(step, one, CAST, dtype) for one in kept]


UNKNOWN = -1  # position of a value that is no category


@dataclass(frozen=True, eq=False)
class OneHotGroups:
    """The categories of a feature, as a OneHotEncoder puts them together.

    Attributes:
        group: (categories,) the group of each; infrequent ones share the last, `infrequent`.
        dropped: the group that has no column; None: all have one.
    """

    group: NDArray[np.intp]
    infrequent: int
    dropped: int | None

    @property
    def kept(self) -> list[int]:
        """The groups that have a column, in their order."""
        return [each for each in range(int(self.group.max()) + 1) if each != self.dropped]


def one_hot_groups(step: Transformer, number: int) -> OneHotGroups:
    """Return the groups of the categories of an encoder's feature of this `number`."""
    group, infrequent = _groups(step, number, step.categories_[number])
    drop = None if step.drop_idx_ is None else step.drop_idx_[number]
    return OneHotGroups(group, infrequent, None if drop is None else int(group[drop]))


def one_hot(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return one column per category that is not dropped; infrequent ones share the last."""
    columns: list[Source] = []
    for number, source in enumerate(sources):
        position, column = _looked_up(source, step.categories_[number])
        groups = one_hot_groups(step, number)
        unknown = groups.infrequent if step.handle_unknown in ("infrequent_if_exist", "warn") else UNKNOWN
        group = np.where(position == UNKNOWN, unknown, groups.group[position])
        columns += [column((group == each).astype(step.dtype)) for each in groups.kept]
    return columns


def ordinal(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the position of a value among the categories, with the encoder's numbers for unknown and missing ones."""
    columns: list[Source] = []
    unknown = np.nan if step.unknown_value is None else float(step.unknown_value)
    for number, source in enumerate(sources):
        categories = step.categories_[number]
        position, column = _looked_up(source, categories)
        gaps = isinstance(categories[-1], float) and np.isnan(categories[-1])
        groups = _groups(step, number, categories[:-1] if gaps else categories)[0].astype(np.float64)
        if gaps:
            groups = np.append(groups, step.encoded_missing_value)
        columns.append(column(np.where(position == UNKNOWN, unknown, groups[position]).astype(step.dtype)))
    return columns


def target_means(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the shrunk mean of the target per category, one column per class where there are several."""
    columns: list[Source] = []
    overall = np.atleast_1d(step.target_mean_)
    several = len(step.encodings_) // len(sources)
    for number, source in enumerate(sources):
        position, column = _looked_up(source, step.categories_[number])
        for k in range(several):
            means = step.encodings_[number * several + k]
            columns.append(column(np.where(position == UNKNOWN, overall[k], means[position]).astype(np.float64)))
    return columns


def _looked_up(source: Source, categories: NDArray[Any]) -> tuple[NDArray[np.intp], Callable[[NDArray[Any]], Source]]:
    """Return the positions among the categories of all values of a source, and how numbers for them become a column.

    Notes the categories in `RawLevels.told_apart`.
    """
    if isinstance(source, RawLevels):
        source.told_apart.update(categories.tolist())
    known = [float(each) for each in categories if not is_missing(each)] if isinstance(source, NumberColumn) else []
    values, column = values_of(source, sorted(known))
    return _positions(values, categories), column


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
        source = stepped(step, given, CAST, dtype)
        if isinstance(source, CurveColumn):
            raise NotOpenedError(say("curved_columns", kind=type(step).__name__))
        if isinstance(source, Combination):
            raise refusal(step, given)
        bins: IntervalColumn | LevelColumn
        if isinstance(source, NumberColumn):
            bins = IntervalColumn(source, np.nextafter(inner, -np.inf), np.append(np.arange(len(inner) + 1.0), np.nan))
        else:
            reached = inner.searchsorted(source.table, side="right").astype(np.float64)
            bins = replace(source, table=np.where(np.isnan(source.table), np.nan, reached))
        if step.encode == "ordinal":
            columns.append(replace(bins, table=bins.table.astype(dtype)))
        else:
            columns += [replace(bins, table=(bins.table == k).astype(dtype)) for k in range(count)]
    return columns


def imputed(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return columns without missing values, then those that tell where there were some.

    Raises:
        NotOpenedError: another value than None or NaN stands for missing ones.
    """
    if not is_missing(step.missing_values):
        raise NotOpenedError(say("imputer_of", value=repr(step.missing_values)))
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
        raise NotOpenedError(say("imputer_with", value=repr(fill)))
    fills = MonotoneStep(lambda values: np.where(np.isnan(values), number, values), ClippedLine())
    return stepped(step, source, fills, dtype)


_SELECTORS = (
    "GenericUnivariateSelect", "RFE", "RFECV", "SelectFdr", "SelectFpr", "SelectFromModel", "SelectFwe", "SelectKBest",
    "SelectPercentile", "SequentialFeatureSelector", "VarianceThreshold",
)  # fmt: skip
_BLOCKS: dict[str, Block] = {
    **dict.fromkeys(_SELECTORS, _selected),
    "StandardScaler": _scaled(_standard),
    "MinMaxScaler": _scaled(_min_max),
    "RobustScaler": _scaled(_robust),
    "MaxAbsScaler": _scaled(_robust),
    "SimpleImputer": imputed,
    "OneHotEncoder": one_hot,
    "OrdinalEncoder": ordinal,
    "TargetEncoder": target_means,
    "KBinsDiscretizer": binned,
    "PolynomialFeatures": powers,
    "SplineTransformer": splines,
    "PowerTransformer": powered,
    "QuantileTransformer": quantiles,
    "PCA": principal,
    "IncrementalPCA": principal,
    "TruncatedSVD": projected,
    "LinearDiscriminantAnalysis": discriminants,
}
