"""The explainers of one model made ready to search; each learns once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, is_dataclass
from typing import Final

from mlflow_cf.errors import ArtifactError
from mlflow_cf.explainers.explainer import AnyExplainer, Learner, Search, learns
from mlflow_cf.explainers.learned import Facts, Learned
from mlflow_cf.explainers.registry import explainer_to_dict

MOST_LEARNED: Final = 8  # beside the model's own: callers choose options, and must not fill the memory with them


@dataclass(frozen=True, eq=False)
class Ready:
    """An explainer that can search, with what it has learned if it learns."""

    explainer: AnyExplainer
    search: Search
    learned: Learned | None = None


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
        self._others: dict[Hashable, Future[Ready]] = {}
        self._lock = threading.Lock()

    def of(self, explainer: AnyExplainer, deadline: float | None) -> Search | None:
        """Return the search of an explainer, which learns here if it has not yet.

        One thread learns while the others wait, each until its `deadline` (a `time.perf_counter` value): then None.

        Raises:
            Exception: what the explainer raises when it learns; it may try again when it is asked for anew.
        """
        if not learns(explainer):
            return explainer.search
        key = _key(explainer)
        if key == _key(self.own.explainer):
            return self.own.search
        if self.own.learned is not None and _learns_alike(explainer, self.own.explainer):
            return explainer.bound(self.own.learned)
        with self._lock:
            found = self._others.pop(key, None)
            mine = found is None
            found = self._others[key] = found or Future()  # last in line to be forgotten
            while len(self._others) > MOST_LEARNED:
                del self._others[next(iter(self._others))]
        if mine:
            self._learn(key, explainer, found)
        wait([found], None if deadline is None else max(deadline - time.perf_counter(), 0.0))
        return found.result().search if found.done() else None

    def has(self, explainer: AnyExplainer) -> bool:
        """Whether an explainer can search at once: it learns nothing, or has learned."""
        if not learns(explainer) or (key := _key(explainer)) == _key(self.own.explainer):
            return True
        if _learns_alike(explainer, self.own.explainer):
            return True
        found = self._others.get(key)
        return found is not None and found.done()

    def _learn(self, key: Hashable, explainer: Learner, found: Future[Ready]) -> None:
        try:
            found.set_result(_ready(explainer, self.facts, None))
        except BaseException as error:
            with self._lock:
                if self._others.get(key) is found:
                    del self._others[key]
            found.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def __reduce__(self) -> tuple[type[Searches], tuple[Facts, AnyExplainer, Learned | None]]:
        """Copy the model's own explainer and what it has learned; the others learn anew."""
        return Searches, (self.facts, self.own.explainer, self.own.learned)


def _ready(explainer: AnyExplainer, facts: Facts, learned: Learned | None) -> Ready:
    if not learns(explainer):
        return Ready(explainer, explainer.search)
    if learned is None:
        learned = explainer.learn(facts)
        return Ready(explainer, explainer.bound(learned), learned)
    try:
        return Ready(explainer, explainer.bound(learned), learned)
    except Exception as error:
        fact = f"{explainer.name!r} cannot use what was stored as learned ({type(error).__name__})"
        raise ArtifactError(
            "explainer", fact, "log the explained model again, or install what it was logged with"
        ) from error


def _learns_alike(explainer: AnyExplainer, own: AnyExplainer) -> bool:
    """Whether both learn the same, although other options are not equal."""
    options: tuple[str, ...] | None = getattr(explainer, "learned_by", None)
    if options is None or type(explainer) is not type(own):
        return False
    return all(getattr(explainer, option) == getattr(own, option) for option in options)


def _key(explainer: AnyExplainer) -> Hashable:
    """Return what explainers that learn the same have in common: type and options; others share with nobody."""
    if is_dataclass(explainer):
        try:
            return type(explainer), json.dumps(explainer_to_dict(explainer), sort_keys=True)
        except TypeError:  # an option that is no JSON, such as a function
            pass
    return id(explainer)  # what is ready keeps it alive
