"""Candidates that several models of trees must accept, all of them or enough, however many changes they take.

They are listed, the nearest ones first: until one certainly is an answer, and then as far as it is. That is search and
proof at once; it needs no generations and no certificate after it. Where several answers are wanted, the list goes on
among the candidates that change other features, until there are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.actions import undoable
from mlflow_cf.engine.nodes import tight
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import loose
from mlflow_cf.structures.agreement import Agreement, Asked, Listed, Listing
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.kernels.triple_grid import GridChanges


class NearestAgreed(NamedTuple):
    """Candidates that may be answers.

    Attributes:
        codes: (m, G) lawful ones, none farther than the last of the answers that are wanted. Of each set of changed
            features they end with the first that certainly is an answer, and those as near.
        sure: (m,) which are certainly accepted.
        limit, tolerance: how far candidates were looked for, and by how much scores may be off.
        whole: whether all of them are there; low: how far others are at least.
        used: evaluations that it took, as many as there are where more do not help.
    """

    codes: Codes
    sure: Bools
    limit: float
    tolerance: float
    whole: bool
    low: float
    used: float


@dataclass
class Agreed:
    """What enough models may accept of one row.

    Attributes:
        problem: every feature is a group by itself, and may stay as it is; scorer: rates candidates.
        actions: all actions worth looking at, and the row's own values.
        agreement: the models about the row; told: whether it tells what they certainly accept, or only some of it.
    """

    problem: Problem
    scorer: Scorer
    actions: ActionTable
    agreement: Agreement
    told: bool
    _kept: NearestAgreed | None = field(default=None)

    @classmethod
    def of(cls, problem: Problem, actions: ActionTable) -> Agreed | None:
        """Return the models of a problem about its row; None: they list nothing, or not the several nearest.

        They do not where one is no ensemble of trees, or where these are too large.
        """
        scorer = problem.scorer
        if scorer is None or (problem.count > 1 and problem.variety.near):
            return None
        decided = scorer.model_decisions(thresholds.SWEPT)
        if decided is None or not isinstance(scorer.structure, Joined):
            return None
        columns, place = actions.columns, np.empty(len(actions.code), dtype=np.intp)
        place[columns] = np.arange(len(columns))
        changes = GridChanges(place[actions.own][problem.owner], actions.cost[columns], actions.peak[columns])
        agreement = scorer.structure.agreement(actions.encoded, changes, decided.weights)
        return None if agreement is None else cls(problem, scorer, actions, agreement, decided.told)

    def nearest(self, limit: float, tolerance: float, budget: Budget, share: float) -> NearestAgreed:
        """Return the candidates no farther than `limit` that may be answers, or some of them.

        Scores may be off by `tolerance`, in units of max(1, |score|). That takes a `share` of the budget at most.
        """
        kept, most = self._kept, int(share * budget.left)
        known = kept is not None and limit <= kept.limit and tolerance <= kept.tolerance
        if kept is None or not known or (not _tells(kept, limit) and most > kept.used):
            part = budget.part(most, share)
            kept = self._kept = self._listed(limit, tolerance, part)
            budget.take(part.used)
        near = self.problem.distance(kept.codes) <= limit
        return kept._replace(codes=kept.codes[near], sure=kept.sure[near], whole=_tells(kept, limit))

    def _listed(self, limit: float, tolerance: float, budget: Budget) -> NearestAgreed:
        """Return the candidates no farther than a limit that may be answers, or some of them."""
        noted = _Noted(self, tolerance, self.problem.own[None][:0], np.zeros(0, dtype=np.bool_), loose(limit))
        found = NearestAgreed(noted.codes, noted.sure, limit, tolerance, whole=False, low=0.0, used=np.inf)
        asked = self._asked(tolerance + thresholds.SWEPT)
        if asked is None:
            return found
        with self.agreement.asking(asked) as listing:
            ended = False
            while not ended:
                listed = listing.next(noted.within, noted.wanted, self._most(budget))
                work = 1 + listed.bounds // thresholds.BOUNDS_PER_ROW + noted.add(listed, listing)
                enough = budget.take(work) == work and (len(listed.at) > 0 or listed.ended)
                ended, whole = listed.ended or not enough, listed.whole and enough
        near = self.problem.distance(noted.codes) <= noted.within
        used = np.inf if listed.ended else budget.used
        return found._replace(codes=noted.codes[near], sure=noted.sure[near], whole=whole, low=listed.low, used=used)

    def _asked(self, tolerance: float) -> Asked | None:
        """Return what is asked; None: scores may be off by too much."""
        decided = self.scorer.model_decisions(tolerance)
        if decided is None:
            return None
        c, most = float(self.problem.bound_distance.c), self.problem.most_changes
        asked = Asked(decided.may, decided.sure, decided.models, decided.spare, c, most)
        if self.problem.count == 1:
            return asked
        return asked._replace(undo=undoable(self.problem, self.actions)[self.problem.owner])

    def codes(self, at: Codes) -> Codes:
        """Return the candidates (m, G) whose columns take the values at places (m, d) of the grid."""
        codes = np.empty((len(at), len(self.problem.groups)), dtype=np.intp)
        codes[:, self.problem.owner] = self.actions.code[self.actions.columns[at]]
        return codes

    def _most(self, budget: Budget) -> int:
        """Return how many bounds are made at most, in what is left of the budget and of the time."""
        most, seconds = budget.left * thresholds.BOUNDS_PER_ROW, budget.seconds_left
        return most if seconds is None else int(min(most, max(seconds, 0.0) * thresholds.BOUNDS_PER_SECOND))


@dataclass
class _Noted:
    """What was listed.

    Attributes:
        of: what is listed; tolerance: by how much scores may be off.
        codes, sure: see `NearestAgreed`.
        within: how far candidates are looked for; wanted: how many are to be listed next, at least.
        answers: how far the answers are so far.
    """

    of: Agreed
    tolerance: float
    codes: Codes
    sure: Bools
    within: float
    wanted: int = 1
    answers: list[float] = field(default_factory=list)

    def add(self, listed: Listed, listing: Listing) -> int:
        """Note what was listed, and what is to be listed next; return how many candidates were scored."""
        problem, codes = self.of.problem, self.of.codes(listed.at)
        may, certain, scored = self._accepted(codes, listed.sure)
        kept = may & problem.lawful(codes)
        self.codes, self.sure = np.concatenate([self.codes, codes[kept]]), np.concatenate([self.sure, certain[kept]])
        at = np.flatnonzero(kept & certain)
        if problem.count > 1:
            if not self.of.told:
                listing.know(listed.sets[certain])
            needed, undone = self._needed(codes[at])
            at, scored = at[needed], scored + undone
            at = at[np.sort(np.unique(listed.sets[at], return_index=True)[1])]
            listing.close(listed.sets[at])
        self.answers += problem.distance(codes[at]).tolist()
        self.wanted = 1 if len(at) else min(thresholds.MORE_AGREED * self.wanted, thresholds.MOST_AGREED)
        if len(self.answers) >= problem.count:
            self.within = min(self.within, loose(self.answers[problem.count - 1]))
            self.wanted = thresholds.MOST_AGREED
        return scored

    def _accepted(self, codes: Codes, sure: Bools) -> tuple[Bools, Bools, int]:
        """Return which listed candidates (m, G) may be accepted, which certainly are, and how many were scored.

        Some are known to be `sure`; the others are scored where a list does not tell.
        """
        open_ones = np.flatnonzero(~sure) if not self.of.told else np.empty(0, dtype=np.intp)
        may, sure = np.ones(len(codes), dtype=np.bool_), sure.copy()
        if len(open_ones):
            may[open_ones], sure[open_ones] = self._decisions(codes[open_ones])
        return may, sure, len(open_ones)

    def _needed(self, codes: Codes) -> tuple[Bools, int]:
        """Return (m,) which candidates certainly need all their changes, and how many others were scored for that."""
        owner, undone = self.of.problem.undone_codes(codes)
        held, needed = self.of.problem.held(undone), np.ones(len(codes), dtype=np.bool_)
        if held.any():
            needed[owner[held][self._decisions(undone[held])[0]]] = False
        return needed, int(held.sum())

    def _decisions(self, codes: Codes) -> tuple[Bools, Bools]:
        """Return which of candidates (m, G) may be accepted, and which certainly are."""
        scorer = self.of.scorer
        return scorer.decisions(scorer.structure.sums(self.of.problem.encoded(codes)), self.tolerance)


def _tells(kept: NearestAgreed, limit: float) -> bool:
    """Whether all candidates no farther than `limit` are there that may be answers."""
    return kept.whole or loose(limit) < tight(kept.low)
