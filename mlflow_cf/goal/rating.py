"""Ratings of rows: whether they meet a target, and how near they come (GeCo section 2, exact search section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.goal.raw_scores import SumTarget, rate_labels, rate_values, wanted_shares
from mlflow_cf.model.judge import Label, OpenModel, Outcome
from mlflow_cf.policy.target import Target
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

    @classmethod
    def of_all(cls, ratings: Sequence[Rating]) -> Rating:
        """Return one rating by several targets, all of which must be met; the least grade counts."""
        if len(ratings) == 1:
            return ratings[0]
        favourable = np.logical_and.reduce([rating.favourable for rating in ratings])
        return cls(favourable, np.minimum.reduce([rating.grade for rating in ratings]))


@dataclass(frozen=True)
class BoundTarget:
    """A target with what it depends on beside a prediction.

    Attributes:
        target: the wanted outcome.
        model: whose outcomes are rated.
        own: position among the classes of the label predicted for the row to explain, -1 without; `Target.other()` is
            any other label.
        spread: largest minus smallest prediction on the background: the unit of the distance to an interval.
    """

    target: Target
    model: OpenModel
    own: int = -1
    spread: float = 1.0

    @np.errstate(invalid="ignore", over="ignore", divide="ignore")
    def rate(self, outcome: Outcome) -> Rating:
        """Rate m rows by their outcome."""
        if self.target.interval:
            return Rating(*rate_values(outcome.values.astype(np.float64), self._of_scores))
        if outcome.scores is not None:
            return Rating(*rate_labels(outcome.codes, outcome.scores.astype(np.float64), self._of_scores))
        decided = self._decided(outcome.codes)
        return Rating(decided, decided.astype(np.float64))

    def met(self, outcome: Outcome) -> NDArray[np.bool_]:
        """Return (m,) which rows meet the target by their outcome, as `rate` says."""
        graded = self.target.interval or (outcome.scores is not None and self.target.min_probability)
        return self.rate(outcome).favourable if graded else self._decided(outcome.codes)

    def _decided(self, codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return (m,) which labels (m,), as positions among the classes, are wanted; -1, none of them, never is."""
        wanted: NDArray[np.bool_] = codes != self.own if self.target.differs else codes == self._column
        return wanted & (codes >= 0)

    def probability(self, outcome: Outcome) -> list[float | None]:
        """Return the probability of the wanted label (of the likeliest other one) per row; None without."""
        if outcome.scores is None or self.model.score_kind != "probability":
            return [None] * len(outcome.codes)
        wanted = wanted_shares(outcome.scores.astype(np.float64), self._of_scores)
        return [None if np.isnan(share) else float(share) for share in wanted]

    def prediction(self, outcome: Outcome, row: int) -> Label:
        """Return the prediction of one row as a plain Python value."""
        if self.model.regression:
            return float(outcome.values[row])
        label: Label = self.model.classes[outcome.codes[row]]
        return label

    def of_sums(self, link: Link, start: int, sums: int) -> SumTarget:
        """Return this target over the `sums` raw scores of a structure, which start at column `start` of all."""
        known = self._of_sums.get((link, start, sums))
        return known or self._of_sums.setdefault((link, start, sums), self._for_sums(link, start, sums))

    @cached_property
    def _of_sums(self) -> dict[tuple[Link, int, int], SumTarget]:
        """Kept results of `of_sums`."""
        return {}

    def _for_sums(self, link: Link, start: int, sums: int) -> SumTarget:
        target = self.target
        return SumTarget(
            link=link,
            start=start,
            stop=start + sums,
            classes=2 if link in ("sigmoid", "share") and sums == 1 else sums,
            kind="interval" if target.interval else "other" if target.differs else "label",
            column=self.own if target.interval or target.differs else self._column,
            least=target.min_probability or 0.0,
            low=-np.inf if target.low is None else float(target.low),
            high=np.inf if target.high is None else float(target.high),
            spread=self.spread,
            margins=self.model.score_kind == "margin",
        )

    @cached_property
    def _of_scores(self) -> SumTarget:
        """The target for the model's own scores."""
        return self.of_sums("identity", 0, max(len(self.model.classes), 1))

    @property
    def _column(self) -> int:
        return self.target.column(self.model)


def spread_of(outcome: Outcome) -> float:
    """Return largest minus smallest prediction of a regression; 1 if they are all alike."""
    spread = float(np.ptp(outcome.values)) if len(outcome.values) else 0.0
    return spread if np.isfinite(spread) and spread > 0 else 1.0
