"""Verify, polish, select: every answer was accepted by the logged model and by every constraint.

Verification is a generator: it yields candidate rows and is sent what the judge says about them; see `pipeline`.

Answers are judged alone, so that their numbers do not depend on the other rows of a call. Libraries that multiply
matrices round a row differently in tables of different sizes. So the numbers of an answer are those of the row alone.
Models of trees predict the same in any table. Other opened models need no further call: their structure gives the
scores of the row alone, within the checked tolerance. All others are asked again, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.features import Floats
from mlflow_cf.goal import BoundTarget, Scorer
from mlflow_cf.goal.requirements import meets_all
from mlflow_cf.goal.targets import rate_sums
from mlflow_cf.model.judge import Asked, AskedAlone, Outcome
from mlflow_cf.model.parity import DOUBLE
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.population import near_copies
from mlflow_cf.structures.capabilities import is_steady
from mlflow_cf.structures.structure import Encoded, linked
from mlflow_cf.words.reasons import UNOPENED, Uncertified
from mlflow_cf.words.result import Proof

SPARE = 8  # candidates verified beyond twice the wanted number: a call to the judge costs the same
Promise = Callable[[Floats], NDArray[np.bool_]] | None
Kinds = Sequence[bytes] | None  # (m,) of candidates that are not polished; None: what they change
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
        rounding: how far scores of structures may be from the judge's about a row alone, near a decision.
        refused: rows (as bytes) that the judge accepted in a table and refused alone.
    """

    engine: Engine
    target: BoundTarget
    budget: Budget
    obstacle: Uncertified = UNOPENED
    further: tuple[BoundTarget, ...] = ()
    steady: bool = False
    rounding: float = DOUBLE
    refused: set[bytes] = field(default_factory=set)

    @property
    def problem(self) -> Problem:
        """The problem of the row."""
        return self.engine.given

    def accepts(self, Z: Floats, outcome: Outcome) -> NDArray[np.bool_]:
        """Return (m,) whether rows Z (m, d) with this outcome meet all that is wanted, and were not refused alone."""
        met = meets_all((self.target, *self.further), outcome)
        if self.refused:
            met = met & np.array([row.tobytes() not in self.refused for row in Z], dtype=np.bool_)
        return met

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
    kinds: Kinds = None,
    promise: Promise = None,
) -> Inquiry:
    """Verify and polish candidates (m, d), best first, until enough of different kinds are accepted.

    With `keeps_order`, answers stay in the order of the candidates; else they are ordered by distance. Candidates are
    of one kind if they change the same, unless `kinds` (m,) says otherwise of some that are not polished. Changes are
    put back only where the `promise` of the explainer still holds.
    """
    count = task.problem.count
    queue = Queue(task.problem, rows, in_order=keeps_order, kinds=kinds)
    parts: list[VerifiedAnswers] = []
    while len(queue.left):
        # a candidate costs a row, and one per change to see that it is needed; a small budget does few, but wholly
        size = max(1, min(2 * count + SPARE, task.budget.left // (1 + len(task.problem.groups))))
        batch, queue.left = queue.left[:size], queue.left[size:]
        part = yield from _verified(task, rows[batch], promise, polish=polish, even_late=not parts)
        parts.append(replace(part, origin=batch[part.origin]))
        queue.accept(parts[-1])
        if queue.enough() or task.budget.spent:
            break
    parts = [part for part in parts if len(part.rows)]
    return _chosen(task, parts, polished=polish, keeps_order=keeps_order, kinds=kinds)


class _Undone(NamedTuple):
    """Accepted rows (v, d) that put back one change of another row, whose each is, and what the judge said of them."""

    rows: Floats
    owner: NDArray[np.intp]
    outcome: Outcome


def _chosen(
    task: RowTask, parts: Sequence[VerifiedAnswers], *, polished: bool, keeps_order: bool, kinds: Kinds
) -> VerifiedAnswers:
    """Select the answers; those the budget left half-polished count only if there are no others."""
    if not parts:
        return VerifiedAnswers(np.empty((0, len(task.problem.space))), NOTHING)
    whole = parts[0] if len(parts) == 1 else _joined_parts(parts)
    Z, settled, origin = whole.rows, whole.minimal, whole.origin
    rows = np.flatnonzero(settled) if settled.any() else np.arange(len(Z))
    if len(rows) > 1 and task.problem.count == 1 and not keeps_order:
        rows = rows[[nearest(task.problem, Z[rows], task.distance(Z[rows]), polished=polished)]]
    elif len(rows) > 1:
        if keeps_order:
            order = np.argsort(origin[rows], kind="stable")
        else:
            order = nearest_first(task.problem, Z[rows], task.distance(Z[rows]), polished=polished)
        own_kinds = None if kinds is None else [kinds[at] for at in origin[rows].tolist()]
        rows = rows[select(task.problem, Z[rows], order, own_kinds)]
    minimal = settled[rows] if polished else settled[:0]
    return VerifiedAnswers(Z[rows], whole.outcome.take(rows), origin=origin[rows], minimal=minimal)


def _joined_parts(parts: Sequence[VerifiedAnswers]) -> VerifiedAnswers:
    """Return the accepted rows of several batches as one, in their order."""
    return VerifiedAnswers(
        np.concatenate([part.rows for part in parts]),
        joined_outcomes([part.outcome for part in parts]),
        origin=np.concatenate([part.origin for part in parts]),
        minimal=np.concatenate([part.minimal for part in parts]),
    )


NOTHING = Outcome(np.empty(0, dtype=np.intp))


def _verified(task: RowTask, Z: Floats, promise: Promise, *, polish: bool, even_late: bool) -> Inquiry:
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
    minimal = np.ones(own, dtype=np.bool_)
    part = VerifiedAnswers(Z[kept[:own]], outcome.take(slice(0, own)), origin=kept[:own], minimal=minimal)
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


def _polish(task: RowTask, part: VerifiedAnswers, first: _Undone | None, promise: Promise) -> Inquiry:
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
        order = np.lexsort((task.distance(undone.rows), undone.owner))
        if promise is not None and len(order):
            order = order[promise(undone.rows)[order]]
        owners, first_of_owner = np.unique(undone.owner[order], return_index=True)
        active, nearest_of_owner = active[owners], order[first_of_owner]
        if len(active):
            Z[active] = undone.rows[nearest_of_owner]
            source[active] = len(outcome.codes) + nearest_of_owner
            outcome = joined_outcomes([outcome, undone.outcome])
    minimal = np.ones(len(Z), dtype=np.bool_)
    minimal[active] = False
    return VerifiedAnswers(Z, outcome.take(source), origin=part.origin, minimal=minimal)


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


def by_themselves(task: RowTask, verified: VerifiedAnswers) -> Inquiry:
    """Return answers with the predictions of each alone; those refused alone are left out, and noted in `task`."""
    scorer = task.problem.scorer or (task.problem.partial if task.steady else None)
    if not len(verified.rows) or (scorer is not None and scorer.steady):
        return verified
    if scorer is not None:
        sums = [scorer.structure.sums(_encoded_values(task.problem, scorer, row)) for row in verified.rows]
        rated = (rate_sums(alone, scorer.targets) for alone in sums)
        if all(favourable[0] and margin[0] >= SCORE_TOLERANCES * task.rounding for favourable, _, margin in rated):
            if is_steady(scorer.own):
                return verified
            return replace(verified, outcome=with_own_scores(verified.outcome, scorer, np.concatenate(sums)))
    if task.budget.take(len(verified.rows)) < len(verified.rows):
        return verified
    outcome = yield AskedAlone(verified.rows, lambda: task.budget.late)
    said = len(outcome.codes)
    if said < len(verified.rows):  # the clock ran out: the others stay as they were judged together
        rest = verified.outcome.take(np.arange(said, len(verified.rows)))
        outcome = joined_outcomes([outcome, rest]) if said else rest
    accepted = task.accepts(verified.rows, outcome)
    task.refused.update(row.tobytes() for row in verified.rows[~accepted])
    kept = np.flatnonzero(accepted)
    return replace(
        verified,
        rows=verified.rows[kept],
        outcome=outcome.take(kept),
        proofs=tuple(verified.proofs[at] for at in kept if verified.proofs),
        bounds=tuple(verified.bounds[at] for at in kept if verified.bounds),
        origin=verified.origin[kept] if len(verified.origin) else verified.origin,
        minimal=verified.minimal[kept] if len(verified.minimal) else verified.minimal,
    )


def _encoded_values(problem: Problem, scorer: Scorer, row: Floats) -> list[Encoded]:
    """Return the encoded values (1, ...) of a row (d,), one array per column; only changed values are encoded."""
    if scorer is not problem.scorer:
        return scorer.encoded(range(len(row)), row[None])
    encoded = problem.encoded_row.copy()
    for column in np.flatnonzero(row != problem.x0).tolist():
        (encoded[column],) = scorer.encoded([column], row[None, [column]])
    return encoded


def with_own_scores(outcome: Outcome, scorer: Scorer, sums: Floats) -> Outcome:
    """Return an outcome with the model's scores or values of m rows, from raw scores (m, k); their labels are known."""
    codes, own = outcome.codes, scorer.own  # whose columns come first
    scores = linked(sums[:, : own.outputs], own.link)
    alone = Outcome(codes, None, scores[:, 0]) if codes[0] < 0 else Outcome(codes, scores)
    return replace(alone, further=outcome.further)


class Queue:
    """Candidates waiting to be verified: the first of every kind before all repetitions.

    Candidates that change the same groups are of one kind, unless it is said otherwise.

    Attributes:
        left: positions of the candidates that wait, first come first.
    """

    def __init__(self, problem: Problem, rows: Floats, *, in_order: bool, kinds: Kinds) -> None:
        """Line up candidates (m, d).

        With `in_order`, the answers of distinct kinds must be the first acceptable ones: where a candidate was refused,
        the next one of its kind moves up. `kinds` (m,) is for candidates that are not polished.
        """
        self._problem, self._in_order, self._kinds = problem, in_order, kinds
        self._sets = kinds_of(problem, rows) if kinds is None else kinds
        self._first: dict[bytes, int] = {}
        self._apart = rows[:0]  # accepted rows, none a near-copy of another, where the nearest answers are wanted
        self.left = self._lined_up(range(len(rows)))

    def accept(self, part: VerifiedAnswers) -> None:
        """Note accepted rows and the candidates they come from."""
        positions, kinds = part.origin.tolist(), self._kinds
        found = kinds_of(self._problem, part.rows) if kinds is None else [kinds[position] for position in positions]
        for kind, position in zip(found, positions, strict=True):
            self._first[kind] = min(self._first.get(kind, position), position)
        if self._problem.variety.near:
            some = np.concatenate([self._apart, part.rows])
            self._apart = some[apart(self._problem, some, range(len(some)))]
        if self._in_order:
            self.left = self._lined_up(sorted(self.left.tolist()))

    def enough(self) -> bool:
        """Whether the answers are known: as many kinds as are wanted, and nothing that may come before them."""
        count = self._problem.count
        if len(self._first) < count or (self._problem.variety.near and len(self._apart) < count):
            return False
        if not self._in_order or not len(self.left):
            return True
        first = int(self.left[0])
        return self._sets[first] in self._first or first > sorted(self._first.values())[count - 1]

    def _lined_up(self, positions: Iterable[int]) -> Codes:
        leaders, others = _leaders(positions, self._sets, self._first)
        return np.array(leaders + others, dtype=np.intp)


def _leaders(
    positions: Iterable[int], kinds: Sequence[bytes], known: Iterable[bytes] = ()
) -> tuple[list[int], list[int]]:
    """Return the positions of the first of every kind that is not `known`, and all others."""
    leaders: list[int] = []
    others: list[int] = []
    seen = set(known)
    for position in positions:
        (others if kinds[position] in seen else leaders).append(position)
        seen.add(kinds[position])
    return leaders, others


def nearest_first(problem: Problem, Z: Floats, distance: Floats, *, polished: bool) -> Codes:
    """Return the order of rows Z (m, d) by their distance (m,).

    Ties go to fewer changes and smaller codes; rows that are not polished keep the order they have instead.
    """
    if not polished:
        return np.argsort(distance, kind="stable")
    ties = (*np.where(np.isnan(Z), np.inf, Z).T[::-1], problem.changed(Z).sum(axis=1))
    return np.lexsort((*ties, distance))


def nearest(problem: Problem, Z: Floats, distance: Floats, *, polished: bool) -> int:
    """Return the position of the first of rows Z (m, d) in that order."""
    ties = np.flatnonzero(distance == distance.min())
    if len(ties) > 1:
        ties = ties[nearest_first(problem, Z[ties], distance[ties], polished=polished)]
    return int(ties[0])


def kinds_of(problem: Problem, rows: Floats) -> list[bytes]:
    """Return the groups that each of rows (m, d) changes."""
    return [flags.tobytes() for flags in problem.changed(rows)]


def select(problem: Problem, Z: Floats, order: Codes, kinds: Kinds = None) -> Codes:
    """Return positions of the answers among rows Z (m, d), at most as many as are wanted, as in `order`.

    The first of every kind comes before all others, of which none is a near-copy of an answer before it. Rows that
    change the same are of one kind, unless `kinds` (m,) says otherwise; where the nearest answers are wanted, kinds do
    not count.
    """
    if problem.variety.near:
        return apart(problem, Z, order.tolist())
    leaders, others = _leaders(order.tolist(), kinds_of(problem, Z) if kinds is None else kinds)
    return apart(problem, Z, others, leaders[: problem.count])


def apart(
    problem: Problem, Z: Floats, positions: Iterable[int], chosen: Iterable[int] = (), *, times: int = 1
) -> Codes:
    """Return the positions `chosen` of rows Z (m, d) and others, none of them a near-copy of one before it.

    They are at most as many as are wanted, and so many `times` the least difference apart.
    """
    found = list(chosen)
    for position in positions:
        if len(found) >= problem.count:
            break
        if not near_copies(problem, Z[found], Z[position], times).any():
            found.append(position)
    return np.array(found, dtype=np.intp)
