"""Trial searches before a clock starts, so that what is compiled or loaded on first use costs no request its time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from typing import Final

import numpy as np

from mlflow_cf.goal import BoundTarget
from mlflow_cf.kernel import ready
from mlflow_cf.model.judge import Outcome
from mlflow_cf.policy import Limits, Query

TRIED_IN_TABLES: Final = 16  # rows, which go different ways: with two of them, some kernels are not met
TRIED: Final = 3  # rows whose pairs of changes are tried
TRIAL_S: Final = 0.5  # of a trial that compiles nothing: wide models take longer for the whole of it
TRIAL_SHARE: Final = 0.5  # of a request's time, where it names an explainer that nobody has tried yet
SEVERAL: Final = 3  # answers of a trial of what plain requests seldom need
MOST_TRIALS: Final = 20  # more than there are kernels
ENOUGH_OPENED: Final = 20_000  # evaluations of a trial: some milliseconds of a structure, and everything runs once
ENOUGH_SCORED: Final = 200  # some calls of a model


def hardest_row(target: BoundTarget, outcome: Outcome) -> int:
    """Return the number of the background row with this outcome that is farthest from the target."""
    rating = target.rate(outcome)
    return int(np.where(rating.favourable, np.inf, rating.grade).argmin())


def query_to_try(limits: Limits, *, opened: bool, certified: bool, count: int = 1) -> Query:
    """Return the query of a trial that asks for `count` answers, or for fewer where that is the limit."""
    enough = ENOUGH_OPENED if opened else ENOUGH_SCORED
    most = min(enough, limits.max_evaluations)
    return Query(certify=certified, max_evaluations=most, count=min(count, limits.count))


class Warmth:
    """Knows which explainers had a trial on a model, and whether with certificates; shared by its threads.

    Attributes:
        tried: what had a trial.
    """

    def __init__(self) -> None:
        """Set up without any."""
        self.tried: set[Hashable] = set()

    def once(
        self, what: Hashable, trial: Callable[[float], object], seconds: float = TRIAL_S, until: float = math.inf
    ) -> None:
        """Make a `trial` of something, unless there was one: again while it ended because a kernel was compiled.

        It is told how many `seconds` it may take. What there was no time for `until` then, the next request tries.
        """
        if what in self.tried:
            return
        self.tried.add(what)  # first: a trial asks for none
        for _ in range(MOST_TRIALS):
            before = ready()
            trial(seconds)
            if ready() == before:
                return
            if time.perf_counter() >= until:
                self.tried.discard(what)
                return

    def left(self, what: Hashable, trial: Callable[[float], object], seconds: float) -> float:
        """Make a `trial` in a part of a request's `seconds`, unless there was one; return those left."""
        started, most_s = time.perf_counter(), min(TRIAL_S, TRIAL_SHARE * seconds)
        self.once(what, trial, most_s, started + most_s)
        return max(seconds - (time.perf_counter() - started), 0.0)

    def __reduce__(self) -> tuple[type[Warmth], tuple[()]]:
        """Begin cold in another process."""
        return Warmth, ()
