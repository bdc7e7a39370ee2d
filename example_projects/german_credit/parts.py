"""The six parts of CE-OCL's demonstration: one applicant, one more family of constraints in every part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from applicants import NUMBERS, Demonstration

import mlflow_cf
from mlflow_cf import CEOCL, Explanation

MU = 10_000.0  # a price of changes that outweighs all else
CAUSE = {"child": "duration", "parents": ["credit_amount"], "model": "mlp"}
EMPLOYMENT = ("unemployed", "<1", "1<=X<4", "4<=X<7", ">=7")  # years, which nobody loses
ACTIONABLE: dict[str, Any] = {
    "immutable": ["foreign_worker", "personal_status", "purpose"],
    "increasing": ["age", "residence_since"],
    "forbidden": {"employment": [[late, early] for at, late in enumerate(EMPLOYMENT) for early in EMPLOYMENT[:at]]},
}


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        families: what is told of it.
        options: of the explainer; constraints: on top of the ranges.
        count: how many counterfactuals are asked for.
        inside: whether answers are kept in a hull; before that numbers may leave the data by one span.
    """

    families: str
    options: dict[str, Any]
    constraints: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    inside: bool = False


_NEAR: dict[str, Any] = {"objective": "l2", "margin": 0.0}
_FEW = {**_NEAR, "mu": MU}
_INSIDE = {"objective": "l1", "margin": 0.0, "mu": MU, "manifold": "hull", "enlarge": "penalty"}

PARTS = {
    "A": Part("validity, proximity, coherence", _NEAR),
    "B": Part("+ sparsity", _FEW),
    "C": Part("+ diversity", _FEW, count=3),
    "D": Part("+ actionability", _FEW, ACTIONABLE, count=3),
    "E": Part("+ hull of the good rows", _INSIDE, ACTIONABLE, count=3, inside=True),
    "F": Part("+ causality: the amount moves the duration", _INSIDE, {**ACTIONABLE, "causal": [CAUSE]}, 3, inside=True),
}


def answer(demonstration: Demonstration, part: Part, time_limit_s: float = 60.0) -> Explanation:
    """Return what is found for the applicant in one part."""
    wide = {"ranges": demonstration.ranges(positive="increasing" in part.constraints)}
    rows = demonstration.rows if part.inside else demonstration.learned
    explained = mlflow_cf.wrap(
        demonstration.model,
        rows,
        demonstration.labels[rows.index],
        target=1,
        values="continuous",
        features={name: {"kind": "real"} for name in NUMBERS},
        explainer=CEOCL(**part.options),
        constraints={**part.constraints, **({} if part.inside else wide)},
    )
    (found,) = explained.explain(demonstration.applicant, count=part.count, time_limit_s=time_limit_s)
    return found


def objective(found: Explanation) -> list[float]:
    """Return what each counterfactual costs without the price of its changes."""
    return [cost % MU for cost in found.diagnostics.get("costs", [])]


def scores(demonstration: Demonstration, found: Explanation) -> list[float]:
    """Return the model's own score of each counterfactual; 0 is the border."""
    rows = pd.DataFrame([one.row for one in found.counterfactuals], columns=list(demonstration.rows))
    return [] if rows.empty else demonstration.model.decision_function(rows).tolist()
