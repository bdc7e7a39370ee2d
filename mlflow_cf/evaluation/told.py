"""What the page of a run tells of an evaluation: how it was asked for, as params, and what it found, as a note."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mlflow_cf.evaluation.findings import Findings
from mlflow_cf.evaluation.measure.aggregates import GAPS
from mlflow_cf.evaluation.measure.measured import Measuring
from mlflow_cf.evaluation.names import explainer_name, number, percent
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import ExplainerSource, explainer_of, explainer_to_dict
from mlflow_cf.words.markdown import plain

EVALUATE: Final = "cf.evaluate"  # what names of params begin with
MOST_TOLD: Final = 500  # characters of a param
MOST_NOTED: Final = 4_000  # characters of a note
MOST_NAMED: Final = 8  # notes of an evaluation


def asked(
    rows: int,
    columns: Iterable[str],
    explainers: Mapping[str, ExplainerSource],
    measuring: Measuring,
    explained: ExplainedModel,
) -> dict[str, str]:
    """Return how an evaluation was asked for, by param without what its name begins with.

    Args:
        rows: how many are explained.
        columns: by which they are grouped.
        explainers: by name.
        measuring: limits, seed and the like; what is None there is the policy's, or not limited and not told.
        explained: the model, for its policy.
    """
    policy = explained.policy
    options = {name: explainer_to_dict(explainer_of(source))["options"] for name, source in explainers.items()}
    told: dict[str, Any] = {
        "rows": rows,
        "explainers": ", ".join(explainers),
        "groups": ", ".join(columns) or "none",
        "count": measuring.count,
        "seed": policy.seed if measuring.seed is None else measuring.seed,
        "certify": measuring.certify or policy.certify,
        "max_evaluations": measuring.max_evaluations or policy.limits.max_evaluations,
        "time_limit_s": "none" if measuring.time_limit_s is None else f"{measuring.time_limit_s:g}",
        **{f"options.{name}": json.dumps(own, default=str) for name, own in options.items()},
    }
    return {name: cut(str(value), MOST_TOLD) for name, value in told.items()}


def evaluation_note(findings: Findings, failures: Mapping[str, str], notes: Sequence[str], folder: str) -> str:
    """Return what an evaluation has found as Markdown: a headline, and what is behind it.

    Args:
        findings: its figures.
        failures: explainers that could not do it, with what they said.
        notes: what a reader should know beside.
        folder: of the artifacts, where the rest is.
    """
    items = [*_facts(findings)]
    if len(findings.ranking) > 1:
        items.append(f"Explainers, the best first: {', '.join(map(explainer_name, findings.ranking))}")
    items += [f"{explainer_name(name)} failed: {why}" for name, why in failures.items()]
    items += notes[:MOST_NAMED]
    items.append(f"Pictures, all metrics and every row are among the artifacts, in {folder}/")
    return cut("\n".join([f"**{plain(findings.outcomes())}.**", "", *(f"* {plain(item)}" for item in items)]))


def _facts(findings: Findings) -> Iterator[str]:
    own = findings.own
    if "mixed" in own:
        distance, features = number(own["mixed"]), number(own.get("n_changed", 0.0))
        yield f"Answers are {distance} far and change {features} {_feature(own.get('n_changed', 0.0))}, on average"
        checked = [f"{percent(own[name])} {word}" for name, word in CHECKED.items() if name in own]
        yield f"Of the answers, {', '.join(checked)}"
    if own.get("fixed_share"):
        yield f"No lawful change turns {percent(own['fixed_share'])} of the rows that miss the target, as is proved"
    for metric in GAPS:
        if (found := findings.widest(metric)) is not None and found[0][1] < found[1][1]:
            (low, least), (high, most) = found
            shown = percent if metric == "coverage" else number
            noun = "Rows with an answer" if metric == "coverage" else "Mean distance"
            yield f"{noun}, by group: from {shown(least)} ({low}) to {shown(most)} ({high})"


CHECKED: Final[Mapping[str, str]] = {
    "validity": "are valid",
    "constraint_satisfaction": "meet all constraints",
    "plausibility": "are plausible",
    "proved/optimal": "are proved to be the nearest",
}


def _feature(count: float) -> str:
    return "feature" if count == 1 else "features"


def cut(text: str, most: int = MOST_NOTED) -> str:
    """Return text that is no longer than so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
