"""Thousands of rows in one call: CPU a row, beside calls of few rows, which are searched row by row."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, VIEWS, Case, constraints_for, split
from cases.models import fitted
from parts.gates import Gate
from rivals.rival_dice import Dice
from rivals.rival_treecf import Treecf

import mlflow_cf
from mlflow_cf.files.answers import Lines
from mlflow_cf.words.explanations import Explanations

MODELS = ("xgboost", "histgb", "forest", "mlp")
ROWS = 20_000
FEW = 50  # rows of a call that is answered row by row
SAMPLED = 4  # such calls
SHARES = (0.25, 0.5, 1.0)  # of the rows, to see whether the cost is linear
WARM, RIVALS_ROWS, DICE_ROWS = 3, 40, 10  # rows of rivals
TREECF_S = 10.0  # a row, its own default
TYPED = 0.3  # of the CPU of a call, what its typed columns may take on top
PROMISED = {"xgboost": 0.2, "histgb": 0.2, "forest": 1 / 3, "mlp": 1 / 3}


@dataclass(frozen=True)
class Line:
    """What the rows of one model took.

    Attributes:
        rows: how many were explained in one call; found: the share with an answer; proved: that with a proof.
        few_us, many_us: CPU microseconds a row, in calls of FEW rows and in one call of all.
        frame_us, records_us, typed_us: of the table of all answers, of the records of a reply, and of typed columns.
        growth: CPU a row of all rows, divided by that of the first SHARES.
        different: rows of the calls of few rows whose reply differs.
    """

    rows: int
    found: float
    proved: float
    few_us: float
    many_us: float
    frame_us: float
    records_us: float
    typed_us: float
    growth: float
    different: int

    def gates(self, model: str) -> list[Gate]:
        """Return what is promised: the share of the CPU of calls of few rows, and a cost that grows with the rows."""
        return [
            Gate(
                "CPU a row, one call / calls of 50 rows",
                self.many_us / self.few_us,
                PROMISED.get(model, 1.0),
                most=True,
            ),
            Gate("CPU a row, all rows / a quarter", self.growth, 1.25, most=True),
            Gate("CPU a row, typed columns / the call", self.typed_us / self.many_us, TYPED, most=True),
        ]


def run(name: str, model: str, rows: int, seed: int) -> Line:
    """Explain the rows of a data set that a model rejects, repeated until they are as many as wanted."""
    parts = split(name, seed, VIEWS[name])
    pipeline = fitted(model, parts.X, parts.y, seed)
    constraints = constraints_for(name, parts.X, rules=True)
    explained = mlflow_cf.wrap(pipeline, parts.X, constraints=constraints, target=FAVOURABLE, seed=seed)
    every = pd.concat([parts.X_test, parts.X], ignore_index=True)
    rejected = np.flatnonzero(pipeline.predict(every) != FAVOURABLE)
    shuffled = np.random.default_rng(seed).permutation(rejected)  # every share of the rows is as hard as all of them
    table = every.iloc[np.resize(shuffled, rows)].reset_index(drop=True)
    explained.explain(table.head(2_000))  # compiles, also what few rows need
    few_s, parted = _cpu(lambda: [explained.explain(table[at : at + FEW]) for at in range(0, SAMPLED * FEW, FEW)])
    costs = []
    for share in SHARES:
        some = table.head(int(share * rows))
        seconds, found = _cpu(lambda some=some: explained.explain(some))  # type: ignore[misc]
        costs.append(1e6 * seconds / len(some))
    lines = Lines.of(explained, {}, None)
    made = found.to_frame, found.to_records, lambda: lines.table(found.coded(), range(len(found)), 0, None)
    return _line(found, parted, few_s, costs, [_cpu(make)[0] for make in made])


def _line(
    found: Explanations, parted: Sequence[Explanations], few_s: float, costs: Sequence[float], made_s: Sequence[float]
) -> Line:
    frame_us, records_us, typed_us = (1e6 * seconds / len(found) for seconds in made_s)
    one_by_one = [one for some in parted for one in some]
    return Line(
        rows=len(found),
        found=float(np.mean([one.status == "found" for one in found])),
        proved=float(np.mean([any(cf.proof == "optimal" for cf in one.counterfactuals) for one in found])),
        few_us=1e6 * few_s / len(one_by_one),
        many_us=costs[-1],
        frame_us=frame_us,
        records_us=records_us,
        typed_us=typed_us,
        growth=costs[-1] / costs[0],
        different=sum(_told(a) != _told(b) for a, b in zip(one_by_one, found, strict=False)),
    )


def _told(one: mlflow_cf.Explanation) -> dict[str, Any]:
    """Return a reply without the row's own probability, which networks round otherwise in larger tables."""
    return {key: value for key, value in one.to_dict().items() if key != "probability"}


@dataclass(frozen=True)
class Beside:
    """CPU microseconds a row, of the same rows and the same model of trees.

    Attributes:
        ours_us: of one call for thousands of rows, each proved.
        treecf_us: of treecf's batch call, of its genetic search or of its exact one, whichever takes less.
        dice_us: of dice-ml's random search.
    """

    ours_us: float
    treecf_us: float
    dice_us: float

    @property
    def gates(self) -> list[Gate]:
        """Return what is promised of both."""
        return [
            Gate("CPU a row, ours / treecf's batch", self.ours_us / self.treecf_us, 1 / 15, most=True),
            Gate("CPU a row, ours / dice-ml", self.ours_us / self.dice_us, 1 / 500, most=True),
        ]


def beside(case: Case, rows: int, seed: int) -> Beside:
    """Explain the rejected rows of a case, repeated until they are as many as wanted; rivals explain the first."""
    explained = case.wrapped(seed)
    table = case.rejected.iloc[np.resize(np.arange(len(case.rejected)), rows)].reset_index(drop=True)
    explained.explain(table.head(2_000))
    ours_s, _ = _cpu(lambda: explained.explain(table))
    costs = []
    for exact in (False, True):
        treecf = Treecf.build(case, seed, TREECF_S, exact=exact)
        treecf.in_one_call(case.rejected.head(WARM))
        seconds, _ = _cpu(lambda treecf=treecf: treecf.in_one_call(case.rejected.head(RIVALS_ROWS)))  # type: ignore[misc]
        costs.append(1e6 * seconds / RIVALS_ROWS)
    dice = Dice.build(case, "random", seed)
    dice(case.rejected.head(1))
    dice_s, _ = _cpu(lambda: [dice(case.rejected.iloc[[at]]) for at in range(DICE_ROWS)])
    return Beside(1e6 * ours_s / rows, min(costs), 1e6 * dice_s / DICE_ROWS)


def table(lines: Mapping[str, Line | Beside]) -> str:
    """Return the figures as a table."""
    return pd.DataFrame({name: vars(line) for name, line in lines.items()}).T.round(3).to_string()


def _cpu(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, those of helper processes too, and what it returned."""
    start = sum(os.times()[:4])
    found = call()
    return sum(os.times()[:4]) - start, found
