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
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.unanimous import alike_models
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import loose
from mlflow_cf.structures.agreement import DEEPEST, Agreement, Asked
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.kernels.triple_grid import GridChanges
from mlflow_cf.structures.structure import Structure


class NearestAgreed(NamedTuple):
    """Candidates that may be answers.

    Attributes:
        codes: (m, G) lawful ones, none farther than the last answer that is wanted; none that changes the same features
            as one that certainly is an answer, and comes after it; sure: (m,) which are certainly accepted.
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
        agreement: the models about the row.
    """

    problem: Problem
    scorer: Scorer
    actions: ActionTable
    agreement: Agreement
    _kept: NearestAgreed | None = field(default=None)

    @classmethod
    def of(cls, problem: Problem, actions: ActionTable) -> Agreed | None:
        """Return the models of a problem about its row; None: they list nothing, or not the several nearest.

        They do not where one is no ensemble of trees, or where these are too large.
        """
        scorer = problem.scorer
        if scorer is None or (problem.count > 1 and problem.variety.near):
            return None
        alike = alike_models(scorer, thresholds.SWEPT)
        if alike is None or not isinstance(scorer.structure, Joined):
            return None
        columns, place = actions.columns, np.empty(len(actions.code), dtype=np.intp)
        place[columns] = np.arange(len(columns))
        changes = GridChanges(place[actions.own][problem.owner], actions.cost[columns], actions.peak[columns])
        agreement = scorer.structure.agreement(actions.encoded, changes, [one.lead.weights for one in alike])
        return None if agreement is None else cls(problem, scorer, actions, agreement)

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
        codes, sure, wanted, within = self.problem.own[None][:0], np.zeros(0, dtype=np.bool_), 1, loose(limit)
        found = NearestAgreed(codes, sure, limit, tolerance, whole=False, low=0.0, used=np.inf)
        asked, several = self._asked(tolerance + thresholds.SWEPT), list[float]()
        if asked is None:
            return found
        with self.agreement.asking(asked) as listing:
            ended = False
            while not ended:
                listed = listing.next(within, wanted, self._most(budget))
                work = 1 + listed.bounds // thresholds.BOUNDS_PER_ROW
                more = self._codes(listed.at)
                lawful = self.problem.lawful(more)
                codes, sure = np.concatenate([codes, more[lawful]]), np.concatenate([sure, listed.sure[lawful]])
                answers = self._answers(more, lawful & listed.sure, listed.sets, tolerance)
                listing.close(listed.sets[answers])
                several += self.problem.distance(more[answers]).tolist()
                wanted = 1 if len(answers) else min(thresholds.MORE_AGREED * wanted, thresholds.MOST_AGREED)
                if len(several) >= self.problem.count:
                    within, wanted = min(within, loose(several[self.problem.count - 1])), thresholds.MOST_AGREED
                enough = budget.take(work) == work and (len(more) > 0 or listed.ended)
                ended, whole = listed.ended or not enough, listed.whole and enough
        near = self.problem.distance(codes) <= within
        used = np.inf if listed.ended else budget.used
        return found._replace(codes=codes[near], sure=sure[near], whole=whole, low=listed.low, used=used)

    def _answers(self, codes: Codes, sure: Bools, sets: Codes, tolerance: float) -> Codes:
        """Return which of candidates (m, G) certainly are answers: the first one of a set that needs all its changes."""
        at = np.flatnonzero(sure)
        if self.problem.count > 1 and len(at):
            owner, undone = self.problem.undone_codes(codes[at])
            held = self.problem.held(undone)
            if held.any():
                sums = self.scorer.structure.sums(self.problem.encoded(undone[held]))
                needed = np.ones(len(at), dtype=np.bool_)
                needed[owner[held][self.scorer.decisions(sums, tolerance)[0]]] = False
                at = at[needed]
            at = at[np.sort(np.unique(sets[at], return_index=True)[1])]
        return at

    def _asked(self, tolerance: float) -> Asked | None:
        """Return what is asked; None: scores may be off by too much."""
        alike = alike_models(self.scorer, tolerance)
        if alike is None:
            return None
        models, spare = np.array([one.models for one in alike]), np.array([one.spare for one in alike])
        may = np.repeat([one.lead.may for one in alike], models)
        sure = np.repeat([one.lead.sure for one in alike], models)
        c, most = float(self.problem.bound_distance.c), self.problem.most_changes
        asked = Asked(may, sure, models, spare, c, most)
        if self.problem.count == 1:
            return asked
        return asked._replace(undo=undoable(self.problem, self.actions)[self.problem.owner])

    def _codes(self, at: Codes) -> Codes:
        """Return the candidates (m, G) whose columns take the values at places (m, d) of the grid."""
        codes = np.empty((len(at), len(self.problem.groups)), dtype=np.intp)
        codes[:, self.problem.owner] = self.actions.code[self.actions.columns[at]]
        return codes

    def _most(self, budget: Budget) -> int:
        """Return how many bounds are made at most, in what is left of the budget and of the time."""
        most, seconds = budget.left * thresholds.BOUNDS_PER_ROW, budget.seconds_left
        return most if seconds is None else int(min(most, max(seconds, 0.0) * thresholds.BOUNDS_PER_SECOND))


def _tells(kept: NearestAgreed, limit: float) -> bool:
    """Whether all candidates no farther than `limit` are there that may be answers."""
    return kept.whole or loose(limit) < tight(kept.low)


def try_agreement(structure: Structure, Z: Floats) -> None:
    """List what a model accepts beside itself, of the first of coded rows (m, d) with values of the others.

    It warms up the kernels, so that no later row waits until they are compiled.
    """
    joined = Joined.of([structure, structure], Z.shape[1])
    values, width = [joined.encode(column, codes) for column, codes in enumerate(Z.T)], structure.outputs
    changes = GridChanges(np.arange(Z.shape[1]) * len(Z), np.ones(Z.size), np.ones(Z.size))
    agreement = joined.agreement(values, changes, [np.ones(width), np.ones(width)])
    if agreement is not None:
        with agreement.asking(
            Asked(np.zeros(2), np.zeros(2), np.ones(2, np.intp), np.zeros(2, np.intp), 0.0, DEEPEST)
        ) as listing:
            listing.next(np.inf, 1, 1)
