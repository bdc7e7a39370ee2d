"""Mixed-integer programs beside best-first search and beside another solve of the same problem."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from cases.data_sets import Case
from parts.gates import Gate
from parts.tree_contest import GENETIC, REFINE, methods
from rivals.by_scipy import nearest_distance
from rivals.turns import take_turns, teller

import mlflow_cf
from mlflow_cf import CEOCL, ExplainedModel, GeCo
from mlflow_cf.explainers import Explainer
from mlflow_cf.words.explanations import Explanations

SAME = 1e-5  # distances of the solver
TREES = ("tree", "xgboost", "forest")
SLOWER = 20.0  # CPU of the program / of best-first search, on trees
LIMIT_S = 10.0  # a row
AGREE = "both engines agree"
AS_SCIPY = "distances of scipy's solver"
TRUE = (AGREE, AS_SCIPY)  # else an answer is wrong


@dataclass(frozen=True)
class Both:
    """One model explained by both engines, with certificates; milliseconds are CPU of a row.

    Attributes:
        same: share of the rows that both proved in which they agree about the least distance; proved: that both did.
        geco_ms: what GeCo takes, with which both begin; first_ms, program_ms: whole answers.
    """

    same: float
    proved: float
    geco_ms: float
    first_ms: float
    program_ms: float

    @property
    def ratio(self) -> float:
        """What the program takes on top of GeCo, beside what best-first search does: a hundredth of GeCo at least."""
        least = self.geco_ms / 100
        return (self.program_ms - self.geco_ms) / max(self.first_ms - self.geco_ms, least)


@dataclass(frozen=True)
class Continuous:
    """A linear model or a network with continuous numbers.

    Attributes:
        certified: share of the rows that are proved; ms: median CPU milliseconds of a row.
        same: share of these whose distance is that of scipy's solver; of the rows that it proves.
    """

    certified: float
    ms: float
    same: float


def beside(case: Case, seed: int) -> Both:
    """Let both engines explain the rejected rows."""
    explained = mlflow_cf.wrap(
        case.model, case.background, constraints=case.constraints, target=1, seed=seed, explainer="ceocl"
    )
    _, geco_ms = _timed(explained, case.rejected, GeCo())
    first, first_ms = _timed(explained, case.rejected, CEOCL(engine="best_first"))
    program, program_ms = _timed(explained, case.rejected, CEOCL(engine="milp"))
    pairs = [(one, other) for one, other in zip(_proved(first), _proved(program), strict=True) if one and other]
    agree = [abs(one - other) <= SAME for one, other in pairs]
    return Both(float(np.mean(agree)) if agree else np.nan, len(pairs) / len(first), geco_ms, first_ms, program_ms)


def _timed(explained: ExplainedModel, rows: pd.DataFrame, explainer: Explainer) -> tuple[Explanations, float]:
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


def continuous(case: Case, seed: int) -> Continuous:
    """Certify answers with continuous numbers, and solve the same by scipy where all columns are numbers."""
    numbers = {name: {"kind": "real"} for name in case.background if case.background[name].dtype.kind in "if"}
    background = case.background.astype(dict.fromkeys(numbers, "float64"))
    explained = mlflow_cf.wrap(
        case.model, background, target=1, values="continuous", features=numbers, seed=seed, explainer="ceocl"
    )
    plain = len(numbers) == background.shape[1]
    spent, proved, same = [], [], []
    rows = case.rejected.astype(background.dtypes.to_dict())
    for place in range(len(rows)):
        row = rows.iloc[[place]]
        started = time.process_time()
        answers = explained.explain(row, time_limit_s=LIMIT_S)
        spent.append(1_000 * (time.process_time() - started))
        (distance,) = _proved(answers)
        proved.append(distance > 0)
        inside = bool(((background.min() <= row.iloc[0]) & (row.iloc[0] <= background.max())).all()) if plain else False
        other = nearest_distance(case.model, background, row) if inside else np.nan
        if distance and not np.isnan(other):
            same.append(abs(distance - other) <= SAME)
    return Continuous(float(np.mean(proved)), float(np.median(spent)), float(np.mean(same)) if same else np.nan)


def trees(case: Case, seed: int) -> pd.DataFrame:
    """Return what certified answers with continuous numbers take of a model of trees, ours beside treecf's."""
    offered = methods(case, seed, LIMIT_S)
    asked = take_turns(
        {name: offered[name] for name in ("exact", GENETIC, REFINE)},
        case.rejected,
        teller(case.name, len(case.rejected)),
    )
    lines = {
        f"{case.name}, {name}": {
            "certified": float(np.mean([one.reply.proved for one in replies])),
            "ms": 1_000 * float(np.median([one.cpu for one in replies])),
        }
        for name, replies in asked.items()
    }
    return pd.DataFrame(lines).T


def gates(found: dict[str, Both], real: dict[str, Continuous]) -> list[tuple[str, Gate]]:
    """Return what is promised of both engines, and of continuous numbers."""
    promised = [(name, Gate(AGREE, both.same, 1.0)) for name, both in found.items() if both.proved]
    for name, both in found.items():
        if name.split(" / ")[1] in TREES:
            promised.append((name, Gate("CPU beyond GeCo's, program / best-first", both.ratio, SLOWER)))
    for name, one in real.items():
        promised.append((name, Gate("certified, continuous", one.certified, 1.0)))
        if not np.isnan(one.same):
            promised.append((name, Gate(AS_SCIPY, one.same, 1.0)))
    return promised


def table(found: dict[str, Both], real: dict[str, Continuous], peers: Sequence[pd.DataFrame]) -> str:
    """Return all as text; `peers` are tables of `trees`."""
    engines = pd.DataFrame({name: {**vars(both), "ratio": both.ratio} for name, both in found.items()}).T
    lines = pd.DataFrame({name: vars(one) for name, one in real.items()}).T
    lines = pd.concat([lines, *peers])
    return f"{engines.round(3).to_string()}\n\n{lines.round(3).to_string()}"
