"""scikit-learn's steps that are rising functions of each number: numpy's logarithms and roots, powers, quantiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mlflow_cf.features import Floats
from mlflow_cf.structures import MonotoneStep, NumberColumn
from mlflow_cf_flavors.sklearn.sources import (
    Combination,
    RawDate,
    RawLevels,
    Source,
    as_numbers,
    block_dtype,
    function_of,
    refusal,
    stepped,
    type_of,
)

Transformer = Any  # scikit-learn carries no types
Values = NDArray[Any]

EVERYWHERE: Final = frozenset({"arcsinh", "arctan", "cbrt", "exp", "exp2", "expm1", "sinh", "tanh"})
SOMEWHERE: Final = frozenset({"log", "log10", "log1p", "log2", "sqrt"})  # of other numbers they make missing values
_NEAR_ENDS: Final = 1e-7  # QuantileTransformer's: normal quantiles of shares as near to 0 and 1 are cut off


def is_rising(step: Transformer) -> bool:
    """Whether a FunctionTransformer applies one of numpy's functions that rise."""
    function = step.func
    known = isinstance(function, np.ufunc) and function.__name__ in EVERYWHERE | SOMEWHERE
    return known and not step.kw_args


def of_function(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return columns after a FunctionTransformer that `is_rising`, each in the precision that numpy chooses for it."""
    return [_applied(step, step.func, as_numbers(source)) for source in sources]


def _applied(step: Transformer, function: np.ufunc, source: Source) -> Source:
    if isinstance(source, RawLevels | RawDate | Combination):
        raise refusal(step, source)
    dtype = _quiet(function, np.ones(1, dtype=type_of(source))).dtype
    inner = partial(_cast, dtype, partial(_quiet, function))
    if isinstance(source, NumberColumn) and function.__name__ in EVERYWHERE:
        return replace(source, steps=(*source.steps, MonotoneStep(inner)), dtype=dtype)
    return function_of(source, inner, dtype)


def _quiet(function: np.ufunc, values: Values) -> Values:
    """Return what a function makes of values (n,), without a warning about those that it does not know."""
    with np.errstate(all="ignore"):
        found: Values = function(values)
    return found


def _cast(dtype: np.dtype[Any], function: Callable[[Values], Values], values: Values) -> Values:
    """Return a function of values (n,) that numpy takes as a type first: whole numbers as it takes their type."""
    with np.errstate(over="ignore"):
        cast = values.astype(dtype, copy=False)
    return function(cast)


def powered(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return columns after a PowerTransformer, which makes them as normal as it can (Yeo-Johnson, Box-Cox)."""
    dtype, power = block_dtype(sources), _yeo_johnson if step.method == "yeo-johnson" else _box_cox
    scaler = step._scaler if step.standardize else None  # noqa: SLF001  published nowhere else
    found: list[Source] = []
    for number, (source, exponent) in enumerate(zip(sources, step.lambdas_.tolist(), strict=True)):
        ends = (0.0, 1.0) if scaler is None else (float(scaler.mean_[number]), float(scaler.scale_[number]))
        operation = partial(_standardised, partial(power, exponent), *ends)
        found.append(stepped(step, source, MonotoneStep(operation), dtype))
    return found


def _standardised(power: Callable[[Values], Values], mean: float, scale: float, values: Values) -> Values:
    found: Values = (power(values) - mean) / scale
    return found.astype(values.dtype, copy=False)


def _yeo_johnson(exponent: float, values: Values) -> Values:
    """Return Yeo and Johnson's transform (2000), which bends numbers above and below 0 in opposite ways."""
    up, down = np.maximum(values, 0.0), np.minimum(values, 0.0)
    with np.errstate(all="ignore"):
        above = np.log1p(up) if exponent == 0.0 else np.expm1(exponent * np.log1p(up)) / exponent
        other = 2.0 - exponent
        below = -np.log1p(-down) if other == 0.0 else -np.expm1(other * np.log1p(-down)) / other
    return np.where(values < 0.0, below, above)


def _box_cox(exponent: float, values: Values) -> Values:
    """Return Box and Cox's transform (1964) of positive numbers; scikit-learn refuses all others."""
    with np.errstate(all="ignore"):
        logarithm = np.where(values > 0.0, np.log(values), np.where(np.isnan(values), np.nan, -np.inf))
        return logarithm if exponent == 0.0 else np.expm1(exponent * logarithm) / exponent


def quantiles(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return columns after a QuantileTransformer: shares of the rows it was fitted on, or normal quantiles of these."""
    dtype, found = block_dtype(sources), list[Source]()
    for number, source in enumerate(sources):
        shares = partial(_shares, step.quantiles_[:, number], step.references_)
        operation = partial(_normal, shares) if step.output_distribution == "normal" else partial(shares, 0.0)
        found.append(stepped(step, source, MonotoneStep(operation), dtype))
    return found


def _shares(known: Floats, references: Floats, edge: float, values: Values) -> Values:
    """Return interpolated shares of values (n,); of equal quantiles the middle, by going up and down.

    What is nearer to one of the ends than `edge` is there.
    """
    up, down = np.interp(values, known, references), np.interp(-values, -known[::-1], -references[::-1])
    shares = (0.5 * (up - down)).astype(values.dtype)
    if edge:
        first, last = values - edge < known[0], values + edge > known[-1]
    else:
        first, last = values == known[0], values == known[-1]
    shares = np.where(first, 0.0, np.where(last, 1.0, shares))
    return np.where(np.isnan(values), np.nan, shares).astype(values.dtype, copy=False)


def _normal(shares: Callable[[float, Values], Values], values: Values) -> Values:
    """Return normal quantiles of the shares of values (n,), cut off near 0 and 1."""
    least, most = ndtri(_NEAR_ENDS - np.spacing(1)), ndtri(1 - (_NEAR_ENDS - np.spacing(1)))
    found: Values = np.clip(ndtri(shares(_NEAR_ENDS, values)), least, most)
    return found.astype(values.dtype, copy=False)
