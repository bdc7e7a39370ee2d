"""What is compiled or loaded on first use shall be so before a clock starts, not under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mlflow_cf.explainers import AnyExplainer

ENOUGH_OPENED: Final = 20_000  # evaluations of a trial: some milliseconds of a structure, and everything runs once
ENOUGH_SCORED: Final = 200  # some calls of a model


class Warmth:
    """Remembers which explainers were tried on a model, and whether with certificates; shared by its threads."""

    def __init__(self) -> None:
        self._tried: set[tuple[str, bool]] = set()

    def ensure(self, explainer: AnyExplainer, trial: Callable[[], object], *, certified: bool) -> None:
        """Make a `trial` of the explainer, unless there was one."""
        if (explainer.name, certified) not in self._tried:
            self._tried.add((explainer.name, certified))  # first: a trial asks for none
            trial()

    def __reduce__(self) -> tuple[type[Warmth], tuple[()]]:
        """Begin cold in another process."""
        return Warmth, ()
