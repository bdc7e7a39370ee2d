"""What counterfactuals give away: who was in the training data, and the model itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.features import Floats
from mlflow_cf.unlogged import unlogged

TREES = 100


@dataclass(frozen=True, eq=False)
class Labelled:
    """Coded rows (m, d) with the labels (m,) that the model gives them."""

    rows: Floats
    labels: NDArray[Any]

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.labels.shape != (len(self.rows),):
            fact = f"{self.labels.shape} labels for rows {self.rows.shape}"
            raise InputError("labels", fact, "give one label per row")


def membership_auc(members: Floats, others: Floats) -> float | None:
    """Chance that a training row is told from another by the distance of its counterfactual: the area under the ROC.

    A model that has learned its training rows by heart decides them with a wider margin, so the guess is that those
    further away (m,) were in it and nearer ones (k,) were not; ties count half. 0.5 is a coin, 1 gives all members
    away. Rows without a counterfactual are NaN and left out. Unit: probability. Better: down, to 0.5. Source:
    Pawelczyk, Lakkaraju and Neel, On the privacy risks of algorithmic recourse (2023), section 4, counterfactual
    distance attack. None without a distance on both sides.
    """
    from scipy.stats import rankdata  # noqa: PLC0415  half a second that no server needs

    inside, outside = members[~np.isnan(members)], others[~np.isnan(others)]
    if not len(inside) or not len(outside):
        return None
    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    wins = ranks.sum() - len(inside) * (len(inside) + 1) / 2
    return float(wins / (len(inside) * len(outside)))


def extraction_fidelity(answered: Labelled, held_out: Labelled, *, seed: int = 0) -> float | None:
    """Share of held-out rows (k, d) to which a copy of the model gives the model's own label.

    The copy is a forest that learns from what an attacker has after some queries, 100 or 1,000 say: the rows
    asked about and their counterfactuals (m, d), all with the labels of the replies; of a single label it always says
    that. Compare with the figure for the rows asked about alone to see what counterfactuals add. Unit: share. Better:
    down, to the share of the most frequent label. Source: Aïvodji, Bolot and Gambs, Model extraction from
    counterfactual explanations (2020), fidelity. None without rows on both sides.
    """
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415  a second that no server needs

    if not len(answered.rows) or not len(held_out.rows):
        return None
    copy = unlogged(RandomForestClassifier(TREES, random_state=seed).fit, answered.rows, answered.labels)
    return float(np.mean(copy.predict(held_out.rows) == held_out.labels))
