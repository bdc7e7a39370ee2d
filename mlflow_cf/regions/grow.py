"""Widen a counterfactual to a box, side by side: as far as bounds prove it at once, then by branch and bound.

Boxes only grow, and a larger box is never easier to prove: a side that a row closes stays closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem.budget import Budget
from mlflow_cf.problem.problem import Problem
from mlflow_cf.regions.axes import Axis, axes_of
from mlflow_cf.regions.laws import Laws, laws_of
from mlflow_cf.regions.settle import Grid
from mlflow_cf.structures.capabilities import boxes_of

PARTS: Final = 16  # boxes of different size that are bounded in one call


class FoundSide(NamedTuple):
    """The values of one feature in a region.

    Attributes:
        column: of the feature.
        low, high: its least and greatest value; codes: (k,) the values, of a feature with levels.
        maximal: whether the region is known to end where it does: any admissible value beyond breaks it.
        at_low, at_high: whether there is no admissible value beyond.
    """

    column: int
    low: float
    high: float
    codes: Floats
    maximal: bool
    at_low: bool
    at_high: bool

    @property
    def wide(self) -> bool:
        """Whether it has more than one value."""
        return len(self.codes) > 1 or self.low < self.high


@dataclass(eq=False)
class _Side:
    """One side of a box: the positions in a mask that it may take in, from the nearest outward."""

    axis: int
    steps: NDArray[np.intp]
    extent: int = 0
    closed: bool = field(default=False)

    @property
    def whole(self) -> bool:
        return self.extent == len(self.steps)

    @property
    def share(self) -> float:
        return self.extent / max(len(self.steps), 1)


def region_of(
    problem: Problem, row: Floats, tolerance: float, budget: Budget, *, everything: bool = False
) -> tuple[FoundSide, ...]:
    """Return a box around a counterfactual `row` (d,) in which every admissible row is a counterfactual.

    Args:
        problem: of the row to explain; its model is opened.
        row: the codes of the counterfactual.
        tolerance: by how much the structure's scores may be off, in units of max(1, |score|).
        budget: boxes and rows that may be looked at; when it ends, the box is what was proved until then.
        everything: whether features that the counterfactual does not change are widened, too.

    Returns:
        The features that are widened, in the order of their columns; empty if nothing could be.
    """
    scorer = problem.scorer
    if scorer is None:
        return ()
    changed = ~((row == problem.x0) | (np.isnan(row) & np.isnan(problem.x0)))
    free = np.arange(len(row)) if everything else np.flatnonzero(changed)
    laws, axes = laws_of(problem, axes_of(problem, scorer, row, free.tolist()))
    encoded = [axis.encoded for axis in axes]
    grid = Grid.of(scorer, boxes_of(scorer.structure, encoded), encoded, tolerance, budget)
    growth = Growth(grid, laws, axes)
    if growth.possible():
        growth.quickly()
        growth.settle()
        return tuple(growth.found(column) for column in free.tolist() if not np.isnan(row[column]))
    return ()


class Growth:
    """A box that grows; belongs to one thread."""

    def __init__(self, grid: Grid, laws: Laws, axes: Sequence[Axis]) -> None:
        """Set up with the counterfactual alone."""
        self.grid, self.laws, self.axes = grid, laws, axes
        starts = grid.start[:-1].tolist()
        self.sides = [
            _Side(number, start + steps)
            for number, (axis, start) in enumerate(zip(axes, starts, strict=True))
            for steps in axis.steps()
            if len(steps)
        ]
        self.base: Bools = np.zeros(grid.start[-1], dtype=np.bool_)
        self.base[[start + axis.at for axis, start in zip(axes, starts, strict=True)]] = True

    def possible(self) -> bool:
        """Return whether the counterfactual itself is proved, beyond the tolerance, and there is something to widen."""
        return bool(self.sides) and self.laws.hold(self.base) and bool(self.grid.proved(self.base[None])[0])

    def box(self) -> Bools:
        """Return the box (n,) as a mask."""
        mask = self.base.copy()
        for side in self.sides:
            mask[side.steps[: side.extent]] = True
        return mask

    def quickly(self) -> None:
        """Grow as far as bounds alone prove: all sides together by equal shares first, then one after the other."""
        together = list(self.sides)
        while together and self._together(together):
            together = [side for side in together if not side.whole]
        for side in sorted(self.sides, key=lambda one: one.share):
            while self._alone(side):
                pass

    def _together(self, sides: Sequence[_Side]) -> bool:
        """Grow sides by the largest proved share of what is left of them; return whether any has grown."""
        shares = np.arange(1, PARTS + 1) / PARTS
        left = np.array([len(side.steps) - side.extent for side in sides])
        extents = np.unique(np.floor(shares[:, None] * left).astype(np.intp), axis=0)
        extents = extents[extents.any(axis=1)] + [side.extent for side in sides]
        best = self._largest(sides, extents)
        if best < 0:
            return False
        for side, extent in zip(sides, extents[best].tolist(), strict=True):
            side.extent = extent
        return True

    def _alone(self, side: _Side) -> bool:
        """Grow one side to the largest proved of some extents; return whether it has grown, and may grow further."""
        left = len(side.steps) - side.extent
        if not left:
            return False
        steps = np.unique(np.append(2 ** np.arange(min(PARTS, left.bit_length())), left))
        extents = side.extent + steps[steps <= left]
        best = self._largest([side], extents[:, None])
        if best < 0:
            return False
        side.extent = int(extents[best])
        return not side.whole

    def _largest(self, sides: Sequence[_Side], extents: NDArray[np.intp]) -> int:
        """Return the last of ascending extents (m, sides) whose box is proved; -1: none is."""
        now, masks = self.box(), []
        for some in extents.tolist():
            mask = now.copy()
            for side, extent in zip(sides, some, strict=True):
                mask[side.steps[:extent]] = True
            if not self.laws.hold(mask):
                break  # larger ones do not, either
            masks.append(mask)
        if not masks:
            return -1
        proved = np.flatnonzero(self.grid.proved(np.array(masks)))
        return int(proved[-1]) if len(proved) else -1

    def settle(self) -> None:
        """Settle what growing quickly has left: what each side would add is proved row by row, or a row closes it."""
        sides = sorted(self.sides, key=lambda one: one.share)
        spans = any(axis.between for axis in self.axes)
        for side in sides:
            size = 1
            while not side.whole and not side.closed and not self.grid.budget.spent:
                added = side.steps[side.extent : side.extent + size]
                outcome = self._added(side, added, spans=spans)
                if outcome == "met":
                    side.extent, size = side.extent + len(added), 2 * size
                elif size > 1:
                    size = 1
                else:
                    side.closed = outcome == "missed"
                    break

    def _added(self, side: _Side, added: NDArray[np.intp], *, spans: bool) -> str:
        """Return what the rows do that positions `added` of one side would add to the box."""
        whole = self.box()
        whole[added] = True
        slab = whole.copy()
        start, stop = self.grid.start[side.axis : side.axis + 2].tolist()
        slab[start:stop] = False
        slab[added] = True
        if not self.laws.hold(whole):
            return "missed" if len(added) == 1 and not self.axes[side.axis].between else "open"
        return "open" if spans else self.grid.settle(slab)

    def found(self, number: int) -> FoundSide:
        """Return what the box has of one feature."""
        axis = self.axes[number]
        start, stop = self.grid.start[number : number + 2].tolist()
        places = np.flatnonzero(self.box()[start:stop])
        sides = [side for side in self.sides if side.axis == number]
        maximal = bool(sides) and all(side.whole or side.closed for side in sides)
        low, high = float(axis.low[places[0]]), float(axis.high[places[-1]])
        at_ends = bool(places[0] == 0), bool(places[-1] == len(axis.low) - 1)
        return FoundSide(axis.column, low, high, axis.low[places], maximal, *at_ends)
