"""The table that the boosting libraries take, and their models over raw features, opened into structures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import CodedTable, Feature, FeatureSpace
from mlflow_cf.features.codec import is_plain
from mlflow_cf.model import CodedCalls, OpenModel
from mlflow_cf.model.judge import Rows, table_of
from mlflow_cf.structures import Column, CurveColumn, IntervalColumn, LevelColumn, NotOpenedError, Structure
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.answers import Floats, ValuesAlone, as_array
from mlflow_cf_flavors.lightgbm.trees import TINY, lightgbm_forest
from mlflow_cf_flavors.sklearn.sources import Raw, RawLevels, Source, finished, raw_columns
from mlflow_cf_flavors.sums import Sums, TreeModel, made
from mlflow_cf_flavors.xgboost.trees import xgboost_model


@dataclass(frozen=True, eq=False)
class BoosterColumns:
    """The table a booster takes.

    Attributes:
        names: its columns in order; empty if it was fitted on an array, so that a table goes in as it comes.
        levels: column of pandas' category dtype -> the levels the booster numbers 0, 1, ...
        codes: coded rows -> the array it takes; None: that is made of their table.
    """

    names: tuple[str, ...]
    levels: Mapping[str, pd.Index[Any]]
    codes: BoosterCodes | None = None

    def coded(self, space: FeatureSpace) -> BoosterColumns | None:
        """Return the same for coded rows of some features; None if codes are not the numbers the booster takes."""
        codes = BoosterCodes.of(self, space)
        return None if codes is None else replace(self, codes=codes)

    def table(self, rows: Rows) -> pd.DataFrame:
        """Return the booster's columns of `rows`, in its order."""
        rows = table_of(rows)
        if not self.names or rows.columns.tolist() == list(self.names):
            return rows
        return rows.loc[:, list(self.names)]

    def told_apart(self, space: FeatureSpace, rows: pd.DataFrame) -> dict[str, frozenset[str]]:
        """Return the levels that the booster numbers, by feature; it takes all others as missing values."""
        del rows
        return {name: frozenset(map(str, known)) for name, known in self.levels.items() if name in space.index}

    def numbers(self, rows: Rows) -> Floats | None:
        """Return `rows` (n, d) as the float64 array the booster sees, an order of magnitude faster to score.

        None if a column is no number, or a category column has not exactly the levels of the training rows: that is
        left to the library.
        """
        known = self.codes(rows) if self.codes is not None and isinstance(rows, CodedTable) else None
        if known is not None:
            return known
        table = self.table(rows)
        plain = None if self.levels else as_array(table)
        if plain is not None:
            return plain.astype(np.float64, copy=False)
        array = np.empty(table.shape)
        for position, (name, column) in enumerate(table.items()):
            numbers = self._column(str(name), column)
            if numbers is None:
                return None
            array[:, position] = numbers
        return array

    def _column(self, name: str, column: pd.Series[Any]) -> Floats | None:
        levels, dtype = self.levels.get(name), column.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            if levels is None or not dtype.categories.equals(levels):
                return None
            codes = column.cat.codes.to_numpy(dtype=np.float64)
            return np.where(codes < 0, np.nan, codes)
        if levels is not None or dtype.kind not in "biuf":
            return None
        return column.to_numpy(dtype=np.float64, na_value=np.nan)


@dataclass(frozen=True, eq=False)
class BoosterCodes:
    """Coded rows -> the array that a booster takes of their table.

    Attributes:
        columns: (k,) of the codes; sizes: (k,) how many levels of each it numbers as they are coded; inf: of numbers.
    """

    columns: NDArray[np.intp]
    sizes: Floats

    @classmethod
    def of(cls, table: BoosterColumns, space: FeatureSpace) -> BoosterCodes | None:
        """Return those of some features; None if a code is another number than the booster takes."""
        columns = space.columns.get_indexer(pd.Index(table.names)) if table.names else np.arange(len(space))
        if (columns < 0).any():
            return None
        sizes = [_size(space.features[column], table.levels) for column in columns.tolist()]
        return None if None in sizes else cls(np.asarray(columns), np.array(sizes, dtype=np.float64))

    def __call__(self, rows: CodedTable) -> Floats | None:
        """Return the array (n, k) of rows; None if some have other levels."""
        numbers: Floats = rows.codes.take(self.columns, axis=1)
        return None if (numbers >= self.sizes).any() else numbers


def _size(feature: Feature, levels: Mapping[str, pd.Index[Any]]) -> float | None:
    """Return how many levels of a feature a booster numbers as they are coded; None if it numbers them otherwise."""
    numbered, dtype = levels.get(str(feature.column)), feature.raw_dtype
    if is_plain(feature):
        return np.inf if numbered is None else None
    if dtype == np.bool_:
        known: Any = (False, True) if numbered is None else ()
    else:
        known = () if numbered is None or not isinstance(dtype, pd.CategoricalDtype) else numbered.tolist()
    same = len(known) > 0 and feature.code_of == {level: code for code, level in enumerate(known)}
    return float(len(known)) if same else None


class _Asks(Protocol):
    """How a booster is asked, by the columns that it takes."""

    @property
    def columns(self) -> BoosterColumns: ...

    @property
    def takes_arrays(self) -> bool: ...


A = TypeVar("A", bound=_Asks)


def coded_calls(opened: Callable[[A], OpenModel], ask: A, space: FeatureSpace, rows: pd.DataFrame) -> CodedCalls | None:
    """Return how a model is asked about codes: see `OpenModel.by_codes`; None where it takes no arrays of numbers.

    Args:
        opened: a way to ask a booster -> the model that is asked so; ask: the way for tables.
        space, rows: see there.
    """
    del rows  # the features tell
    columns = ask.columns.coded(space) if ask.takes_arrays else None
    if columns is None:
        return None
    by_codes = opened(replace(cast(Any, ask), columns=columns))
    both: Any = by_codes.both if by_codes.classes else ValuesAlone(by_codes.decide)
    return None if both is None else CodedCalls(both, None)


def wrong_types(rows: pd.DataFrame | None) -> str:
    """Return how to right a table that a library cannot take because of text in it; empty if there is none."""
    if rows is None:
        return ""
    text = [str(name) for name, dtype in rows.dtypes.items() if dtype.kind == "O" and str(dtype) != "category"]
    fix = "give them the category dtype they had when the model was fitted, or leave them out"
    return f"{text} hold text: {fix}" if text else ""


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
        raise NotOpenedError(say("missing_number", missing=float(missing)))
    columns = finished(_numbered(raw_columns(space, table.names), table, space), "XGBoost")
    return xgboost_model(booster, rounds, columns).compile(space)


def compile_lightgbm(booster: Booster, table: BoosterColumns, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    """Compile a Booster, which takes the columns of `table`, for the features of `space`."""
    del rows  # the first tree has the constant
    columns = finished(_numbered(raw_columns(space, table.names), table, space), "LightGBM")
    return lightgbm_trees(booster, columns).compile(space)


def lightgbm_trees(booster: Booster, columns: Sequence[Column]) -> Sums:
    """Return the trees of a Booster over `columns`, some of which may take zeros as missing values."""
    forest, no_zeros, function = lightgbm_forest(booster)
    seen = [without(column, -TINY, TINY) if number in no_zeros else column for number, column in enumerate(columns)]
    return made(TreeModel(seen, forest), function)


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
    if isinstance(column, CurveColumn):
        raise NotOpenedError(say("curved_columns", kind="a model that takes zeros as missing values"))
    return replace(column, gap=(low, high))
