"""Which of the candidates of a block become the answers of its rows, and what the model is asked about them.

The same as `proof.verify` does for a single row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import BoundTarget, Scorer
from mlflow_cf.goal.targets import rate_sums
from mlflow_cf.model.judge import Outcome
from mlflow_cf.portfolio.nearest import Settled, SettledSets
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.proof.verify import SPARE, joined_outcomes, with_own_scores
from mlflow_cf.structures.capabilities import is_steady, sums_alone


class Asked(NamedTuple):
    """What the model is asked of rows with one answer each, beside their candidates.

    Attributes:
        others, owner: (v, d) lawful rows that it must refuse, (v,) whose each is: a candidate without one of two
            changes, or single changes that are nearer and in doubt.
        rows: (m,) how many rows the search of a single row would ask about.
    """

    others: Floats
    owner: Codes
    rows: Codes

    @classmethod
    def of(cls, policy: BoundPolicy, settled: Settled, X: Floats) -> Asked:
        """Return what is asked about candidates of rows X (m, d); see `proof.verify.verify_rows`."""
        changed = differing(settled.Z, X)
        pair = changed.sum(axis=1) > 1
        owner, column = np.nonzero(changed & pair[:, None])
        undone = settled.Z[owner]
        undone[np.arange(len(owner)), column] = X[owner, column]
        others, owner = np.concatenate([undone, settled.nearer]), np.concatenate([owner, settled.owner])
        lawful = lawful_of(policy, others, X[owner])
        owner = owner[lawful]
        return cls(others[lawful], owner, settled.singles + pair + np.bincount(owner, minlength=len(X)))


def lawful_of(policy: BoundPolicy, Z: Floats, X: Floats) -> Codes:
    """Return which of rows Z (m, d) are counterfactuals of X (m, d) that every constraint accepts."""
    return np.flatnonzero(policy.accepts(Z, X)) if len(Z) else np.empty(0, dtype=np.intp)


def alone_by_structure(Z: Floats, outcome: Outcome, scorer: Scorer, score_tolerance: float) -> tuple[Bools, Outcome]:
    """Return which of candidates Z (m, d) a structure certainly accepts alone, and outcomes with its scores of each.

    See `proof.verify.by_themselves`.
    """
    sums = sums_alone(scorer.structure, scorer.encoded(range(Z.shape[1]), Z))
    favourable, _, margin = rate_sums(sums, scorer.targets)
    certain = favourable & (margin >= score_tolerance)
    return certain, outcome if is_steady(scorer.own) else with_own_scores(outcome, scorer, sums)


def asked_alone(
    Z: Floats, outcome: Outcome, certain: Bools, target: BoundTarget, judged: Callable[[Floats], Outcome | None]
) -> tuple[Bools, Outcome]:
    """Return which of candidates Z (m, d) are accepted alone, and outcomes with what the model says of each alone.

    It is asked about those of which the structure is not `certain`; where it does not answer, they are not accepted.
    """
    accepted, place, said = certain.copy(), np.arange(len(Z)), [outcome]
    for at in np.flatnonzero(~certain).tolist():
        alone = judged(Z[[at]])
        if alone is not None and target.met(alone)[0]:
            accepted[at], place[at] = True, len(Z) + len(said) - 1
            said.append(alone)
    return accepted, joined_outcomes(said).take(place)


def verified_of(count: int) -> int:
    """Return how many candidates of a row are verified together, where `count` answers are wanted."""
    return 2 * count + SPARE


class ChosenSets(NamedTuple):
    """The answers of r rows, k each, and what is asked of the model beside them.

    Attributes:
        Z: (r * k, d) the answers, row after row, in their order; distance, changed: (r * k,) of each.
        undone, owner: (v, d) lawful rows without one of several changes of an answer, (v,) whose each is.
        asked: (r,) how many rows the search of a single row asks about.
    """

    Z: Floats
    distance: Floats
    changed: Codes
    undone: Floats
    owner: Codes
    asked: Codes

    @classmethod
    def of(cls, policy: BoundPolicy, settled: SettledSets, X: Floats, count: int) -> ChosenSets:
        """Choose the nearest `count` candidates of every row of X (r, d); none is asked of rows with unlawful ones."""
        Z, owner, rows = settled.Z, settled.owner, len(X)
        beside = X[owner]
        differs = differing(Z, beside)
        changed = differs.sum(axis=1)
        which, column = np.nonzero(differs & (changed > 1)[:, None])
        undone = Z[which]
        undone[np.arange(len(which)), column] = beside[which, column]
        lawful = policy.accepts(np.concatenate([Z, undone]), np.concatenate([beside, beside[which]]))
        which, undone = which[lawful[len(Z) :]], undone[lawful[len(Z) :]]
        asked = np.bincount(owner, minlength=rows) + np.bincount(owner[which], minlength=rows)
        asked[owner[~lawful[: len(Z)]]] = np.iinfo(asked.dtype).max // 2
        columns = tuple((column,) for column in range(Z.shape[1]))
        distance = policy.bound_distance.distance(columns, Z, beside)
        order = np.lexsort((*np.where(np.isnan(Z), np.inf, Z).T[::-1], changed, distance, owner))
        start = np.searchsorted(owner, np.arange(rows))
        chosen = order[(start[:, None] + np.arange(count)).ravel()]
        place = np.full(len(Z), -1)
        place[chosen] = np.arange(len(chosen)) // count
        mine = np.flatnonzero(place[which] >= 0)
        return cls(Z[chosen], distance[chosen], changed[chosen], undone[mine], place[which[mine]], asked)

    def take(self, some: Bools) -> ChosenSets:
        """Return those of some rows (r,)."""
        if some.all():
            return self
        answers, number = np.repeat(some, len(self.Z) // len(some)), np.cumsum(some) - 1
        mine = some[self.owner]
        parts = self.Z[answers], self.distance[answers], self.changed[answers], self.undone[mine]
        return ChosenSets(*parts, number[self.owner[mine]], self.asked[some])
