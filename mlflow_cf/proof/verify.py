"""Verify, polish, select: every answer was accepted by the logged model and by every constraint.

Verification is a generator: it yields candidate rows and is sent what the judge says about them; see `pipeline`.

Answers are judged alone, so that their numbers do not depend on the other rows of a call. Libraries that multiply
matrices round a row differently in tables of different sizes. So the numbers of an answer are those of the row alone.
Models of trees predict the same in any table. Other opened models need no further call: their structure gives the
scores of the row alone, within the checked tolerance. All others are asked again, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.features import Floats
from mlflow_cf.goal import BoundTarget, Scorer
from mlflow_cf.goal.targets import rate_sums
from mlflow_cf.model.judge import Asked, AskedAlone, Outcome
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.proof.select import Queue, nearest, nearest_first, select
from mlflow_cf.structures.capabilities import is_steady
from mlflow_cf.structures.structure import Encoded, linked
from mlflow_cf.words.reasons import UNOPENED, Uncertified
from mlflow_cf.words.result import Proof

SPARE = 8  # candidates verified beyond twice the wanted number: a call to the judge costs the same
Promise = Callable[[Floats], NDArray[np.bool_]] | None
TOGETHER = 64  # rows with an undone change that go with their candidates, before these are known to be accepted


@dataclass(frozen=True, eq=False)
class RowTask:
    """One row to explain.

    Attributes:
        engine: what is known of the row; target: what the judge must say.
        budget: what it may cost.
        obstacle: why the model is not opened for this row, if it is not.
        further: what the judges of further requirements must say, in their order.
        steady: whether further judges that are not opened predict a row the same whatever rows stand beside it.
        refused: rows (as bytes) that the judge accepted in a table and refused alone.
    """

    engine: Engine
    target: BoundTarget
    budget: Budget
    obstacle: Uncertified = UNOPENED
    further: tuple[BoundTarget, ...] = ()
    steady: bool = False
    refused: set[bytes] = field(default_factory=set)

    @property
    def problem(self) -> Problem:
        """The problem of the row."""
        return self.engine.given

    def meets(self, outcome: Outcome) -> NDArray[np.bool_]:
        """Return (m,) whether rows with this outcome meet the target and all further requirements."""
        met = self.target.met(outcome)
        for target, said in zip(self.further, outcome.further, strict=True):
            met = met & target.met(said)
        return met

    def accepts(self, Z: Floats, outcome: Outcome) -> NDArray[np.bool_]:
        """Return (m,) whether rows Z (m, d) with this outcome meet all that is wanted, and were not refused alone."""
        favourable = self.meets(outcome)
        if self.refused:
            favourable &= np.array([row.tobytes() not in self.refused for row in Z], dtype=np.bool_)
        return favourable

    def distance(self, Z: Floats) -> Floats:
        """Return the distance (m,) of rows Z (m, d) from the row to explain."""
        return self.problem.bound_distance.distance(self.problem.columns, Z, self.problem.x0)


@dataclass(frozen=True, eq=False)
class VerifiedAnswers:
    """Accepted rows (k, d): the best of distinct changed sets first, by distance or in their explainer's own order.

    Attributes:
        rows: the answers; outcome: what the judge said about them.
        proofs, bounds: (k,) of a certificate, else empty: how each is proved, and what no other one is nearer than.
        exhausted: whether a certificate has excluded all further answers.
        note: why there is no certificate, if one was wanted.
        origin: (k,) which candidate each comes from; empty where a certificate may have replaced them.
        minimal: (k,) whether the judge was asked about each without one of its changes, and refused all of these
            rows that keep what the explainer promises; empty where it was not asked.
    """

    rows: Floats
    outcome: Outcome
    proofs: tuple[Proof, ...] = ()
    bounds: tuple[float | None, ...] = ()
    exhausted: bool = False
    note: Uncertified | None = None
    origin: Codes = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    minimal: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))


Inquiry = Generator[Asked, Outcome, VerifiedAnswers]


def verify_rows(
    task: RowTask,
    rows: Floats,
    *,
    polish: bool,
    keeps_order: bool = False,
    kinds: Sequence[bytes] | None = None,
    promise: Promise = None,
) -> Inquiry:
    """Verify and polish candidates (m, d), best first, until enough of different kinds are accepted.

    With `keeps_order`, answers stay in the order of the candidates; else they are ordered by distance. Candidates are
    of one kind if they change the same, unless `kinds` (m,) says otherwise of some that are not polished. Changes are
    put back only where the `promise` of the explainer still holds.
    """
    count = task.problem.count
    queue = Queue(task.problem, rows, in_order=keeps_order, kinds=kinds)
    parts: list[_Part] = []
    while len(queue.left):
        # a candidate costs a row, and one per change to see that it is needed; a small budget does few, but wholly
        size = max(1, min(2 * count + SPARE, task.budget.left // (1 + len(task.problem.groups))))
        batch = queue.take(size)
        part = yield from _part(task, rows[batch], promise, polish=polish, even_late=not parts)
        parts.append(replace(part, origin=batch[part.origin]))
        queue.accept(parts[-1].rows, parts[-1].origin)
        if queue.enough(count) or task.budget.spent:
            break
    parts = [part for part in parts if len(part.rows)]
    return _chosen(task, parts, polished=polish, keeps_order=keeps_order, kinds=kinds)


@dataclass(frozen=True, eq=False)
class _Part:
    """Accepted rows (k, d) with what is known of them.

    Attributes:
        rows: the rows; outcome: what the judge said about them.
        settled: (k,) whether they are known to be 1-minimal.
        origin: (k,) positions of the candidates that they come from.
    """

    rows: Floats
    outcome: Outcome
    settled: NDArray[np.bool_]
    origin: Codes


@dataclass(frozen=True, eq=False)
class _Undone:
    """Accepted rows (v, d) that put back one change of another row, whose each is, and what the judge said of them."""

    rows: Floats
    owner: NDArray[np.intp]
    outcome: Outcome

    def take(self, some: NDArray[np.intp]) -> _Undone:
        """Return some of them."""
        return _Undone(self.rows[some], self.owner[some], self.outcome.take(some))


def _chosen(
    task: RowTask, parts: Sequence[_Part], *, polished: bool, keeps_order: bool, kinds: Sequence[bytes] | None
) -> VerifiedAnswers:
    """Select the answers; those the budget left half-polished count only if there are no others."""
    if not parts:
        return VerifiedAnswers(np.empty((0, len(task.problem.space))), NOTHING)
    Z = np.concatenate([part.rows for part in parts])
    settled = np.concatenate([part.settled for part in parts])
    rows = np.flatnonzero(settled) if settled.any() else np.arange(len(Z))
    origin = np.concatenate([part.origin for part in parts])
    if len(rows) > 1 and task.problem.count == 1 and not keeps_order:
        rows = rows[[nearest(task.problem, Z[rows], task.distance(Z[rows]), polished=polished)]]
    elif len(rows) > 1:
        if keeps_order:
            order = np.argsort(origin[rows], kind="stable")
        else:
            order = nearest_first(task.problem, Z[rows], task.distance(Z[rows]), polished=polished)
        own_kinds = None if kinds is None else [kinds[at] for at in origin[rows].tolist()]
        rows = rows[select(task.problem, Z[rows], order, own_kinds)]
    outcome = joined_outcomes([part.outcome for part in parts]).take(rows)
    return VerifiedAnswers(Z[rows], outcome, origin=origin[rows], minimal=settled[rows] if polished else settled[:0])


NOTHING = Outcome(np.empty(0, dtype=np.intp))


def _part(
    task: RowTask, Z: Floats, promise: Promise, *, polish: bool, even_late: bool
) -> Generator[Asked, Outcome, _Part]:
    """Verify candidates, and polish those that are accepted.

    Every change is put back once to see whether it was needed; while the rows are few, the judge is asked about these
    rows together with the candidates, because a call to it costs more than the rows of candidates it then rejects.
    """
    owner, variants = task.problem.undone(Z) if polish else (_NOBODY, Z[:0])
    needless = bool(len(variants))  # some change of several may be
    together = 0 < len(variants) <= min(TOGETHER, task.budget.left - len(Z)) and not task.budget.spent
    if not together:
        owner, variants = _NOBODY, Z[:0]
    kept, outcome = yield from _accepted(task, np.concatenate([Z, variants]), even_late=even_late)
    own = int(np.searchsorted(kept, len(Z)))
    part = _Part(Z[kept[:own]], outcome.take(slice(0, own)), np.ones(own, dtype=np.bool_), kept[:own])
    if not own or not needless:
        return part
    if not together:
        return (yield from _polish(task, part, None, promise))
    position = np.full(len(Z), -1)
    position[kept[:own]] = np.arange(own)
    mine = position[owner[kept[own:] - len(Z)]]
    useful = np.flatnonzero(mine >= 0)
    first = _Undone(variants[kept[own:] - len(Z)][useful], mine[useful], outcome.take(own + useful))
    return (yield from _polish(task, part, first, promise))


_NOBODY = np.empty(0, dtype=np.intp)


def _accepted(
    task: RowTask, Z: Floats, *, even_late: bool = False
) -> Generator[Asked, Outcome, tuple[NDArray[np.intp], Outcome]]:
    """Return the positions of the rows that hold as decoded, whole rows, and what the judge said about them."""
    lawful = np.flatnonzero(task.problem.check(Z))
    lawful = lawful[: task.budget.take(len(lawful), even_late=even_late)]
    if not len(lawful):
        return lawful, NOTHING
    outcome = yield Z[lawful]
    favourable = np.flatnonzero(task.accepts(Z[lawful], outcome))
    return lawful[favourable], outcome.take(favourable)


def _polish(task: RowTask, part: _Part, first: _Undone | None, promise: Promise) -> Generator[Asked, Outcome, _Part]:
    """Undo whole groups while the judge still accepts, so that every answer is 1-minimal; `first` is known already.

    What would break the promise of the explainer stays as it is.
    """
    Z, outcome = part.rows.copy(), part.outcome
    active = np.arange(len(Z))
    source = np.arange(len(Z))  # position in `outcome` of each row's decision
    while len(active):
        undone, first = first, None
        if undone is None:
            owner, variants = task.problem.undone(Z[active])
            if not len(variants) or task.budget.spent or len(variants) > task.budget.left:
                active = active[np.unique(owner)]
                break
            kept, verdict = yield from _accepted(task, variants)
            undone = _Undone(variants[kept], owner[kept], verdict)
        if promise is not None and len(undone.rows):
            undone = undone.take(np.flatnonzero(promise(undone.rows)))
        if not len(undone.rows):
            active = active[:0]
            break
        owners, nearest = _nearest(task, undone)
        active = active[owners]
        Z[active] = undone.rows[nearest]
        source[active] = len(outcome.codes) + nearest
        outcome = joined_outcomes([outcome, undone.outcome])
    settled = np.ones(len(Z), dtype=np.bool_)
    settled[active] = False
    return _Part(Z, outcome.take(source), settled, part.origin)


def _nearest(task: RowTask, undone: _Undone) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return every owner once, and the position of its nearest row."""
    order = np.lexsort((task.distance(undone.rows), undone.owner))
    owners, first = np.unique(undone.owner[order], return_index=True)
    return owners, order[first]


