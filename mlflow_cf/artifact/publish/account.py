"""What an explained model is, as run, logged model and registered version tell it to who looks at them in MLflow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.words.description import description
from mlflow_cf.words.markdown import fenced, plain
from mlflow_cf.words.sentences import counted, spoken

MOST_DESCRIBED: Final = 4_000  # characters of a version's description below its first; MLflow's own store takes 5,000
MOST_TOLD: Final = 250  # characters of one sentence, or param
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
        "cf.explainer_options": _cut(_json(facts["explainer"]["options"])),
        "cf.seed": str(policy["seed"]),
        "cf.certify": str(policy["certify"]),
        "cf.time_limit_s": f"{policy['limits']['time_limit_s']:g}",
        "cf.target": _json(policy["target"]),
        "cf.constraints": _digest(policy["constraints"]),
        "cf.background_rows": str(facts["background_rows"]),
    }
    text = description(facts)
    text = text if len(text) <= MOST_DESCRIBED else f"{text[:MOST_DESCRIBED]}\n..."
    return Account(params, f"{introduction(facts)}\n\n{fenced(text)}")


def introduction(facts: Mapping[str, Any]) -> str:
    """Return what is explained, for which outcome, by whom and under which constraints, as sentences in Markdown."""
    policy, name = facts["policy"], facts["explainer"]["name"]
    kinds = policy["constraints"]
    told = ", ".join(_counted(kind, kinds[kind]) for kind in kinds)
    size = counted(len(facts["features"]), "feature")
    sentences = [
        f"Predictions of a {facts['flavor']} model of {size}",
        f"With each comes what would have to change so that {_outcome(policy['target'])}",
        f"Explainer: {name}",
        f"Constraints: {told or 'none'}",
    ]
    return f"{plain('. '.join(_cut(sentence) for sentence in sentences))}."


def _outcome(target: Mapping[str, Any]) -> str:
    if target.get("means"):
        return str(target["means"])
    if target.get("other"):
        return "it is any other than the row's own"
    if "label" in target:
        surely = target.get("min_probability")
        more = "" if surely is None else f" with a probability of {surely:g} at least"
        return f"it becomes {spoken(target['label'])}{more}"
    low, high = target.get("low"), target.get("high")
    ends = [f"{spoken(low)} at least"] * (low is not None) + [f"{spoken(high)} at most"] * (high is not None)
    return f"it becomes {' and '.join(ends)}"


def _counted(kind: str, constraint: Any) -> str:
    """Return how much of one kind of constraints there is: ``immutable age, sex``, ``max changes 2``, ``5 rules``."""
    words = kind.replace("_", " ")
    if kind in ("immutable", "increasing", "decreasing"):
        return f"{words} {', '.join(constraint)}"
    if isinstance(constraint, Mapping):
        return f"{words} of {', '.join(constraint)}"
    return (
        counted(len(constraint), words.removesuffix("s")) if isinstance(constraint, list) else f"{words} {constraint}"
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TOLD else f"{text[: MOST_TOLD - 3]}..."


def _digest(constraints: object) -> str:
    """Return a digest of constraints as they stand in the policy, ``none`` of no constraints."""
    if not constraints:
        return "none"
    told = json.dumps(constraints, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:DIGEST]
