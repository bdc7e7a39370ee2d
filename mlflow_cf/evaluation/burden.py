"""Who carries the burden: how good the answers are for each group, and how that moved between two versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.evaluation.paired import Bootstrap, changes, means

# measure of the burden -> metric that it is the mean of
MEASURES: Final[Mapping[str, str]] = MappingProxyType(
    {"coverage": "coverage", "distance": "mixed", "changed_features": "n_changed", "effort": "sequence_cost"}
)
MOVED: Final = ("change", "change_low", "change_high")


def burden(
    measured: pd.DataFrame, before: pd.DataFrame | None, groups: pd.DataFrame | None, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return the burden of each group.

    Args:
        measured: (m, ..) the measured table of one version.
        before: (m, ..) that of the version before it, for the same rows.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of the intervals.

    Returns:
        One line per group and measure: group, measure (coverage, distance, changed_features, and effort where plans
        exist), rows, mean, low, high, and since the version before: change, change_low, change_high.
    """
    old = None if before is None else _measures(before)
    return moved(_measures(measured), old, groups, bootstrap)


def advice(
    measured: pd.DataFrame, before: pd.DataFrame | None, features: Sequence[str], bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return which features the advice leans on: the share of the nearest answers that change each of them.

    Args:
        measured: (m, ..) the measured table of one version.
        before: (m, ..) that of the version before it, for the same rows.
        features: their names.
        bootstrap: of the intervals.

    Returns:
        One line per feature: feature, answers, share, low, high, change, change_low, change_high.
    """
    old = None if before is None else _leanings(before, features)
    table = moved(_leanings(measured, features), old, None, bootstrap).drop(columns="group")
    return table.rename(columns={"measure": "feature", "rows": "answers", "mean": "share"})


def moved(
    values: pd.DataFrame, before: pd.DataFrame | None, groups: pd.DataFrame | None, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return the means of columns (m, k) by group, and how they moved since the measurement before."""
    table = means(values, groups, bootstrap)
    if before is None:
        table[list(MOVED)] = np.nan
        return table.reset_index(drop=True)
    since = changes(before.reindex(columns=values.columns), values, groups, bootstrap)
    return table.merge(since, on=["group", "measure"])


def _measures(measured: pd.DataFrame) -> pd.DataFrame:
    table = pd.DataFrame({name: measured[metric] for name, metric in MEASURES.items()})
    return table.drop(columns="effort") if table["effort"].isna().all() else table


def _leanings(measured: pd.DataFrame, features: Sequence[str]) -> pd.DataFrame:
    """Return (m, d) whether the nearest answer of each row changes each feature; NaN for rows without one."""
    table = pd.DataFrame(np.nan, index=measured.index, columns=list(features))
    found = measured["counterfactual"].notna()
    for name in features:
        table.loc[found, name] = [float(name in changed) for changed in measured.loc[found, "changed"]]
    return table
