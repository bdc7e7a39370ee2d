"""Candidates of two changes, told by what the structure adds for pairs to what each change does alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.actions import loose
from mlflow_cf.engine.pair_batches import FirstOfSets, PairSelection, batches
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.action_table import ActionTable
from mlflow_cf.structures.capabilities import Pairs, SupportsPairs
from mlflow_cf.structures.kernels.blocks import Blocks, ListedPairs, SingleEffects, Threshold
from mlflow_cf.structures.links import Encoded
from mlflow_cf.structures.pairs import PairTables, no_threshold


@dataclass
class FoundPairs:
    """What was found so far.

    Attributes:
        limit: how far answers can be at most.
        places: (n, 2) the actions of candidates; far: (n,) how far these are; sure: (n,) whether each certainly meets
            the targets.
    """

    limit: float
    places: Codes = field(default_factory=lambda: np.empty((0, 2), dtype=np.intp))
    far: Floats = field(default_factory=lambda: np.empty(0))
    sure: Bools = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def add(self, places: Codes, far: Floats, sure: Bools) -> None:
        """Add candidates."""
        self.places, self.far = np.concatenate([self.places, places]), np.append(self.far, far)
        self.sure = np.append(self.sure, sure)


@dataclass(frozen=True, eq=False)
class TwoChanges:
    """The pairs of changes of one row.

    Attributes:
        problem, scorer: what decides about them.
        actions: the changes; sums: (actions, k) of the row with each of them.
        own: the row's encoded values (1, ...), one array per column.
    """

    problem: Problem
    scorer: Scorer
    actions: ActionTable
    own: Sequence[Encoded]
    sums: Floats

    @cached_property
    def told(self) -> Pairs | None:
        """What the structure says of pairs of changes."""
        structure = self.scorer.structure
        return structure.pairs(self.own) if isinstance(structure, SupportsPairs) else None

    @cached_property
    def base(self) -> Floats:
        """The row's own sums (k,)."""
        largest = int(np.diff(self.actions.start).argmax())
        if self.actions.start[largest + 1] - self.actions.start[largest] > 1:  # swept, its own action with all others
            return np.asarray(self.sums[self.actions.own[largest]])
        return np.asarray(self.scorer.structure.sums(self.own)[0])

    def look(self, asked: PairSelection, budget: Budget, most: int, near: float = 0.0) -> tuple[Codes, Bools] | None:
        """Return the actions (m, 2) of candidates that may be answers, and whether they certainly meet the targets.

        The nearest come first. None: see `FewChanges.pairs`. Columns with changes as `near` as that come in front.
        """
        tried, columns = asked.tried, asked.tried.pairs(asked.limit)
        if self.told is None or budget.take(1) < 1:
            return None
        c, found = self.problem.bound_distance.c, FoundPairs(asked.limit)
        alone = SingleEffects(self.sums[tried.places], self.base, tried.cost, tried.peak, c, asked.limit)
        sizes = tried.counts[columns.first] + tried.counts[columns.second]
        waiting = batches(sizes, thresholds.VALUES_AT_ONCE, int((columns.least <= near).sum()))[::-1]
        while waiting:
            here = waiting.pop()
            some = here[columns.least[here] <= found.limit]
            if not len(some):
                break
            at_once = min(most, thresholds.CELLS_AT_ONCE)
            tables = self.told.tables(tried.encoded, columns.first[some], columns.second[some], at_once)
            if tables is None:
                if at_once < thresholds.CELLS_AT_ONCE or len(some) == 1:
                    return None
                waiting += [some[len(some) // 2 :], some[: len(some) // 2]]
                continue
            most -= tables.size
            work = 1 + tables.size // thresholds.PAIRS_PER_ROW
            if budget.take(work) < work or not self._look_into(tables, alone, asked, budget, found):
                return None
        order = np.flatnonzero(found.far <= found.limit)
        if asked.sets is not None:
            order = order[found.far[order] <= self._limits(found.places[order], asked.sets)]
        order = order[np.argsort(found.far[order], kind="stable")]
        return found.places[order], found.sure[order]

    def _look_into(
        self, tables: PairTables, alone: SingleEffects, asked: PairSelection, budget: Budget, found: FoundPairs
    ) -> bool:
        """Add candidates of some pairs of columns to those `found`; return whether that came to an end."""
        owner, leading, sets = self.problem.owner, self._leading(asked.tolerance), asked.sets
        first, second = owner[tables.tables.first], owner[tables.tables.second]
        blocks = tables.blocks(alone._replace(limit=found.limit), leading)
        for part in self._parts(blocks, asked.tolerance):
            inside = part[blocks.far[part] <= found.limit]
            if sets is not None:
                pair = blocks.at[inside, 0]
                inside = inside[blocks.far[inside] <= sets.limits(first[pair], second[pair])]
            if budget.late:
                return False
            near = tables.near(alone._replace(limit=found.limit), leading, blocks.at[inside])
            self._keep(near, alone, asked, found)
            if len(found.places) > thresholds.MOST_FOUND and (found.far <= found.limit).sum() > thresholds.MOST_FOUND:
                return False
        return True

    def _limits(self, places: Codes, sets: FirstOfSets) -> Floats:
        """Return (n,) how far candidates may be that take the actions at `places` (n, 2)."""
        return sets.limits(*self.actions.group[places].T)

    def _leading(self, tolerance: float) -> Threshold:
        """Return what leads, if a single number decides."""
        lead = self.scorer.decision_score(tolerance)
        return no_threshold(len(self.base)) if lead is None else Threshold(lead.weights, lead.may)

    def _parts(self, blocks: Blocks, tolerance: float) -> list[Codes]:
        """Return positions of blocks that may reach the targets, the nearest ones in the first part.

        In each, those of one pair of columns follow each other.
        """
        some = np.arange(len(blocks.far))
        if self.scorer.decision_score(tolerance) is None:
            some = some[self.scorer.upper_bound(blocks.low, blocks.high, tolerance) >= 0]
        some = some[np.argsort(blocks.far[some], kind="stable")]
        total, parts, start, listed = blocks.size[some].cumsum(), [], 0, thresholds.LISTED_AT_ONCE
        while start < len(some):
            stop = max(int(np.searchsorted(total, listed, side="right")), start + 1)
            parts.append(np.sort(some[start:stop]))
            start, listed = stop, int(total[stop - 1]) + thresholds.MORE_LISTED * listed
        return parts

    def _keep(self, near: ListedPairs, alone: SingleEffects, asked: PairSelection, found: FoundPairs) -> None:
        """Add those that may be answers to what was found, and how far others may be."""
        tried, sets = asked.tried, asked.sets
        one, two = near.at.T
        distance = tried.cost[one] + tried.cost[two] + alone.c * np.maximum(tried.peak[one], tried.peak[two])
        may, sure = self.scorer.decisions(near.sums, asked.tolerance)
        if sets is None:
            certain = np.flatnonzero(sure & (distance <= found.limit))
            found.limit = min(
                found.limit, loose(self._nearest_lawful(tried.places[near.at[certain]], distance[certain]))
            )
            some = np.flatnonzero(may & (distance <= found.limit))
        else:
            some = np.flatnonzero(may)
            some = some[distance[some] <= self._limits(tried.places[near.at[some]], sets)]
            sets.note(tried.places[near.at[some]], near.sums[some], distance[some])
            some = some[distance[some] <= self._limits(tried.places[near.at[some]], sets)]
            found.limit = min(found.limit, loose(sets.limit))
        found.add(tried.places[near.at[some]], distance[some], sure[some])

    def _nearest_lawful(self, places: Codes, distance: Floats) -> float:
        """Return how far the nearest lawful one of candidates is, which take the actions at `places` (n, 2)."""
        rest, most = np.arange(len(places)), thresholds.FEW
        while len(rest):  # mostly one of the first few is
            last, most = min(most, len(rest)) - 1, thresholds.MORE_LAWFUL * most
            cutoff = np.partition(distance[rest], last)[last]
            some, rest = rest[distance[rest] <= cutoff], rest[distance[rest] > cutoff]
            codes = self.actions.candidates(places[some])
            lawful = (self.problem.changes_left(codes) >= 0) & self.problem.check(self.problem.rows(codes))
            if lawful.any():
                return float(distance[some[lawful]].min())
        return np.inf
