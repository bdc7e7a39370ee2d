"""What candidates cost: the problem's distance, or the paper's delta (UFCE section 6)."""

from __future__ import annotations

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.metrics.proximity import euclidean_distances, jaccard_distances
from mlflow_cf.problem import Codes, Problem


def costs(problem: Problem, codes: Codes, *, paper: bool) -> Floats:
    """Return what each candidate (m, G) costs: its distance, or the sum of two parts of which none is above 1.

    These are Jaccard's distance of levels, and the Euclidean distance of numbers divided by the largest of all.
    """
    if not paper or not len(codes):
        return problem.distance(codes)
    rows = problem.rows(codes)
    levels, numbers = (part(problem.space, problem.x0, rows) for part in (jaccard_distances, euclidean_distances))
    total = np.zeros(len(rows)) if levels is None else levels
    if numbers is not None and numbers.max() > 0:
        total = total + numbers / numbers.max()
    return total
