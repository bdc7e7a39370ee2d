"""All candidates of one change, by a sweep of the structure, and of two, by what pairs of changes add to it.

`nearest_two` estimates how far away the nearest two changes are, as if their effects on the score added up.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.first_of_sets import FirstOfSets
from mlflow_cf.engine.larger_sets import sets_within
from mlflow_cf.engine.nearest_first import NearestFirst
from mlflow_cf.engine.three_changes import ThreeChanges
from mlflow_cf.engine.two_changes import PairSelection, TriedActions, TwoChanges
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.kernel import kernel
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import ROUNDING, loose
from mlflow_cf.structures import Structure
from mlflow_cf.structures.capabilities import SupportsPairs, SupportsTriples, boxes_of
from mlflow_cf.structures.kernels.blocks import SingleEffects
from mlflow_cf.structures.kernels.triple_grid import AskedTriples, GridChanges
from mlflow_cf.structures.pair_tables import no_threshold


class FewChanges:
    """What the row of a problem becomes by few changes, as far as the model can tell them apart.

    Attributes:
        problem: every feature is a group by itself, and may stay as it is.
        scorer: rates candidates; actions: all actions worth looking at.
    """

    def __init__(self, problem: Problem, scorer: Scorer, actions: ActionTable) -> None:
        """Sweep the row."""
        self.problem, self.scorer, self.actions = problem, scorer, actions
        self._own = problem.encoded_row
        self._asking = cache(partial(NearestFirst, problem, scorer))
        values = [encoded if len(encoded) > 1 else None for encoded in self.actions.encoded]
        self._sums = np.zeros(
            (len(self.actions.code), scorer.structure.outputs)
        )  # of own actions, 0 where none else is
        for number, sums in zip(problem.owner.tolist(), scorer.structure.sweep(self._own, values), strict=True):
            if sums is not None:
                self._sums[self.actions.start[number] : self.actions.start[number + 1]] = sums[0]
        self._changed = np.ones(len(self.actions.code), dtype=np.bool_)
        self._changed[self.actions.own] = False
        self._single: tuple[float, float, Codes] | None = None  # limit, tolerance, and what was found then
        self._known: tuple[float, float, Codes, Bools] | None = None  # the same of pairs, and whether each suffices

    def least(self, changes: int) -> float:
        """Return what so many changes cost at least, added up in whatever order."""
        return self._least_sums[changes - 1] * (1 - ROUNDING) if changes <= len(self._least_sums) else np.inf

    @cached_property
    def _least_sums(self) -> list[float]:
        """What one change costs at least, what two do, and so on."""
        sums: list[float] = np.sort(self._least).cumsum().tolist()
        return sums

    @cached_property
    def _least(self) -> Floats:
        """(G,) the least cost of a change of every group."""
        cost = np.where(self._changed, self.actions.cost, np.inf)
        least: Floats = np.minimum.reduceat(cost, self.actions.start[:-1])  # its own value is among those of each
        return least

    def sets(self, limit: float, fewest: int) -> Bools | None:
        """Return the sets (s, G) of at least so many groups whose least changes cost no more than a limit together.

        None: they are more than `thresholds.MOST_SETS`.
        """
        return sets_within(self._least, loose(limit), fewest, self.problem.most_changes)

    def costs_more(self, limit: float, changes: int) -> bool:
        """Whether so many changes cost more than a limit, whichever they are, or are too many."""
        return changes > self.problem.most_changes or self.least(changes) > loose(limit)

    def steepest(self) -> Codes:
        """Return a candidate (1, G) that meets the target (0, G): of none.

        Groups take what brings most alone, those that bring most first, one more for every candidate that is tried.
        """
        lacks = self.scorer.lacks(self._sums)
        lacks[np.isnan(lacks)] = np.inf
        order = np.lexsort((lacks, self.actions.group))
        best = order[np.searchsorted(self.actions.group, np.arange(len(self.problem.groups)))]
        best = best[np.argsort(lacks[best], kind="stable")]
        best = best[self._changed[best]]
        codes = np.repeat(self.problem.own[None], len(best), axis=0)
        for number, at in enumerate(best.tolist()):
            codes[number:, self.actions.group[at]] = self.actions.code[at]
        codes = codes[self.problem.held(codes)]
        return codes[self.scorer.margins(self.problem.encoded(codes))[0]][:1] if len(codes) else codes

    def singles(self, limit: float, tolerance: float) -> Codes:
        """Return the candidates (m, G) of one change, no farther than `limit`, that may meet the target.

        What is within `tolerance` of the target may.
        """
        if self._single is None or limit > self._single[0] or tolerance > self._single[1]:
            places, _, _ = self._alone(limit, tolerance)
            self._single = limit, tolerance, self._codes(places[:, None])
        codes = self._single[2]
        return np.asarray(codes[self.problem.distance(codes) <= limit])

    def first_singles(self, tolerance: float, certain: int) -> Codes:
        """Return the candidates (m, G) of one change that may meet the target, nearest first.

        Of every group those up to the `certain`-th one, in that order, that certainly does.
        """
        places, sure, _ = self._alone(np.inf, tolerance)
        codes = self.actions.candidates(places[:, None])
        lawful = self.problem.held(codes)
        codes, sure, group = codes[lawful], sure[lawful], self.actions.group[places[lawful]]
        distance = self.problem.distance(codes)
        order = np.lexsort((distance, group))
        before = sure[order].cumsum() - sure[order]  # that certainly do, of this group and those before it
        first = np.searchsorted(group[order], group[order])
        kept = order[before - before[first] < certain]
        return np.asarray(codes[kept[np.argsort(distance[kept], kind="stable")]])

    def nearest_singles(self, limit: float, tolerance: float, at_once: int) -> tuple[Codes, Bools]:
        """Return the nearest of them (m, G), and (m,) whether each certainly meets the target.

        They are looked at so many at a time and then twice as many, those that are as far as the last one among them,
        until one of them certainly does; none is farther than that one.
        """
        places, sure, far = self._alone(limit, tolerance)
        order = np.argsort(far, kind="stable")
        places, sure, far = places[order], sure[order], far[order]
        parts: list[Codes] = []
        held: list[Bools] = []
        stop = 0
        while stop < len(far) and not any(map(np.any, held)):
            start, last = stop, min(stop + at_once, len(far)) - 1
            stop, at_once = int(np.searchsorted(far, loose(float(far[last])), side="right")), 2 * at_once
            codes = self.actions.candidates(places[start:stop, None])
            lawful = self.problem.held(codes)
            certain = np.flatnonzero(lawful & sure[start:stop])
            if len(certain):
                stop = int(np.searchsorted(far, loose(float(far[start + certain[0]])), side="right"))
            here = np.flatnonzero(lawful[: stop - start])
            parts.append(codes[here])
            held.append(sure[start:stop][here])
        found = np.concatenate([self.problem.own[None][:0], *parts])
        self._single = float(far[stop]) * (1 - ROUNDING) if stop < len(far) else limit, tolerance, found
        return found, np.concatenate([np.empty(0, dtype=np.bool_), *held])

    def _alone(self, limit: float, tolerance: float) -> tuple[Codes, Bools, Floats]:
        """Return the actions (n,) that may meet the target alone, whether each certainly does, and how far it is."""
        far = self.actions.cost + self.problem.bound_distance.c * self.actions.peak
        tried = np.flatnonzero(self._changed & (far <= loose(limit)))
        may, sure = self.scorer.decisions(self._sums[tried], tolerance + thresholds.SWEPT)
        return tried[may], sure[may], far[tried[may]]

    def pairs(self, limit: float, tolerance: float, budget: Budget, most: int = thresholds.MOST_PAIRED) -> Codes | None:
        """Return the candidates (m, G) of two changes, no farther than `limit`, that may meet the target.

        The nearest come first, none farther than those that certainly are the answers. Where several are wanted, those
        with a change that is certainly redundant are left out, and of every two groups what is farther than the first
        that certainly meets the target. None where tables of more than `most` numbers had to be made, where the
        model does not tell, or where the budget does not last.
        """
        found = self.nearest_pairs(limit, tolerance, budget, most)
        return None if found is None else found[0]

    def nearest_pairs(
        self, limit: float, tolerance: float, budget: Budget, most: int = thresholds.MOST_PAIRED
    ) -> tuple[Codes, Bools] | None:
        """Return what `pairs` does, and (m,) whether each certainly meets the target."""
        if loose(limit) < self.least(2):
            return self.problem.own[None][:0], np.empty(0, dtype=np.bool_)
        if not self.tells_pairs:
            return None
        if self._known is None or limit > self._known[0] or tolerance > self._known[1]:
            found = self._pairs(loose(limit), tolerance + thresholds.SWEPT, budget, most)
            if found is None:
                return None
            self._known = limit, tolerance, *found
        codes, sure = self._known[2:]
        near = self.problem.distance(codes) <= limit
        return codes[near], sure[near]

    @cached_property
    def three(self) -> ThreeChanges:
        """What three changes do."""
        return ThreeChanges(self.problem, self.scorer, self.actions, self._least)

    @property
    def tells_pairs(self) -> bool:
        """Whether the model tells what pairs of changes do."""
        return self._two.tells

    @cached_property
    def expected(self) -> float:
        """Return how far the nearest candidate of two changes is, if what two do adds up; inf: there is none."""
        need = float(self.scorer.lacks(self._base[None])[0])
        if not np.isfinite(need):
            return np.inf
        actions, some = self.actions, np.flatnonzero(self._changed)
        lacks = self.scorer.lacks(self._sums[some])
        gain = np.where(np.isfinite(lacks), need - lacks, -np.inf)
        c = self.problem.bound_distance.c
        return nearest_two(gain, actions.cost[some], actions.peak[some], actions.group[some], need, c)

    def _pairs(self, limit: float, tolerance: float, budget: Budget, most: int) -> tuple[Codes, Bools] | None:
        if self.problem.count == 1:
            asked = PairSelection(self._tried(limit, None), limit, tolerance, None)
            found = self._two.look(asked, budget, most, self.expected * thresholds.FARTHER)
        else:
            found = self._pairs_of_sets(limit, tolerance, budget, most)
        if found is None:
            return None
        codes = self.actions.candidates(found[0])
        held = self.problem.held(codes)
        return codes[held], found[1][held]

    def _pairs_of_sets(self, limit: float, tolerance: float, budget: Budget, most: int) -> tuple[Codes, Bools] | None:
        """Return the actions of pairs; often the nearest ones suffice, and else they tell how far the others may be."""
        sets = self._sets(tolerance)
        if self._two.told is None:
            self._two.note_estimated(self._tried(min(limit, loose(sets.limit)), sets), sets, tolerance)
            near = farthest = min(limit, loose(sets.limit))
        else:
            farthest = min(limit, loose(sets.limit))
            near = self._limit_of(thresholds.PAIRED_FIRST, farthest, self._changed & ~sets.enough)
        found = self._two.look(PairSelection(self._tried(near, sets), near, tolerance, sets), budget, most)
        farthest = min(farthest, loose(sets.limit))
        if found is not None and near < farthest:
            found = self._two.look(PairSelection(self._tried(farthest, sets), farthest, tolerance, sets), budget, most)
        return found

    def _limit_of(self, most: int, limit: float, some: Bools) -> float:
        """Return the largest distance, at most `limit`, within which pairs of `some` actions are at most so many."""
        if self._pairs_within(limit, some) <= most:
            return limit
        steps = np.unique(self._beside[some & (self._beside <= limit)])
        within = partial(self._pairs_within, some=some)
        return float(steps[max(bisect_right(steps, most, key=within) - 1, 0)])

    def _pairs_within(self, limit: float, some: Bools) -> int:
        """Return how many pairs of `some` actions there are within a limit."""
        counts = np.bincount(self.actions.group[some & (self._beside <= limit)], minlength=1)
        return int(counts.sum() ** 2 - (counts**2).sum()) // 2

    @cached_property
    def _two(self) -> TwoChanges:
        """What pairs of changes do; of many models, those few are asked first that lack most of the row."""
        problem, scorer = self.problem, self.scorer
        few = scorer.hardest(self._base[None], thresholds.HARDEST) if problem.count == 1 else None
        if few is None:
            return TwoChanges(problem, scorer, self.actions, self._own, self._sums, self._base)
        sums, base = self._sums.take(few.columns, axis=1), self._base[few.columns]
        return TwoChanges(problem, few.scorer, self.actions, self._own, sums, base, self._asking)

    @cached_property
    def _base(self) -> Floats:
        """The row's own sums (k,)."""
        largest = int(np.diff(self.actions.start).argmax())
        if self.actions.start[largest + 1] - self.actions.start[largest] > 1:  # swept, its own action with all others
            return np.asarray(self._sums[self.actions.own[largest]])
        return np.asarray(self.scorer.structure.sums(self._own)[0])

    def _sets(self, tolerance: float) -> FirstOfSets:
        return FirstOfSets(self.problem, self.scorer, self.actions, self._sums, tolerance)

    def _tried(self, limit: float, sets: FirstOfSets | None) -> TriedActions:
        """Return the changes that are within a limit beside the least change of another feature.

        With `sets`, those that suffice alone are not tried.
        """
        tried = self._changed & (self._beside <= limit)
        return TriedActions.of(self.actions, tried if sets is None else tried & ~sets.enough)

    @cached_property
    def _beside(self) -> Floats:
        """(actions,) what each costs beside the least change of another feature."""
        actions, least = self.actions, self._least
        nearest = np.sort(least)[:2]
        beside: Floats = actions.cost + np.where(least[actions.group] == nearest[0], nearest[-1], nearest[0])
        return beside

    def _codes(self, places: Codes) -> Codes:
        """Return the lawful candidates (m, G) that take the actions at `places` (k, n), each of another group."""
        codes = self.actions.candidates(places)
        return np.asarray(codes[self.problem.held(codes)])


