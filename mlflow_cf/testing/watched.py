"""A model that notes what it is asked, for budgets; problems that nothing solves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy.limits import MOST_ANSWERS
from mlflow_cf.testing.goals import Floats, truth
from mlflow_cf.testing.worlds import overrides, table
from mlflow_cf.words.result import Status
from mlflow_cf.wrapping import assemble

LABELS: Final = ("no", "yes")
RARE: Final = 1.9  # few rows are worth more
NEVER: Final = 1e9


@dataclass
class Clock:
    """A clock that stands still unless someone reads it or lets time pass, so that no busy machine can disturb it."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time, in seconds; reading it takes a moment."""
        self.now += 1e-6
        return self.now


@dataclass(frozen=True)
class ModelCall:
    """One call of a model: when it began, and how many rows it asked about."""

    began: float
    rows: int


@dataclass(frozen=True)
class Watched:
    """A model that wants rows worth more than `least`, and notes every question.

    Attributes:
        least: the value above which the label is "yes".
        scored: whether it has probabilities too.
        clock: on which a call takes 10 ms, and 0.02 ms per row.
        decided, rated: questions for labels and for probabilities.
    """

    least: float
    scored: bool = False
    clock: Clock = field(default_factory=Clock)
    decided: list[ModelCall] = field(default_factory=list)
    rated: list[ModelCall] = field(default_factory=list)

    def explained(self, explainer: AnyExplainer, constraints: Mapping[str, Any] | None = None) -> ExplainedModel:
        """Return this model wrapped; what was asked on the way is forgotten."""
        opened = OpenModel(
            flavor="watched",
            classes=LABELS,
            decide=self._decide,
            score=self._score if self.scored else None,
            score_kind="probability" if self.scored else "none",
        )
        limits = {"count": MOST_ANSWERS}
        options = WrapOptions("yes", constraints, explainer, overrides("observed"), limits=limits)
        explained = assemble(opened, table(3), None, options)
        self.decided.clear()
        self.rated.clear()
        return explained

    @property
    def questions(self) -> list[ModelCall]:
        """All questions."""
        return [*self.decided, *self.rated]

    def rows_seen(self) -> int:
        """Return how many rows it was asked about; a row asked for its label and probabilities at once is one."""
        return max(sum(question.rows for question in kind) for kind in (self.decided, self.rated))

    def _decide(self, rows: pd.DataFrame) -> NDArray[np.generic]:
        return np.where(self._work(rows, self.decided) > self.least, *reversed(LABELS))

    def _score(self, rows: pd.DataFrame) -> Floats:
        chance = 1 / (1 + np.exp(np.minimum(self.least - self._work(rows, self.rated), 100.0)))
        return np.column_stack((1 - chance, chance))

    def _work(self, rows: pd.DataFrame, noted: list[ModelCall]) -> Floats:
        noted.append(ModelCall(self.clock.now, len(rows)))
        self.clock.now += 0.01 + 2e-5 * len(rows)
        return truth(rows)


def watched_row() -> pd.DataFrame:
    """Return the row to explain: young, few hours, worth little."""
    rows = table(4, 60)
    young = (rows["age"] < 40) & (rows["age"] > 25) & (rows["hours"] < 30) & rows["income"].notna()
    return rows[young & (truth(rows) < 0)].iloc[:1]


@dataclass(frozen=True)
class Hopeless:
    """Constraints, or a model, that leave no counterfactual, and the statuses that say so."""

    constraints: Mapping[str, Any]
    statuses: tuple[Status, ...] = ("infeasible",)
    least: float = RARE


HOPELESS: Final[Mapping[str, Hopeless]] = {
    "never predicted": Hopeless({}, ("not_found", "infeasible", "budget"), least=NEVER),
    "nothing may change": Hopeless({"immutable": list(table(0, 3).columns)}),
    "no value left": Hopeless({"ranges": {"age": [200, 300]}}),
    "must change but must not": Hopeless({"immutable": ["age"], "ranges": {"age": [60, None]}}),
    "two must change but one may": Hopeless({"ranges": {"age": [60, None], "hours": [45, None]}, "max_changes": 1}),
    "rules against each other": Hopeless({"rules": ["x_cf.age > x.age", "x_cf.age < x.age"]}),
    "a rule that is never true": Hopeless({"rules": ["1 = 2"]}),
    "a rule over two features": Hopeless({"rules": ["x_cf.age + x_cf.hours >= 500"]}),
}
