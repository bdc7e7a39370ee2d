"""scikit-learn's powers and splines of one raw feature each, which are curves over its numbers, or tables of levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures import Column, CurveColumn, IntervalColumn, LevelColumn, NotOpenedError, NumberColumn
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.sklearn.sources import DOUBLE, Source, block_dtype, finished

Transformer = Any  # scikit-learn carries no types
Values = NDArray[Any]


def powers(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return powers of columns, and products of columns that come from one raw feature.

    Raises:
        NotOpenedError: products of several features, which no table of one feature can hold.
    """
    kind, dtype = type(step).__name__, block_dtype(sources)
    columns = finished(sources, kind, curved=True)
    found: list[Source] = []
    for exponents in step.powers_.tolist():
        factors = [(columns[at], int(exponent)) for at, exponent in enumerate(exponents) if exponent]
        if not factors:
            found.append(_ones(columns[0], dtype))
        elif len(factors) == 1 and factors[0][1] == 1:
            found.append(factors[0][0])
        elif len({column.feature for column, _ in factors}) > 1:
            raise NotOpenedError(say("products", kind=kind))
        else:
            found.append(_of_one(factors, dtype))
    return found


def _ones(column: Column, dtype: np.dtype[Any]) -> Column:
    """Return a column that is 1 whatever `column` is."""
    if isinstance(column, LevelColumn | IntervalColumn):
        return replace(column, table=np.ones(len(column.table), dtype=dtype))
    if isinstance(column, NumberColumn):
        return IntervalColumn(column, np.empty(0), np.ones(2, dtype=dtype))
    return CurveColumn(column.feature, partial(np.ones_like, dtype=dtype), dtype)


def _of_one(factors: Sequence[tuple[Column, int]], dtype: np.dtype[Any]) -> Column:
    """Return the product of powers of columns of one raw feature."""
    feature = factors[0][0].feature
    levels = [(column.table, exponent) for column, exponent in factors if isinstance(column, LevelColumn)]
    if len(levels) == len(factors):
        return LevelColumn(feature, _product(levels, dtype))
    encoders = [(column.encode, exponent) for column, exponent in factors]
    return CurveColumn(feature, partial(_multiplied, encoders, dtype), dtype)


def _multiplied(
    encoders: Sequence[tuple[Callable[[Values], Values], int]], dtype: np.dtype[Any], codes: Values
) -> Values:
    return _product([(encode(codes), exponent) for encode, exponent in encoders], dtype)


def _product(factors: Sequence[tuple[Values, int]], dtype: np.dtype[Any]) -> Values:
    """Return the product of powers, multiplied one by one as scikit-learn does."""
    found = np.ones(len(factors[0][0]), dtype=dtype)
    for values, exponent in factors:
        for _ in range(exponent):
            found = found * values.astype(dtype)
    return found


def splines(step: Transformer, sources: Sequence[Source]) -> list[Source]:
    """Return the basis functions of every column, but for the last ones if they are left out."""
    kind = type(step).__name__
    found: list[Source] = []
    for column, spline in zip(finished(sources, kind, curved=True), step.bsplines_, strict=True):
        count = spline.c.shape[1] - (0 if step.include_bias else 1)
        basis = partial(_basis, spline, str(step.extrapolation))
        for place in range(count):
            if isinstance(column, LevelColumn):
                found.append(LevelColumn(column.feature, basis(column.table.astype(np.float64), place)))
            else:
                found.append(CurveColumn(column.feature, partial(_curve, basis, column, place), DOUBLE))
    return found


def _curve(basis: Callable[[Values, int], Values], column: Column, place: int, codes: Values) -> Values:
    return basis(column.encode(codes), place)


def _basis(spline: Any, extrapolation: str, numbers: Values, place: int) -> Values:
    """Return one basis function of a spline at `numbers` (n,), beyond its ends as scikit-learn's SplineTransformer."""
    first, last = spline.t[spline.k], spline.t[-spline.k - 1]
    if extrapolation == "periodic":
        within = first + (numbers - first) % (last - first)
    elif extrapolation == "continue":
        within = numbers
    else:  # what the extrapolation "error" refuses is never asked
        within = np.clip(numbers, first, last)
    values: Values = spline(within)[:, place]
    if extrapolation == "linear":
        ends = np.where(numbers < first, spline(first, nu=1)[place], spline(last, nu=1)[place])
        values = values + (numbers - within) * ends
    return values
