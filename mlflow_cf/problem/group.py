"""The unit of change, bound to one row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.domains import Domain
from mlflow_cf.constraints.rules import Rule
from mlflow_cf.features import Floats

Codes = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Group:
    """The unit of change, bound to the query row: the tuples it may take.

    A candidate names one tuple of every group by its code, the position in `tuples`.

    Attributes:
        columns: the group's columns.
        tuples: (t, len(columns)) ascending; what the rules leave of the domain, plus the query row's own tuple.
        weights: (t,) frequency in the background; 0 for the own tuple, which is never drawn.
        own: code of the query row's own tuple.
        own_allowed: whether the rules accept it; if not, this group must change.
        cost, peak: (t,) what each tuple adds to the distance's sum, and its largest change; see `BoundDistance.parts`.
        rules: the grounded rules that speak of this group alone.
        domain: the tuples before the rules.
        places: (t,) where each tuple stands in the domain, -1 for an own tuple that is not there; None: not told.
    """

    columns: tuple[int, ...]
    tuples: Floats
    weights: Floats
    own: int
    own_allowed: bool
    cost: Floats
    peak: Floats
    rules: tuple[Rule, ...]
    domain: Domain
    places: Codes | None = None

    @property
    def proposals(self) -> int:
        """How many tuples other than its own the group may take."""
        return len(self.tuples) - 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """Range of a lone continuous number, or None."""
        return self.domain.interval
