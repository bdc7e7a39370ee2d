"""Mixed-integer programs beside best-first search and beside another solve of the same problem."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
from data_sets import Case
from gates import Gate

import mlflow_cf
from mlflow_cf import CEOCL
from mlflow_cf.words.explanations import Explanations

SAME = 1e-5  # distances of the solver
TREES = ("tree", "xgboost", "forest")
SLOWER = 20.0  # CPU of the program / of best-first search, on trees
LIMIT_S = 10.0  # a row
AGREE = "both engines agree"


@dataclass(frozen=True)
class Both:
    """One model explained by both engines, with certificates.

    Attributes:
        same: share of the rows that both proved in which they agree about the least distance; proved: that both did.
        first_ms, program_ms: CPU milliseconds a row.
    """

    same: float
    proved: float
    first_ms: float
    program_ms: float


def beside(case: Case, seed: int) -> Both:
    """Let both engines explain the rejected rows."""
    explained = mlflow_cf.wrap(
        case.model, case.background, constraints=case.constraints, target=1, seed=seed, explainer="ceocl"
    )
    first, first_ms = _timed(explained, case.rejected, CEOCL(engine="best_first"))
    program, program_ms = _timed(explained, case.rejected, CEOCL(engine="milp"))
    pairs = [(one, other) for one, other in zip(_proved(first), _proved(program), strict=True) if one and other]
    agree = [abs(one - other) <= SAME for one, other in pairs]
    return Both(float(np.mean(agree)) if agree else np.nan, len(pairs) / len(first), first_ms, program_ms)


def _timed(explained: mlflow_cf.ExplainedModel, rows: pd.DataFrame, explainer: CEOCL) -> tuple[Explanations, float]:
    explained.explain(rows.head(1), explainer=explainer, time_limit_s=LIMIT_S)
    started = time.process_time()
    answers = explained.explain(rows, explainer=explainer, time_limit_s=LIMIT_S * len(rows))
    return answers, 1_000 * (time.process_time() - started) / len(rows)


def _proved(answers: Explanations) -> list[float]:
    """Return the distance of every answer that is proved nearest, 0 for the others."""
    return [
        answer.counterfactuals[0].distance
        if answer.counterfactuals and answer.counterfactuals[0].proof == "optimal"
        else 0.0
        for answer in answers
    ]


def continuous(case: Case, seed: int) -> tuple[float, float]:
    """Certify answers with continuous numbers; return the share proved and the median CPU milliseconds a row."""
    numbers = {name: {"kind": "real"} for name in case.background if case.background[name].dtype.kind in "if"}
    background = case.background.astype(dict.fromkeys(numbers, "float64"))
    explained = mlflow_cf.wrap(
        case.model, background, target=1, values="continuous", features=numbers, seed=seed, explainer="ceocl"
    )
    spent, proved = [], []
    rows = case.rejected.astype(background.dtypes.to_dict())
    for place in range(len(rows)):
        started = time.process_time()
        (answer,) = explained.explain(rows.iloc[[place]], time_limit_s=LIMIT_S)
        spent.append(1_000 * (time.process_time() - started))
        proved.append(bool(answer.counterfactuals) and answer.counterfactuals[0].proof == "optimal")
    return float(np.mean(proved)), float(np.median(spent))


def gates(found: dict[str, Both], certified: dict[str, tuple[float, float]]) -> list[tuple[str, Gate]]:
    """Return what is promised of both engines, and of continuous numbers."""
    promised = []
    for name, both in found.items():
        promised.append((name, Gate(AGREE, both.same, 1.0)))
        if name.split(" / ")[1] in TREES:
            promised.append((name, Gate("CPU, program / best-first", both.program_ms / both.first_ms, SLOWER)))
    promised += [(name, Gate("certified, continuous", share, 1.0)) for name, (share, _) in certified.items()]
    return promised


def table(found: dict[str, Both], certified: dict[str, tuple[float, float]]) -> str:
    """Return both as text."""
    engines = pd.DataFrame({name: vars(both) for name, both in found.items()}).T.round(3).to_string()
    lines = pd.DataFrame(certified, index=["certified", "median CPU ms"]).T.round(2).to_string()
    return f"{engines}\n\n{lines}"
