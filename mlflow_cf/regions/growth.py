"""A box that grows around a counterfactual, side by side, as long as all of its rows are proved to be one.

What a step adds is a slab: the box with one axis confined to the next pieces. A box and a slab that are both proved are
proved together. Steps double where slabs are proved at once by bounds, and halve where they are not; a single piece
that bounds leave open is settled by parting its slab, as long as there are evaluations left for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.problem import Codes
from mlflow_cf.regions.axes import Axis
from mlflow_cf.regions.lawful import BoxRules
from mlflow_cf.regions.proving import UNKNOWN, Prover, Settled

FEW: Final = 40  # pieces of an axis that grows first
FIRST_STEP: Final = 1 / 32  # of an axis, so that no side runs ahead of the others
MOST_BOUNDED: Final = 1_024  # boxes that settling may bound in all: 20 ms for a hundred trees
MOST_OF_A_SIDE: Final = 256  # of these for a slab

# `growing` by bounds; `stuck` where they leave the next piece open; `ended` by a row that is no counterfactual, or
# because no admissible value is left; `open`: neither was found
State = Literal["growing", "stuck", "ended", "open"]


class End:
    """One way in which a box may grow: below or above the numbers it has on an axis, or by one level.

    Attributes:
        axis: the number of the axis; toward: -1 or 1; 0 for a level, the piece `level`.
        state: see `State`.
        step: how many pieces are tried next.
    """

    def __init__(self, axis: int, toward: int, level: int, step: int) -> None:
        """Set up an end that grows."""
        self.axis, self.toward, self.level, self.step = axis, toward, level, step
        self.state: State = "growing"

    def settled(self, found: Settled) -> None:
        """Note what was found of the next piece, which is not proved."""
        self.state = "ended" if found.refused else "open"


class Growth:
    """A box that grows; belongs to one thread.

    Attributes:
        axes: along which it grows; box: (P,) the pieces that it has.
        ends: all ways in which it may grow.
    """

    def __init__(self, prover: Prover, rules: BoxRules, box: Bools, ends: list[End], bounded: int = 0) -> None:
        """Set up for a box that is proved already, after so many boxes were `bounded` to settle slabs."""
        self.axes, self.prover, self.rules, self.box, self.ends = prover.axes, prover, rules, box, ends
        self.bounded = bounded

    def run(self) -> None:
        """Grow until every end is ended, or open."""
        enough = not self.prover.budget.spent and len(self.box) <= self.prover.budget.left
        if len(self.axes) == 1 and self.prover.constant and enough and self._lawful:
            self._list()
            return
        for some in self._by_share():
            self._grow(some)
            while stuck := [end for end in some if end.state == "stuck"]:
                for end in stuck:  # one piece each, in turn
                    self._settle(end)
                self._grow(some)

    def _by_share(self) -> list[list[End]]:
        """Return the ends of axes of few pieces, each of which is a large share of the feature, then all others."""
        few = [end for end in self.ends if len(self.axes[end.axis].first) <= FEW]
        return [few, [end for end in self.ends if end not in few]]

    @property
    def _lawful(self) -> bool:
        """Whether no rule over several groups ends the box before the model does."""
        return self.rules.settle(np.ones_like(self.box)).proved

    def _list(self) -> None:
        """Grow along the only axis, all rows of which are scored at once."""
        places = np.arange(len(self.box))[:, None]
        may, sure = self.prover.rated(places)
        sure |= self.box
        (at,) = self.box.nonzero()[0].tolist()
        for end in self.ends:
            if end.toward:
                outward = sure[at:] if end.toward > 0 else sure[at::-1]
                count = len(outward) if outward.all() else int(outward.argmin())
                next_one = at + end.toward * count
                self.box[at + end.toward * np.arange(count)] = True
            else:
                next_one = end.level
            end.state = "ended"
            if 0 <= next_one < len(sure) and not sure[next_one]:
                end.settled(Settled(proved=False, known=True, doubtful=bool(may[next_one])))
        if not self.axes[0].numeric:
            self.box |= sure

    def _grow(self, ends: Sequence[End]) -> None:
        """Grow by bounds alone, some ends side by side."""
        waiting = [end for end in ends if end.state == "growing"]
        while waiting := [end for end in waiting if self._goes_on(end)]:
            pieces = [self._next(end) for end in waiting]
            slabs, wide = np.empty((len(waiting), len(self.box)), dtype=np.bool_), self.box.copy()
            for slab, end, some in zip(slabs, waiting, pieces, strict=True):
                slab[:] = self._slab(wide, end, some)
                wide[some] = True  # as if it will be proved; a slab that is larger than needed proves as much
            if self.prover.budget.take(len(slabs)) < len(slabs):
                for end in waiting:
                    end.state = "open"
                return
            proved = self.prover.lower_bounds(slabs) > 0
            certain, later = True, []
            for slab, end, some, good in zip(slabs, waiting, pieces, proved.tolist(), strict=True):
                if good and self.rules.settle(slab).proved:
                    self.box[some] = True
                    end.step *= 2
                    later.append(end)
                    continue
                if len(some) > 1:
                    end.step = len(some) // 2
                    later.insert(0, end)
                elif certain:
                    end.state = "stuck"
                else:
                    later.insert(0, end)  # beside what was not proved; once more, before the others
                certain = False
            waiting = later

    def _goes_on(self, end: End) -> bool:
        """Whether there is a piece left at an end; without, it is ended."""
        if len(self._next(end)):
            return True
        end.state = "ended"
        return False

    def _next(self, end: End) -> Codes:
        """Return the next pieces at an end, at most as many as are to be tried."""
        start, stop = int(self.prover.start[end.axis]), int(self.prover.start[end.axis + 1])
        if not end.toward:
            return np.array([end.level])[~self.box[[end.level]]]
        here = start + np.flatnonzero(self.box[start:stop])
        if end.toward > 0:
            return np.arange(here[-1] + 1, min(here[-1] + 1 + end.step, stop))
        return np.arange(max(here[0] - end.step, start), here[0])

    def _slab(self, box: Bools, end: End, pieces: Codes) -> Bools:
        """Return a box with one axis confined to some pieces."""
        slab = box.copy()
        slab[self.prover.start[end.axis] : self.prover.start[end.axis + 1]] = False
        slab[pieces] = True
        return slab

    def _settle(self, end: End) -> None:
        """Prove the slab of the next piece at an end, or find out why it does not hold."""
        end.step = 1
        pieces = self._next(end)
        slab = self._slab(self.box, end, pieces)
        found = self.rules.settle(slab)
        if found.proved:
            most, budget = min(MOST_BOUNDED - self.bounded, MOST_OF_A_SIDE), self.prover.budget
            used = budget.used
            found = self.prover.settle(slab, most) if most > 0 and not budget.spent else UNKNOWN
            self.bounded += budget.used - used
        if found.proved:
            self.box[pieces] = True
            end.state = "growing"
        else:
            end.settled(found)


def ends_of(axes: Sequence[Axis], start: Codes) -> list[End]:
    """Return all ways in which a box around a counterfactual may grow."""
    found = []
    for number, axis in enumerate(axes):
        first = max(1, round(len(axis.first) * FIRST_STEP))
        if axis.numeric:
            found += [End(number, toward, -1, first) for toward in (-1, 1)]
        else:
            others = [piece for piece in range(len(axis.first)) if piece != axis.at]
            found += [End(number, 0, int(start[number]) + piece, 1) for piece in others]
    return found
