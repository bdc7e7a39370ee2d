"""What every explainer is: a search for candidates. One shared pipeline proves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Problem


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a search found.

    Attributes:
        rows: (m, d) codes of candidate rows the search believes favourable, nearest first.
        diagnostics: statistics of the run, such as generations.
        certify: whether the answers shall be proved nearest, also where the request does not ask for that.
    """

    rows: Floats
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    certify: bool = False


@runtime_checkable
class Explainer(Protocol):
    """A method that searches candidates; immutable and thread-safe, its options are dataclass fields.

    Attributes:
        name: name in requests and artifacts.
    """

    name: ClassVar[str]

    @property
    def polish(self) -> bool:
        """Whether needless changes of its answers may be undone; a class variable, or an option."""
        ...

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Search candidates for `problem`; ask `budget` before every batch of scored rows, draw only from `rng`."""
        ...
