"""Certificates: answers proved nearest, replaced by nearer ones, or proved not to exist.

Like a proof, a certificate is a generator: it yields rows and is sent what the judge says about them.

Mixed-integer programs certify where numbers take any value and the exact search has even points only. The lower bound
of the distance is computed with targets loosened by the tolerance, so that it holds for all rows the judge may accept;
answers are searched with targets tightened by more than it. So `optimal` means: up to the tolerance.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.best_first import BestFirst
from mlflow_cf.engine.frontier import KeyedCandidate
from mlflow_cf.engine.moves.search import search_any
from mlflow_cf.engine.thresholds import AGREED_IN_PROOFS, SCORE_TOLERANCES
from mlflow_cf.features import Floats
from mlflow_cf.milp.minimise import lower_bound, minimise
from mlflow_cf.milp.model import SLACK, Model
from mlflow_cf.milp.program import NotLinearError
from mlflow_cf.milp.rules import bending
from mlflow_cf.model.judge import Asked, Outcome
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.proof.verify import (
    NOTHING,
    Inquiry,
    RowTask,
    VerifiedAnswers,
    apart,
    joined_outcomes,
    nearest,
    nearest_first,
    select,
)
from mlflow_cf.search.population import near_copies
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Proof

NEAREST = 10_000  # evaluations: a quarter of a second
AHEAD = 64  # candidates within the tolerance that the judge is asked about together


def certify(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Prove that verified answers are the nearest, or find those that are.

    Args:
        task: the row, with the budget that is left.
        verified: verified answers, nearest first among distinct changed sets.
        tolerance: how far the structure's scores may be from the model's.
    """
    if task.problem.scorer is None:
        return replace(verified, note=task.obstacle)
    if task.budget.late:
        return verified if verified.proofs else replace(verified, note=Uncertified("late"))
    settled = yield from at_once(task, verified, tolerance)
    if settled.proofs:
        return settled
    engine, known = task.engine, verified
    problem = engine.problem
    if not engine.exact or (problem.variety.near and problem.count > 1 and problem is not task.problem):
        # of the nearest several, points between those of the model count, too
        return (yield from certify_by_program(task, verified, tolerance))
    if problem.variety.near and problem.count > 1:
        # near-copies of an answer do not count: twice as many are needed to bound the distance of the last one
        twice = replace(task, engine=engine.wanting(2 * problem.count))
        known = yield from nearest_of_sets(twice, verified, tolerance)
    run = Certification(task, known, (yield from needed(task, known)), filling=problem.variety.near)
    search = BestFirst(engine, task.budget, run.limit(), tolerance, known=known.rows)
    agreed = not search.misses(known.rows).any() and (yield from run.extend(search))
    if agreed and run.rows and run.missing and not search.cut and not run.filling:
        # there is no further changed set: what is next has one of those that are known
        run.filling = True
        search = BestFirst(engine, task.budget, run.limit(), tolerance, np.array(run.codes) != problem.own)
        agreed = yield from run.extend(search)
    if not agreed or (run.missing and not search.cut and run.overlooked):
        return replace(verified, note=Uncertified("disagree"))
    return run.result(search)


