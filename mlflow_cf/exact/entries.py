"""What waits in an exact search: candidates, and boxes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.problem import Codes

Key = tuple[float, int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Leaf:
    """One candidate.

    Attributes:
        key: its key.
        codes: (G,) its tuples.
        certain: whether it meets the target by more than the tolerance; if not, the judge may refuse it.
    """

    key: Key
    codes: Codes
    certain: bool


@dataclass(frozen=True, eq=False)
class Box:
    """A set of candidates.

    Attributes:
        bits: the mask (choices,) of allowed tuples, eight to a byte: a long search holds many boxes.
        size: number of choices.
    """

    bits: NDArray[np.uint8]
    size: int

    @property
    def mask(self) -> Bools:
        """The mask (choices,) of allowed tuples."""
        return np.unpackbits(self.bits, count=self.size).astype(np.bool_)
