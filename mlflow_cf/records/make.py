"""How the record of an answered row is made, and what names a model and its policy in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd

from mlflow_cf.constraints.actions import functions_in
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Rows
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.policy import Policy, Query
from mlflow_cf.records.document import SCHEMA_VERSION, digest, query_values, sealed
from mlflow_cf.request.context import RequestContext
from mlflow_cf.version import VERSION
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.result import Counterfactual, Explanation
from mlflow_cf.words.verification import Verifications

DIGITS: Final = 6  # of scores in a digest: machines differ in the last ones
_OF_ANSWER: Final = ("prediction", "probability", "reason", "evaluations")
_OF_COUNTERFACTUAL: Final = (
    "row", "changes", "prediction", "probability", "distance", "n_changed", "proof", "bound", "rung", "region", "text"
)  # fmt: skip


class Explains(Protocol):
    """What is needed of an explained model, whose attributes and methods these are."""

    @property
    def model(self) -> OpenModel: ...  # noqa: D102

    @property
    def space(self) -> FeatureSpace: ...  # noqa: D102

    @property
    def policy(self) -> Policy: ...  # noqa: D102

    @property
    def judge(self) -> Judge: ...  # noqa: D102

    @property
    def outcome(self) -> Outcome: ...  # noqa: D102

    @property
    def context(self) -> RequestContext: ...  # noqa: D102

    @property
    def explain(self) -> Callable[..., Explanations]: ...  # noqa: D102

    @property
    def request(self) -> Callable[..., Explanations]: ...  # noqa: D102

    @property
    def verify(self) -> Callable[..., Verifications]: ...  # noqa: D102


def model_digest(space: FeatureSpace, model: OpenModel, outcome: Outcome) -> str:
    """Return the digest of a model: its features, its labels, and what it says of its background (`outcome`).

    The same model has the same digest in memory, in a folder and in a registry; one that was trained anew has another.
    """
    numbers = outcome.values if outcome.scores is None else outcome.scores
    said = [f"{number:.{DIGITS}g}" for number in np.ravel(numbers).tolist()]
    return digest([space.to_dict(), [str(label) for label in model.classes], outcome.codes.tolist(), said])


def policy_digest(policy: Policy) -> str:
    """Return the digest of what a policy says other than the defaults, which later versions add to."""
    plain = policy.model_dump(mode="json", exclude={"target", "constraints"}, exclude_defaults=True)
    return digest([policy.target.to_dict(), policy.constraints.to_dict(), plain])


def row_values(space: FeatureSpace, table: pd.DataFrame, path: str) -> dict[str, Any]:
    """Return the plain values of the only row of a table.

    Raises:
        InputError: another number of rows, or values that are none of their features.
    """
    if len(table) != 1:
        raise InputError(path, f"has {len(table):,} rows", "pass the one row that was explained")
    covering, codes, faults = space.encode_covered(table)
    if faults:
        raise InputError(path, faults[0], "pass the row that was explained")
    return covering.values(codes[0])


def record_of(explained: Explains, row: Rows, explanation: Explanation) -> dict[str, Any]:
    """Return the record of an explained row, as plain JSON values.

    Raises:
        InputError: more rows than one, or an explanation that this model did not make of the row.
    """
    values = row_values(explained.space, explained.space.read(row), "row")
    return _record(_names(explained), values, explanation, certify=explained.policy.certify)


def _names(explained: Explains) -> dict[str, str]:
    """Return what names a model and its policy in records."""
    return {
        "model_sha256": model_digest(explained.space, explained.model, explained.outcome),
        "policy_sha256": policy_digest(explained.policy),
    }


def _record(
    names: Mapping[str, str], values: Mapping[str, Any], explanation: Explanation, *, certify: bool
) -> dict[str, Any]:
    """Return the record of a row with these plain values; `certify`: whether the policy asks for certificates."""
    query, served = explanation.asked or (None, False)
    if not isinstance(query, Query):
        raise InputError("explanation", "does not say what was asked", "pass one that explained.explain returned")
    if functions_in(query.constraints.actions, query.constraints.relationships):
        raise InputError("constraints", "have Python functions, which no record can hold", "log them in the policy")
    for number, found in enumerate(explanation.counterfactuals):
        changes = {change.feature: change.old for change in found.changes}
        if {**found.row, **changes} != values:
            fact = "is of another row"
            raise InputError(f"explanation.counterfactuals[{number}]", fact, "pass the row that was explained")
    reply = explanation.to_dict()
    content = {
        "schema_version": SCHEMA_VERSION,
        "mlflow_cf": VERSION,
        **names,
        "query": {key: value for key, value in query_values(query).items() if key != "record"},
        "served": served,
        "seed": explanation.seed,
        "row": values,
        "answer": {
            **{key: reply[key] for key in _OF_ANSWER},
            "counterfactuals": [_recorded(found) for found in explanation.counterfactuals],
        },
        "proof": {
            "status": explanation.status,
            "way": explanation.explainer,
            "certified": query.certify or certify,
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    return sealed(plain)


def _recorded(found: Counterfactual) -> dict[str, Any]:
    reply = found.to_dict()
    return {key: reply[key] for key in _OF_COUNTERFACTUAL}


def recorded(explained: Explains, table: pd.DataFrame, answers: Explanations) -> Explanations:
    """Return explanations of the rows of a table with their records; a row that cannot be coded has none."""
    names, certify = _names(explained), explained.policy.certify
    covering, codes, faults = explained.space.encode_covered(table)
    told = []
    for place, one in enumerate(answers):
        if place not in faults:
            with suppress(InputError):  # the answer stands without
                record = _record(names, covering.values(codes[place]), one, certify=certify)
                one = replace(one, record=json.dumps(record, ensure_ascii=False))  # noqa: PLW2901
        told.append(one)
    return replace(answers, items=tuple(told))