Array = NDArray[Any]


class Changes(NamedTuple):
    """Changes of one group each, those that do most last.

    Attributes:
        gain: (n,) what each does towards the target, ascending.
        cost, peak: (n,) what each adds to the distance; group: (n,) what it changes.
    """

    gain: Array
    cost: Array
    peak: Array
    group: Array


@kernel
def find_nearest_two(changes: Changes, need: float, c: float, found: Array) -> None:
    """Write the distance of the nearest two changes of different groups that gain what is needed into `found` (1,).

    Partners come as they are needed, those that do most first; the nearest so far is known, and the nearest one of
    another group than that.
    """
    n = changes.gain.size
    first, second, partner = -1, -1, n
    for one in range(n):
        while partner > 0 and changes.gain[partner - 1] + changes.gain[one] >= need:
            partner -= 1
            cost, group = changes.cost[partner], changes.group[partner]
            if first < 0 or cost < changes.cost[first]:
                second = first if first >= 0 and changes.group[first] != group else second
                first = partner
            elif group != changes.group[first] and (second < 0 or cost < changes.cost[second]):
                second = partner
        other = second if first >= 0 and changes.group[first] == changes.group[one] else first
        if other >= 0:
            largest = max(changes.peak[one], changes.peak[other])
            found[0] = min(found[0], changes.cost[one] + changes.cost[other] + c * largest)


