"""Several answers beside one: how near they are, what they cost, how often the model is asked, and their proofs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from cases.data_sets import VIEWS, Case, constraints_for, split
from cases.models import fitted
from numpy.typing import NDArray
from parts import own_share, runs
from parts.gates import SAME, Gate, told
from parts.measures import aligned

import mlflow_cf
from mlflow_cf import ExplainedModel, Explanation

Floats = NDArray[np.float64]
ROWS = 30
MODELS = ("xgboost", "forest")
DISTANCES: Mapping[str, tuple[float, float, float]] = {"": (0.5, 0.5, 0.0), "l1": (0.0, 1.0, 0.0)}
MANY = 5
CERTIFIED = (1, 2, 3, MANY)
AS_NEAR = 1.01  # distances / those of the optimum
FIVE_CPU = 2.5  # CPU of five answers / of one
MOST_CALLS = 3  # of the model, for a row
LIMIT_S = 10.0  # of a certificate
UNBOUND = 2**40  # evaluations: time alone ends a certificate


@dataclass(frozen=True, eq=False)
class Several:
    """Rows of one model that were explained with several answers each.

    Attributes:
        near: by what was searched, (m,) distance / that of the certified answers; NaN where these are not proved, or
            not as many.
        cpu: (m,) of five answers / of one; calls: (m,) of the model, for five answers.
        found: (m,) whether there were five.
        certified: by how many answers, (m,) CPU of certified ones / of a single one; ms: medians of these.
        proved: share of the five answers that are optimal.
    """

    near: Mapping[str, Floats]
    cpu: Floats
    calls: Floats
    found: Floats
    certified: Mapping[int, Floats]
    ms: Mapping[int, float]
    proved: float

    def line(self) -> dict[str, float]:
        """Return the figures by what they are called."""
        certified = {f"certified {count} / 1": float(np.median(self.certified[count])) for count in CERTIFIED[1:]}
        times = {f"ms of {count}": self.ms[count] for count in CERTIFIED}
        return {
            **{f"{kind} / optimum": _mean(ratios) for kind, ratios in self.near.items()},
            "five / one": float(np.median(self.cpu)),
            "most calls": float(self.calls.max()),
            "five found": float(self.found.mean()),
            **certified,
            **times,
            "proved": self.proved,
        }

    def gates(self) -> list[Gate]:
        """Return what is promised: to be as near as drawing, and of costs beside those of one answer."""
        line = self.line()
        of_proofs = [
            Gate(f"CPU of {count} certified answers / of one", line[f"certified {count} / 1"], count, most=True)
            for count in CERTIFIED[1:]
        ]
        near = Gate("distance of the first of five / optimum", line["first / optimum"], AS_NEAR, most=True)
        return [
            *([near] if np.isfinite(near.found) else []),
            Gate("CPU of five answers / of one", line["five / one"], FIVE_CPU, most=True),
            Gate("most calls of the model for five answers", line["most calls"], MOST_CALLS, most=True),
            *of_proofs,
        ]


def run_several(chosen: argparse.Namespace) -> list[str]:
    """Ask for one answer and for several, with certificates too; return the promises about answers that were broken."""
    found: dict[str, Several] = {}
    for name in chosen.data_sets:
        parts = split(name, chosen.seed, VIEWS[name])
        constraints = constraints_for(name, parts.X, rules=True)
        for model in chosen.models or MODELS:
            case = parts.case(fitted(model, parts.X, parts.y, chosen.seed), chosen.rows or ROWS, constraints)
            for kind, distance in DISTANCES.items():
                found[f"{name} / {model} {kind}".strip()] = run(case, distance, chosen.seed)
    lines = {name: one.line() for name, one in found.items()}
    runs.log_figures({f"several {name}": line for name, line in lines.items()})
    print(f"\n=== Several answers beside one, with certificates too\n\n{table(lines)}")
    print(told([(name, gate) for name, one in found.items() for gate in one.gates()]))
    wrong = [name for name, one in found.items() if (one.near["first"] < 1 - SAME).any()]
    return [f"BROKEN: an answer is nearer than a certified one ({name})" for name in wrong]


def run(case: Case, distance: tuple[float, float, float], seed: int) -> Several:
    """Explain the rows of a case one by one, every row with one answer, with several, and certified."""
    calls: list[float] = []
    explained = mlflow_cf.wrap(
        case.model, case.background, constraints=case.constraints, target=1, distance=distance, seed=seed
    )
    explained = own_share.watched(explained, calls)
    drawing = replace(explained, explainer=mlflow_cf.GeCo(sweep=False))
    lines, certified, proved = [], [], []
    for at in (0, *range(len(case.rejected))):  # the first row compiles what is not compiled yet
        row = case.rejected.iloc[[at]]
        _, alone = _asked(explained, row, 1)
        calls.clear()
        many, together = _asked(explained, row, MANY)
        asked = len(calls)
        drawn, _ = _asked(drawing, row, MANY)
        proofs = [_asked(explained, row, count, certify=True) for count in CERTIFIED]
        best = proofs[-1][0]
        five = len(many.counterfactuals) == MANY
        ratios = _ratio(many, best, 1), _ratio(drawn, best, 1), _ratio(many, best, MANY)
        lines.append((*ratios, together / alone, asked, five))
        certified.append([seconds for _, seconds in proofs])
        proved += [answer.proof == "optimal" for found, _ in proofs for answer in found.counterfactuals]
    first, drawn_first, every, cpu, asked, found = np.array(lines[1:], dtype=np.float64).T
    seconds = np.array(certified[1:]).T
    ratios = {count: times / seconds[0] for count, times in zip(CERTIFIED, seconds, strict=True)}
    ms = {count: 1e3 * float(np.median(times)) for count, times in zip(CERTIFIED, seconds, strict=True)}
    near = {"first": first, "first drawn": drawn_first, "all five": every}
    return Several(near, cpu, asked, found, ratios, ms, float(np.mean(proved)))


def _asked(
    explained: ExplainedModel, row: pd.DataFrame, count: int, *, certify: bool = False
) -> tuple[Explanation, float]:
    """Return what is said of a row (1, d), and the CPU seconds that took."""
    limits = {"max_evaluations": UNBOUND, "time_limit_s": LIMIT_S} if certify else {}
    start = time.process_time()
    (found,) = explained.explain(row, count=count, certify=certify, **limits)
    return found, time.process_time() - start


def _ratio(found: Explanation, best: Explanation, count: int) -> float:
    """Return how far the first `count` answers are beside the best ones; NaN where these are not known."""
    optimal = all(answer.proof == "optimal" for answer in best.counterfactuals)
    if len(found.counterfactuals) != len(best.counterfactuals) or not best.counterfactuals or not optimal:
        return np.nan
    far = [sum(answer.distance for answer in one.counterfactuals[:count]) for one in (found, best)]
    return far[0] / far[1]


def _mean(values: Floats) -> float:
    """Return the mean of what is known; NaN: nothing is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def table(lines: Mapping[str, Mapping[str, float]]) -> str:
    """Return an aligned table: a line per model."""
    heads = list(next(iter(lines.values())))
    return aligned([["", *heads], *([name, *(f"{line[head]:.4g}" for head in heads)] for name, line in lines.items())])
