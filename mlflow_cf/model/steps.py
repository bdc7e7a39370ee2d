"""The steps of a model, one by one: which are opened, which are not and why, and what would open them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.model.parity import Opened
from mlflow_cf.words.opening_fixes import fix_of


@dataclass(frozen=True)
class ModelStep:
    """One step of a model.

    Attributes:
        name: where it stands, with dots between the names of what it is inside of; empty for a model without steps.
        kind: the name of its class.
        why: what keeps it from being opened; None: it is opened.
    """

    name: str
    kind: str
    why: str | None = None


def described_steps(model: OpenModel, opened: Opened, space: FeatureSpace, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return every step of a model as plain values; whole models that are not opened for another reason come last.

    Args:
        model: the model, and `opened`, what came of opening it.
        space: its features; rows: a few of its background.
    """
    found = list(_steps(model, space, rows))
    whole = opened.structure is not None
    if not found or (not whole and all(step.why is None for step in found)):
        found.append(ModelStep("", model.flavor, None if whole else opened.note))
    return [_told(step) for step in found]


def _steps(model: OpenModel, space: FeatureSpace, rows: pd.DataFrame) -> Sequence[ModelStep]:
    if model.steps is None:
        return ()
    try:
        return model.steps(space, rows)
    except Exception:  # noqa: BLE001  an exotic model must still be described, with less detail
        return ()


def _told(step: ModelStep) -> dict[str, Any]:
    why = None if step.why is None else str(step.why)
    fix = None if step.why is None else fix_of(step.why)
    return {"step": step.name, "kind": step.kind, "opened": why is None, "why": why, "fix": fix}
