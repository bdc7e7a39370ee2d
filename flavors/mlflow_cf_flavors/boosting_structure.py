"""XGBoost's and LightGBM's models over raw features, opened into structures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mlflow_cf.features import FeatureSpace
from mlflow_cf.structures import Column, IntervalColumn, LevelColumn, NotOpenedError, Structure, TreeEnsemble
from mlflow_cf_flavors.boosting import BoosterColumns
from mlflow_cf_flavors.lightgbm.trees import TINY, lightgbm_forest
from mlflow_cf_flavors.sklearn.sources import Raw, RawLevels, Source, finished, raw_columns
from mlflow_cf_flavors.sums import TreeModel
from mlflow_cf_flavors.xgboost.trees import xgboost_forest

Booster = Any  # either library's


def compile_xgboost(
    booster: Booster, rounds: int, table: BoosterColumns, missing: float, space: FeatureSpace, rows: pd.DataFrame
) -> Structure:
    """Compile a Booster for the features of `space`.

    Args:
        booster: asked for so many `rounds`, the first ones, or for all of them if that is 0.
        table: the columns it takes; `missing`: what stands for a missing value in them.
        space, rows: see `OpenModel.compile`.
    """
    del rows  # the dump has all that is needed
    if not np.isnan(missing):
        raise NotOpenedError(f"XGBoost with missing={missing:g}")
    columns = finished(_numbered(raw_columns(space, table.names), table, space), "XGBoost")
    return TreeEnsemble.compile(xgboost_forest(booster, rounds), columns, space)


def compile_lightgbm(booster: Booster, table: BoosterColumns, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    """Compile a Booster, which takes the columns of `table`, for the features of `space`."""
    del rows  # the first tree has the constant
    columns = finished(_numbered(raw_columns(space, table.names), table, space), "LightGBM")
    return lightgbm_trees(booster, columns).compile(space)


def lightgbm_trees(booster: Booster, columns: Sequence[Column]) -> TreeModel:
    """Return the trees of a Booster over `columns`, some of which may take zeros as missing values."""
    forest, no_zeros = lightgbm_forest(booster)
    seen = [without(column, -TINY, TINY) if number in no_zeros else column for number, column in enumerate(columns)]
    return TreeModel(seen, forest)


def _numbered(sources: Sequence[Raw], table: BoosterColumns, space: FeatureSpace) -> list[Source]:
    """Return `sources` with levels as the library's own numbers; levels it was not fitted on are missing."""
    numbered: list[Source] = []
    for source in sources:
        known = table.levels.get(space.names[source.feature])
        if isinstance(source, RawLevels) and known is not None:
            codes = known.get_indexer(pd.Index(list(source.values[:-2]), dtype=object)).astype(np.float64)
            codes[codes < 0] = np.nan
            numbered.append(LevelColumn(source.feature, np.append(codes, [np.nan, np.nan])))
        else:
            numbered.append(source)
    return numbered


def without(column: Column, low: float, high: float) -> Column:
    """Return a column in which numbers from `low` to `high` are missing."""
    if isinstance(column, LevelColumn | IntervalColumn):
        table = column.table
        return replace(column, table=np.where((table >= low) & (table <= high), np.nan, table))
    return replace(column, gap=(low, high))
