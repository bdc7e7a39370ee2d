"""Parting boxes of candidates: where, and what of them needs no further look."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.losing import Losing
from mlflow_cf.exact.needless import Needless
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.choices import Choices

MOST_FLAGS = 2**22  # of the parts of a box that are bounded in one go: 4 MB


class Parting:
    """Parts boxes of `choices` by the model's bounds; scores may be off by `doubt`."""

    def __init__(
        self, problem: Problem, choices: Choices, needless: Needless | None, doubt: float, budget: Budget
    ) -> None:
        """Prune the model to the choices; where several answers are wanted, `needless` changes are looked for."""
        self.problem, self.choices, self.needless, self.doubt, self.budget = problem, choices, needless, doubt, budget
        rater = problem.rater
        self._boxes = None if rater is None else rater.structure.boxes(choices.tokens)
        self._losing = Losing(problem, choices, self._boxes, doubt)

    def of(self, box: Bools) -> Bools | None:
        """Part a box (choices,) in two, or drop choices of it.

        Every group is tried with the nearer of its choices alone: the row's own tuple, or the nearer half. Where that
        cannot meet the target, none of these choices can stay; where all of it does, no others are needed; else the
        group that loses most by it is parted there.

        Returns:
            The boxes (m, choices) that are left of it, at most two; None if the budget does not last for that.
        """
        near = [self._nearer(box, number) for number in range(len(self.choices.own))]
        free = [number for number, here in enumerate(near) if len(here)]
        back = [] if self.needless is None else self.needless.back(box).tolist()
        if self.budget.take(len(free) + len(back)) < len(free) + len(back):
            return None
        if back and self._all_sure(box, back):
            return box[None][:0]
        ends = self._ends(box, near, free)
        if ends is None:
            return None
        left, kept = self._judged(box, ends, near, free)
        if (left < 0).any() or kept.any():
            mask = box.copy()
            for number in np.flatnonzero(left < 0).tolist():
                mask[near[free[number]]] = False
            for number in np.flatnonzero(kept).tolist():
                mask = self._confined(mask, near, free[number])
            return mask[None]
        sizes = np.array([-len(near[number]) for number in free])  # among equals the one with the most choices
        chosen = int(np.lexsort((sizes, left))[0])
        rest = box.copy()
        rest[near[free[chosen]]] = False
        return np.stack([self._confined(box, near, free[chosen]), rest])

    def worthwhile(self, box: Bools) -> Bools:
        """Return a box (choices,) without choices that no nearest answer takes."""
        return self._losing.dropped(box)

    def reach(self, masks: Bools) -> Floats:
        """Return how far boxes come into the target, or so near that the judge must be asked; < 0: not at all."""
        rater = self.problem.rater
        if rater is None or not len(masks):
            return np.zeros(len(masks))
        return rater.reach(*self._bounds(masks), self.doubt)

    def _all_sure(self, box: Bools, back: Sequence[int]) -> bool:
        """Whether all candidates of a box certainly meet the target with one of some groups put back."""
        own = [self.choices.own[number : number + 1] for number in range(len(self.choices.own))]
        low, high = self._bounds(np.stack([self._confined(box, own, number) for number in back]))
        rater = self.problem.rater
        return rater is not None and bool(rater.surely(low, high, self.doubt).any())

    def _judged(
        self, box: Bools, ends: tuple[Floats, Floats], near: Sequence[Codes], free: Sequence[int]
    ) -> tuple[Floats, Bools]:
        """Return (f,) how far parts of a box with such bounds reach, and which have all that is needed of it."""
        kept, rater = np.zeros(len(free), dtype=np.bool_), self.problem.rater
        if rater is None:
            return np.zeros(len(free)), kept
        if self.needless is not None:
            optional = self.needless.optional(box)
            kept = np.array([bool(optional[n]) and near[n][0] == self.choices.own[n] for n in free])
            kept[kept] = rater.surely(ends[0][kept], ends[1][kept], self.doubt)
        return rater.reach(*ends, self.doubt), kept

    def _ends(self, box: Bools, near: Sequence[Codes], free: Sequence[int]) -> tuple[Floats, Floats] | None:
        """Return bounds (f, k), (f, k) of a box with each of some groups confined to its nearer choices.

        None: the time does not last for that.
        """
        if self._boxes is not None:
            columns, flags = self.choices.columns, np.zeros(len(box), dtype=np.bool_)
            flags[np.concatenate([near[number] for number in free])] = True
            groups = [self.problem.columns[number] for number in free]
            found = self._boxes.confined(box[columns], flags[columns], groups)
            if found is not None:
                return found
        parts: list[tuple[Floats, Floats]] = []
        many = max(1, MOST_FLAGS // len(box))
        for start in range(0, len(free), many):
            if start and self.budget.spent:
                return None
            parts.append(self._bounds(np.stack([self._confined(box, near, n) for n in free[start : start + many]])))
        return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])

    def _bounds(self, masks: Bools) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the sums of boxes; without structure, of nothing."""
        if self._boxes is None:
            return np.empty((len(masks), 0)), np.empty((len(masks), 0))
        return self._boxes.bounds(masks[:, self.choices.columns])

    def _confined(self, box: Bools, near: Sequence[Codes], number: int) -> Bools:
        """Return the part of a box (choices,) in which a group has its nearer choices alone."""
        part = box.copy()
        part[self.choices.start[number] : self.choices.start[number + 1]] = False
        part[near[number]] = True
        return part

    def _nearer(self, mask: Bools, number: int) -> Codes:
        """Return the nearer choices of a group, by which it would be parted; none if it has one choice only."""
        start, stop = self.choices.start[number], self.choices.start[number + 1]
        here = start + np.flatnonzero(mask[start:stop])
        half = 1 if here[0] == self.choices.own[number] else (len(here) + 1) // 2
        nearer: Codes = here[: half if len(here) > 1 else 0]
        return nearer
