"""Whether the opened model predicts all rows of a box as wanted: by bounds, by parting the box, or by scoring its rows.

A box is written as flags (P,) over the pieces of all axes, axis after axis; a row of it as one piece of every axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.problem import Budget, Codes
from mlflow_cf.regions.axes import Axis
from mlflow_cf.structures.capabilities import Boxes, boxes_of
from mlflow_cf.structures.growing import GrowingBox, SupportsGrowing, SupportsSettling
from mlflow_cf.structures.kernels.parting import MISSED, PROVED, UNSURE
from mlflow_cf.structures.structure import Encoded, Structure

MOST_LISTED: Final = 64  # rows of a box that are scored one by one: as long as bounding two boxes
MOST_CORNERS: Final = 4  # axes of which all corners are tried
DESCENTS: Final = 3  # single changes of a row, each to where it scores least
SWEEP: Final = 16  # evaluations that a sweep takes as long as
MORE_PARTS: Final = 16  # of a box that its structure parts itself take as long as one that is bounded
AT_ONCE: Final = 16  # boxes that are parted together
UNBOUNDED: Final = -1e100  # a margin as good as none: that of classes may have no bound
LESS: Final = 0.7  # of what halving an axis gains once more

Node = tuple[Bools, Floats]  # a box (P,), and what halving it along each of the axes is expected to gain (axes,)
OPEN: Final[Sequence[Node]] = ()


class Settled(NamedTuple):
    """What is known of a box.

    Attributes:
        proved: whether all of its rows are predicted as wanted.
        known: whether a row is known that is not, or not certainly.
        doubtful: whether that row scores so near to the threshold that the opened model cannot tell.
    """

    proved: bool
    known: bool = False
    doubtful: bool = False

    @property
    def refused(self) -> bool:
        """Whether a row is known that is certainly not wanted."""
        return self.known and not self.doubtful


UNKNOWN: Final = Settled(proved=False)


@dataclass(frozen=True, eq=False)
class Prover:
    """The opened model around one counterfactual.

    Attributes:
        axes: along which boxes extend, by ascending column.
        row: (d,) the counterfactual, whose values all other features keep; encoded: its encoded values (...).
        x0: (d,) the row to explain, towards which rows are predicted otherwise first.
        scorer: the opened model and the targets; tolerance: by how much its scores may be off.
        budget: counts boxes and rows.
    """

    axes: tuple[Axis, ...]
    row: Floats
    encoded: Sequence[Encoded]
    x0: Floats
    scorer: Scorer
    tolerance: float
    budget: Budget

    @cached_property
    def start(self) -> Codes:
        """(axes + 1,) where the pieces of every axis start."""
        return np.cumsum([0, *(len(axis.first) for axis in self.axes)])

    @cached_property
    def _free(self) -> Structure:
        """The structure over the axes' columns alone."""
        return self.scorer.structure.restrict(self.encoded, [axis.column for axis in self.axes])

    @cached_property
    def _boxes(self) -> Boxes:
        return boxes_of(self._free, [axis.encoded for axis in self.axes])

    @cached_property
    def _piece(self) -> Codes:
        """(n,) the piece of every value of the grid."""
        points = np.concatenate([np.full(len(axis.first), axis.points) for axis in self.axes])
        return np.arange(self.start[-1]).repeat(points)

    @cached_property
    def constant(self) -> bool:
        """Whether within every piece the model's answer is the same."""
        return all(axis.points == 1 for axis in self.axes)

    @cached_property
    def _score(self) -> DecisionScore | None:
        """The one number that decides the targets, if there is one."""
        return self.scorer.decision_score(self.tolerance)

    def lower_bounds(self, boxes: Bools) -> Floats:
        """Return lower bounds (m,) of the margin in boxes (m, P); > 0: all rows are predicted as wanted."""
        low, high = self._boxes.bounds(boxes[:, self._piece])
        if self._score is None:
            return self.scorer.lower_bound(low, high, self.tolerance)
        weights = self._score.weights
        found: Floats = low @ np.maximum(weights, 0.0) + high @ np.minimum(weights, 0.0) - self._score.sure
        return found

    def settle(self, box: Bools, most: int) -> Settled:
        """Prove a box (P,), or find a row in it that is predicted otherwise, with at most so many boxes bounded.

        The box is halved again and again, along the axes whose halves are bounded best; the parts whose bounds are
        worst come first.
        """
        told = self._told(box, most)
        if told is not None:
            return told
        found, gains = self._tried(box), self._gains(box)
        waiting, used = [(box, gains)], 2 * len(gains)
        while waiting and not found.refused:
            some = [waiting.pop() for _ in range(min(len(waiting), AT_ONCE))]
            listed, parts = self._parted(some)
            found = self._better(found, listed)
            used += len(parts)
            if parts is OPEN or used > most or self.budget.take(len(parts)) < len(parts):
                return found
            if not parts:
                continue
            flags = np.array([part for part, _ in parts])
            low = self.lower_bounds(flags)
            left = np.flatnonzero(low <= 0)
            if len(left):
                found = self._better(found, self._judged(self._near(flags[left])))
            waiting += [parts[at] for at in left[np.argsort(-low[left], kind="stable")].tolist()]
        return found if found.known else Settled(proved=True)

    def growing(self) -> GrowingBox | None:
        """Return the box of the counterfactual alone, which grows by itself; None if the structure has none."""
        score, boxes = self._score, self._boxes
        ordered = self.constant and all(axis.numeric for axis in self.axes)
        if not ordered or score is None or not isinstance(boxes, SupportsGrowing):
            return None
        at = np.array([axis.at for axis in self.axes])
        shares = np.concatenate([axis.shares for axis in self.axes], axis=1)
        return boxes.growing(at, score.weights, score.may, score.sure, shares)

    def _told(self, box: Bools, most: int) -> Settled | None:
        """Return what the structure finds out about a box by itself; None if it cannot."""
        score, boxes = self._score, self._boxes
        if not self.constant or score is None or not isinstance(boxes, SupportsSettling):
            return None
        most = min(MORE_PARTS * most, self.budget.left)
        found = boxes.settle(box[self._piece], score.weights, score.may, score.sure, most)
        if found is None:
            return None
        outcome, used = found
        self.budget.take(used // MORE_PARTS + 1)
        return Settled(proved=outcome == PROVED, known=outcome in (MISSED, UNSURE), doubtful=outcome == UNSURE)

    def _parted(self, nodes: Sequence[Node]) -> tuple[Settled, Sequence[Node]]:
        """Return the halves of boxes, and what the rows of small ones say, which are scored instead.

        The halves are `OPEN` where a box has nothing left to part, and is too large to be scored.
        """
        found, parts = UNKNOWN, list[Node]()
        for node, gains in nodes:
            pieces = self._pieces(node)
            if self.constant and prod(map(len, pieces)) <= MOST_LISTED:
                found = self._better(found, self._judged(_combined(pieces)))
                continue
            halves = self._halved(node, pieces, gains)
            if not halves:
                return found, OPEN
            parts += halves
        return found, parts

    @staticmethod
    def _better(known: Settled, found: Settled) -> Settled:
        """Return what says more: a refused row before a doubtful one."""
        return found if found.refused or not known.known else known

    def _tried(self, box: Bools) -> Settled:
        """Look for a refused row in a box where one is likely: near the row to explain, at corners, and downhill."""
        places = self._near(box[None])
        pieces = self._pieces(box)
        found = self._judged(np.concatenate([places, self._corners(places[0], pieces)]))
        for _ in range(DESCENTS if not found.refused and len(self.axes) > 1 else 0):
            encoded = [axis.encoded[[place]] for axis, place in zip(self.axes, places[0], strict=True)]
            swept = self._free.sweep(encoded, [axis.encoded for axis in self.axes])
            self.budget.take(SWEEP)
            worst, step = -np.inf, None
            for number, (axis, sums) in enumerate(zip(self.axes, swept, strict=True)):
                inside = np.repeat(box[self.start[number] : self.start[number + 1]], axis.points)
                lacks = np.where(inside, self.scorer.lacks(sums[0]) if sums is not None else -np.inf, -np.inf)
                if lacks.max() > worst:
                    worst, step = float(lacks.max()), (number, int(lacks.argmax()))
            if step is None or places[0, step[0]] == step[1]:
                break
            places[0, step[0]] = step[1]
            found = self._better(found, self._judged(places))
            if found.refused:
                break
        return found

    def _gains(self, box: Bools) -> Floats:
        """Return (axes,) how much the worse half of a box is bounded better, by the axis that is halved."""
        pieces, parts, numbers = self._pieces(box), [], []
        for number, some in enumerate(pieces):
            if len(some) > 1:
                numbers.append(number)
                parts += [self._confined(box, number, half) for half in np.array_split(some, 2)]
        gains = np.full(len(pieces), -np.inf)
        if parts and self.budget.take(len(parts)) == len(parts):
            low = np.maximum(self.lower_bounds(np.array(parts)).reshape(-1, 2), UNBOUNDED)
            gains[numbers] = low.sum(axis=1)
            gains[numbers] -= gains[numbers].min() - 1e-9 - 0.1 * np.ptp(gains[numbers])
        return gains

    def _halved(self, box: Bools, pieces: Sequence[Codes], gains: Floats) -> list[Node]:
        """Return the halves of a box along the axis that gains most, each with what is left to gain; none: one row."""
        several = [number for number, some in enumerate(pieces) if len(some) > 1]
        if not several:
            return []
        number = max(several, key=lambda at: gains[at])
        left = gains.copy()
        left[number] *= LESS
        return [(self._confined(box, number, half), left) for half in np.array_split(pieces[number], 2)]

    def _confined(self, box: Bools, number: int, pieces: Codes) -> Bools:
        """Return a box with one axis confined to some of its pieces."""
        part = box.copy()
        part[self.start[number] : self.start[number + 1]] = False
        part[self.start[number] + pieces] = True
        return part

    def _pieces(self, box: Bools) -> list[Codes]:
        """Return the pieces of every axis that a box has, counted from the axis' first."""
        ends = zip(self.start[:-1].tolist(), self.start[1:].tolist(), strict=True)
        return [box[start:stop].nonzero()[0] for start, stop in ends]

    def _near(self, boxes: Bools) -> Codes:
        """Return the rows (m, axes) of boxes (m, P) nearest to the row to explain, by the places of their values."""
        found = np.empty((len(boxes), len(self.axes)), dtype=np.intp)
        for number, axis in enumerate(self.axes):
            flags = boxes[:, self.start[number] : self.start[number + 1]]
            own, first = axis.own if axis.own >= 0 else axis.at, flags.argmax(axis=1)
            if axis.numeric:
                last = flags.shape[1] - 1 - flags[:, ::-1].argmax(axis=1)
                low, high = first * axis.points, last * axis.points + axis.points - 1
                found[:, number] = np.clip(own * axis.points, low, high)
            else:
                found[:, number] = np.where(flags[:, own], own, first)
        return found

    def _corners(self, near: Codes, pieces: Sequence[Codes]) -> Codes:
        """Return corners (m, axes) of a box, by place; beyond the first few axes, all are `near` (axes,)."""
        points = [axis.points for axis in self.axes]
        ends = [(n * some[0], n * some[-1] + n - 1) for n, some in zip(points, pieces, strict=True)]
        several = [number for number, (low, high) in enumerate(ends) if low != high][:MOST_CORNERS]
        rows = np.tile(near, (2 ** len(several), 1))
        sides = np.indices((2,) * len(several)).reshape(len(several), 2 ** len(several))
        for number, side in zip(several, sides, strict=True):
            rows[:, number] = np.array(ends[number])[side]
        return rows

    def rated(self, places: Codes) -> tuple[Bools, Bools]:
        """Return (m,) which rows at some places (m, axes) may be predicted as wanted, and which certainly are."""
        self.budget.take(len(places))
        encoded: list[Encoded] = [axis.encoded[places[:, number]] for number, axis in enumerate(self.axes)]
        return self.scorer.decisions(self._free.sums(encoded), self.tolerance)

    def _judged(self, places: Codes) -> Settled:
        """Return what the rows at some places (m, axes) say of the box that they are in."""
        may, sure = self.rated(places)
        if sure.all():
            return UNKNOWN
        return Settled(proved=False, known=True, doubtful=bool(may.all()))


def _combined(pieces: Sequence[Codes]) -> Codes:
    """Return all rows (m, axes) with one of some pieces of every axis."""
    grid = np.meshgrid(*pieces, indexing="ij")
    return np.stack([some.ravel() for some in grid], axis=1)
