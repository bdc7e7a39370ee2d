"""scikit-learn's preprocessing, read as encoded columns: of one raw feature each, or linear combinations of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.structures import ClippedLine, MonotoneStep, NotOpenedError
from mlflow_cf_flavors.sklearn.encoders import binned, imputed, one_hot, ordinal
from mlflow_cf_flavors.sklearn.mixing import discriminants, principal, projected
from mlflow_cf_flavors.sklearn.sources import CAST, Source, Transformer, block_dtype, refusal, stepped

# What can be opened in place of some steps, behind their names.
_INSTEAD: Final = {
    "FunctionTransformer": ", whose function nobody can look into (a step such as StandardScaler, MinMaxScaler, "
    "KBinsDiscretizer or OneHotEncoder can be opened, and so can a model that is given what the function returns)",
}

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
    if kind == "Pipeline":
        for _, part in step.steps:
            before = len(sources)
            sources = transformed(part, sources, names)
            names = names_after(part, names, before, len(sources))
        return list(sources)
    if kind == "ColumnTransformer":
        return _column_transformer(step, sources, names)
    if kind not in _BLOCKS:
        raise NotOpenedError(f"the step {kind}{_INSTEAD.get(kind, '')}")
    return _BLOCKS[kind](step, sources)


def names_after(step: Transformer, names: Sequence[str], before: int, after: int) -> Sequence[str]:
    """Return the names of the columns after a step, for a ColumnTransformer that follows."""
    try:
        return [str(name) for name in step.get_feature_names_out()]
    except (AttributeError, ValueError):  # the step has no names; its columns are picked by position
        return names if before == after else [str(number) for number in range(after)]


def _column_transformer(step: Transformer, sources: Sequence[Source], names: Sequence[str]) -> list[Source]:
    if step.transformer_weights:
        raise NotOpenedError("a ColumnTransformer with weights")
    placed: list[tuple[int, list[Source]]] = []
    for name, part, chosen in step.transformers_:
        where = step.output_indices_[name]
        if isinstance(part, str) and part == "drop":
            continue
        picked = _picked(chosen, names)
        if not picked:
            continue
        outputs = transformed(part, [sources[i] for i in picked], [names[i] for i in picked])
        if where.stop - where.start != len(outputs):
            raise NotOpenedError(f"the columns of {name}")
        placed.append((where.start, outputs))
    return [column for _, outputs in sorted(placed, key=lambda item: item[0]) for column in outputs]


def _picked(chosen: Any, names: Sequence[str]) -> list[int]:
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

        def column(number: int, source: Source) -> Source:
            scaled = stepped(source, step_of(step, number), dtype)
            if scaled is None:
                raise refusal(step, source)
            return scaled

        return [column(number, source) for number, source in enumerate(sources)]

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
    center = scaler.center_[number] if scaler.with_centering else None
    scale = scaler.scale_[number] if scaler.with_scaling else None

    def operation(values: NDArray[Any]) -> NDArray[Any]:
        if center is not None:
            values = (values - center).astype(values.dtype)
        return values if scale is None else (values / scale).astype(values.dtype)

    return MonotoneStep(operation, _less_and_over(center, scale))


def _max_abs(scaler: Transformer, number: int) -> MonotoneStep:
    scale = scaler.scale_[number]
    return MonotoneStep(lambda values: np.asarray((values / scale).astype(values.dtype)), _less_and_over(None, scale))


def _less_and_over(centre: float | None, scale: float | None) -> ClippedLine:
    """Return the formula of what subtracts a centre, then divides by a scale; None: it does not."""
    unit = 1.0 if scale is None else float(scale)
    return ClippedLine(1.0 / unit, 0.0 if centre is None else -float(centre) / unit)


def _selected(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the columns that a selector keeps, cast to the precision of the whole block."""
    dtype = block_dtype(sources)
    kept = [source for source, keeps in zip(sources, step.get_support(), strict=True) if keeps]
    return [stepped(source, CAST, dtype) or source for source in kept]  # levels stay what they are


_SELECTORS = (
    "GenericUnivariateSelect", "RFE", "RFECV", "SelectFdr", "SelectFpr", "SelectFromModel", "SelectFwe", "SelectKBest",
    "SelectPercentile", "SequentialFeatureSelector", "VarianceThreshold",
)  # fmt: skip
_BLOCKS: dict[str, Block] = {
    **dict.fromkeys(_SELECTORS, _selected),
    "StandardScaler": _scaled(_standard),
    "MinMaxScaler": _scaled(_min_max),
    "RobustScaler": _scaled(_robust),
    "MaxAbsScaler": _scaled(_max_abs),
    "SimpleImputer": imputed,
    "OneHotEncoder": one_hot,
    "OrdinalEncoder": ordinal,
    "KBinsDiscretizer": binned,
    "PCA": principal,
    "IncrementalPCA": principal,
    "TruncatedSVD": projected,
    "LinearDiscriminantAnalysis": discriminants,
}
