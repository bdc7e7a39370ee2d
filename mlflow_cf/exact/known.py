"""All candidates around a row that may be answers, once some search has listed them."""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.problem import Codes, Problem


class Known:
    """What a search leaves to those that come after it.

    Attributes:
        limit: how far away all candidates are known that may meet the target, but for those with needless changes.
        doubt: by how much scores may be off for that.
        codes: (m, G) these candidates; certain: (m,) whether each certainly meets the target.
    """

    def __init__(self, problem: Problem) -> None:
        """Know nothing."""
        self.limit, self.doubt = -np.inf, 0.0
        self.codes: Codes = problem.own[None][:0]
        self.certain: Bools = np.empty(0, dtype=np.bool_)

    def learn(self, limit: float, doubt: float, codes: Codes, certain: Bools) -> None:
        """Take over what a search has found."""
        self.limit, self.doubt, self.codes, self.certain = limit, doubt, codes, certain

    def tells(self, limit: float, doubt: float) -> bool:
        """Whether all candidates no farther than a limit are known, if scores may be off by `doubt`."""
        return limit <= self.limit and doubt <= self.doubt