def nearest_of_sets(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Return the nearest answers with the changed sets of verified ones, as far as a part of the budget goes."""
    part = task.budget.part(NEAREST)
    if not len(verified.rows):
        return verified
    inner = replace(task, budget=part)
    run = Certification(inner, verified, (yield from needed(inner, verified)), filling=True)
    sets = task.problem.changed(verified.rows)
    search = BestFirst(task.engine, part, run.limit(), tolerance, sets)
    agreed = yield from run.extend(search)
    task.budget.take(part.used)
    found = run.result(search)
    return found if agreed and len(found.rows) >= len(verified.rows) else verified


def at_once(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Prove the only answer that is wanted by what one and two changes can do; as it was where that does not settle it.

    It is settled if three changes cannot be as near, and if the judge refuses all nearer rows that the model may
    accept.
    """
    if task.problem.count > 1 or len(verified.rows) != 1 or verified.proofs or task.budget.late:
        return verified
    others = _nearer(task, verified.rows, SCORE_TOLERANCES * tolerance)
    if others is None or len(others) > AHEAD or task.budget.take(len(others)) < len(others):
        return verified
    if len(others) and task.accepts(others, (yield others)).any():
        return verified
    distance = float(task.distance(verified.rows)[0])
    return replace(verified, proofs=("optimal",), bounds=(distance,), exhausted=True)


def _nearer(task: RowTask, answer: Floats, score_tolerance: float) -> Floats | None:
    """Return the lawful rows (m, d) that come before an answer (1, d), and that the model may accept by its structure.

    None where it does not tell all of them.
    """
    problem, distance = task.engine.problem, float(task.distance(answer)[0])
    codes = _may_be_answers(task, distance, score_tolerance)
    if codes is None:
        return None
    near = problem.rows(codes)
    own = same(near, answer[0]).all(axis=1)
    if not own.any():
        return None
    others = near[~own]
    others = others[task.problem.check(others)] if len(others) else others
    rows = np.concatenate([answer, others])
    first = not len(others) or nearest(task.problem, rows, task.distance(rows), polished=True) == 0
    return others[:0] if first else others


def _may_be_answers(task: RowTask, distance: float, score_tolerance: float) -> Codes | None:
    """Return the candidates (m, G) no farther than a distance that the model may accept; None: it does not tell all."""
    engine = task.engine
    if engine.exact and engine.agreed is not None:
        agreed = engine.agreed.nearest(distance, score_tolerance, task.budget, AGREED_IN_PROOFS)
        return agreed.codes if agreed.whole else None
    found = None if engine.found is None else engine.found.within(engine.problem, distance, score_tolerance)
    if found is not None:
        return found
    few = engine.few if engine.exact else None
    if few is None or few.least(3) <= distance:
        return None
    pairs = few.pairs(distance, score_tolerance, task.budget)
    if pairs is None:
        return None
    codes = np.concatenate([few.singles(distance, score_tolerance), pairs])
    if len(codes) > 1:  # a search may have listed them, which doubts more
        sums = few.scorer.structure.sums(engine.problem.encoded(codes))
        codes = codes[few.scorer.decisions(sums, score_tolerance)[0]]
    return codes


def needed(task: RowTask, verified: VerifiedAnswers) -> Generator[Asked, Outcome, Bools]:
    """Return which of the accepted rows (k, d) are known to need all their changes; a single answer is not asked."""
    problem, rows = task.problem, verified.rows
    if problem.count == 1 or not len(rows):
        return np.ones(len(rows), dtype=np.bool_)
    needed = verified.minimal.copy() if len(verified.minimal) else np.zeros(len(rows), dtype=np.bool_)
    open_ones = np.flatnonzero(~needed)
    owner, variants = problem.undone(rows[open_ones])
    lawful = problem.check(variants) if len(variants) else np.empty(0, dtype=np.bool_)
    owner, variants = open_ones[owner[lawful]], variants[lawful]
    needed[:] = True
    if task.budget.take(len(variants)) < len(variants):
        needed[owner] = False
    elif len(variants):
        needed[owner[task.accepts(variants, (yield variants))]] = False
    return needed


class Unconfirmed(NamedTuple):
    """An answer that certainly meets the target by the structure, and that the judge was not asked about yet.

    Of its rows (m, d), the judge must accept the first, and refuse the others: each lacks one of its changes.
    """

    place: int
    rows: Floats


@dataclass
class Certification:
    """The state of a certification: the answers so far.

    Attributes:
        needed: (k,) of the answers known before, whether each of their changes is known to be needed.
        filling: whether changed sets may repeat.
        rows, codes, outcomes: the answers.
    """

    task: RowTask
    verified: VerifiedAnswers
    needed: Bools
    filling: bool = False
    rows: list[Floats] = field(default_factory=list)
    codes: list[Codes] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    refused: set[bytes] = field(default_factory=set)
    _unconfirmed: list[Unconfirmed] = field(default_factory=list)

    @property
    def problem(self) -> Problem:
        """The problem that is searched."""
        return self.task.engine.problem

    @property
    def missing(self) -> int:
        """How many answers are still to be found."""
        return self.problem.count - len(self.rows)

    @property
    def overlooked(self) -> bool:
        """Whether an answer known before should have been found by now: structure and judge disagree then."""
        left = ~self._answered()
        return bool((self.needed & left).any() or (not self.rows and left.any()))

    def limit(self) -> float:
        """Return the cutoff: an upper bound of the last answer's distance, from the answers known before."""
        problem, rows = self.problem, self.verified.rows[self.needed & ~self._answered()]
        distance = self.task.distance(rows)
        order = np.argsort(distance, kind="stable")
        if self.filling:
            # of rows that are twice the least difference apart, an answer is a near-copy of one at most
            far = distance[apart(problem, rows, order.tolist(), times=2)]
        else:
            closed = problem.changed(np.array(self.rows).reshape(-1, rows.shape[1]))
            order = order[[not (changed == closed).all(axis=1).any() for changed in problem.changed(rows[order])]]
            _, first = np.unique(problem.changed(rows[order]), axis=0, return_index=True)
            far = distance[order][np.sort(first)]
        return float(far[self.missing - 1]) if len(far) >= self.missing else np.inf

    def extend(self, search: BestFirst) -> Generator[Asked, Outcome, bool]:
        """Add answers in the order of their keys; return whether the structure and the judge agree.

        What the structure is certain of is asked of the judge together, as late as possible: a call costs about the
        same for one answer and for many.
        """
        problem, budget = self.problem, self.task.budget
        while self.missing and (candidate := search.next()) is not None:
            if self._repeats(candidate) or candidate.codes.tobytes() in self.refused:
                continue
            row = problem.rows(candidate.codes[None])
            known = np.flatnonzero(same(self.verified.rows, row[0]).all(axis=1) & (self.needed | (not self.rows)))
            if len(known):
                self._add(candidate, row[0], self.verified.outcome.take(known[:1]), search)
                continue
            # the first answer needs all its changes, or a nearer row would have been accepted
            Z = np.concatenate([row, problem.undone(row)[1] if self.rows else row[:0]])
            lawful = problem.check(Z)
            if not lawful[0]:
                continue
            ahead = [] if candidate.certain else self._ahead(search)
            if budget.take(int(lawful.sum())) < lawful.sum():  # the last look at the clock before the judge is asked
                search.stop(candidate)
                break
            Z, more = Z[lawful], self._rows(ahead)
            if candidate.certain and search.misses(Z[1:]).all():
                self._unconfirmed.append(Unconfirmed(len(self.rows), Z))
                self._add(candidate, row[0], NOTHING, search)
                continue
            said = yield from self._confirmed(np.concatenate([Z, more]))
            if said is None:
                return False
            favourable = self.task.accepts(np.concatenate([Z, more]), said)
            favourable, later = favourable[: len(Z)], favourable[len(Z) :]
            self.refused.update(codes.tobytes() for codes, good in zip(ahead, later, strict=True) if not good)
            if candidate.certain and not favourable[0]:
                return False
            if favourable[0] and not favourable[1:].any():
                self._add(candidate, row[0], said.take(slice(0, 1)), search)
        return not self._unconfirmed or (yield from self._confirmed(self._rows([]))) is not None

    def _confirmed(self, more: Floats) -> Generator[Asked, Outcome, Outcome | None]:
        """Ask the judge about unconfirmed answers, and about `more` rows (m, d) in the same call.

        Returns:
            The outcomes of `more`; None if judge and structure disagree about an answer: then all unconfirmed answers
            are dropped.
        """
        waiting, self._unconfirmed = self._unconfirmed, []
        asked = np.concatenate([*(one.rows for one in waiting), more])
        said = yield asked
        favourable, start = self.task.accepts(asked, said), 0
        for one in waiting:
            stop = start + len(one.rows)
            if not favourable[start] or favourable[start + 1 : stop].any():
                for dropped in reversed(waiting):
                    del self.rows[dropped.place], self.codes[dropped.place], self.outcomes[dropped.place]
                return None
            self.outcomes[one.place] = said.take(slice(start, start + 1))
            start = stop
        return said.take(slice(start, len(asked)))

    def _rows(self, codes: list[Codes]) -> Floats:
        """Return the rows (m, d) of candidates by code."""
        problem = self.problem
        return problem.rows(np.array(codes, dtype=np.intp).reshape(-1, len(problem.groups)))

    def _ahead(self, search: BestFirst) -> list[Codes]:
        """Return candidates within the tolerance that may be next: a call of the judge costs the same for many rows."""
        codes = [each for each in search.doubtful(AHEAD) if each.tobytes() not in self.refused]
        if codes:
            held = self.problem.check(self.problem.rows(np.array(codes)))
            codes = [each for each, lawful in zip(codes, held, strict=True) if lawful]
        return codes[: self.task.budget.take(min(len(codes), self.task.budget.left))]

    def result(self, search: BestFirst) -> VerifiedAnswers:
        """Return the answers with their proofs; if the budget ended the search, others with the best bound there is."""
        task, found = self.task, len(self.rows)
        known = [
            key.tobytes() for key in task.problem.changed(np.array(self.rows).reshape(-1, len(task.problem.space)))
        ]
        answered, sets = self._answered(), [key.tobytes() for key in task.problem.changed(self.verified.rows)]
        new = [key not in known and key not in sets[:at] for at, key in enumerate(sets)]
        rest = sorted(np.flatnonzero(~answered).tolist(), key=lambda at: not new[at])[: self.missing * search.cut]
        rows = np.array([*self.rows, *self.verified.rows[rest]]).reshape(-1, len(task.problem.space))
        outcome = joined_outcomes([*self.outcomes, self.verified.outcome.take(np.array(rest, dtype=np.intp))])
        distance = task.distance(rows).tolist()
        bounded = [self.filling or new[at] for at in rest]
        proofs: list[Proof] = ["optimal"] * found
        proofs += ["bounded" if known_far else "none" for known_far in bounded]
        if proofs[:1] == ["bounded"] and not self.filling and distance[0] <= min([search.low, *distance]):
            proofs[0] = "optimal"  # the search was cut where it would have found the same, or what is as near
        bounds = [min(search.low, own) if far else None for own, far in zip(distance[found:], bounded, strict=True)]
        return VerifiedAnswers(rows, outcome, tuple(proofs), (*distance[:found], *bounds), exhausted=not search.cut)

    def _answered(self) -> Bools:
        """Return (k,) which of the answers known before are among the answers, or near-copies of them."""
        answered: Bools = np.zeros(len(self.verified.rows), dtype=np.bool_)
        for row in self.rows:
            answered |= near_copies(self.problem, self.verified.rows, row)
        return answered

    def _repeats(self, candidate: KeyedCandidate) -> bool:
        """Whether a candidate's changed set is answered already, or the candidate is a near-copy of an answer."""
        if self.filling:
            problem = self.problem
            row = problem.rows(candidate.codes[None])[0]
            return bool(near_copies(problem, np.array(self.rows).reshape(-1, len(row)), row).any())
        own = self.problem.own
        return any(((candidate.codes != own) == (codes != own)).all() for codes in self.codes)

    def _add(self, candidate: KeyedCandidate, row: Floats, outcome: Outcome, search: BestFirst) -> None:
        self.rows.append(row)
        self.codes.append(candidate.codes)
        self.outcomes.append(outcome)
        if not self.filling:
            search.closed.add((candidate.codes != self.problem.own).tobytes())
        if self.missing:
            search.look_no_farther(self.limit())


NEARLY: Final = 1e-5  # of a distance: how much nearer a row may be than an answer that is called the nearest
INSIDE: Final = 10  # tolerances of margin that answers must have, ten times more after every refusal by the judge
TRIES: Final = 4
SEED: Final = 0  # of the solver: certificates do not depend on a request's seed


def certify_by_program(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Prove as `certify` that answers are nearly the nearest, or find some; all but the first are `bounded`."""
    if (found := (yield from _by_moves(task, verified, tolerance))) is not None:
        return found
    try:
        answers = yield from _with_nearer(task, verified, tolerance)
        cutoff = float(task.distance(answers.rows).min(initial=np.inf))
        low = lower_bound(Model(task.problem, margin=-SCORE_TOLERANCES * tolerance, cutoff=cutoff), task.budget, SEED)
    except NotLinearError as error:
        return replace(verified, note=Uncertified("not_exact", error.what))
    if low.status == "infeasible":  # if there is an answer, structure and judge disagree
        known = replace(answers, note=Uncertified("disagree"))
        return known if len(answers.rows) else replace(answers, exhausted=True)
    if low.status == "failed":
        return replace(answers, note=Uncertified("not_exact"))
    return bounded(task, answers, max(low.bound - SLACK, 0.0))


def _by_moves(
    task: RowTask, verified: VerifiedAnswers, tolerance: float
) -> Generator[Asked, Outcome, VerifiedAnswers | None]:
    """Do the same by a search among moves; None where there is none, or the judge refuses the nearest row it found."""
    problem, cutoff = task.problem, float(task.distance(verified.rows).min(initial=np.inf))
    search = search_any(problem, cutoff, SCORE_TOLERANCES * tolerance, NEARLY / 4)
    if search is None:
        return None
    done, answers = search.run(task.budget), verified
    row = search.best(problem)
    if row is not None:
        if not problem.check(row[None])[0] or task.budget.take(1) < 1:
            return None
        said = yield row[None]
        if not task.accepts(row[None], said)[0]:
            return None
        answers = _joined(task, verified, row, said)
    if done and search.decided and not len(answers.rows):
        return replace(answers, exhausted=True)
    return bounded(task, answers, max(search.low - SLACK, 0.0))


def _with_nearer(task: RowTask, verified: VerifiedAnswers, tolerance: float) -> Inquiry:
    """Return the answers with the nearest row by a program among them, if the judge accepts it."""
    cutoff = float(task.distance(verified.rows).min(initial=np.inf))
    for attempt in range(TRIES):
        margin = INSIDE ** (attempt + 1) * tolerance
        found = minimise(Model(task.problem, margin=margin, cutoff=cutoff), (), task.budget, SEED)
        if found.row is None or task.budget.take(1) < 1:
            break
        said = yield found.row[None]
        if task.accepts(found.row[None], said)[0]:
            return _joined(task, verified, found.row, said)
    return verified


def _joined(task: RowTask, verified: VerifiedAnswers, row: Floats, said: Outcome) -> VerifiedAnswers:
    """Return the answers with a further row (d,) that was accepted, nearest first."""
    rows = np.concatenate([row[None], verified.rows])
    order = nearest_first(task.problem, rows, task.distance(rows), polished=True)
    chosen = select(task.problem, rows, order)
    return VerifiedAnswers(rows[chosen], joined_outcomes([said, verified.outcome]).take(chosen))


def bounded(task: RowTask, answers: VerifiedAnswers, bound: float) -> VerifiedAnswers:
    """Return answers with proofs from a lower `bound` of the distance; a bound of infinity proves nothing."""
    distance = task.distance(answers.rows)
    if np.isinf(bound):
        return answers
    proofs: list[Proof] = ["bounded"] * len(distance)
    if len(distance) and distance[0] <= bound + NEARLY:
        proofs[0] = "optimal"
    elif len(distance) and not task.budget.cut and (what := bending(task.problem)):
        answers = replace(answers, note=Uncertified("bends", what))
    return replace(answers, proofs=tuple(proofs), bounds=tuple(np.minimum(bound, distance).tolist()))