def nearest_two(gain: Floats, cost: Floats, peak: Floats, group: Codes, need: float, c: float) -> float:
    """Return the distance of the nearest two changes that together gain what is needed; inf where none do.

    Args:
        gain: (n,) what each change does towards the target.
        cost, peak: (n,) what each adds to the distance, which has `c` times the larger peak.
        group: (n,) what each changes; two changes are of different groups.
        need: what they are to gain.
    """
    order, found = np.argsort(gain, kind="stable"), np.array([np.inf])
    find_nearest_two(Changes(gain[order], cost[order], peak[order], group[order]), float(need), float(c), found)
    return float(found[0])


TRIED = 2**16  # floats of a table that is worth a warm-up


def try_few_changes(structure: Structure, Z: Floats) -> None:
    """Bound and list pairs of changes of the first of coded rows (m, d) to values of the others; d >= 2.

    It warms up the kernels for pairs, and those for three changes, so that no later row waits until they are compiled.
    """
    encoded = [structure.encode(column, codes) for column, codes in enumerate(Z.T)]
    if not isinstance(structure, SupportsPairs):
        return
    pairs = structure.pairs([column[:1] for column in encoded])
    zeros, outputs = np.zeros(Z.size), structure.outputs
    tables = pairs.tables(encoded, np.array([0]), np.array([1]), TRIED)
    if tables is not None:
        alone, whole = (
            SingleEffects(np.zeros((Z.size, outputs)), np.zeros(outputs), zeros, zeros, 0.0, 1.0),
            no_threshold(outputs),
        )
        tables.near(alone, whole, tables.blocks(alone, whole).at)
    boxes, columns = boxes_of(structure, [np.zeros_like(column[:1]) for column in encoded]), len(encoded)
    if columns > 2 and isinstance(boxes, SupportsTriples):
        changes = GridChanges(np.arange(columns), np.zeros(columns), np.zeros(columns))
        none = np.empty((0, 3), dtype=np.intp)
        boxes.triples(changes, AskedTriples(none, np.ones(outputs), 0.0, 0.0, 0.0, 1.0, 1), np.array([np.inf]))
