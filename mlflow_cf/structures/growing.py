"""What boxes may offer to those who look for large ones: they are parted, or grown, by what their model tests."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.structure import Flags

Places = NDArray[np.int64]


# What is known of the next value beyond a side of a box: nothing yet; that bounds leave it open; that a row there is
# below what must be reached, or no value is left; that no row is, but not all reach it for sure; nothing in the end.
GROWING, STUCK, ENDED, DOUBTFUL, UNDECIDED = range(5)


class GrowingBox(Protocol):
    """A box that grows; belongs to one thread."""

    @property
    def ends(self) -> Places:
        """(2, columns) the places of its first and last value of every column."""
        ...

    @property
    def states(self) -> Places:
        """(2, columns) what is known of every side, one of the constants above."""
        ...

    def go_on(self, most_of_a_side: int, most: int, least_share: float) -> int:
        """Grow until parts are bounded, and return how many were; 0: no side grows further.

        Args:
            most_of_a_side: parts that may be bounded to find out about one value beyond a side.
            most: after so many, no further value is looked at in parts.
            least_share: sides whose next value adds less wait.
        """
        ...


@runtime_checkable
class SupportsSettling(Protocol):
    """`Boxes` that part a box by what their model tests; without, boxes are halved, and each half is bounded."""

    def settle(self, mask: Flags, weights: Floats, may: float, sure: float, most: int) -> tuple[int, int] | None:
        """Return how the `weights` (k,) of raw scores of all rows of the box `mask` (n,) lie, and the parts bounded.

        0: all reach `sure`; 1: a row is below `may`; 2: neither; 3: open after `most` parts. None: no such box.
        """
        ...


@runtime_checkable
class SupportsGrowing(Protocol):
    """`Boxes` that grow a box by themselves; without, every slab that may be added is settled as a box."""

    def growing(self, at: Places, weights: Floats, may: float, sure: float, shares: Floats) -> GrowingBox | None:
        """Return the box of one row, all of whose rows reach `sure`, which grows as long as that is so.

        Args:
            at: (columns,) the place of the row's value in every column; the values of each column ascend.
            weights: (k,) of the raw scores.
            may, sure: what is below, and what reaches it, is known; see `SupportsSettling`.
            shares: (2, n) how much a value adds below and above a box; of some, the largest is looked at first.

        None: the model tests sets of values.
        """
        ...
