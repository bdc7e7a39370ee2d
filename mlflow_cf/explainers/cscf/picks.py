"""Which of several plans come first."""

from __future__ import annotations

import numpy as np

from mlflow_cf.explainers.cscf.evaluation import Evaluated
from mlflow_cf.plans.kernels import Ints


def diverse(plans: Evaluated) -> Ints:
    """Return the order of plans (m), the first of which is the cheapest: next is always the one that differs most.

    Plans differ by the features that the steps of one change, and those of the other do not; what counts is the most
    similar plan before. Ties go to the plan that stands first among `plans`.
    """
    changed = plans.objectives[:, 2:] > 0
    apart = np.full(len(plans), np.inf)
    order = np.zeros(len(plans), dtype=np.int64)
    for place in range(len(plans)):
        order[place] = chosen = int(apart.argmax())
        apart = np.minimum(apart, (changed != changed[chosen]).sum(axis=1))
        apart[order[: place + 1]] = -1.0
    return order
