"""How rows stand towards a target: met or not, and how near (GeCo section 2, exact search section 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from mlflow_cf.features import Floats
from mlflow_cf.model.judge import Label, OpenModel, Outcome
from mlflow_cf.problem.target import Target


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
        if self.target.interval:
            return self._rate_values(outcome.values)
        favourable = outcome.codes == self._column if self.target.label is not None else outcome.codes != self.own
        favourable &= outcome.codes >= 0  # a label the model never announced is no answer
        if outcome.scores is None:
            return Rating(favourable, favourable.astype(np.float64))
        shares = self._shares(outcome.scores)
        wanted, rival = self._wanted_and_rival(shares)
        if self.target.min_probability is not None:
            # the probability of the label the model decided for, which need not be the likeliest one
            favourable &= shares[np.arange(len(shares)), outcome.codes] >= self.target.min_probability
        return Rating(favourable, wanted if shares.shape[1] == 2 else (1 + wanted - rival) / 2)

    def probability(self, outcome: Outcome) -> list[float | None]:
        """Return the probability of the wanted label (of the likeliest other one) per row; None without."""
        if outcome.scores is None or self.model.score_kind != "probability":
            return [None] * len(outcome.codes)
        return [None if np.isnan(share) else float(share) for share in self._wanted_and_rival(outcome.scores)[0]]

    def prediction(self, outcome: Outcome, row: int) -> Label:
        """Return the prediction of one row as a plain Python value."""
        if self.model.regression:
            return float(outcome.values[row])
        label: Label = self.model.classes[outcome.codes[row]]
        return label

    @property
    def _column(self) -> int:
        return self.target.column(self.model)

    def _wanted_and_rival(self, shares: Floats) -> tuple[Floats, Floats]:
        """Return what speaks for the target and the best of what speaks against it."""
        column = self.own if self.target.differs else self._column
        if column < 0:  # the row's own label is one the model never announced
            return shares.max(axis=1), np.zeros(len(shares))
        one = shares[:, column]
        others = shares.copy()
        others[:, column] = -np.inf
        best = others.max(axis=1) if shares.shape[1] > 1 else np.zeros(len(shares))
        return (best, one) if self.target.differs else (one, best)

    def _shares(self, scores: Floats) -> Floats:
        """Return scores in [0, 1]; margins are squashed, keeping their order."""
        if self.model.score_kind in ("probability", "score"):
            return scores
        if scores.shape[1] == 2:
            likelier = expit((scores[:, 1] - scores[:, 0]) / 2)  # of one margin m there are two columns: -m and m
            return np.column_stack([1 - likelier, likelier])
        return np.asarray(softmax(scores, axis=1))

    def _rate_values(self, values: Floats) -> Rating:
        low = -np.inf if self.target.low is None else float(self.target.low)
        high = np.inf if self.target.high is None else float(self.target.high)
        gap = np.maximum(np.maximum(low - values, values - high), 0.0)
        favourable = (values >= low) & (values <= high)
        grade = np.where(favourable, 1.0, np.maximum(0.0, (1 - gap / self.spread) / 2))
        return Rating(favourable, np.nan_to_num(grade, nan=0.0))


def spread_of(outcome: Outcome) -> float:
    """Return largest minus smallest prediction of a regression; 1 if they are all alike."""
    spread = float(np.ptp(outcome.values)) if len(outcome.values) else 0.0
    return spread if np.isfinite(spread) and spread > 0 else 1.0
