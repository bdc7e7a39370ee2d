"""How rows stand towards a target: met or not, and how near (GeCo section 2, exact search section 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from mlflow_cf.features import Floats
from mlflow_cf.judge import OpenModel, Outcome
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


def rate(target: Target, model: OpenModel, outcome: Outcome) -> Rating:
    """Rate rows with `outcome` against `target`."""
    column = target.column(model)
    favourable = outcome.codes == column
    if outcome.scores is None:
        return Rating(favourable, favourable.astype(np.float64))
    shares = outcome.scores if model.score_kind == "probability" else _shares(outcome.scores)
    if target.min_probability is not None:
        favourable = favourable & (shares[:, column] >= target.min_probability)
    return Rating(favourable, shares[:, column])


def probability(target: Target, model: OpenModel, outcome: Outcome) -> list[float | None]:
    """Return the probability of the wanted label for each row; None if the model gives none."""
    if outcome.scores is None or model.score_kind != "probability":
        return [None] * len(outcome.codes)
    return [float(p) for p in outcome.scores[:, target.column(model)]]


def _shares(margins: Floats) -> Floats:
    """Squash margins into [0, 1], keeping their order."""
    if margins.shape[1] == 2:
        likelier = expit(margins[:, 1])
        return np.column_stack([1 - likelier, likelier])
    return np.asarray(softmax(margins, axis=1))
