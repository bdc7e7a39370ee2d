"""The explainers of one model made ready to search; each learns once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, is_dataclass
from typing import Final

from mlflow_cf.errors import ArtifactError
from mlflow_cf.explainers.explainer import AnyExplainer, Facts, Learned, Learner, Learning, Search, learns, steps_of
from mlflow_cf.explainers.registry import explainer_to_dict
from mlflow_cf.stepwise import finished

MOST_LEARNED: Final = 8  # beside the model's own: callers choose options, and must not fill the memory with them


@dataclass(frozen=True, eq=False)
class Ready:
    """An explainer that can search, with what it has learned if it learns."""

    explainer: AnyExplainer
    search: Search
    learned: Learned | None = None

    def search_as(self, explainer: Learner) -> Search:
        """Return the search of an explainer that learns the same, perhaps with other options."""
        if self.learned is None or explainer == self.explainer:
            return self.search
        return explainer.bound(self.learned)


class Lesson:
    """An explainer that learns step by step, as far as the clocks of those who wait for it reach.

    One thread teaches while the others wait; who comes next goes on where the last one stopped.
    """

    def __init__(self, explainer: Learner, facts: Facts) -> None:
        """Set up; nothing is learned yet."""
        self.ready: Ready | None = None
        self._explainer, self._facts = explainer, facts
        self._steps: Learning | None = None
        self._error: BaseException | None = None
        self._teaching = threading.Lock()

    def taught(self, deadline: float | None, pause: Callable[[], None]) -> Ready | None:
        """Return the explainer once it has learned; None if the `deadline` comes first.

        Raises:
            Exception: what the explainer raises when it learns, also to those who waited; whoever asks for another
                lesson starts anew.
        """
        if not self._teaching.acquire(timeout=-1 if deadline is None else max(deadline - time.perf_counter(), 0.0)):
            return self.ready
        try:
            while self.ready is None and not (deadline is not None and time.perf_counter() >= deadline):
                pause()
                self._step()
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._teaching.release()
        return self.ready

    def _step(self) -> None:
        """Take the next step; what learns in one is taught by it."""
        if self._error is not None:
            raise self._error
        if self._steps is None:
            self._steps = steps_of(self._explainer.learn(self._facts))
        try:
            next(self._steps)
        except StopIteration as done:
            self.ready, self._steps = Ready(self._explainer, self._explainer.bound(done.value), done.value), None


class Searches:
    """Searches of a model's own explainer and of those that requests name; shared by all threads.

    Attributes:
        facts: what they learn from.
        own: the model's own explainer.
    """

    def __init__(self, facts: Facts, explainer: AnyExplainer, learned: Learned | None = None) -> None:
        """Make the model's own explainer ready: with what it has `learned` before, or let it learn.

        Raises:
            ArtifactError: it cannot use what was learned before; another version of it may have.
        """
        self.facts = facts
        self.own = _ready(explainer, facts, learned)
        self._others: dict[Hashable, Lesson] = {}
        self._lock = threading.Lock()

    def of(
        self, explainer: AnyExplainer, deadline: float | None, pause: Callable[[], None] = lambda: None
    ) -> Search | None:
        """Return the search of an explainer, which learns here if it has not yet.

        It learns until the `deadline` (a `time.perf_counter` value): then None, and the next one to ask goes on from
        there. One thread teaches it while others wait, each until its own deadline; between steps it may `pause`.

        Raises:
            Exception: what the explainer raises when it learns; it may try again when it is asked for anew.
        """
        if explainer is self.own.explainer:
            return self.own.search
        if not learns(explainer):
            return explainer.search
        key = _lesson(explainer)
        if self.own.learned is not None and key == _lesson(self.own.explainer):
            return self.own.search_as(explainer)
        with self._lock:
            lesson = self._others.pop(key, None) or Lesson(explainer, self.facts)
            self._others[key] = lesson  # last in line to be forgotten
            while len(self._others) > MOST_LEARNED:
                del self._others[next(iter(self._others))]
        try:
            ready = lesson.taught(deadline, pause)
        except BaseException:
            with self._lock:
                if self._others.get(key) is lesson:
                    del self._others[key]
            raise
        return None if ready is None else ready.search_as(explainer)

    def has(self, explainer: AnyExplainer) -> bool:
        """Whether an explainer can search at once: it learns nothing, or has learned."""
        if not learns(explainer) or (key := _lesson(explainer)) == _lesson(self.own.explainer):
            return True
        found = self._others.get(key)
        return found is not None and found.ready is not None

    def __reduce__(self) -> tuple[type[Searches], tuple[Facts, AnyExplainer, Learned | None]]:
        """Copy the model's own explainer and what it has learned; the others learn anew."""
        return Searches, (self.facts, self.own.explainer, self.own.learned)


def _ready(explainer: AnyExplainer, facts: Facts, learned: Learned | None) -> Ready:
    if not learns(explainer):
        return Ready(explainer, explainer.search)
    if learned is None:
        learned = finished(steps_of(explainer.learn(facts)))
        return Ready(explainer, explainer.bound(learned), learned)
    try:
        return Ready(explainer, explainer.bound(learned), learned)
    except Exception as error:
        fact = f"{explainer.name!r} cannot use what was stored as learned ({type(error).__name__})"
        raise ArtifactError(
            "explainer", fact, "log the explained model again, or install what it was logged with"
        ) from error


def _lesson(explainer: AnyExplainer) -> Hashable:
    """Return what explainers that learn the same have in common: type, and the options that this depends on."""
    options: tuple[str, ...] | None = getattr(explainer, "learned_by", None)
    return _key(explainer) if options is None else (type(explainer), *(getattr(explainer, each) for each in options))


def _key(explainer: AnyExplainer) -> Hashable:
    """Return what equal explainers have in common: type and options; others share with nobody."""
    if is_dataclass(explainer):
        try:
            return type(explainer), json.dumps(explainer_to_dict(explainer), sort_keys=True)
        except TypeError:  # an option that is no JSON, such as a function
            pass
    return id(explainer)  # what is ready keeps it alive
