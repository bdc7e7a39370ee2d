"""Certificates: answers proved nearest, replaced by nearer ones, or proved not to exist.

Like a proof, a certificate is a generator: it yields rows and is sent what the judge says about them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.judge import Outcome
from mlflow_cf.problem import Codes
from mlflow_cf.proof import Case, Proved, joined_outcomes
from mlflow_cf.result import Proof as ProofKind
from mlflow_cf.search.best_first import BestFirst, Leaf

Certificate = Generator[Floats, Outcome, Proved]
NOT_CERTIFIED = "not certified: "  # begins the reason of an answer that stands without the certificate it was to have


def certify(case: Case, proved: Proved, tolerance: float) -> Certificate:
    """Prove that verified answers are the nearest, or find those that are.

    Args:
        case: the row, with the budget that is left.
        proved: verified answers, nearest first among distinct changed sets.
        tolerance: how far the structure's scores may be from the model's.
    """
    if case.problem.rater is None:
        return replace(proved, note=f"{NOT_CERTIFIED}the model could not be opened for this row")
    if any(group.interval for group in case.problem.groups):
        return replace(proved, note=f"{NOT_CERTIFIED}values between those of the background are not searched exactly")
    search = BestFirst(case.problem, case.budget, _limit(case, proved), tolerance)
    run = _Run(case, proved)
    while len(run.rows) < case.problem.count:
        leaf = search.next()
        if leaf is None:
            break
        accepted = yield from run.judged(leaf)
        if leaf.certain and not accepted and run.refused:
            return replace(proved, note=f"{NOT_CERTIFIED}the opened model and the logged one disagree on this row")
        if accepted:
            search.closed.add(run.sets[-1])
    return run.result(search)


def _limit(case: Case, proved: Proved) -> float:
    """Return the distance of the last answer needed, or no limit."""
    sets = case.problem.changed(proved.rows)
    count = case.problem.count
    if len({key.tobytes() for key in sets}) < count:
        return np.inf
    return float(case.distance(proved.rows)[count - 1])


@dataclass
class _Run:
    """What was found so far."""

    case: Case
    proved: Proved

    def __post_init__(self) -> None:
        self.rows: list[Floats] = []
        self.outcomes: list[Outcome] = []
        self.sets: list[bytes] = []
        self.refused = False

    def judged(self, leaf: Leaf) -> Generator[Floats, Outcome, bool]:
        """Ask whether a candidate is an answer: accepted, 1-minimal, with a changed set of its own."""
        problem = self.case.problem
        key = (leaf.codes != problem.own).tobytes()
        self.refused = False
        if key in self.sets:
            return False
        rows = problem.rows(leaf.codes[None])
        known = np.flatnonzero(((self.proved.rows == rows) | (np.isnan(self.proved.rows) & np.isnan(rows))).all(axis=1))
        if len(known) and not self.rows:
            outcome = self.proved.outcome.take(known[:1])
        else:
            variants = self._undone(leaf.codes) if self.rows else rows[:0]
            Z = np.concatenate([rows, variants])
            lawful = problem.check(Z)
            if not lawful[0] or not self.case.budget.take(int(lawful.sum()), even_late=True):
                return False
            said = yield Z[lawful]
            favourable = self.case.target.rate(said).favourable
            self.refused = not favourable[0]
            if not favourable[0] or favourable[1:].any():
                return False
            outcome = said.take(np.arange(1))
        self.rows.append(rows[0])
        self.outcomes.append(outcome)
        self.sets.append(key)
        return True

    def _undone(self, codes: Codes) -> Floats:
        """Return the candidate with each of its changed groups put back; the first answer needs no such test."""
        problem = self.case.problem
        changed = np.flatnonzero(codes != problem.own)
        variants = np.repeat(codes[None], len(changed), axis=0)
        variants[np.arange(len(changed)), changed] = problem.own[changed]
        allowed = np.array([problem.groups[number].own_allowed for number in changed.tolist()], dtype=np.bool_)
        return problem.rows(variants[allowed & (len(changed) > 1)])

    def result(self, search: BestFirst) -> Proved:
        """Return the answers with their proofs; what the budget left open keeps the best bound there is."""
        case, found = self.case, len(self.rows)
        told = {row.tobytes() for row in self.rows}
        rest = [at for at, row in enumerate(self.proved.rows) if row.tobytes() not in told][
            : case.problem.count - found
        ]
        rows = np.array([*self.rows, *self.proved.rows[rest]]).reshape(-1, len(case.problem.space))
        outcome = joined_outcomes([*self.outcomes, self.proved.outcome.take(np.array(rest, dtype=np.intp))])
        distance = case.distance(rows).tolist()
        bounds = [*distance[:found], *(min(search.low, own) if search.cut else None for own in distance[found:])]
        proofs: list[ProofKind] = ["optimal" for _ in range(found)]
        proofs += ["bounded" if search.cut else "none" for _ in rest]
        return Proved(rows, outcome, tuple(proofs), tuple(bounds), exhausted=not search.cut)
