"""What the rows of a request share, which of them are explained, and one as a task: its problem, targets and budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from mlflow_cf.constraints import Constraints, Pause
from mlflow_cf.constraints.actions import functions_in
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.engine import Engine
from mlflow_cf.errors import InputError
from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.explainers.searches import Searches
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import BoundTarget, Rating, Requirements
from mlflow_cf.goal.requirements import rate_all
from mlflow_cf.model.judge import CountedJudge, Outcome, classes_of
from mlflow_cf.model.remote import Session
from mlflow_cf.policy import Limits, Query, Target, WhyNotAsked
from mlflow_cf.policy.limits import Variety
from mlflow_cf.problem import BoundPolicy, Budget, Codes
from mlflow_cf.proof.verify import RowTask
from mlflow_cf.reasons.reasoning import Reasoning
from mlflow_cf.request.admission import MOST_PLACES, Admission
from mlflow_cf.request.rows import PredictedRows, Row, SomeRows
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.sentences import Speaker
from mlflow_cf.words.statements import say

MOST_KEPT: Final = 8  # bound policies of requests that stay; each may hold the tables of groups that it names
PATIENCE_S: Final = 0.03  # a served request waits so long for a place; most searches are over in less

Work = Callable[[pd.DataFrame], Sequence[Explanation]]


def checked_jobs(n_jobs: int | None) -> int | None:
    """Return the most cores that a long table may take; None: all that are free.

    Raises:
        InputError: neither a positive number, nor -1 or None for all.
    """
    if n_jobs is None or n_jobs == -1:
        return None
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs < 1:
        raise InputError("n_jobs", f"{n_jobs!r} is no number of cores", "give 1 or more, or None for all that are free")
    return n_jobs


class Caller(NamedTuple):
    """Who asks, and how long that may take.

    Attributes:
        seconds: for all explanations together, or None; more of them may take `row_seconds` each instead.
        served: whether it is a request to the served model, which may see less than the owner of the explained model.
        rows: most rows that are explained; None: all.
        trial: whether it is a search before a request, which sees what requests see.
        jobs: most cores that a long table takes; None: all that are free.
    """

    seconds: float | None
    row_seconds: float
    served: bool
    rows: int | None = None
    trial: bool = False
    jobs: int | None = None

    @property
    def further(self) -> int:
        """How many cores a long table may take beside the one of its thread, if they are free."""
        return (MOST_PLACES if self.jobs is None else self.jobs) - 1

    @property
    def owner(self) -> bool:
        """Whether replies may show all of the background, and advise to relax constraints of the policy."""
        return not (self.served or self.trial)

    @property
    def patience_s(self) -> float | None:
        """Seconds to wait for a place before all rows are answered as busy; None: as long as it takes."""
        return PATIENCE_S if self.served else self.seconds

    @classmethod
    def of(cls, limits: Limits, asked_s: float | None, within_s: float | None) -> Caller:
        """Return who sends a request that asks for so many seconds, and must have its reply within others, if any."""
        seconds = limits.time_limit_s if asked_s is None else asked_s
        if within_s is not None:
            return cls(min(seconds, within_s), 0.0, served=True, rows=limits.explained_rows, jobs=1)
        return cls(seconds, limits.row_time_limit_s if asked_s is None else 0.0, served=True)


class Tightened:
    """Bound policies with the constraints of the last few requests, kept for those who send the same again.

    Threads may share it. To compile them takes a millisecond, and what is found out about leaving out some of them as
    long again.
    """

    def __init__(self) -> None:
        """Set up without any."""
        self._kept: dict[tuple[BoundPolicy, str], BoundPolicy] = {}
        self._lock = Lock()

    def of(self, bound_policy: BoundPolicy, asked: Constraints, pause: Pause) -> BoundPolicy:
        """Return a bound policy with constraints on top; `pause` is called while they are bound, and may end that.

        Raises:
            InputError: they do not fit the features, or would loosen the policy.
        """
        # what a Python function does is not in its name
        if asked.causal or functions_in(asked.actions, asked.relationships):
            return bound_policy.tightened(asked, pause)
        key = bound_policy, repr(asked)
        found = self._kept.get(key) or bound_policy.tightened(asked, pause)
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = found  # the last one used goes last
            while len(self._kept) > MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
        return found


@dataclass(frozen=True, eq=False)
class Request:
    """Everything the rows of one request share.

    Attributes:
        requirements: the model's own decision, and all further requirements that candidates must meet.
        judges: ask the models, and count the calls of this request.
        bound_policy: the policy, bound to the background; with the query's constraints once the request has its place.
        tightened: bound policies with the constraints of earlier requests.
        target: the wanted outcome; a row that meets it needs no counterfactual, whatever else is required of one.
        explainer: searches, once `searches` has made it ready.
        variety: how several answers differ.
        query: the request's options.
        seed: seed of every row.
        certified: whether answers are proved to be the nearest.
        why_not: how much is found out about rows without counterfactual.
        max_evaluations: rows scored per explained row.
        deadline: `time.perf_counter` value for all explanations together, or None.
        elsewhere: explains a part of the rows in another process; used where there is no common deadline.
        admission: limits how many requests are explained at once.
        caller: who asks, and how long that may take.
        speaker: makes sentences.
        reasoning: what reasons of all rows share; None: none are asked for.
        session: the calls of a model that another server answers for; None: there are none.
    """

    requirements: Requirements
    judges: CountedJudge
    bound_policy: BoundPolicy
    tightened: Tightened
    target: Target
    explainer: AnyExplainer
    searches: Searches
    variety: Variety
    query: Query
    seed: int
    certified: bool
    why_not: WhyNotAsked
    max_evaluations: int
    deadline: float | None
    elsewhere: Work
    admission: Admission
    caller: Caller
    speaker: Speaker
    reasoning: Reasoning | None = None
    session: Session | None = None

    def bound_target(self, own: int) -> BoundTarget:
        """Return the target for rows that the model predicts as the class at position `own`."""
        return self.requirements.bound(self.target, own)

    def left(self, used: int) -> int:
        """Return how many evaluations a row has left, after so many, for what is asked beside its answers."""
        left, remote = max(self.max_evaluations - used, 0), self.requirements.judge.model.remote
        return left if remote is None else min(left, remote.rows_per_row)


def beside_answers(request: Request, rows: int) -> None:
    """Let what is asked about so many rows beside their answers take no more calls than searches of them may take."""
    remote = request.requirements.judge.model.remote
    if remote is not None and request.session is not None:
        request.session.most_calls = request.session.calls + rows * remote.calls_per_row


@contextmanager
def asking(request: Request) -> Iterator[Request]:
    """Enter a request: the calls of a model that another server answers for are counted, and end with its time."""
    remote = request.requirements.judge.model.remote
    if remote is None:
        yield request
        return
    with remote.asking() as session:
        session.until = request.deadline
        yield replace(request, session=session)


def until_of_next(deadline: float | None, rows: int) -> float | None:
    """Return until when the next of so many rows may take, if all are done by the deadline; None without one."""
    now = time.perf_counter()
    return None if deadline is None else now + max(deadline - now, 0.0) / rows


def is_wanted(request: Request, row: Row) -> bool:
    """Whether a row needs a counterfactual: it is valid, asked for, and not predicted as wanted."""
    if row.fault or row.outcome is None or request.query.explain == "none":
        return False
    return request.target.differs or not bool(request.bound_target(row.own).met(row.outcome)[0])


def wanted_of(request: Request, rows: Sequence[Row]) -> Mapping[int, Row]:
    """Return the rows that need a counterfactual, by their number."""
    if isinstance(rows, PredictedRows):
        return SomeRows(rows, wanted_numbers(request, rows))
    return {number: row for number, row in enumerate(rows) if is_wanted(request, row)}


def wanted_numbers(request: Request, rows: PredictedRows) -> Codes:
    """Return the numbers of the rows that need a counterfactual, ascending."""
    if request.query.explain == "none":
        return np.empty(0, dtype=np.intp)
    found = np.append(unmet(request, rows.outcome), False)[rows.place]  # the last: predicted alone
    for number, row in rows.alone.items():
        found[number] = is_wanted(request, row)
    return np.flatnonzero(found)


def unmet(request: Request, outcome: Outcome) -> Bools:
    """Return (m,) which rows, of which the model says so, need a counterfactual if any does."""
    found = np.zeros(len(outcome.codes), dtype=np.bool_)
    for own in classes_of(outcome.codes):
        found |= (outcome.codes == own) & (request.target.differs or ~request.bound_target(own).met(outcome))
    return found


def row_task(request: Request, space: FeatureSpace, row: Row) -> RowTask:
    """Return the task of a row, with a budget of its own."""
    requirements = request.requirements
    targets, opened, partial = requirements.wanted(request.target, row.own)
    count, most = request.query.count, request.max_evaluations
    unread = np.flatnonzero(requirements.unread_levels(space, row.codes[None])[0]).tolist()
    scorer = None if unread else opened

    def rate(Z: Floats) -> Rating:
        return request.judges.counted(lambda rows: requirements.rate(targets, space, rows, opened=not unread), Z)

    problem = request.bound_policy.bind(
        row.codes,
        space=space,
        count=count,
        rate=scorer.rate if scorer else rate,
        rate_background=lambda: rate_all(targets, requirements.background),
        scorer=scorer,
    )
    reserve = reserve_of(request, len(problem.groups), opened=scorer is not None)
    obstacle = requirements.obstacle
    if unread and requirements.structure is not None:
        feature = space.features[unread[0]]
        level = repr(feature.value(row.codes[unread[0]]))
        obstacle = Uncertified("unseen_level", say("level_of", level=level, feature=feature.name))
    problem = replace(problem, target=targets[0], variety=request.variety, partial=None if unread else partial)
    budget = Budget(most, reserve, request.admission.give_way)
    return RowTask(
        Engine(problem),
        targets[0],
        budget,
        obstacle,
        targets[1:],
        steady=requirements.steady,
        rounding=requirements.rounding,
    )


def reserve_of(request: Request, groups: int, *, opened: bool) -> int:
    """Return how many evaluations of a row with so many groups its search leaves to what follows."""
    most = request.max_evaluations
    reserve = min(most // 4, 8 * request.query.count * (groups + 1))
    # a search that goes on for long must leave evaluations for the certificate
    return max(reserve, most // 2) if request.certified and opened else reserve
