"""Proved optima: what a proof costs, and how near GeCo's own answers are to the optimum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from cases.data_sets import Case
from parts.gates import GECO, PUBLIC, SAME, Gate
from parts.measures import DEFAULT, aligned, answers, broken_promises
from rivals.turns import Ours, take_turns, teller

from mlflow_cf.explainers import Exact, GeCo

EXACT = "exact"
NEAR = 0.01  # of the optimum
NEAR_ROWS = 0.95  # share of the rows that GeCo is to come as near as that
# CPU milliseconds of a proved optimum, GeCo's search included: the median at most.
MEDIAN_MS: Mapping[tuple[str, str], float] = {
    **{(data, model): 10 for data in PUBLIC for model in ("xgboost", "histgb")},
    **{(data, model): 2 for data in PUBLIC for model in ("tree", "logistic")},
    **{(data, "mlp"): 20 for data in PUBLIC},
    **{(data, "mlp_deep"): 50 for data in PUBLIC},
    ("adult", "forest"): 100,
    ("credit", "forest"): 300,
}
LONGEST_MS: Mapping[tuple[str, str], float] = {("adult", "forest_500"): 2_000}
COLUMNS: Mapping[str, tuple[str, str]] = {
    "proved": ("proved", "{:.1%}"),
    "optimal": ("geco optimal", "{:.1%}"),
    "near": ("within 1 %", "{:.1%}"),
    "gap": ("mean gap", "{:.2%}"),
    "search_ms": ("search ms", "{:,.2f}"),
    "certificate_ms": ("certificate ms", "{:,.2f}"),
    "one_change_ms": ("of one change", "{:,.2f}"),
    "proof_ms": ("both", "{:,.2f}"),
    "share": ("certificate / both", "{:.0%}"),
    "longest_ms": ("longest", "{:,.1f}"),
    "whole_ms": ("whole answer", "{:,.1f}"),
}


@dataclass(frozen=True)
class Certificates:
    """GeCo's answers beside the certified ones; times are CPU milliseconds per row.

    Attributes:
        proved: share of the rows with a proof: nothing is nearer, or there is no counterfactual.
        optimal, near: share of the rows with a proved optimum where GeCo's answer is as near, or within 1 %.
        gap: mean of GeCo's distance / optimum - 1.
        search_ms, certificate_ms, proof_ms: medians of GeCo's search, of what a certificate adds to its answer, and of
            both together.
        one_change_ms: the median of what a certificate adds where the answer has one change; NaN: no answer has.
        share: of the certificate in both, over all rows.
        longest_ms: the most that search and certificate took.
        whole_ms: median of a certified answer: the two model calls that every answer costs, and all else.
    """

    proved: float
    optimal: float
    near: float
    gap: float
    search_ms: float
    certificate_ms: float
    one_change_ms: float
    proof_ms: float
    share: float
    longest_ms: float
    whole_ms: float

    @classmethod
    def measure(cls, own: pd.DataFrame, certified: pd.DataFrame) -> Certificates:
        """Compare GeCo's answers with certified ones, a line per row each; NaN: there is nothing to compare."""
        best = certified["distance"].where(certified["proved"])
        ratio = (own["distance"] / best)[best.notna()].fillna(np.inf)
        answered = ratio[np.isfinite(ratio)]
        search = 1_000 * certified["search"].fillna(0.0)
        # what an answer costs besides its search is the same with and without a certificate
        both = 1_000 * (certified["cpu"] - (own["cpu"] - own["search"].fillna(0.0)))
        added = both - search
        return cls(
            proved=float(certified["proved"].mean()),
            optimal=float((ratio <= 1 + SAME).mean()),
            near=float((ratio <= 1 + NEAR).mean()),
            gap=float(answered.mean() - 1),
            search_ms=float(search.median()),
            certificate_ms=float(added.median()),
            one_change_ms=float(added[certified["changed"] == 1].median()),
            proof_ms=float(both.median()),
            share=float(added.sum() / both.sum()),
            longest_ms=float(both.max()),
            whole_ms=1_000 * float(certified["cpu"].median()),
        )

    def gates(self, data: str, model: str) -> list[Gate]:
        """Return what was promised about them; times are promised for public data alone."""
        found = [Gate("rows proved", self.proved, 1.0)]
        if np.isfinite(self.near):
            found.append(Gate(f"rows where {GECO} is within 1 % of the optimum", self.near, NEAR_ROWS))
        if (data, model) in MEDIAN_MS:
            found.append(Gate("CPU ms of a proved optimum", self.proof_ms, MEDIAN_MS[data, model], most=True))
        if (data, model) in LONGEST_MS:
            found.append(Gate("CPU ms of the longest proof", self.longest_ms, LONGEST_MS[data, model], most=True))
        return found

    def figures(self) -> dict[str, float]:
        """Return everything that is a number, by name."""
        return {key: value for key, value in asdict(self).items() if np.isfinite(value)}


def run(case: Case, model: str, seed: int) -> tuple[Certificates, list[str]]:
    """Let GeCo explain the rows of `case` with and without certificates, in turns; return what was broken, too."""
    explained = case.wrapped(seed)
    name = f"{case.name} / {model}"
    print(f"\n=== {name}: accuracy {case.accuracy:.1%}, {explained.opened.note}", flush=True)
    methods = {GECO: Ours(explained, GeCo()), EXACT: Ours(explained, Exact())}
    asked = take_turns(methods, case.rejected, teller(name, len(case.rejected)))
    lines = {method: answers(case, replies, DEFAULT) for method, replies in asked.items()}
    broken = [line for method in lines for line in broken_promises(method, lines[method])] + contradicted(lines)
    return Certificates.measure(lines[GECO], lines[EXACT]), broken


def promised(data: str, model: str) -> bool:
    """Return whether the time of proofs is promised for this pair."""
    return (data, model) in MEDIAN_MS or (data, model) in LONGEST_MS


def contradicted(lines: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return every proof that a method's answer contradicts, in words: it is nearer, or there should be none."""
    certified, texts = lines[EXACT], []
    claimed = certified["distance"].fillna(np.inf)
    for method, told in lines.items():
        good = told["valid"] & told["lawful"] & told["known"]
        nearer = certified["proved"] & good & (told["distance"] < claimed - SAME)
        texts += [f"BROKEN: {EXACT} proved row {at} wrongly: {method} is nearer" for at in np.flatnonzero(nearer)]
    return texts


def table(measured: Mapping[str, Certificates]) -> str:
    """Return an aligned table: a line per pair of data set and model."""
    lines = [["", *(head for head, _ in COLUMNS.values())]]
    for name, values in measured.items():
        told = values.figures()
        lines.append([name, *(form.format(told[key]) if key in told else "-" for key, (_, form) in COLUMNS.items())])
    return aligned(lines)
