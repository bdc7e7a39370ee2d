"""What constraints, rules and groups do to the time of GeCo's search, beside the paper's figures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from cases.data_sets import IN_BITS, Case, adult_in_bits, adult_with_education, bits, constraints_for, load_case
from parts.measures import aligned
from parts.published import PUBLISHED, wrapped
from rivals.turns import Clocked, Say

from mlflow_cf import ExplainedModel

Figures = Mapping[str, float]

EDUCATION = ("education", "education_num")
KEYS = ("candidates", "search_cpu", "whole_cpu")
HEADS = ("candidates", "search", "whole")
FORMS = ("{:,.0f}", "{:.4f}", "{:.4f}")

# Schleich et al., VLDB 2021: the share of the time that is left, and what the paper calls it. It has one figure for
# groups, that of all groups of Adult together.
PAPER: Mapping[str, Mapping[str, str]] = {
    "credit": {"constraints": "0.68 (32.2 % faster)", "rules": "0.90 (9.8 % faster)"},
    "adult": {"constraints": "0.81 (19.3 % faster)", "rules": "0.81 (18.7 % faster)", "bits_grouped": "0.71 (1.4x)"},
}


@dataclass(frozen=True)
class Regime:
    """One way to constrain the search.

    Attributes:
        label: what the table calls it.
        constraints: as users write them.
        against: key of the regime it is compared with, or None.
    """

    label: str
    constraints: Mapping[str, Any]
    against: str | None = None


@dataclass(frozen=True, eq=False)
class Contest:
    """Regimes, by key, that explain the same rows of the same model."""

    case: Case
    regimes: Mapping[str, Regime]


def contests(case: Case, seed: int) -> list[Contest]:
    """Return what is compared on a data set: constraints and rules; groups too on Adult, in columns that have some."""
    name, rows = case.name, len(case.rejected)
    if name != "adult":
        return [Contest(case, _constrained(case))]
    case = load_case(name, rows, seed, adult_with_education)
    regimes = _constrained(case)
    grouped = {**case.constraints, "groups": [EDUCATION]}
    regimes["group"] = Regime("constraints, education grouped", grouped, "constraints")
    in_bits = load_case(name, rows, seed, adult_in_bits)
    blocks = [bits(feature, in_bits.background) for feature in IN_BITS]
    grouped = {**in_bits.constraints, "groups": [*blocks, EDUCATION]}
    groups = {
        "bits": Regime("constraints, bits", in_bits.constraints),
        "bits_grouped": Regime("constraints, bits grouped", grouped, "bits"),
    }
    return [Contest(case, regimes), Contest(in_bits, groups)]


def _constrained(case: Case) -> dict[str, Regime]:
    with_rules = constraints_for(case.name, case.background, rules=True)
    return {
        "none": Regime("no constraints", {}),
        "constraints": Regime("constraints", case.constraints, "none"),
        "rules": Regime("constraints, rules", with_rules, "none"),
    }


def run(contest: Contest, seed: int, say: Say) -> dict[str, Figures]:
    """Explain every row under every regime and return the figures of each; `say` hears how many rows are done.

    The regimes take turns row by row, and the first one changes with the row, so that whatever else the machine does
    costs all of them the same.
    """
    rows = contest.case.rejected
    models = {key: wrapped(contest.case, seed, regime.constraints) for key, regime in contest.regimes.items()}
    for explained in models.values():
        _spent(explained, rows.iloc[[0]])  # what happens once is not the price of a row
    spent: dict[str, list[Figures]] = {key: [] for key in models}
    keys = list(models)
    for position in range(len(rows)):
        first = position % len(keys)
        for key in keys[first:] + keys[:first]:
            spent[key].append(_spent(models[key], rows.iloc[[position]]))
        say(position + 1)
    return {key: _typical(figures) for key, figures in spent.items()}


def _spent(explained: ExplainedModel, row: pd.DataFrame) -> Figures:
    """Explain one row (1, d) and return what that took; an impossible row is told before the search starts."""
    start = time.process_time()
    (explanation,) = explained.explain(row, explainer=Clocked(PUBLISHED, PUBLISHED.search))
    whole = time.process_time() - start
    told = explanation.diagnostics
    return {
        "answered": float(explanation.status == "found"),
        "candidates": float(told.get("candidates", 0)),
        "search_cpu": float(told.get("search_cpu", 0.0)),
        "whole_cpu": whole,
    }


def _typical(figures: Sequence[Figures]) -> Figures:
    table = pd.DataFrame(figures)
    return {"answered": float(table.pop("answered").mean()), **{str(k): float(v) for k, v in table.median().items()}}


def table(contests: Sequence[Contest], measured: Mapping[str, Figures]) -> str:
    """Return an aligned table: a line per regime with its figures, and what they are of those of its rival."""
    lines = [["", "features", "answered", *HEADS, "compared with", *HEADS, "paper"]]
    for contest in contests:
        paper = PAPER.get(contest.case.name, {})
        for key, regime in contest.regimes.items():
            own = measured[key]
            cells = [regime.label, str(contest.case.background.shape[1]), f"{own['answered']:.1%}"]
            cells += [form.format(own[k]) for k, form in zip(KEYS, FORMS, strict=True)]
            cells += _left(contest, own, regime.against, measured)
            lines.append([*cells, paper.get(key, "-")])
    return aligned(lines)


def _left(contest: Contest, own: Figures, against: str | None, measured: Mapping[str, Figures]) -> list[str]:
    if against is None:
        return ["-"] * (1 + len(KEYS))
    rival = measured[against]
    return [contest.regimes[against].label, *(f"{own[k] / rival[k]:.2f}" if rival[k] else "-" for k in KEYS)]
