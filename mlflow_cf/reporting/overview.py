"""The first screen of a report in words: what was asked, how many got an answer, how far, how sure, who bears what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mlflow_cf.reporting.data import NOT_ASKED, Findings, Material, Versions
from mlflow_cf.reporting.shapes import percent, short
from mlflow_cf.request.reasons import outcome_words
from mlflow_cf.words.description import constraints_told
from mlflow_cf.words.sentences import counted, spoken

VALUES: Final = {
    "observed": "values that the background has",
    "grid": "numbers on each feature's grid, and levels that the background has",
    "continuous": "any number within the background's range, and levels that the background has",
}
MOST_CONSTRAINTS: Final = 30  # told


@dataclass(frozen=True)
class Overview:
    """What is read first.

    Attributes:
        question: what was asked, in a sentence.
        outcomes, distances, proofs, burden: what each picture says, in a sentence.
        helpless: who can do nothing, in a sentence.
        survival: of versions beside each other, whether the answers of the one before still hold under the newest.
        facts: what was asked in detail, by name.
    """

    question: str
    outcomes: str
    distances: str
    proofs: str
    burden: str
    helpless: str
    survival: str
    facts: tuple[tuple[str, tuple[str, ...]], ...]


def overview(findings: Findings) -> Overview:
    """Return the first screen of what was found."""
    return Overview(
        question=_question(findings),
        outcomes=_outcomes(findings),
        distances=_distances(findings),
        proofs=_proofs(findings),
        burden=_burden(findings),
        helpless=_helpless(findings),
        survival=_survival(findings.material.versions),
        facts=tuple(_facts(findings.material, findings.rows)),
    )


def wanted(material: Material) -> str:
    """Return the wanted outcome in words."""
    target = material.explained.policy.target
    words = outcome_words(target)
    least = target.min_probability
    return words if least is None else f"{words} with a probability of at least {spoken(least)}"


def _question(findings: Findings) -> str:
    material = findings.material
    means = material.explained.policy.target.means
    outcome = f"after which {means}" if means else f"after which the model predicts {wanted(material)}"
    if material.count == 1:
        return f"What is the smallest lawful change of each row {outcome}?"
    return f"What are the {material.count} smallest lawful changes of each row {outcome}?"


def _outcomes(findings: Findings) -> str:
    if not findings.missed:
        return f"None of {counted(findings.rows, 'row')} misses the target: nothing was to be explained."
    share = percent(findings.found / findings.missed)
    already = sum(findings.statuses[status] for status in NOT_ASKED)
    rest = f"; {already:,} others needed none" if already else ""
    noun = "row that misses" if findings.missed == 1 else "rows that miss"
    return f"{findings.found:,} of {findings.missed:,} {noun} the target got an answer ({share}){rest}."


def _distances(findings: Findings) -> str:
    if not findings.found or findings.distances is None:
        return "There is no answer to measure."
    sizes = findings.changes
    one = next((bar for bar in sizes if bar.key == "1"), None)
    alone = f" {percent(one.share)} of the nearest answers change a single feature." if one else ""
    median = short(findings.distances.median)
    if findings.material.count > 1:
        return f"For half of the rows the answers are nearer than {median} on average.{alone}"
    return f"Half of the answers are nearer than {median}.{alone}"


def _proofs(findings: Findings) -> str:
    if not findings.found:
        return "There is no answer to prove anything of."
    known = {bar.key: bar.share for bar in findings.proofs}
    optimal, bounded = known.get("optimal", 0.0), known.get("bounded", 0.0)
    if not optimal and not bounded:
        return "Every answer was checked against the model and all constraints; none is proved to be the nearest."
    told = f"{percent(optimal)} of the answers are proved: nothing nearer exists."
    return f"{told} For {percent(bounded)} a bound is proved." if bounded else told


def _burden(findings: Findings) -> str:
    if not findings.groups:
        return ""
    if findings.extremes is None:
        return "No two groups have enough answers to be compared."
    near, far = findings.extremes
    if not near.value:
        return f"Answers are farthest for {far.label} ({short(far.value)} on average)."
    error = math.hypot(near.error or 0.0, far.error or 0.0)
    sure = "" if far.value - near.value > 2 * error else "; that may be chance"
    ratio = short(round(far.value / near.value, 2))
    whose, others = (dot.label.replace(": ", " ", 1) for dot in (far, near))
    means = f"{short(far.value)} against {short(near.value)}"
    return f"Answers for {whose} are {ratio} times as far as for {others} ({means} on average){sure}."


def _helpless(findings: Findings) -> str:
    if not findings.missed:
        return ""
    rows = findings.fixed
    if not rows:
        return "No row is proved to be beyond help."
    share, verb = percent(rows / findings.missed), "has" if rows == 1 else "have"
    told = f"{counted(rows, 'row')} ({share}) {verb} no lawful change that turns the decision, as is proved"
    shares = {group: findings.figure("fixed_share", group)[0] or 0.0 for group in findings.groups}
    if not any(shares.values()):
        return f"{told}."
    group = max(shares, key=lambda name: shares[name])
    column = findings.column_words(group)
    return f"{told}; most often {column} ({percent(shares[group])})."


def _survival(versions: Versions | None) -> str:
    if versions is None or versions.survival is None or len(versions.survival.names) < 2:
        return ""
    before, newest = versions.survival.names[-2:]
    share = versions.survival.shares[-2][-1]
    if share is None:
        return ""
    return f"{percent(share)} of the answers that {before} gave still hold under {newest}."


def _facts(material: Material, rows: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what was asked, by name, each in a few lines."""
    facts: Mapping[str, Any] = material.explained.describe()
    policy = facts["policy"]
    labels = f", decides between {', '.join(map(spoken, facts['classes'][:8]))}" if facts["classes"] else ""
    yield "Model", (f"{facts['flavor']}, {counted(len(facts['features']), 'feature')}{labels}",)
    yield "Wanted", (wanted(material),)
    told = list(constraints_told(policy["constraints"]))
    more = [f"and {len(told) - MOST_CONSTRAINTS:,} more"] if len(told) > MOST_CONSTRAINTS else []
    yield "Constraints", tuple([*told[:MOST_CONSTRAINTS], *more] or ["none"])
    yield "May be proposed", (VALUES.get(policy["values"], str(policy["values"])),)
    answers = "the nearest answer" if material.count == 1 else f"up to {material.count} answers"
    seed = material.explained.policy.seed if material.seed is None else material.seed
    yield "Asked", (f"{counted(rows, 'row')}, {answers} each, by {material.winner}, seed {seed}",)
