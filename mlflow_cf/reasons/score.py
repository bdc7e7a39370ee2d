"""The score that reasons explain: how far a row's raw scores speak for the wanted outcome, as one weighted sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.goal.targets import SumTarget
from mlflow_cf.model.judge import ScoreKind

Scale = Literal["log-odds", "probability", "margin", "score", "value", "decision"]


@dataclass(frozen=True, eq=False)
class ExplainedScore:
    """A weighted sum of the raw scores of a row, which grows towards the wanted outcome.

    Attributes:
        weights: (k,) of the raw scores.
        scale: what its units are.
        against: position of the class that the wanted one is compared with, where there are more than two; else -1.
        shift, sign: the score is told as ``shift + sign * sum``.
    """

    weights: Floats
    scale: Scale
    against: int = -1
    shift: float = 0.0
    sign: float = 1.0

    def told(self, weighted: float) -> float:
        """Return the score of a weighted sum, as it is told."""
        return self.shift + self.sign * weighted


def explained_score(target: SumTarget, sums: Floats, kind: ScoreKind) -> ExplainedScore:
    """Return the score of a row with raw scores (k,) that its reasons are about.

    A regression is explained by its value, in the direction of the interval; two classes by the raw score of the wanted
    one; several by how far the wanted class lies above the best other one of the row, which stays the same for all
    references.

    Args:
        target: over these raw scores, for a row that misses it.
        sums: of the row.
        kind: of the model's scores.
    """
    weights = np.zeros(len(sums))
    if target.kind == "interval":
        weights[0] = 1.0 if sums[0] < target.low else -1.0
        return ExplainedScore(weights, "value", sign=float(weights[0]))
    if len(sums) == 1:
        toward = 1.0 if target.columns[0] == 1 else -1.0
        weights[0] = toward
        if target.link == "share":
            return ExplainedScore(weights, "probability", shift=0.0 if toward > 0 else 1.0)
        return ExplainedScore(weights, _scale(target, kind))
    wanted, other = _wanted_and_other(target, sums)
    weights[wanted] = 1.0
    scale = _scale(target, kind)
    if len(sums) > 2 or scale != "probability":  # of two probabilities one says all
        weights[other] = -1.0
    return ExplainedScore(weights, scale, against=other if len(sums) > 2 else -1)


def _wanted_and_other(target: SumTarget, sums: Floats) -> tuple[int, int]:
    """Return the class that is wanted and the best of those that are not, by the raw scores (k,) of a row."""
    others = np.array([column for column in range(len(sums)) if column != target.column])
    best = int(others[sums[others].argmax()])
    return (target.column, best) if target.kind == "label" else (best, target.column)


def _scale(target: SumTarget, kind: ScoreKind) -> Scale:
    if target.margins:
        return "margin"
    if target.link in ("sigmoid", "softmax"):
        return "log-odds"
    return "probability" if kind == "probability" else "score"
