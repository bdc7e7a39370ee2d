"""Exact search: boxes of candidates, least possible key first, until nothing nearer is left (methods of exact search).

The key of a candidate is its distance, then its number of changed groups, then its codes. A box is answered for by the
least key any candidate in it can have, and is given up where the model's bounds prove that none of its candidates
meets the target. So the first candidate the judge accepts is the nearest there is.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count
from math import prod

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.boxes import boxes_of_sets, choices_within, tighten, whole_box
from mlflow_cf.exact.entries import Box, Key, Leaf
from mlflow_cf.exact.few_changes import FewChanges
from mlflow_cf.exact.listed import Listed
from mlflow_cf.exact.needless import Needless
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.choices import Within

DOUBT = 4  # tolerances: scores may be off on either side of a comparison
MOST_FLAGS = 2**22  # of the parts of a box that are bounded in one go: 4 MB
MOST_LISTED = 128  # candidates of a box that are scored one by one instead of parting it further
MORE_LISTED = 128  # times as many, where most of them are dropped because a change is needless


class BestFirst:
    """Yields candidates in the order of their keys; no candidate that the judge may accept is left out.

    Only candidates no farther away than `limit` are looked at. Candidates whose changed groups are among `closed` may
    be left out, and so may those that neither the model nor any rule can tell from a nearer one. Where one answer is
    wanted, candidates of two changes that are farther than one that certainly meets the target may be left out, too;
    where several are, those with a change that is certainly needless are.
    With `sets` (s, G), candidates are those whose changed groups are one of these sets, and none of them is left out.
    """

    def __init__(
        self, problem: Problem, budget: Budget, limit: float, tolerance: float, sets: Bools | None = None
    ) -> None:
        self.problem, self.budget, self.limit = problem, budget, limit
        self.joint_rules = problem.joint_rules
        self.choices = choices_within(problem, limit, whole=sets is not None)
        self.within = Within(problem.bound_distance.c, limit, problem.most_changes)
        self.doubt = DOUBT * tolerance
        self.needless = Needless(problem, self.choices, self.doubt) if problem.count > 1 else None
        self.cut = False
        self.closed: set[bytes] = set()
        self._serial = count()
        self._heap: list[tuple[Key, int, Leaf | Box]] = []
        if all(np.diff(self.choices.start) > 0):
            rater = problem.rater
            self._boxes = None if rater is None else rater.structure.boxes(self.choices.tokens)
            whole = whole_box(self.choices) if sets is None else boxes_of_sets(self.choices, sets)
            self._push(whole.copy())
            few = problem.kept(FewChanges.of) if self._heap and sets is None else None
            if few is not None:
                self._decide_few(few, whole)

    @property
    def low(self) -> float:
        """No candidate that is still to come is nearer than this."""
        return self._heap[0][0][0] if self._heap else np.inf

    def next(self) -> Leaf | None:
        """Return the next candidate; None if there are no more within the limit, or if the budget is used up."""
        while self._heap and self.low <= self.limit and not self.cut:
            key, serial, least = heapq.heappop(self._heap)
            if isinstance(least, Leaf):
                return least
            mask = least.mask
            if self.budget.spent or not (self._list(mask) if self._few(mask) else self._part(mask)):
                heapq.heappush(self._heap, (key, serial, least))
                self.cut = True
        return None

    def stop(self, leaf: Leaf) -> None:
        """End the search before a candidate it has returned."""
        heapq.heappush(self._heap, (leaf.key, next(self._serial), leaf))
        self.cut = True

    def doubtful(self, most: int) -> list[Codes]:
        """Return the codes of some candidates that wait and may be refused, at most so many."""
        waiting = (entry[2] for entry in self._heap[: 4 * most])  # the nearest stand near the front
        return [least.codes for least in waiting if isinstance(least, Leaf) and not least.certain][:most]

    def refuses(self, Z: Floats) -> bool:
        """Whether one of the rows Z (m, d) misses the target by more than the tolerance, as the structure says."""
        rater = self.problem.rater
        if rater is None or not len(Z):
            return False
        favourable, margin = rater.margins(rater.tokens(range(Z.shape[1]), Z))
        return bool((~favourable & (margin >= self.doubt)).any())

    def _few(self, mask: Bools) -> bool:
        sizes = np.add.reduceat(mask, self.choices.start[:-1], dtype=np.intp)
        return bool(prod(sizes.tolist()) <= MOST_LISTED * (1 if self.needless is None else MORE_LISTED))

    def _push(self, masks: Bools) -> None:
        """Add boxes (m, choices), but those that hold no candidate."""
        lows = tighten(masks, self.choices, self.within)
        alive = np.flatnonzero(np.isfinite(lows.distance))
        alive = alive[[self._possible(mask) for mask in masks[alive]]]
        found = self._reach(masks[alive])
        for box, far in zip(alive.tolist(), found.tolist(), strict=True):
            if far >= 0:
                key = (float(lows.distance[box]), int(lows.changes[box]), tuple(lows.code[box].tolist()))
                heapq.heappush(self._heap, (key, next(self._serial), Box(np.packbits(masks[box]), masks.shape[1])))

    def _reach(self, masks: Bools) -> Floats:
        """Return how far boxes come into the target, or so near that the judge must be asked; < 0: not at all."""
        rater = self.problem.rater
        if rater is None or not len(masks):
            return np.zeros(len(masks))
        return rater.reach(*self._bounds(masks), self.doubt)

    def _possible(self, mask: Bools) -> bool:
        """Whether every rule over several groups holds for some candidate of a box, and its changes may be new."""
        choices = self.choices
        chosen = [choices.code[a:b][mask[a:b]] for a, b in zip(choices.start[:-1], choices.start[1:], strict=True)]
        for joint in self.joint_rules:
            if joint.table is not None and not joint.table[np.ix_(*(chosen[number] for number in joint.groups))].any():
                return False
        if not self.closed:
            return True
        same = np.array([codes[0] == own for codes, own in zip(chosen, self.problem.own, strict=True)])
        decided = all(len(codes) == 1 or own not in codes for codes, own in zip(chosen, self.problem.own, strict=True))
        return not decided or (~same).tobytes() not in self.closed

    def _part(self, box: Bools) -> bool:
        """Part a box in two, or drop choices of it; return False if the budget does not last for that.

        Every group is tried with the nearer of its choices alone: the row's own tuple, or the nearer half. Where that
        cannot meet the target, none of these choices can stay; where all of it does, no others are needed; else the
        group that loses most by it is parted there.
        """
        near = [self._nearer(box, number) for number in range(len(self.choices.own))]
        free = [number for number, here in enumerate(near) if len(here)]
        back = [] if self.needless is None else self.needless.back(box).tolist()
        if self.budget.take(len(free) + len(back)) < len(free) + len(back):
            return False
        if back and self._all_sure(box, back):
            return True
        ends = self._ends(box, near, free)
        if ends is None:
            return False
        left, kept = self._judged(box, ends, near, free)
        if (left < 0).any() or kept.any():
            mask = box.copy()
            for number in np.flatnonzero(left < 0).tolist():
                mask[near[free[number]]] = False
            for number in np.flatnonzero(kept).tolist():
                mask = self._confined(mask, near, free[number])
            self._push(mask[None])
            return True
        sizes = np.array([-len(near[number]) for number in free])  # among equals the one with the most choices
        chosen = int(np.lexsort((sizes, left))[0])
        rest = box.copy()
        rest[near[free[chosen]]] = False
        self._push(np.stack([self._confined(box, near, free[chosen]), rest]))
        return True

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

    def _list(self, box: Bools) -> bool:
        """Add all candidates of a box one by one; return False if the budget does not last for that."""
        if not self.budget.take(1):  # there may be no lawful one among them, and it took time all the same
            return False
        listed = Listed.of(self.choices, box)
        near = listed.near(self.within)
        worth = None if self.needless is None else listed.worth(near, self.needless)
        if worth is None:
            return self._add(listed.codes(near), self.within.least)
        if (count := int(near.sum())) > self.budget.take(count):
            return False
        codes, certain, checked = worth
        lawful = np.flatnonzero(self._lawful(codes))
        self._wait(codes[lawful], certain[lawful], checked)
        return True

    def _add(self, codes: Codes, least: int) -> bool:
        """Add those of candidates (m, G) that change so many groups; return False if the budget does not last."""
        problem = self.problem
        near = (problem.distance(codes) <= self.limit) & ((codes != problem.own).sum(axis=1) >= least)
        codes = codes[near & self._lawful(codes)]
        if self.budget.take(len(codes)) < len(codes):
            return False
        certain = np.zeros(len(codes), dtype=np.bool_)
        if problem.rater is not None and len(codes):
            may, certain = problem.rater.verdicts(problem.rater.structure.sums(problem.tokens(codes)), self.doubt)
            codes, certain = codes[may], certain[may]
        self._wait(codes, certain, np.zeros(len(problem.groups), dtype=np.bool_))
        return True

    def _lawful(self, codes: Codes) -> Bools:
        """Return which candidates (m, G) meet the rules over several groups and change few enough of them."""
        lawful: Bools = self.problem.changes_left(codes) >= 0
        for joint in self.joint_rules:
            lawful &= joint.holds(codes)
        return lawful

    def _wait(self, codes: Codes, certain: Bools, checked: Bools) -> None:
        """Let candidates (m, G) wait for their turn, but those with a needless change of a group not `checked` yet."""
        if self.needless is not None and len(codes):
            needed = ~self.needless.of(codes, checked)
            codes, certain = codes[needed], certain[needed]
        changes = (codes != self.problem.own).sum(axis=1).tolist()
        for at, distance in enumerate(self.problem.distance(codes).tolist()):
            key = (distance, changes[at], tuple(codes[at].tolist()))
            heapq.heappush(self._heap, (key, next(self._serial), Leaf(key, codes[at], bool(certain[at]))))

    def _decide_few(self, few: FewChanges, whole: Bools) -> None:
        """Put the candidates that change one group, or two, and a box of those that change more, in place of all.

        Often nothing that changes more groups can be as near.
        """
        groups = len(self.problem.groups)
        if self.budget.take(groups) < groups:  # like bounds: a sweep costs little more
            self.cut = True
            return
        before, self._heap = self._heap, []
        if not self._add(few.singles(self.limit, self.doubt), 1):
            self.cut, self._heap = True, before
            return
        self.within = self.within._replace(least=2)
        pairs = few.pairs(self.limit, self.doubt, self.budget)
        if pairs is not None and self._add(pairs, 2):
            self.within = self.within._replace(least=3)
        self._push(whole)
