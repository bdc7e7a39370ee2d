"""Levels of many columns decoded in one go: to take from an array of pandas costs the same for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features.feature import Feature, Floats


@dataclass(frozen=True, eq=False)
class PooledLevels:
    """The levels of all columns of one of pandas' own types, such as its strings.

    Attributes:
        columns: (k,) their numbers.
        first: (k,) where the levels of each start.
        levels: all of them, column after column.
    """

    columns: NDArray[np.intp]
    first: NDArray[np.intp]
    levels: pd.api.extensions.ExtensionArray

    @classmethod
    def of(cls, features: Sequence[Feature]) -> tuple[PooledLevels, ...]:
        """Return the levels of features whose columns are of such types, one pool for each type."""
        pools: dict[str, list[int]] = {}
        for column, feature in enumerate(features):
            if not feature.numeric and not isinstance(feature.raw_dtype, np.dtype | pd.CategoricalDtype):
                pools.setdefault(feature.dtype, []).append(column)
        return tuple(cls._of(columns, [features[column] for column in columns]) for columns in pools.values())

    @classmethod
    def _of(cls, columns: Sequence[int], features: Sequence[Feature]) -> PooledLevels:
        sizes = np.array([len(feature.known) for feature in features])
        levels: Any = pd.array([level for feature in features for level in feature.known], dtype=features[0].raw_dtype)
        return cls(np.array(columns), np.cumsum(sizes) - sizes, levels)

    def decode(self, codes: Floats) -> dict[int, pd.api.extensions.ExtensionArray]:
        """Return the raw columns behind codes (n, d) of all features, by their numbers; NaN is a missing value."""
        some = codes[:, self.columns]
        absent = np.isnan(some)
        places = np.where(absent, -1, some + self.first).astype(np.intp)
        taken: Any = self.levels.take(places.T.ravel(), allow_fill=bool(absent.any()))
        n = len(codes)
        return {column: taken[at * n : (at + 1) * n] for at, column in enumerate(self.columns.tolist())}
