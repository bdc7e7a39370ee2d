"""A capability of structures: the Shapley values of a row against reference rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.structure import Encoded


class Attribution(NamedTuple):
    """What each player contributes to the score of a row, compared with the mean score of reference rows.

    Attributes:
        contributions: (players,) Shapley values; they add up to `score` minus `reference`.
        score: the weighted raw score of the row; reference: the mean of those of the reference rows.
    """

    contributions: Floats
    score: float
    reference: float


class Contributions(Protocol):
    """Shapley values of any row against fixed reference rows."""

    def of_row(self, row: Sequence[Encoded], weights: Floats) -> Attribution:
        """Return what players contribute to the raw scores of a row, weighted by `weights` (k,).

        Args:
            row: per column one encoded value (1, ...).
            weights: of the raw scores.
        """
        ...


@runtime_checkable
class SupportsContributions(Protocol):
    """It divides the difference of scores between a row and others exactly; without, contributions are sampled."""

    def against(self, references: Sequence[Encoded], player: NDArray[np.intp]) -> Contributions:
        """Return what tells the contributions of players against reference rows.

        Args:
            references: per column the encoded values (m, ...) of the reference rows.
            player: (d,) the player of every column, 0 to players - 1.
        """
        ...
