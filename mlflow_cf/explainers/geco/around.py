"""All candidates around a row that are nearer than what is known, in boxes of which the nearest come first."""

from __future__ import annotations

import heapq
from itertools import combinations, count

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.actions import DominatedActions, RedundantChanges
from mlflow_cf.engine.listed import Listed, ListedCandidates, gains
from mlflow_cf.engine.nodes import tighten, whole_box
from mlflow_cf.engine.thresholds import LISTED_PER_ROW
from mlflow_cf.explainers.geco.members import Members
from mlflow_cf.problem import Codes
from mlflow_cf.problem.actions import Within
from mlflow_cf.rounding import loose
from mlflow_cf.search.population import changed_sets
from mlflow_cf.structures.capabilities import boxes_of

CLOSE = 1e-4  # to the target: a certificate may ask the model about these
AT_ONCE = 2**17  # sums of a box that are made together: they stay near the processor
MOST = 2**19  # sums in all: as long as some generations take
MOST_BY_PAIRS = 2**21  # of pairs of groups
LARGEST = 2**25  # rows of the whole: of more, the boxes that are near hold more than MOST


class Around:
    """Looks at the candidates around the row of a problem, in boxes of which the nearest come first.

    Scores may be off by `tolerance`; where several answers are wanted, redundant changes are left out.
    """

    def __init__(self, members: Members, tolerance: float) -> None:
        """Look no farther than what the members know."""
        problem = members.problem
        self.members, self.tolerance = members, tolerance
        self.actions = members.engine.within(loose(members.cutoff))
        self.redundant = RedundantChanges(problem, self.actions, tolerance)
        self._few = members.engine.hardest(problem.rows(members.population.codes[members.population.favourable][:1]))
        self._left = MOST // members.scorer.numbers(tolerance)
        self._serial = count()
        self._heap: list[tuple[float, int, Bools]] = []

    def of(self, changed: Bools) -> bool:
        """Look at the candidates that change no other groups than some (G,), until none can be nearer than the answer.

        Returns:
            Whether that came to an end. Nothing is looked at where candidates are not rated faster together.
        """
        if not all(np.diff(self.actions.start) > 0):
            return True
        whole = whole_box(self.actions)[0] & (changed | (self.actions.own < 0))[self.actions.group]
        whole[self.actions.own[self.actions.own >= 0]] = True
        if self._tightened(whole)[1] > LARGEST or not gains(self.actions, self.members.scorer):
            return False
        boxes = boxes_of(self.members.scorer.structure, self.actions.encoded)
        dominated = DominatedActions(self.members.problem, self.actions, boxes, self.tolerance)
        self._wait(whole)
        while self._heap and self._heap[0][0] <= self._within.limit:
            box = dominated.dropped(heapq.heappop(self._heap)[2])
            low, size = self._tightened(box)
            if low > self._within.limit:
                continue
            if size > AT_ONCE:
                self._part(box)
            elif not self._look(box):
                return False
        return True

    def pairs(self, codes: Codes) -> None:
        """Look at all that a candidate (G,) becomes by other actions of any two groups that it changes."""
        actions, own = self.actions, self.members.problem.own
        alone = actions.code == codes[actions.group]
        kept = np.bincount(actions.group[alone], minlength=len(codes)) == 1
        if not kept.all() or not gains(actions, self.members.scorer):
            return
        self._left = MOST_BY_PAIRS
        sizes = np.diff(actions.start)
        pairs = combinations(np.flatnonzero(codes != own).tolist(), 2)
        for one, two in sorted(pairs, key=lambda pair: sizes[list(pair)].prod()):
            box = alone | (actions.group == one) | (actions.group == two)
            if self._tightened(box)[0] <= self._within.limit and not self._look(box):
                return

    def _wait(self, box: Bools) -> None:
        low, _ = self._tightened(box)
        if low <= self._within.limit:
            heapq.heappush(self._heap, (low, next(self._serial), box))

    def _tightened(self, box: Bools) -> tuple[float, float]:
        """Drop, in place, actions that are too far; return how far the rest is at least, and how many rows it has."""
        within = self._within
        low = tighten(box[None], self.actions, within).distance[0]
        sizes = np.add.reduceat(box, self.actions.start[:-1], dtype=np.intp)
        return float(low), float(sizes.prod(dtype=np.float64))

    @property
    def _within(self) -> Within:
        problem = self.members.problem
        return Within(problem.bound_distance.c, loose(self.members.cutoff), problem.most_changes)

    def _part(self, box: Bools) -> None:
        """Wait with the nearer and the farther half of what the group with the most actions may take."""
        start = self.actions.start
        number = int(np.add.reduceat(box, start[:-1], dtype=np.intp).argmax())
        here = start[number] + np.flatnonzero(box[start[number] : start[number + 1]])
        for half in (here[len(here) // 2 :], here[: len(here) // 2]):
            rest = box.copy()
            rest[half] = False
            self._wait(rest)

    def _look(self, box: Bools) -> bool:
        """Look at all candidates of a box; return whether there was room for that."""
        listed = Listed.of(self.actions, box, self.redundant.free)
        self._left -= listed.rows.size
        budget, work = self.members.budget, 1 + listed.rows.size // LISTED_PER_ROW
        if self._left < 0 or budget.left < work or budget.take(work) < work:
            return False
        scorer, within = self.members.scorer, self._within
        rated = listed.rated(within, scorer, self.tolerance, self._few)
        self._keep(rated or listed.rated_alone(within, scorer, self.tolerance))
        return True

    def _keep(self, rated: ListedCandidates) -> None:
        """Let the nearest lawful candidates of every changed set become members, those that are certain and others."""
        problem, codes = self.members.problem, rated.codes
        some = np.flatnonzero(problem.held(codes))
        some = some[~self.redundant.of(codes[some], rated.checked)]
        some = some[np.argsort(problem.distance(codes[some]), kind="stable")]
        if len(some):
            parts = [
                part[changed_sets(problem, codes[part])[1]] for part in (some[rated.certain[some]], some) if len(part)
            ]
            self.members.score(codes[np.unique(np.concatenate(parts))])
