"""Candidates of two changes, told by what the structure adds for pairs to what each change does alone.

Pairs are looked at in batches of a limited size. Where several answers are wanted, these are only the pairs that may
become the first answer of their changed set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.first_of_sets import FirstOfSets
from mlflow_cf.engine.nearest_first import Accepted, NearestFirst
from mlflow_cf.engine.units.pairs import ESTIMATED, Alone, UnitChanges, UnitPairs, estimated_pairs, with_own
from mlflow_cf.engine.units.state import Effects, PairLimits
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import all_loose, loose
from mlflow_cf.structures.capabilities import HiddenLayer, Pairs, SupportsHidden, SupportsPairs
from mlflow_cf.structures.kernels.blocks import Blocks, ListedPairs, SingleEffects, Threshold
from mlflow_cf.structures.pair_tables import PairTables, no_threshold
from mlflow_cf.structures.structure import Encoded


@dataclass
class FoundPairs:
    """What was found so far.

    Attributes:
        limit: how far answers can be at most.
        asking: asks all models, where a few of them lead.
        places: (n, 2) the actions of candidates; far: (n,) how far these are; sure: (n,) whether each certainly meets
            the targets.
    """

    limit: float
    asking: NearestFirst | None = None
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
        actions: the changes; sums: (actions, k) of the row with each of them; base: (k,) of the row itself.
        own: the row's encoded values (1, ...), one array per column.
        asking: where the scorer is that of the few hardest models alone: asks all, whose scores may be so much off.
    """

    problem: Problem
    scorer: Scorer
    actions: ActionTable
    own: Sequence[Encoded]
    sums: Floats
    base: Floats
    asking: Callable[[float], NearestFirst] | None = None

    @cached_property
    def told(self) -> Pairs | None:
        """What the structure says of pairs of changes."""
        structure = self.scorer.structure
        return structure.pairs(self.own) if isinstance(structure, SupportsPairs) else None

    @property
    def tells(self) -> bool:
        """Whether pairs of changes are told, or several answers wanted of a model with one layer of units."""
        return self.told is not None or (self.problem.count > 1 and self._own_layer is not None)

    @cached_property
    def _own_layer(self) -> HiddenLayer | None:
        """The only layer of units over the row's own values."""
        return self._layer(self.own)

    def _layer(self, values: Sequence[Encoded]) -> HiddenLayer | None:
        """Return the only layer of units over some values of every column."""
        structure, lead = self.scorer.structure, self.scorer.decision_score(0.0)
        if lead is None or not isinstance(structure, SupportsHidden):
            return None
        return structure.hidden(values, lead.weights)

    def look(self, asked: PairSelection, budget: Budget, most: int, near: float = 0.0) -> tuple[Codes, Bools] | None:
        """Return the actions (m, 2) of candidates that may be answers, and whether they certainly meet the targets.

        The nearest come first. None: see `FewChanges.pairs`. Columns with changes as `near` as that come in front.
        """
        if budget.take(1) < 1:
            return None
        if self.told is None:
            return self._look_at_units(asked, budget, most)
        tried, columns = asked.tried, asked.tried.pairs(asked.limit)
        c, found = self.problem.bound_distance.c, FoundPairs(asked.limit)
        if self.asking is not None:
            found.asking = self.asking(asked.tolerance)
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
        return self._nearest(found, asked.sets)

    def _nearest(self, found: FoundPairs, sets: FirstOfSets | None) -> tuple[Codes, Bools]:
        """Return the pairs that are near enough, the nearest first, and whether each certainly meets the targets."""
        order = np.flatnonzero(found.far <= found.limit)
        if sets is not None:
            order = order[found.far[order] <= self._limits(found.places[order], sets)]
        order = order[np.argsort(found.far[order], kind="stable")]
        return found.places[order], found.sure[order]

    def _look_at_units(self, asked: PairSelection, budget: Budget, most: int) -> tuple[Codes, Bools] | None:
        """Do what `look` does for several answers of a model with one layer of units."""
        tried, sets, lead = asked.tried, asked.sets, self.scorer.decision_score(asked.tolerance)
        own = self._own_layer
        if lead is None or own is None or sets is None or len(tried.places) * len(own.bias) > thresholds.MOST_ADDED_UP:
            return None
        layer = self._layer(with_own(self.own, tried.encoded))
        if layer is None:
            return None
        problem, c = self.problem, self.problem.bound_distance.c
        code = self.actions.code[tried.places]
        changes = UnitChanges(layer, tried.start, code, tried.cost, tried.peak, c, lead)
        score = self.sums[tried.places] @ lead.weights
        alone = Alone(score, float(self.base @ lead.weights), score >= lead.may)
        for lowers in (True, False):
            if lowers and (problem.linking or not problem.plain_limits):
                continue
            limits = self._pair_limits(asked.limit, sets, lowers=lowers)
            pairs = changes.pairs(alone, limits, min(most, thresholds.MOST_SCORED))
            if pairs is None or budget.take(pairs.near) < pairs.near:
                return None
            found = FoundPairs(asked.limit)
            if self._keep_those_of_units(pairs, asked, sets, found):
                return self._nearest(found, sets)
        return None

    def note_estimated(self, tried: TriedActions, sets: FirstOfSets, tolerance: float) -> None:
        """Note pairs that suffice if effects add up, of the two features that are nearest then, and some beyond."""
        lead = self.scorer.decision_score(tolerance)
        if lead is None or len(tried.places) * len(tried.counts) > thresholds.MOST_ADDED_UP:
            return
        base, c = float(self.base @ lead.weights), self.problem.bound_distance.c
        effects = Effects.of(self.sums[tried.places] @ lead.weights - base, tried.cost, tried.peak, c, tried.start)
        at, far = estimated_pairs(effects, lead.sure - base)
        order = np.argsort(far, kind="stable")[: ESTIMATED * (self.problem.count + 1)]
        order = order[np.isfinite(far[order])]
        if len(order):
            places = tried.places[at[order]]
            sets.note(places, self._sums_of(places), far[order])

    def _sums_of(self, places: Codes) -> Floats:
        """Return the sums (m, k) of candidates that take the actions at `places` (m, 2)."""
        return self.scorer.structure.sums(self.actions.encoded_candidates(self.actions.candidates(places)))

    def _pair_limits(self, limit: float, sets: FirstOfSets, *, lowers: bool) -> PairLimits:
        """Return how far pairs may be, as far as it is known."""
        owner = self.problem.owner
        nearest = np.minimum(sets.nearest, sets.nearest.T)[np.ix_(owner, owner)]
        return PairLimits.of(limit, nearest, self.problem.count, lowers=lowers)

    def _keep_those_of_units(
        self, pairs: UnitPairs, asked: PairSelection, sets: FirstOfSets, found: FoundPairs
    ) -> bool:
        """Add those that may be answers; return False if some of those that lowered limits are none."""
        actions, owner = self.actions, self.problem.owner
        places = asked.tried.places[pairs.at]
        sums, (one, two) = self._sums_of(places), places.T
        distance = actions.cost[one] + actions.cost[two]
        distance = distance + self.problem.bound_distance.c * np.maximum(actions.peak[one], actions.peak[two])
        may, sure = self.scorer.decisions(sums, asked.tolerance)
        sets.note(places, sums, distance)
        found.limit = min(asked.limit, loose(sets.limit))
        found.add(places[may], distance[may], sure[may])
        first, second = np.triu_indices(len(owner), k=1)
        known = sets.limits(owner[first], owner[second])
        return bool((known <= np.minimum(all_loose(pairs.nearest[first, second]), pairs.limit)).all())

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
            if not self._keep(near, alone, asked, found, budget):
                return False
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
            some = some[self.scorer.may_meet(blocks.low, blocks.high, tolerance)]
        some = some[np.argsort(blocks.far[some], kind="stable")]
        total, parts, start, listed = blocks.size[some].cumsum(), [], 0, thresholds.LISTED_AT_ONCE
        while start < len(some):
            stop = max(int(np.searchsorted(total, listed, side="right")), start + 1)
            parts.append(np.sort(some[start:stop]))
            start, listed = stop, int(total[stop - 1]) + thresholds.MORE_LISTED * listed
        return parts

    def _keep(
        self, near: ListedPairs, alone: SingleEffects, asked: PairSelection, found: FoundPairs, budget: Budget
    ) -> bool:
        """Add those that may be answers to what was found, and how far others may be; False: that takes too much."""
        tried, sets = asked.tried, asked.sets
        one, two = near.at.T
        distance = tried.cost[one] + tried.cost[two] + alone.c * np.maximum(tried.peak[one], tried.peak[two])
        may, sure = self.scorer.decisions(near.sums, asked.tolerance)
        if found.asking is not None:
            some = np.flatnonzero(may)
            codes = self.actions.candidates(tried.places[near.at[some]])
            accepted = found.asking.ask(codes, distance[some], found.limit, budget)
            return self._keep_accepted(tried.places[near.at[some]], distance[some], accepted, found)
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
        return True

    def _keep_accepted(self, places: Codes, distance: Floats, accepted: Accepted | None, found: FoundPairs) -> bool:
        """Do the same for those of candidates at `places` (n, 2) that all models may accept."""
        if accepted is not None:
            found.limit = accepted.limit
            found.add(places[accepted.at], distance[accepted.at], accepted.sure)
        return accepted is not None

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


