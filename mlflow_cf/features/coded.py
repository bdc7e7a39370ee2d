"""A table that is known by its codes, and made of them only when somebody reads it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features.feature import Feature, Floats
from mlflow_cf.features.space import FeatureSpace


@dataclass(frozen=True, eq=False)
class CodedTable:
    """Rows of features, as codes.

    Attributes:
        space: the features, with all levels that the rows have; codes: (n, d).
        was_table: whether the codes are those of raw rows, which they stand for as they are.
    """

    space: FeatureSpace
    codes: Floats
    was_table: bool = False

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def table(self) -> pd.DataFrame:
        """The raw rows, each column in the background's exact dtype."""
        return self._decoded[0]

    @cached_property
    def plain(self) -> bool:
        """Whether coding the raw rows again certainly gives the same codes; those need not be made for it."""
        ranges = self.space.code_ranges
        return ranges is not None and (self.was_table or ranges.hold(self.codes))

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Of which rows (n,) coding them again gives the same codes."""
        return self._decoded[1]

    def of(self, space: FeatureSpace) -> bool:
        """Whether these are features of a `space`, maybe with more levels, and a table of the rows loses nothing."""
        return self.plain and all(map(Feature.extends, self.space.features, space.features))

    @cached_property
    def _decoded(self) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
        if self.plain:
            return self.space.decode(self.codes), np.ones(len(self), dtype=np.bool_)
        return self.space.decode_exactly(self.codes)
