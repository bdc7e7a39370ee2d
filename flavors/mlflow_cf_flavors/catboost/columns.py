"""The table that CatBoost takes, and the encoded columns that its trees test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace
from mlflow_cf.structures import Column, NotOpenedError, NumberColumn
from mlflow_cf_flavors.answers import as_array
from mlflow_cf_flavors.catboost.export import Facts, Model, exported, hashes
from mlflow_cf_flavors.sklearn.sources import Source, finished, values_of

FEW_ROWS: Final = 256  # with categories, up to so many are read faster from an array of objects than from a table
WHOLE: Final = 4096  # up to so many whole numbers are looked up as categories, from a feature's least to its largest
BEYOND: Final = 256  # and so many below and above these, which the background may lack


@dataclass(frozen=True, eq=False)
class CatBoostColumns:
    """The table a model takes.

    Attributes:
        names: its columns in order; empty if it was fitted on an array, so that a table goes in as it comes.
        categories: the positions of those that it takes as categories.
    """

    names: tuple[str, ...]
    categories: frozenset[int]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the model's columns of `rows`, in its order."""
        if not self.names or rows.columns.tolist() == list(self.names):
            return rows
        return rows.loc[:, list(self.names)]

    def array(self, table: pd.DataFrame) -> NDArray[Any] | None:
        """Return the `table` (n, d) as an array that CatBoost reads several times faster; None: left to the table."""
        if self.categories and len(table) > FEW_ROWS:
            return None
        plain = None if self.categories else as_array(table)
        if plain is not None:
            return plain.astype(np.float64, copy=False)
        array = np.empty(table.shape, dtype=object if self.categories else np.float64)
        for position, (_, column) in enumerate(table.items()):
            if position in self.categories:
                array[:, position] = np.asarray(column, dtype=object)
            elif _is_number(column):
                array[:, position] = column.to_numpy(dtype=np.float64, na_value=np.nan)
            else:
                return None
        return array


def _is_number(column: pd.Series[Any]) -> bool:
    """Whether CatBoost reads a column as numbers; truth values with gaps it refuses, unlike numbers with gaps."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return False
    return dtype.kind in "iuf" or (dtype.kind == "b" and not column.hasnans)


@dataclass(frozen=True, eq=False)
class _Category:
    """A feature that CatBoost takes as a category.

    Attributes:
        words: how it spells every value that the feature may have; None for what is none of its categories.
        column: a code for every value -> the encoded column.
    """

    words: Sequence[str | None]
    column: Callable[[NDArray[Any]], Column]


def opened(model: Model, sources: Sequence[Source], space: FeatureSpace) -> tuple[Facts, list[Column]]:
    """Return the JSON of a model that takes `sources`, and the encoded columns that its trees test.

    A category becomes its place among the one-hot values of its feature, and is missing where it is none of them.

    Raises:
        NotOpenedError: the model, or one of its columns, cannot be expressed.
    """
    categories = {place: _category(sources[place], space) for place in model.get_cat_feature_indices()}
    words = {word for one in categories.values() for word in one.words if word is not None}
    facts = exported(model, sorted(words))
    hashed = hashes(facts)
    while left := sorted(words - hashed.keys()):  # of words with one hash the export names a single one
        found = hashes(exported(model, left))
        if found.keys().isdisjoint(left):
            raise NotOpenedError("CatBoost's categories that its export does not name")
        hashed |= found
    one_hot = {
        one["flat_feature_index"]: {value: place for place, value in enumerate(one.get("values", ()))}
        for one in facts["features_info"].get("categorical_features", ())
    }
    columns: list[Column] = []
    for place, source in enumerate(sources):
        if place in categories:
            codes = one_hot.get(place, {})
            _check_known(source, codes.keys() - hashed.values(), space)
            values = [np.nan if word is None else codes.get(hashed[word], np.nan) for word in categories[place].words]
            columns.append(categories[place].column(np.array(values, dtype=np.float64)))
        else:
            columns += finished([source], "CatBoost")
    return facts, columns


def _category(source: Source, space: FeatureSpace) -> _Category:
    values, column = values_of(source, _whole(source, space) if isinstance(source, NumberColumn) else ())
    return _Category([_word(value) for value in values], column)


def _check_known(source: Source, unknown: Collection[int], space: FeatureSpace) -> None:
    """Refuse numbers that are categories if some of these were not found: any number may come in a row to explain.

    Levels that the background lacks are known as such, and so nothing is certified about them.
    """
    if unknown and isinstance(source, NumberColumn):
        name = space.features[source.feature].name
        raise NotOpenedError(f"CatBoost's categories of {name}, of which the background lacks some")


def _whole(source: NumberColumn, space: FeatureSpace) -> Sequence[float]:
    """Return the whole numbers that may be categories: those of the background, and all around them if not too many.

    Raises:
        NotOpenedError: its numbers are no whole ones.
    """
    feature = space.features[source.feature]
    if source.steps or feature.stored.kind not in "iu":
        raise NotOpenedError(f"the numbers of {feature.name} as CatBoost's categories")
    if feature.high - feature.low <= WHOLE:
        return [float(number) for number in range(int(feature.low) - BEYOND, int(feature.high) + BEYOND + 1)]
    return list(map(float, feature.values))


def _word(value: Any) -> str | None:
    """Return how CatBoost spells a category."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float) and value == value and int(value) == value:  # noqa: PLR0124  no NaN
        return str(int(value))
    return None