class TriedActions(NamedTuple):
    """The actions tried, column after column.

    Attributes:
        places: (t,) which of all actions they are; start: (d + 1,) where those of each column start.
        cost, peak: (t,) what each adds to the distance.
        encoded: per column, their encoded values.
    """

    places: Codes
    start: Codes
    cost: Floats
    peak: Floats
    encoded: list[Encoded]

    @classmethod
    def of(cls, actions: ActionTable, tried: Bools) -> TriedActions:
        """Return the actions that are `tried` (actions,)."""
        columns, owner = actions.columns, actions.owner
        some = tried[columns]
        ends = np.diff(actions.start)[owner].cumsum()
        start = np.append(0, some.cumsum()[ends - 1])
        parts = zip(actions.encoded, pairwise([0, *ends.tolist()]), strict=True)
        places = columns[some]
        encoded = [table[some[first:stop]] for table, (first, stop) in parts]
        return cls(places, start, actions.cost[places], actions.peak[places], encoded)

    @property
    def counts(self) -> Codes:
        """(d,) how many there are of every column."""
        return np.diff(self.start)

    def pairs(self, limit: float) -> ColumnPairs:
        """Return the pairs of columns of which two actions may be within the limit, the nearest first."""
        filled = np.flatnonzero(self.counts)
        least = np.full(len(self.counts), np.inf)
        if len(filled):
            least[filled] = np.minimum.reduceat(self.cost, self.start[filled])
        both = least[:, None] + least
        first, second = np.nonzero(np.triu(both <= limit, k=1))
        order = np.argsort(both[first, second], kind="stable")
        first, second = first[order], second[order]
        return ColumnPairs(first, second, both[first, second])


class ColumnPairs(NamedTuple):
    """Pairs of columns: the `first` (p,) and the `second` ones (p,), and what two changes of them cost at `least`."""

    first: Codes
    second: Codes
    least: Floats


class PairSelection(NamedTuple):
    """Which pairs of actions are looked at.

    Attributes:
        tried: the actions; limit: how far two may be.
        tolerance: by how much sums may be off.
        sets: the nearest candidates by what they change, where several answers are wanted.
    """

    tried: TriedActions
    limit: float
    tolerance: float
    sets: FirstOfSets | None


def batches(sizes: Codes, most: int, first: int) -> list[Codes]:
    """Return the positions of tables of such sizes in portions of about so many cells, so many of them `first`."""
    total = sizes.cumsum()
    whole = np.searchsorted(total, np.arange(most, total[-1] if len(total) else 0, most))
    ends = sorted({*whole.tolist(), first})
    return [part for part in np.split(np.arange(len(sizes)), ends) if len(part)]
