"""GeCo with the settings of its paper: algorithm, distance and samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cases.data_sets import FAVOURABLE, Case

import mlflow_cf
from mlflow_cf import ExplainedModel
from mlflow_cf.explainers import GeCo

L1_ALONE = (0.0, 1.0, 0.0)


@dataclass(frozen=True)
class AsPublished(GeCo):
    """GeCo without our pipeline's polish, which undoes needless changes."""

    polish: ClassVar[bool] = False


# The algorithm alone, which the paper's figures speak of. That the best 5 results must be stable is built in.
PUBLISHED = AsPublished(q=100, m_init=20, m_mut=5, refine=False, sweep=False)


def wrapped(case: Case, seed: int, constraints: Mapping[str, Any] | None = None) -> ExplainedModel:
    """Return the model of `case` with the paper's distance, observed values only; None: the constraints of `case`."""
    chosen = case.constraints if constraints is None else constraints
    return mlflow_cf.wrap(
        case.model, case.background, constraints=chosen, distance=L1_ALONE, seed=seed, target=FAVOURABLE
    )
