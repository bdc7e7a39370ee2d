"""Candidates of two changes, told by what the structure adds for pairs to what each change does alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlflow_cf.exact.boxes import loose
from mlflow_cf.exact.first_of_sets import FirstOfSets
from mlflow_cf.exact.tried import Asked, portions
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem, Rater
from mlflow_cf.search.choices import Choices
from mlflow_cf.structures.kernels.blocks import Alone, Blocks, Leading, Near
from mlflow_cf.structures.links import Tokens
from mlflow_cf.structures.pairs import everything
from mlflow_cf.structures.structure import Pairs

CELLS_AT_ONCE = 2**22  # what is found first may spare the rest
LARGEST_TABLE = 2**22  # sums of one pair of features
WORTH_ONE = 2**14  # as many take about as long as the evaluation of a row
AT_ONCE = 128  # candidates that are rated, nearest first
BLOCKS_AT_ONCE = 64  # that are looked into, the nearest first; then so much more at a time:
MORE_BLOCKS = 4
MOST_FOUND = 20_000  # candidates of two changes; where there are more, most are not needed


@dataclass(frozen=True, eq=False)
class TwoChanges:
    """The pairs of changes of one row.

    Attributes:
        problem, rater: what decides about them.
        choices: the changes; sums: (choices, k) of the row with each of them.
        own: the row's tokens (1, ...), one array per column.
    """

    problem: Problem
    rater: Rater
    choices: Choices
    own: Sequence[Tokens]
    sums: Floats

    @cached_property
    def told(self) -> Pairs | None:
        """What the structure says of pairs of changes."""
        return self.rater.structure.pairs(self.own)

    @cached_property
    def base(self) -> Floats:
        """The row's own sums (k,)."""
        largest = int(np.diff(self.choices.start).argmax())
        if self.choices.start[largest + 1] - self.choices.start[largest] > 1:  # swept, its own tuple with all others
            return np.asarray(self.sums[self.choices.own[largest]])
        return np.asarray(self.rater.structure.sums(self.own)[0])

    def look(self, asked: Asked, budget: Budget, near: float = 0.0) -> Codes | None:
        """Return the choices (m, 2) of candidates that may be answers, nearest first; None: see `FewChanges.pairs`.

        Columns with changes that are as `near` as that come first.
        """
        tried, columns = asked.tried, asked.tried.pairs(asked.limit)
        sizes = tried.counts[columns.first] * tried.counts[columns.second] * self.rater.structure.outputs
        work = int(sizes.sum())
        if work // WORTH_ONE >= budget.left or sizes.max(initial=0) > LARGEST_TABLE:
            return None
        if self.told is None or not budget.take(1 + work // WORTH_ONE):
            return None
        c, leading = self.problem.bound_distance.c, self._leading(asked.doubt)
        alone = Alone(self.sums[tried.places], self.base, tried.cost, tried.peak, c, asked.limit)
        places, far = np.empty((0, 2), dtype=np.intp), np.empty(0)
        for here in portions(sizes, CELLS_AT_ONCE, int((columns.least <= near).sum())):
            some = here[columns.least[here] <= alone.limit]
            if not len(some):
                break
            tables = self.told.tables(tried.tokens, columns.first[some], columns.second[some])
            blocks = tables.blocks(alone, leading)
            bounded = self.problem.owner[columns.first[some]], self.problem.owner[columns.second[some]]
            for part in self._parts(blocks, asked):
                inside = part[blocks.far[part] <= alone.limit]
                if asked.sets is not None:
                    groups = (owner[blocks.at[inside, 0]] for owner in bounded)
                    inside = inside[blocks.far[inside] <= asked.sets.limits(*groups)]
                if budget.late:
                    return None
                taken, distance, nearest = self._kept(tables.near(alone, leading, blocks.at[inside]), alone, asked)
                alone = alone._replace(limit=min(alone.limit, nearest))
                places, far = np.concatenate([places, taken]), np.append(far, distance)
                if len(places) > MOST_FOUND and (far <= alone.limit).sum() > MOST_FOUND:
                    return None
        order = np.flatnonzero(far <= alone.limit)
        if asked.sets is not None:
            order = order[far[order] <= self._limits(places[order], asked.sets)]
        return np.asarray(places[order[np.argsort(far[order], kind="stable")]])

    def _limits(self, places: Codes, sets: FirstOfSets) -> Floats:
        """Return (n,) how far candidates may be that take the choices at `places` (n, 2)."""
        return sets.limits(*self.choices.group[places].T)

    def _leading(self, doubt: float) -> Leading:
        """Return what leads, if a single number decides."""
        lead = self.rater.lead(doubt)
        return everything(len(self.base)) if lead is None else Leading(lead.weights, lead.may)

    def _parts(self, blocks: Blocks, asked: Asked) -> list[Codes]:
        """Return positions of blocks that may reach the targets, the nearest ones in the first part.

        In each, those of one pair of columns follow each other.
        """
        some = np.arange(len(blocks.far))
        if self.rater.lead(asked.doubt) is None:
            some = some[self.rater.reach(blocks.low, blocks.high, asked.doubt) >= 0]
        if len(some) <= BLOCKS_AT_ONCE:
            return [some]
        some, parts, start, size = some[np.argsort(blocks.far[some], kind="stable")], [], 0, BLOCKS_AT_ONCE
        while start < len(some):
            parts.append(np.sort(some[start : start + size]))
            start, size = start + size, size * MORE_BLOCKS
        return parts

    def _kept(self, found: Near, alone: Alone, asked: Asked) -> tuple[Codes, Floats, float]:
        """Return the choices (n, 2) of those that may be answers, how far they are, and how far others may be."""
        tried, doubt, sets = asked.tried, asked.doubt, asked.sets
        one, two = found.at.T
        distance = tried.cost[one] + tried.cost[two] + alone.c * np.maximum(tried.peak[one], tried.peak[two])
        if sets is None:
            return self._nearest(tried.places[found.at], found.sums, distance, asked)
        taken, (may, _) = tried.places[found.at], self.rater.verdicts(found.sums, doubt)
        near = np.flatnonzero(may & (distance <= self._limits(taken, sets)))
        taken, distance = taken[near], distance[near]
        sets.note(taken, found.sums[near], distance)
        kept = distance <= self._limits(taken, sets)
        return taken[kept], distance[kept], loose(sets.limit)

    def _nearest(self, places: Codes, sums: Floats, distance: Floats, asked: Asked) -> tuple[Codes, Floats, float]:
        """Return those of n candidates that may meet the target, up to the nearest lawful one that certainly does."""
        order, limit, start = np.argsort(distance, kind="stable"), np.inf, 0
        kept = [order[:0]]
        while start < len(order) and distance[order[start]] <= limit:
            some = order[start : start + AT_ONCE]
            may, sure = self.rater.verdicts(sums[some], asked.doubt)
            kept.append(some[may])
            first = next((at for at in some[sure].tolist() if limit == np.inf and self._is_lawful(places[[at]])), None)
            limit, start = limit if first is None else loose(float(distance[first])), start + AT_ONCE
        near = np.concatenate(kept)
        near = near[distance[near] <= limit]
        return places[near], distance[near], limit

    def _is_lawful(self, places: Codes) -> bool:
        """Whether the candidate that takes the choices at `places` (1, 2) meets every constraint."""
        codes = self.choices.taken(places)
        return bool(self.problem.held(codes).all() and self.problem.check(self.problem.rows(codes)).all())
