"""Branch and bound over a box: all of its rows meet the targets, some row does not, or neither was shown in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.goal.scorer import Scorer
from mlflow_cf.problem.budget import Budget
from mlflow_cf.structures.capabilities import Boxes
from mlflow_cf.structures.structure import Encoded

LISTED: Final = 256  # rows of a box up to which they are scored one by one
AT_ONCE: Final = 32  # boxes that are bounded in one call
MOST_BOXES: Final = 256  # that are looked at before a box stays open
STARTS: Final = (0.0, 0.5, 1.0)  # where in a box the search for a row that misses the targets starts
Outcome = Literal["met", "missed", "open"]


@dataclass(frozen=True, eq=False)
class Grid:
    """The grid that boxes lie in, and what bounds and scores them.

    Attributes:
        scorer: rates rows; bounds: of boxes.
        encoded: per column, the encoded values (t, ...); start: (d + 1,) where each column's start in a mask.
        kinds: (n,) equal for values of a column that the structure cannot tell apart.
        tolerance: by how much scores may be off, in units of max(1, |score|).
        budget: what may be asked.
    """

    scorer: Scorer
    bounds: Boxes
    encoded: Sequence[Encoded]
    start: NDArray[np.intp]
    kinds: NDArray[np.intp]
    tolerance: float
    budget: Budget

    @classmethod
    def of(cls, scorer: Scorer, bounds: Boxes, encoded: Sequence[Encoded], tolerance: float, budget: Budget) -> Grid:
        """Return the grid of encoded values (t, ...) per column."""
        start = np.cumsum([0, *map(len, encoded)])
        kinds = np.concatenate([_kinds(some) for some in encoded])
        return cls(scorer, bounds, encoded, start, kinds, tolerance, budget)

    def proved(self, masks: Bools) -> Bools:
        """Return (m,) whether bounds show that all rows of the boxes `masks` (m, n) meet the targets."""
        if self.budget.take(len(masks)) < len(masks):
            return np.zeros(len(masks), dtype=np.bool_)
        return self.scorer.certainly_met(*self.bounds.bounds(masks), self.tolerance)

    def settle(self, mask: Bools) -> Outcome:
        """Return what all rows of the box `mask` (n,) do, as far as the budget lets that be found out."""
        waiting, doubt, boxes = [self._distinct(mask)], False, 0
        if self._missed(waiting[0]):
            return "missed"
        while waiting:
            if self.budget.spent or boxes > MOST_BOXES:
                return "open"
            boxes += min(AT_ONCE, len(waiting))
            batch = [waiting.pop() for _ in range(min(AT_ONCE, len(waiting)))]
            rest = np.flatnonzero(~self.proved(np.array(batch)))
            for at in rest.tolist():
                places = [np.flatnonzero(part) for part in np.split(batch[at], self.start[1:-1])]
                few = prod(len(some) for some in places) <= LISTED
                if not few:
                    waiting += self._halves(batch[at], places)
                    continue
                found = self._rated(places)
                if found == "missed":
                    return "missed"
                doubt |= found == "open"
        return "open" if doubt else "met"

    def _missed(self, mask: Bools) -> bool:
        """Return whether descending to the least margin, one column after the other, finds a row that misses."""
        places = [np.flatnonzero(part) for part in np.split(mask, self.start[1:-1])]
        values = [some[at] for some, at in zip(self.encoded, places, strict=True)]
        swept = [some if len(some) > 1 else None for some in values]
        for share in STARTS:
            row = [some[[int(share * (len(some) - 1))]] for some in values]
            best = -np.inf
            for _ in range(2 * len(row)):
                if self.budget.take(1) < 1:
                    return False
                sums = self.scorer.structure.sums(row)
                if not self.scorer.decisions(sums, self.tolerance)[0].all():
                    return True
                effects = self.scorer.structure.sweep(row, swept)
                lacks = [-np.inf if one is None else self.scorer.lacks(one[0]) for one in effects]
                worst = [float(np.max(one)) for one in lacks]
                column = int(np.argmax(worst))
                if not worst[column] > best:
                    break
                best = worst[column]
                row[column] = values[column][[int(np.argmax(lacks[column]))]]
        return False

    def _distinct(self, mask: Bools) -> Bools:
        """Return the box with one of the values that the structure cannot tell apart, for each of them."""
        kept = np.zeros_like(mask)
        for start, stop in zip(self.start[:-1].tolist(), self.start[1:].tolist(), strict=True):
            places = np.flatnonzero(mask[start:stop]) + start
            kept[places[np.unique(self.kinds[places], return_index=True)[1]]] = True
        return kept

    def _rated(self, places: Sequence[NDArray[np.intp]]) -> Outcome:
        """Return what all rows with values at `places` per column do."""
        every = np.indices([len(some) for some in places]).reshape(len(places), -1)
        chosen = [some[at] for some, at in zip(places, every, strict=True)]
        if self.budget.take(len(chosen[0])) < len(chosen[0]):
            return "open"
        rows = [some[at] for some, at in zip(self.encoded, chosen, strict=True)]
        may, sure = self.scorer.decisions(self.scorer.structure.sums(rows), self.tolerance)
        if not may.all():
            return "missed"
        return "met" if sure.all() else "open"

    def _halves(self, mask: Bools, places: Sequence[NDArray[np.intp]]) -> list[Bools]:
        """Return a box in two parts, split at the column with most values."""
        column = int(np.argmax([len(some) for some in places]))
        some = places[column]
        parts = []
        for kept in (some[: len(some) // 2], some[len(some) // 2 :]):
            part = mask.copy()
            part[self.start[column] : self.start[column + 1]] = False
            part[self.start[column] + kept] = True
            parts.append(part)
        return parts


def _kinds(encoded: Encoded) -> NDArray[np.intp]:
    """Return (t,) equal numbers for equal encoded values (t, ...)."""
    flat = encoded.reshape(len(encoded), -1)
    if flat.shape[1] == 0:
        return np.zeros(len(flat), dtype=np.intp)
    return np.unique(flat, axis=0, return_inverse=True)[1].reshape(-1).astype(np.intp)
