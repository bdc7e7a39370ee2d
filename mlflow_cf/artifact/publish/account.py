"""What an explained model is, as run, logged model and registered version tell it to who looks at them in MLflow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.words.description import description

MOST_DESCRIBED: Final = 4_500  # characters of a version's description; MLflow's own store takes 5,000
DIGEST: Final = 16  # characters: enough to see whether two models have the same constraints


@dataclass(frozen=True)
class Account:
    """What is told of an explained model.

    Attributes:
        params: of the run and of the logged model.
        description: of a registered version, as Markdown.
    """

    params: Mapping[str, str]
    description: str


def account_of(explained: ExplainedModel) -> Account:
    """Return what is to be told of an explained model: nothing in it is a row of its background."""
    facts = explained.describe()
    policy = facts["policy"]
    params = {
        "cf.explainer": explained.explainer.name,
        "cf.target": json.dumps(policy["target"], ensure_ascii=False, default=str),
        "cf.constraints": _digest(policy["constraints"]),
        "cf.background_rows": str(facts["background_rows"]),
    }
    text = description(facts)
    text = text if len(text) <= MOST_DESCRIBED else f"{text[:MOST_DESCRIBED]}\n..."
    return Account(params, f"```text\n{text.replace('```', '` ` `')}\n```")


def _digest(constraints: object) -> str:
    """Return a digest of constraints as they stand in the policy, ``none`` of no constraints."""
    if not constraints:
        return "none"
    told = json.dumps(constraints, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:DIGEST]
