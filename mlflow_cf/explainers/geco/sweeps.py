"""Genetic search by exact neighbourhoods: GeCo's sweep mode. It draws nothing at random.

Also all candidates that change the same groups as a known answer and are nearer, as long as they are not too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.agreed import NearestAgreed
from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.few_changes import FewChanges
from mlflow_cf.engine.nearest import Sought
from mlflow_cf.engine.nodes import boxes_of_sets, tighten
from mlflow_cf.engine.three_changes import TripleLimits
from mlflow_cf.engine.thresholds import AGREED_SHARE, MOST_FLAGS, PAIRS_PER_ROW
from mlflow_cf.explainers.geco.around import CLOSE, Around
from mlflow_cf.explainers.geco.construction import exchange, grow, improve, start_of, thinned
from mlflow_cf.explainers.geco.members import Members
from mlflow_cf.explainers.geco.statistics import Statistics
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes
from mlflow_cf.problem.actions import Within
from mlflow_cf.rounding import loose
from mlflow_cf.search.population import changed_sets
from mlflow_cf.search.snapping import codes_of, nearest_favourable_rows
from mlflow_cf.structures.capabilities import boxes_of

PAIRED_INSTEAD = 2**21  # numbers in tables of pairs of changes, in place of generations: as long as some of these take
SOON = 2**20  # of these, before anything else
SOON_SHARE = 4  # of the budget, so much less is spent on them
MOST_NEARER = 3  # times that all candidates of the best changed set are looked at
PAIRED = 2  # changes of which all candidates are known already
PAIRS_WITHIN = (np.inf, 1.08)  # times the expected distance of two changes: together they may do less than expected
SPARE = 2  # single changes of every group that certainly suffice, where several answers are wanted
AT_FIRST = 1  # single changes that are looked at, and those as near; then twice as many, until one certainly suffices
# Of the budget, so much less is kept for background rows, where nothing else is found. With 30 models of XGBoost over
# 100 numbers, answers are 0.042 far in the mean that are thinned, and 0.42 that have their needless changes undone.
LAST_SHARE = 8
THINNED = 8  # evaluations that it takes to thin a row, for each of its changes
NEAREST = 32  # candidates that are nearer than others, in case the model refuses the first ones


class Sweeps:
    """One search.

    It starts with all single changes of the row. Where none suffices, a construction finds answers of several changes;
    generations of crossover and sweeps then come nearer, unless a search by bounds tells the nearest one. Where
    several answers are wanted, all candidates around the row are looked at in place of generations, if these are few
    enough.
    """

    def __init__(self, engine: Engine, budget: Budget, q: int, stable: int, generations: range) -> None:
        """Set up a search that keeps `q` members for some `generations` until the best `stable` ones do not change."""
        self.engine, self.problem, self.budget = engine, engine.problem, budget
        if self.problem.scorer is None:
            raise ValueError("sweeps need a structure")
        self.scorer = self.problem.scorer
        self.q, self.stable, self.generations = q, stable, generations
        self.settled = False
        self._kept = 0  # evaluations that are kept back
        self._unknown = 2  # all candidates of fewer changes are known that may be answers
        self._looked = np.inf  # the cutoff when all candidates around the row were looked at last
        self.statistics = Statistics(Members.PHASES)

    @cached_property
    def members(self) -> Members:
        """The members of the search."""
        return Members(self.engine, self.scorer, self.budget, self.q, self.statistics)

    def run(self) -> tuple[Floats, dict[str, int | float]]:
        """Return favourable rows (m, d), nearest first, and the statistics of the search."""
        agreed = self._agreed()
        if agreed is not None and agreed.whole:
            self.settled = True
            return self.problem.rows(self._of_listed(agreed)), self.statistics.summary(0, self.budget.used)
        few = self._few()
        self._kept = self.budget.keep_back(self.budget.left // LAST_SHARE)
        known = self.problem.own[None][:0] if agreed is None else agreed.codes
        found = self._several(few, known) if self.problem.count > 1 else self._one(few, known)
        self._give_back()
        return found

    def _one(self, few: FewChanges | None, known: Codes) -> tuple[Floats, dict[str, int | float]]:
        """Search for one answer, where some candidates (m, G) are `known`."""
        problem = self.problem
        near = None if few is None else self._single(few)
        if few is not None and near is None:
            near = self._single_or_pair(few)
            near = self._nearest_soon() if near is None else near
        if near is not None:
            self.settled = True
            return problem.rows(near), self.statistics.summary(0, self.budget.used)
        members = self.members
        members.score(known)
        # all three changes take less time than to build an answer up, by which they would be limited
        self.settled = few is not None and few.three.tells and (self._pair(few) or self._triple(few))
        if not self.settled and self._none_at_all():
            return problem.rows(problem.own[None][:0]), self.statistics.summary(0, self.budget.used)
        if not self.settled:
            near = self._construct(few)
            if near is not None:
                self.settled = True
                return problem.rows(near), self.statistics.summary(0, self.budget.used)
            self.settled = few is not None and (self._pair(few) or self._triple(few))
        generations = 0 if self.settled else self._evolve(self.generations.start)
        if few is not None and not self.settled:
            self._nearer()
        generations += self._from_background()
        found = members.population.codes[members.population.favourable]
        if self.settled:  # others have changes that they do not need, and to undo them takes another call of the model
            found = found[(found != problem.own).sum(axis=1) < self._unknown]
        return problem.rows(found), self.statistics.summary(generations, self.budget.used)

    def _agreed(self) -> NearestAgreed | None:
        """Return what enough of many models may accept; None where they do not list it."""
        agreed = self.engine.agreed
        if agreed is None:
            return None
        with self._counted("sweep", len(self.problem.space)):
            return agreed.nearest(np.inf, CLOSE, self.budget, AGREED_SHARE)

    def _of_listed(self, agreed: NearestAgreed) -> Codes:
        """Return the answers (m, G) among all candidates that may be some, and not much more."""
        if self.problem.count == 1:
            return self._nearest(agreed.codes, agreed.sure)
        order = np.argsort(self.problem.distance(agreed.codes), kind="stable")
        codes, favourable = agreed.codes[order], agreed.sure[order]
        favourable[~favourable] = self._favourable(codes[~favourable])
        return codes[favourable]

    def _none_at_all(self) -> bool:
        """Whether nothing favourable is known, and bounds prove that there is nothing."""
        if not self.members.population.favourable.any():
            with self._counted("sweep", len(self.problem.space)):
                self.settled = self.budget.take(1) == 1 and self.engine.beyond_reach(CLOSE)
        return self.settled

    def _give_back(self) -> None:
        """Make the evaluations available that were kept back for background rows."""
        self.budget.give_back(self._kept)
        self._kept = 0

    def _from_background(self) -> int:
        """Start from favourable background rows where nothing else was found; return how many generations passed."""
        members = self.members
        self._give_back()
        if members.population.favourable.any() or self.budget.cut == "clock":
            return 0
        rows = codes_of(self.problem, nearest_favourable_rows(self.problem))
        members.score(rows[: max(1, min(self.budget.left // THINNED, self.q))])
        if members.population.favourable.any():
            most = self.budget.left // (THINNED * len(self.problem.groups))
            members.score(thinned(members, rows[: max(1, min(most, self.q))]))
        return self._evolve(self.generations.start)

    def _construct(self, few: FewChanges | None) -> Codes | None:
        """Build an answer of several changes up, one after the other, where none is known.

        Return the nearest candidates (m, G) where a search tells them, once it is known how far they are at most.
        """
        members = self.members
        for start in start_of(self.problem, members.cascade):
            members.score(start[None] if (start != self.problem.own).any() else start[None][:0])
            merit, changes = members.start(start)
            if not members.population.favourable.any():
                grow(members, start, merit, changes)
                near = self._nearest_soon()
                if near is not None:
                    return near
                if few is None or not self._pair(few):
                    improve(members, by_rows=few is None or members.cutoff >= few.least(3))
                members.constructed = True
        return None

    def _several(self, few: FewChanges | None, known: Codes) -> tuple[Floats, dict[str, int | float]]:
        """Search for several answers: the nearest of one and of two changes, and generations for those of more.

        Some candidates (m, G) are `known`.
        """
        problem, members, generations = self.problem, self.members, 0
        members.score(known)
        if few is None or not (self._sets_of_few(few) or self._around()):
            generations = 0 if self._none_at_all() else self._evolve_several(few)
        found = members.population.codes[members.population.favourable]
        return problem.rows(found[: NEAREST + problem.count]), self.statistics.summary(generations, self.budget.used)

    def _evolve_several(self, few: FewChanges | None) -> int:
        """Construct answers of more changes and pass generations; return how many."""
        problem, members, constructed, grown = self.problem, self.members, False, []
        for start in start_of(problem, members.cascade):
            members.score(start[None] if (start != problem.own).any() else start[None][:0])
            grown.append((start, *members.start(start)))
            if not members.population.favourable.any():
                grow(members, *grown[-1])
                improve(members)
                members.constructed = constructed = True
        # what changes one group or two is known, and what comes on top of it comes at once
        generations = self._evolve(self.generations.start if few is None else 1, few)
        if self.settled:
            return generations
        generations += self._from_background()
        if few is not None and not self._around():
            before = members.cutoff
            for start in grown if not constructed else ():
                grow(members, *start)
            if members.cutoff < before:  # else exchanges seldom find anything that generations have not found
                exchange(members)
            self._nearer()
        return generations

    def _sets_of_few(self, few: FewChanges) -> bool:
        """Note the nearest candidates of all sets of one and of two changes; whether none of more can be as near."""
        members = self.members
        members.score(few.first_singles(CLOSE, SPARE))
        with self._counted("sweep", 2):
            pairs = few.pairs(np.inf, CLOSE, self.budget, PAIRED_INSTEAD)
        if pairs is not None:
            members.score(pairs)
            self._unknown = 3
            if few.three.tells and not few.costs_more(members.cutoff, 3):
                self._sets_of_three(few)
        return self._none_larger(few)

    def _sets_of_three(self, few: FewChanges) -> bool:
        """Note the nearest candidates of all sets of three changes; whether none other can be an answer."""
        members = self.members
        limit = members.cutoff
        if limit == np.inf:
            limit = max(few.three.first_limit(), *self._distances().tolist(), 0.0)
        while limit < np.inf and few.sets(limit, 4) is not None:  # else more changes will be in doubt
            with self._counted("sweep", 3):
                found = few.three.near(TripleLimits(limit, self._distances(but=3), CLOSE), self.budget)
            if found is None:
                return False
            members.score(found)
            if members.cutoff <= limit:
                self._unknown = 4
                return True
            limit = few.three.next_limit(limit)
        return False

    def _distances(self, but: int = 0) -> Floats:
        """Return how far favourable members are, except for those of so many changes."""
        population = self.members.population
        codes = population.codes[population.favourable]
        return self.problem.distance(codes[(codes != self.problem.own).sum(axis=1) != but])

    def _none_larger(self, few: FewChanges) -> bool:
        """Whether certainly no candidate that is not known is nearer than the last of the answers.

        Their least changes cost too much, or bounds refuse them.
        """
        cutoff = self.members.cutoff
        sets = few.sets(cutoff, self._unknown) if cutoff < np.inf else None
        if sets is None or not len(sets):
            return sets is not None
        with self._counted("sweep", 2):
            return self.budget.take(len(sets)) == len(sets) and self._none_possible(sets)

    def _none_possible(self, sets: Bools) -> bool:
        """Whether bounds refuse all candidates whose changed groups are one of some sets (s, G)."""
        problem, actions = self.problem, self.engine.within(loose(self.members.cutoff))
        if len(sets) * len(actions.code) > MOST_FLAGS:
            return False
        boxes = boxes_of_sets(actions, sets)
        within = Within(problem.bound_distance.c, self.members.cutoff, problem.most_changes)
        boxes = boxes[tighten(boxes, actions, within).distance <= within.limit]
        if not len(boxes):
            return True
        population = self.members.population
        known = problem.rows(population.codes[population.favourable][:1])
        scorer = self.engine.hardest(known) or self.scorer  # what the hardest of many models refuse, all do
        bounds = boxes_of(scorer.structure, actions.encoded).bounds(boxes[:, actions.columns])
        return bool((scorer.upper_bound(*bounds, CLOSE) < 0).all())

    def _around(self) -> bool:
        """Look at all candidates that are nearer than what is known; whether they were few enough for that.

        Without it, five answers under l1 alone take 1.35 to 1.6 times as long and are 4 to 7 % farther (Credit and
        Adult, xgboost).
        """
        cutoff = self.members.cutoff
        if not cutoff < np.inf or cutoff == self._looked:
            return False
        with self._counted("sweep", len(self.problem.space)):
            done = Around(self.members, CLOSE).of(np.ones(len(self.problem.groups), dtype=np.bool_))
        self._looked = self.members.cutoff
        return done

    def _nearer(self) -> None:
        """Look at all candidates that change the same groups as the best one, or some of them; then once more.

        What changes one group or two is known already. Coordinate by coordinate, three and more get stuck.
        """
        population = self.members.population
        for _ in range(MOST_NEARER):
            best = population.codes[population.favourable][:1]
            changed = (best != self.problem.own).any(axis=0)
            if changed.sum() <= PAIRED:
                return
            with self._counted("sweep", int(changed.sum())):
                around = Around(self.members, CLOSE)
                if not around.of(changed):
                    around.pairs(best[0])
            before, population = population, self.members.population
            if population is before:
                return

    def _few(self) -> FewChanges | None:
        """Return what few changes do, where the budget lasts for a sweep."""
        groups = len(self.problem.groups)
        if not self.engine.exact or self.budget.left < groups:
            return None
        with self._counted("sweep", 1):
            return self.engine.few if self.budget.take(groups) else None

    def _single(self, few: FewChanges) -> Codes | None:
        """Return the nearest favourable single changes (m, G) if no two changes can be as near; else None."""
        near = self._nearest(*few.nearest_singles(few.least(2), CLOSE, AT_FIRST))
        return near if len(near) else None

    def _single_or_pair(self, few: FewChanges) -> Codes | None:
        """Return the nearest favourable candidates (m, G) of one and of two changes, where two are expected to suffice.

        None unless all that are nearer are known, and no three changes can be as near.
        """
        if not few.tells_pairs:
            return None
        single = self._nearest(*few.nearest_singles(np.inf, CLOSE, AT_FIRST))
        farthest = min([np.inf, *self.problem.distance(single[:1]).tolist()])
        most, pairs, limit = min(SOON, self.budget.left // SOON_SHARE * PAIRS_PER_ROW), None, farthest
        for limit in sorted({min(few.expected * farther, farthest) for farther in PAIRS_WITHIN}, reverse=True):
            with self._counted("sweep", 2):
                pairs = few.nearest_pairs(limit, CLOSE, self.budget, most)
            if pairs is not None:
                break
        if pairs is None:
            return None
        found = np.concatenate([single, self._nearest(*pairs)])
        distance = self.problem.distance(found)
        order = np.argsort(distance, kind="stable")
        settled = len(found) and distance[order[0]] <= limit and distance[order[0]] < few.least(3)
        return np.asarray(found[order]) if settled else None

    def _nearest_soon(self) -> Codes | None:
        """Return the nearest favourable candidates (m, G), whatever they change, by a search that ends soon.

        None where they are not known: but for linear models, there must be an answer before.
        """
        population, limit = self.members.population, self.members.cutoff
        changes = (population.codes[population.favourable][:1] != self.problem.own).sum()
        with self._counted("sweep", len(self.problem.space)):
            found = self.engine.nearest(Sought(limit, CLOSE, int(changes)), self.budget, SOON_SHARE)
        if found is None:
            return None
        sums = self.scorer.structure.sums(self.problem.encoded(found.codes))
        near = self._nearest(found.codes, self.scorer.decisions(sums, CLOSE)[1])
        return near if len(near) else None

    def _pair(self, few: FewChanges) -> bool:
        """Look at all pairs of changes that may be nearer; whether no three changes can be as near as what is known."""
        members = self.members
        with self._counted("sweep", 2):
            pairs = few.nearest_pairs(members.cutoff, CLOSE, self.budget, PAIRED_INSTEAD)
        if pairs is None:
            return False
        members.score(self._nearest(*pairs))
        self._unknown = 3
        return members.cutoff < few.least(3)

    def _triple(self, few: FewChanges) -> bool:
        """Look at all triples of changes that may be nearer; whether nothing else can be as near as what is known."""
        known = self._unknown == 3 and (self.members.cutoff < np.inf or few.three.tells)
        return known and self._sets_of_three(few) and self._none_larger(few)

    @contextmanager
    def _counted(self, operator: str, cells: int) -> Iterator[None]:
        """Count the seconds of the body for an operator, and what it takes from the budget as rows of so many cells."""
        used = self.budget.used
        with self.statistics.timed(operator):
            yield
        self.statistics.cells_naive += (self.budget.used - used) * len(self.problem.space)
        self.statistics.cells_delta += (self.budget.used - used) * cells

    def _nearest(self, codes: Codes, sure: Bools) -> Codes:
        """Return the nearest of candidates (m, G) that are favourable, and not much more; some certainly are."""
        order = np.argsort(self.problem.distance(codes), kind="stable")
        for start in range(0, len(order), NEAREST):
            some = order[start : start + NEAREST]
            favourable = sure[some]
            doubtful = np.flatnonzero(~favourable)
            if len(doubtful):
                favourable[doubtful] = self._favourable(codes[some[doubtful]])
            if favourable.any():
                return np.asarray(codes[some[favourable]])
        return codes[:0]

    def _favourable(self, codes: Codes) -> Bools:
        """Return which of candidates (m, G) meet the target; those that the budget does not last for do not."""
        favourable = np.zeros(len(codes), dtype=np.bool_)
        with self._counted("score", len(self.problem.space)):
            some = self.budget.take(len(codes))
            favourable[:some] = self.scorer.margins(self.problem.encoded(codes[:some]))[0]
        return favourable

    def _evolve(self, least: int, few: FewChanges | None = None) -> int:
        """Pass generations until the best members are favourable and old, or nothing new comes; return how many.

        Members that are old after fewer than `least` generations end nothing.
        """
        members, keys, cutoff = self.members, self.members.seen.keys, np.inf
        for generation in range(1, self.generations.stop):
            before = keys.of(members.population.codes)
            with self.statistics.timed("cross"):
                children = self._cross()
            members.score(children)
            members.sweep_waiting()
            population = members.population
            fresh = ~np.isin(keys.of(population.codes), before)
            if not fresh.any() or self.budget.spent:
                return generation
            if few is not None and members.cutoff < cutoff and self._none_larger(few):
                self.settled = True
                return generation
            cutoff = members.cutoff
            settled = population.favourable[: self.stable].all() and not fresh[: self.stable].any()
            if settled and generation >= least:
                return generation
        return self.generations.stop - 1

    def _cross(self) -> Codes:
        """Join the best members of every two changed sets; where both changed a group, the better one's action wins."""
        population = self.members.population
        near = population.codes[self.problem.distance(population.codes) < self.members.cutoff]
        changed, first = changed_sets(self.problem, near)
        best, flags = near[first], changed[first]
        one, two = np.triu_indices(len(first), k=1)
        return self.members.cascade.repair(np.where(flags[one], best[one], best[two]))