def joined_outcomes(outcomes: list[Outcome]) -> Outcome:
    """Return the outcomes of several batches of rows as one."""
    if len(outcomes) == 1:
        return outcomes[0]
    scores = [outcome.scores for outcome in outcomes if outcome.scores is not None]
    further = max((outcome.further for outcome in outcomes), key=len)  # empty outcomes have none
    return Outcome(
        np.concatenate([outcome.codes for outcome in outcomes]),
        np.concatenate(scores) if scores else None,
        np.concatenate([outcome.values for outcome in outcomes]),
        tuple(joined_outcomes([o.further[at] for o in outcomes if o.further]) for at in range(len(further))),
    )


def by_themselves(
    task: RowTask, verified: VerifiedAnswers, tolerance: float
) -> Generator[Asked, Outcome, VerifiedAnswers]:
    """Return answers with the predictions of each alone; those refused alone are left out, and noted in `task`.

    Args:
        task: the row that is explained.
        verified: its answers, judged together with other rows.
        tolerance: how far a structure's scores may be from the model's.
    """
    scorer = task.problem.scorer or (task.problem.partial if task.steady else None)
    if not len(verified.rows) or (scorer is not None and is_steady(scorer.structure)):
        return verified
    if scorer is not None:
        sums = [scorer.structure.sums(_encoded_values(task.problem, scorer, row)) for row in verified.rows]
        if all(_certain(scorer, alone, tolerance) for alone in sums):
            return verified if is_steady(scorer.own) else _with(verified, [_said(scorer, alone) for alone in sums])
    if task.budget.take(len(verified.rows)) < len(verified.rows):
        return verified
    outcome = yield AskedAlone(verified.rows, lambda: task.budget.late)
    said = len(outcome.codes)
    if said < len(verified.rows):  # the clock ran out: the others stay as they were judged together
        rest = verified.outcome.take(np.arange(said, len(verified.rows)))
        outcome = joined_outcomes([outcome, rest]) if said else rest
    accepted = task.meets(outcome)
    task.refused.update(row.tobytes() for row in verified.rows[~accepted])
    return _some(verified, outcome, np.flatnonzero(accepted))


