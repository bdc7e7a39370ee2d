"""How rows stand towards a target: met or not, and how near (GeCo section 2, exact search section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.model.judge import Label, OpenModel, Outcome
from mlflow_cf.problem.compiled import INTERVAL, LABEL, LINKS, OTHER, SIGMOID, TARGETS, Array, rate_labels, rate_values
from mlflow_cf.problem.target import Target
from mlflow_cf.structures.links import Link


@dataclass(frozen=True, eq=False)
class Rating:
    """Ratings of m rows.

    Attributes:
        favourable: (m,) whether the row meets the target.
        grade: (m,) in [0, 1], growing towards the target.
    """

    favourable: NDArray[np.bool_]
    grade: Floats


@dataclass(frozen=True)
class BoundTarget:
    """A target with what it needs to be decided.

    Attributes:
        target: the wanted outcome.
        model: whose outcomes are rated.
        own: class position of the row's own label; `Target.other()` is any but this one.
        spread: largest minus smallest prediction on the background, the unit of a regression's gap.
    """

    target: Target
    model: OpenModel
    own: int = -1
    spread: float = 1.0

    def rate(self, outcome: Outcome) -> Rating:
        """Rate m rows by their outcome."""
        favourable, grade = np.empty(len(outcome.codes), dtype=np.bool_), np.empty(len(outcome.codes))
        if self.target.interval:
            rate_values(_ours(outcome.values), self._table, favourable, grade)
        elif outcome.scores is None:
            decided = outcome.codes != self.own if self.target.differs else outcome.codes == self._column
            favourable[:] = grade[:] = decided & (outcome.codes >= 0)
        else:
            codes, scores = outcome.codes.astype(np.intp), _ours(outcome.scores)
            rate_labels(codes, scores, self._table, favourable, grade, np.empty(len(grade)))
        return Rating(favourable, grade)

    def probability(self, outcome: Outcome) -> list[float | None]:
        """Return the probability of the wanted label (of the likeliest other one) per row; None without."""
        count = len(outcome.codes)
        if outcome.scores is None or self.model.score_kind != "probability":
            return [None] * count
        codes, scores, wanted = outcome.codes.astype(np.intp), _ours(outcome.scores), np.empty(count)
        rate_labels(codes, scores, self._table, np.empty(count, dtype=np.bool_), np.empty(count), wanted)
        return [None if np.isnan(share) else float(share) for share in wanted]

    def prediction(self, outcome: Outcome, row: int) -> Label:
        """Return the prediction of one row as a plain Python value."""
        if self.model.regression:
            return float(outcome.values[row])
        label: Label = self.model.classes[outcome.codes[row]]
        return label

    def compiled(self, link: Link, start: int, sums: int) -> Array:
        """Return the table (1,) of this target for a structure whose `sums` stand at `start` among all sums."""
        target, number = self.target, LINKS.index(link)
        kind = INTERVAL if target.interval else OTHER if target.differs else LABEL
        line = {
            "link": number,
            "start": start,
            "stop": start + sums,
            "classes": 2 if number == SIGMOID and sums == 1 else sums,
            "kind": kind,
            "column": self.own if kind != LABEL else self._column,
            "least": target.min_probability or 0.0,
            "low": -np.inf if target.low is None else float(target.low),
            "high": np.inf if target.high is None else float(target.high),
            "spread": self.spread,
            "margins": self.model.score_kind == "margin",
        }
        return np.array([tuple(line[str(name)] for name in TARGETS.names or ())], dtype=TARGETS)

    @cached_property
    def _table(self) -> Array:
        """The target for the model's own scores."""
        return self.compiled("identity", 0, max(len(self.model.classes), 1))

    @property
    def _column(self) -> int:
        return self.target.column(self.model)


def _ours(numbers: Array) -> Array:
    """Return a copy to overwrite; kernels are compiled once more for other numbers, and for another order in memory."""
    return np.array(numbers, dtype=np.float64, order="C")


def spread_of(outcome: Outcome) -> float:
    """Return largest minus smallest prediction of a regression; 1 if they are all alike."""
    spread = float(np.ptp(outcome.values)) if len(outcome.values) else 0.0
    return spread if np.isfinite(spread) and spread > 0 else 1.0
