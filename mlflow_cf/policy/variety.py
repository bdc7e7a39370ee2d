"""Variety: how several answers for one row must differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field

from mlflow_cf.features import Feature, Floats
from mlflow_cf.validation import Number

Diversity = Literal["sets", "near"]
LeastDifference = Annotated[Number, Field(ge=0, le=1)]
LEAST_DIFFERENCE: Final = 0.05  # of a number's range


class Variety(NamedTuple):
    """How several answers for one row differ.

    Attributes:
        diversity: ``sets``: the best of every set of changed features first; ``near``: the nearest ones.
        min_difference: two answers that change the same features, and all of the nearest ones, differ by a level or in
            a number by at least this share of its range.
    """

    diversity: Diversity = "sets"
    min_difference: float = LEAST_DIFFERENCE

    @property
    def near(self) -> bool:
        """Whether the nearest answers are wanted, whatever they change."""
        return self.diversity == "near"


USUAL: Final = Variety()


def ranges(features: Sequence[Feature]) -> Floats:
    """Return the range (d,) of every number; 0 for levels."""
    return np.array([feature.high - feature.low if feature.numeric else 0.0 for feature in features])
