"""Levers and responsiveness: what all sets of up to two features can do, beside treecf's recourse menu."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from cases import tree_cases
from cases.data_sets import VIEWS, Case, folder, split
from cases.models import fitted
from parts.gates import Gate
from rivals.rival_treecf import Treecf

from mlflow_cf import ExplainedModel
from mlflow_cf.words.levers import Levers

MOST: Final = 2  # levers of a set
WARM: Final = 3
LIMIT_S: Final = 5.0  # for one row, of both
MOST_MS: Final = 20.0  # CPU of a row of Adult, xgboost with 100 trees, all sets of up to two of its 12 features
MORE_MS: Final = 2.0  # CPU of a row that responsiveness adds to its explanation
WIDEST: Final = 20  # columns beside treecf, whose menu of 50 takes minutes a row
SHARE: Final = 0.5  # of treecf's CPU
ADULT: Final = "adult / xgboost"


@dataclass(frozen=True, eq=False)
class Line:
    """What was measured in a case; CPU in milliseconds a row, medians.

    Attributes:
        sets: of levers, for every row.
        ms: all of them; proved: share of the sets that are decided with a proof.
        treecf_ms: treecf's menu of the same row; nan: not asked.
        agree: share of the rows of which both name the same smallest sets that work; nan where treecf proposes values
            that the columns cannot hold.
        explained_ms: an explanation alone; responsive_ms: with responsiveness.
    """

    sets: int
    ms: float
    proved: float
    treecf_ms: float
    agree: float
    explained_ms: float
    responsive_ms: float

    def gates(self, name: str) -> list[Gate]:
        """Return what is promised."""
        found = [Gate("sets decided with a proof", self.proved, 1.0)]
        if name == ADULT:
            found.append(Gate("CPU ms of all sets of up to 2", self.ms, MOST_MS, most=True))
            more = self.responsive_ms - self.explained_ms
            found.append(Gate("CPU ms that responsiveness adds", more, MORE_MS, most=True))
        if np.isfinite(self.treecf_ms):
            found.append(Gate("CPU of all sets, ours / treecf's menu", self.ms / self.treecf_ms, SHARE, most=True))
        return found


def run_all(rows: int, seed: int) -> dict[str, Line]:
    """Measure Adult where the public data are, and the cases of trees alone beside treecf."""
    lines: dict[str, Line] = {}
    if folder().is_dir():
        parts = split("adult", seed, VIEWS["adult"])
        adult = parts.case(fitted("xgboost", parts.X, parts.y, seed), rows, {})
        lines[ADULT] = _measured(adult.wrapped(seed), adult, None, real=False)
    for case in tree_cases.cases(rows, seed):
        if case.background.shape[1] > WIDEST:
            continue
        explained = case.wrapped(seed, "continuous")
        peer = Treecf.build(case, seed, LIMIT_S, exact=True)
        lines[case.name] = _measured(explained, case, peer, real=all(case.background.dtypes == np.float64))
    return lines


def _measured(explained: ExplainedModel, case: Case, peer: Treecf | None, *, real: bool) -> Line:
    rows = [case.rejected.iloc[[at]] for at in range(len(case.rejected))]
    ours = [_clocked(lambda row=row: explained.levers(row, MOST)) for row in rows[:WARM] + rows][WARM:]
    plain = [_clocked(lambda row=row: explained.explain(row)) for row in rows[:WARM] + rows][WARM:]
    asked = [_clocked(lambda row=row: explained.explain(row, responsiveness=True)) for row in rows[:WARM] + rows][WARM:]
    theirs: list[tuple[Any, float]] = []
    if peer is not None:
        theirs = [_clocked(lambda row=row: peer.menu(row, MOST)) for row in rows[:WARM] + rows][WARM:]
    decided = [one.works is not None for levers, _ in ours for one in levers]
    same = [_smallest(levers) == menu for (levers, _), (menu, _) in zip(ours, theirs, strict=bool(theirs))]
    return Line(
        sets=len(ours[0][0]),
        ms=_median(ours),
        proved=float(np.mean(decided)),
        treecf_ms=_median(theirs) if theirs else np.nan,
        agree=float(np.mean(same)) if theirs and real else np.nan,
        explained_ms=_median(plain),
        responsive_ms=_median(asked),
    )


def _smallest(levers: Levers) -> set[frozenset[str]]:
    return {frozenset(one.features) for one in levers.smallest}


def _clocked(ask: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = ask()
    return found, 1e3 * (time.process_time() - start)


def _median(asked: list[tuple[Any, float]]) -> float:
    return float(np.median([ms for _, ms in asked]))


def table(lines: Mapping[str, Line]) -> str:
    """Return all lines as a table."""
    return pd.DataFrame({name: vars(line) for name, line in lines.items()}).T.round(2).to_string()
