"""Labels that are drawn anew, as chance could have had them.

All draws of the rows at hand have the labels of these rows in common. Where a model follows single rows of noisy data,
so do all of its fits to draws, and a search for the nearest answer leans on rows whose label is good luck. Later rows
have other luck. So a draw may have labels of its own, each with the chances that models say which have not learned from
that row (a parametric bootstrap, Efron and Tibshirani 1993, section 6.5). What such models say is mostly too sure, and
is calibrated (Platt 1999).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.features import Floats
from mlflow_cf.survival.rows import DRAWS, GIVE, Draws, Places, Rows
from mlflow_cf.unlogged import unlogged

ORDERS: Final = 5  # of the rows, into halves: each row's chances are the mean of as many models
LEAST: Final = 1e-4  # chance of a label, before calibration
PLAIN: Final = 1e6  # inverse strength of regularisation: calibration has few weights


@dataclass(frozen=True, eq=False)
class Chances:
    """How likely each label of each row was.

    Attributes:
        labels: (c,) all labels; of_row: (n, c) the chances of each of them.
    """

    labels: NDArray[Any]
    of_row: Floats

    def drawn(self, rows: Rows, places: Places, rng: np.random.Generator) -> Rows:
        """Return the rows at `places` (m,) with labels that are drawn, each of them at least once.

        Raises:
            InputError: one is so unlikely that it is not among them.
        """
        below = self.of_row[places].cumsum(axis=1)[:, :-1]
        for _ in range(DRAWS):
            codes = (rng.random(len(places))[:, None] >= below).sum(axis=1)
            if len(np.unique(codes)) == len(self.labels):
                return Rows(rows.take(places).data, self.labels[codes])
        fact = f"{DRAWS} draws of labels lacked a class each time"
        raise InputError("labels", fact, f"pass more rows of the rare class, or {GIVE}")


def chances(rows: Rows, draws: Draws, fit: Callable[[Rows], Any]) -> Chances:
    """Return how likely labels were, by models that have not learned from these rows.

    Args:
        rows: with their labels.
        draws: halves of them.
        fit: returns a classifier of some rows, with probabilities.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  half a second that no server needs

    labels, codes = np.unique(rows.labels, return_inverse=True)
    total, halves = np.zeros((len(codes), len(labels))), draws.pairs()
    for _ in range(ORDERS):
        pair = next(halves)
        for own, other in (pair, pair[::-1]):
            total[other] += unlogged(fit(rows.take(own)).predict_proba, rows.take(other).data)
    likely = np.log(np.clip(total / ORDERS, LEAST, None))
    calibrated = LogisticRegression(C=PLAIN, max_iter=1_000).fit(likely[:, 1:] - likely[:, :1], codes)
    return Chances(labels, calibrated.predict_proba(likely[:, 1:] - likely[:, :1]))
