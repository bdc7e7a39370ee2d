"""Columns that give the label away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.suggest.chance import few, log_tail, within_chance
from mlflow_cf.suggest.columns import Codes, Column, Sample
from mlflow_cf.suggest.dependencies import LEAST_REPEATED, measured

MOST_LABELS: Final = 100


def labels_of(labels: object, sample: Sample) -> Column | None:
    """Return the labels of the sampled rows as a column; None without any, or if they are numbers of a regression.

    Raises:
        InputError: not one label per row.
    """
    if labels is None:
        return None
    try:
        series = pd.Series(np.asarray(labels).reshape(-1) if not isinstance(labels, pd.Series) else labels)
    except (TypeError, ValueError):
        raise InputError("labels", f"a {type(labels).__name__} is no column", "pass a Series or an array") from None
    if len(series) != sample.total:
        raise InputError("labels", f"{len(series):,} labels for {sample.total:,} rows", "pass one label per row")
    codes, distinct = pd.factorize(series.iloc[sample.positions], use_na_sentinel=False)
    if not 2 <= len(distinct) <= MOST_LABELS:
        return None
    counts = np.bincount(codes)
    values = codes.astype(np.float64)
    return Column("labels", "category", values, tuple(map(str, distinct)), codes.astype(np.int32), counts)


def leaks(sample: Sample, label: Column | None) -> Iterator[str]:
    """Yield a note for each column that determines the label, by its values or by one threshold."""
    if label is None:
        return
    considered = 2 * len(sample.columns)
    for column in sample.columns:
        rows = len(column.codes)
        against, ways = rows, 0.0
        if rows >= LEAST_REPEATED * column.distinct:
            against = measured(column, label, 0, 1).exceptions
            ways = column.distinct * float(np.log(label.distinct))
            how = "its values determine"
        if column.numeric and label.distinct == 2 and not column.missing.any():
            by_threshold = _against_threshold(column, label.codes)
            if by_threshold <= against:
                against, how, ways = by_threshold, "one threshold on it determines", float(np.log(2 * rows))
        if few(against, rows, (1 - label.top) * rows) and not within_chance(
            log_tail(against, rows, 1 - label.top) + ways, considered
        ):
            left = f"all but {against:,} of {rows:,}" if against else f"all {rows:,}"
            yield f"{column.name} may leak the label: {how} it in {left} rows; leave it out of the model if it does"


def _against_threshold(column: Column, codes: Codes) -> int:
    """Return the fewest rows on the wrong side of a threshold; labels are 0 and 1."""
    order = np.argsort(column.values, kind="stable")
    ones = np.concatenate([[0], np.cumsum(codes[order])])
    edges = np.concatenate([[True], np.diff(column.values[order]) > 0, [True]])
    at = np.arange(len(ones))
    wrong = ones + (len(codes) - at) - (ones[-1] - ones)  # 1 below the threshold, or 0 from there on
    best: Any = np.minimum(wrong, len(codes) - wrong)[edges].min()
    return int(best)