def _encoded_values(problem: Problem, scorer: Scorer, row: Floats) -> list[Encoded]:
    """Return the encoded values (1, ...) of a row (d,), one array per column; only changed values are encoded."""
    if scorer is not problem.scorer:
        return scorer.encoded(range(len(row)), row[None])
    encoded = problem.encoded_row.copy()
    for column in np.flatnonzero(row != problem.x0).tolist():
        (encoded[column],) = scorer.encoded([column], row[None, [column]])
    return encoded


def _certain(scorer: Scorer, sums: Floats, tolerance: float) -> bool:
    """Whether a row with raw scores (1, k) meets the targets by more than rounding can change."""
    favourable, _, margin = rate_sums(sums, scorer.targets)
    return bool(favourable[0] and margin[0] >= SCORE_TOLERANCES * tolerance)


def _said(scorer: Scorer, sums: Floats) -> Floats:
    """Return the model's scores (1, classes) of a row with raw scores (1, k), the model's own columns first."""
    return linked(sums[:, : scorer.own.outputs], scorer.own.link)


def _with(verified: VerifiedAnswers, scores: Sequence[Floats]) -> VerifiedAnswers:
    """Return answers with scores (1, classes) of each, or values; their labels are known."""
    together, codes = np.concatenate(scores), verified.outcome.codes
    regression = codes[0] < 0
    outcome = Outcome(codes, None, together[:, 0]) if regression else Outcome(codes, together)
    return replace(verified, outcome=replace(outcome, further=verified.outcome.further))


def _some(verified: VerifiedAnswers, outcome: Outcome, kept: NDArray[np.intp]) -> VerifiedAnswers:
    """Return the answers at positions `kept`, with their new outcomes."""
    return replace(
        verified,
        rows=verified.rows[kept],
        outcome=outcome.take(kept),
        proofs=tuple(verified.proofs[at] for at in kept if verified.proofs),
        bounds=tuple(verified.bounds[at] for at in kept if verified.bounds),
        origin=verified.origin[kept] if len(verified.origin) else verified.origin,
        minimal=verified.minimal[kept] if len(verified.minimal) else verified.minimal,
    )
