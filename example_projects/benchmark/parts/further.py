"""What further requirements cost: answers that hold under another version, or look like the data, beside plain ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, Case
from cases.models import fitted
from parts.gates import Gate

import mlflow_cf
from mlflow_cf import ExplainedModel
from mlflow_cf.words.explanations import Explanations

MODELS = ("xgboost", "forest")
TIMES, REPEATS = 3.0, 3  # CPU of certified answers, times that of the model alone; the median of so many runs counts
MOST_EVALUATIONS = 30_000  # a proof of one hard row of Credit takes hundreds of thousands
PLAIN = "the target alone"
WISHES: Mapping[str, Mapping[str, object]] = {
    PLAIN: {},
    "robust_to another version": {"robust_to": True},
    "plausible": {"plausible": True},
    "margin 0.1": {"margin": 0.1},
    "all three": {"robust_to": True, "plausible": True, "margin": 0.1},
}


@dataclass(frozen=True)
class Line:
    """Answers with certificates to the same rows.

    Attributes:
        found: share of the rows that have an answer; proved: share for which it, or that there is none, is proved.
        inside: share of the answers that look like the data; holding: that the other version predicts as wanted.
        distance: mean distance of the answers; ms: CPU milliseconds a row.
    """

    found: float
    proved: float
    inside: float
    holding: float
    distance: float
    ms: float


def run(case: Case, model: str, seed: int) -> dict[str, Line]:
    """Explain the rejected rows with each wish; the other version is trained on every second row, from another seed."""
    other = fitted(model, case.background.iloc[::2], case.labels.iloc[::2], seed + 1)
    explained = mlflow_cf.wrap(
        case.model,
        case.background,
        constraints=case.constraints,
        target=FAVOURABLE,
        seed=seed,
        robust_to=[{"model": other, "name": "other", "required": False}],
        plausible={"method": "isolation_forest", "required": False},
    )
    return {wish: _line(explained, case, asked) for wish, asked in WISHES.items()}


def _line(explained: ExplainedModel, case: Case, asked: Mapping[str, object]) -> Line:
    seconds: list[float] = []
    for _ in range(REPEATS):
        start = time.process_time()
        answers: Explanations = explained.explain(
            case.rejected, certify=True, max_evaluations=MOST_EVALUATIONS, **asked
        )
        seconds.append(time.process_time() - start)
    found = np.array([bool(answer.counterfactuals) for answer in answers])
    proved = [
        answer.status == "infeasible" or any(one.proof == "optimal" for one in answer.counterfactuals)
        for answer in answers
    ]
    ms = 1000 * float(np.median(seconds)) / len(case.rejected)
    if not found.any():
        return Line(0.0, float(np.mean(proved)), np.nan, np.nan, np.nan, ms)
    rows = pd.DataFrame([answer.counterfactuals[0].row for answer in answers if answer.counterfactuals])
    checked = explained.verify(case.rejected[found], rows, minimality=False, robust_to=True, plausible=True)
    met = pd.DataFrame([one.requirements for one in checked])
    return Line(
        found=float(found.mean()),
        proved=float(np.mean(proved)),
        inside=float(met["plausible"].mean()),
        holding=float(met["robust_to.other"].mean()),
        distance=float(np.mean([one.distance for one in checked])),
        ms=ms,
    )


def gates(lines: Mapping[str, Line]) -> list[Gate]:
    """Return what is promised of wishes beside the plain target."""
    plain, robust = lines[PLAIN], lines["robust_to another version"]
    return [
        Gate("share of plausible answers inside the data", lines["plausible"].inside, 1.0),
        Gate("share of robust answers under the other version", robust.holding, 1.0),
        Gate("CPU of robust answers / of plain ones", robust.ms / plain.ms, TIMES, most=True),
    ]


def table(measured: Mapping[str, Mapping[str, Line]]) -> str:
    """Return all lines as text."""
    lines = {(name, wish): asdict(line) for name, some in measured.items() for wish, line in some.items()}
    return pd.DataFrame(lines).T.round(4).to_string()
