"""What is to be known of an explained model, as plain values."""

from __future__ import annotations

from typing import Any

from mlflow_cf.explainers.registry import explainer_to_dict
from mlflow_cf.problem.disclosure import notes_on_privacy
from mlflow_cf.request.asking import Asking
from mlflow_cf.words.description import notes_on_constants


def described(asking: Asking) -> dict[str, Any]:
    """Return what was wrapped, as plain values that JSON can hold."""
    judge, opened, space = asking.model.judge, asking.model.opened, asking.model.space
    model = judge.model
    return {
        "flavor": model.flavor,
        "classes": list(model.classes),
        "score": model.score_kind,
        "largest_score_decides": judge.argmax_decides,
        "opened": opened.structure is not None,
        "structure": opened.note,
        "parity": opened.parity(model.tolerance),
        "requirements": asking.held.describe(),
        "causal": [function.describe(space) for function in asking.setting.functions],
        "background_rows": len(asking.setting.background),
        "features": {feature.name: feature.describe() for feature in space.features},
        "policy": asking.policy.to_dict(),
        "explainer": explainer_to_dict(asking.searches.own.explainer),
        "explained_at_once": asking.admission.places,
        "warnings": list(asking.findings),
        "notes": [
            *model.notes,
            *notes_on_constants(space),
            *notes_on_privacy(asking.owners, asking.for_requests),
        ],
    }
