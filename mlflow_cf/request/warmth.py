"""What is compiled or loaded on first use shall be so before a clock starts, if nobody waits for another explainer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.kernel import ready
from mlflow_cf.model.judge import Outcome
from mlflow_cf.problem import BoundTarget, Limits, Query

TRIED: Final = 3  # rows, of which the pairs of changes are looked at
TRIAL_S: Final = 0.5  # of a trial that compiles nothing: wide models take longer for the whole of it
TRIAL_SHARE: Final = 0.5  # of a request's time, where it names an explainer that nobody has tried yet
MOST_TRIALS: Final = 20  # more than there are kernels
ENOUGH_OPENED: Final = 20_000  # evaluations of a trial: some milliseconds of a structure, and everything runs once
ENOUGH_SCORED: Final = 200  # some calls of a model


def row_to_try(target: BoundTarget, outcome: Outcome) -> int:
    """Return the number of a background row with this outcome that misses the target, if there is any."""
    return int(target.met(outcome).argmin())


def query_to_try(limits: Limits, *, opened: bool, certified: bool) -> Query:
    """Return the query of a trial."""
    enough = ENOUGH_OPENED if opened else ENOUGH_SCORED
    return Query(certify=certified, max_evaluations=min(enough, limits.max_evaluations))


class Warmth:
    """Remembers which explainers were tried on a model, and whether with certificates; shared by its threads."""

    def __init__(self) -> None:
        self._tried: set[tuple[str, bool]] = set()

    def ensure(self, explainer: AnyExplainer, trial: Callable[[float], object], *, certified: bool) -> None:
        """Make a `trial` of the explainer, unless there was one: again while it ended because a kernel was compiled.

        It is told how many seconds it may take.
        """
        self._tried_until(explainer, trial, TRIAL_S, None, certified=certified)

    def left(
        self, explainer: AnyExplainer, trial: Callable[[float], object], seconds: float, *, certified: bool, free: bool
    ) -> float:
        """Do the same before a request or, unless it is `free`, in a part of its `seconds`; return those that are left.

        What there was no time for, the next request tries.
        """
        if free:
            self.ensure(explainer, trial, certified=certified)
            return seconds
        started, most_s = time.perf_counter(), min(TRIAL_S, TRIAL_SHARE * seconds)
        self._tried_until(explainer, trial, most_s, started + most_s, certified=certified)
        return max(seconds - (time.perf_counter() - started), 0.0)

    def _tried_until(
        self,
        explainer: AnyExplainer,
        trial: Callable[[float], object],
        seconds: float,
        until: float | None,
        *,
        certified: bool,
    ) -> None:
        key = explainer.name, certified
        if key in self._tried:
            return
        self._tried.add(key)  # first: a trial asks for none
        for _ in range(MOST_TRIALS):
            before = ready()
            trial(seconds)
            if ready() == before:
                return
            if until is not None and time.perf_counter() >= until:
                self._tried.discard(key)
                return

    def __reduce__(self) -> tuple[type[Warmth], tuple[()]]:
        """Begin cold in another process."""
        return Warmth, ()
