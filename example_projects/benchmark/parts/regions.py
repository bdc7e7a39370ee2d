"""Regions beside treecf's: around the same counterfactuals of Credit, in one process, how wide and in which time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import treecf
from cases.data_sets import FAVOURABLE, Case
from cases.independent import spreads
from parts.gates import Gate

import mlflow_cf
from mlflow_cf.words.result import Counterfactual

ROWS, CALLS = 50, 3
MODES = ("fast", "maximal")  # of treecf
OURS = {"true": True, "all": "all"}  # in the features that change, or in all


@dataclass(frozen=True)
class Line:
    """What one method made of the counterfactuals.

    Attributes:
        width: mean over rows and features that may change of a region's width, as a share of the background's range.
        narrower: share of the rows whose region in all features is narrower than this one, summed over features.
        cpu_ms: median over rows, of the least of some calls each.
    """

    width: float
    narrower: float
    cpu_ms: float


def run(case: Case, seed: int) -> dict[str, Line]:
    """Widen the counterfactuals of a case in both ways; treecf does so in all features that may change."""
    explained = mlflow_cf.wrap(
        case.model, case.background, target=FAVOURABLE, constraints=case.constraints, values="continuous", seed=seed
    )
    for region in OURS.values():
        explained.explain(case.rejected.head(2), region=region)  # compiles
    other, target = _treecf(case)
    widths: dict[str, list[float]] = {name: [] for name in (*OURS, *MODES)}
    cpu: dict[str, list[float]] = {name: [] for name in widths}
    for at in range(len(case.rejected)):
        row = case.rejected.iloc[[at]]
        plain, answer = _least(lambda row=row: explained.explain(row))  # type: ignore[misc]
        if answer[0].status != "found":
            continue
        for name, wanted in OURS.items():
            seconds, answer = _least(lambda row=row, wanted=wanted: explained.explain(row, region=wanted))  # type: ignore[misc]
            (found,) = answer[0].counterfactuals
            cpu[name].append(seconds - plain)
            widths[name].append(_width(case, *_ends(case, found)))
        x, x_cf = row.to_numpy(np.float64)[0], np.array([found.row[name] for name in row], dtype=np.float64)
        for mode in MODES:
            seconds, region = _least(
                lambda x=x, x_cf=x_cf, mode=mode: other.recourse_region(x, x_cf, target, mode=mode)  # type: ignore[misc]
            )
            cpu[mode].append(seconds)
            widths[mode].append(_width(case, np.asarray(region.lo), np.asarray(region.hi)))
    ours = np.array(widths["all"])
    return {
        name: Line(
            float(np.mean(some)), float((ours < np.array(some) - 1e-6).mean()), 1e3 * float(np.median(cpu[name]))
        )
        for name, some in widths.items()
    }


def table(lines: dict[str, Line]) -> str:
    """Return the figures as a table."""
    return pd.DataFrame({name: vars(line) for name, line in lines.items()}).T.round(4).to_string()


def gates(lines: dict[str, Line]) -> Sequence[Gate]:
    """Return what is promised: as wide as treecf's maximal regions in half of their time; in few features, as fast."""
    ours, other = lines["all"], lines["maximal"]
    return [
        Gate("width of regions, ours / treecf maximal", ours.width / other.width, 1.0),
        Gate("CPU of regions, ours / treecf maximal", ours.cpu_ms / other.cpu_ms, 0.5, most=True),
        Gate("CPU of `true`, ours / treecf fast", lines["true"].cpu_ms / lines["fast"].cpu_ms, 1.0, most=True),
    ]


def _treecf(case: Case) -> tuple[treecf.Explainer, treecf.Target]:
    fixed = case.constraints.get("immutable", ())
    ends = zip(case.background, case.background.min(), case.background.max(), strict=True)
    constraints: list[Any] = [treecf.Freeze(name) for name in fixed]
    constraints += [treecf.Range(str(n), float(low), float(high)) for n, low, high in ends if n not in fixed]
    explainer = treecf.Explainer(case.model, constraints=constraints, normalizers=spreads(case.background))
    return explainer, treecf.Target.probability(op=">=", value=0.5)


def _least(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least CPU seconds of some calls, and what the last returned."""
    seconds, found = [], None
    for _ in range(CALLS):
        start = time.process_time()
        found = call()
        seconds.append(time.process_time() - start)
    return min(seconds), found


def _ends(case: Case, found: Counterfactual) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    sides = {side.feature: (side.low, side.high) for side in found.region or ()}
    both = np.array([sides.get(name, (found.row[name],) * 2) for name in case.background], dtype=np.float64)
    return both[:, 0], both[:, 1]


def _width(case: Case, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> float:
    """Return the mean width of intervals (d,) over features that may change; whole numbers have whole ends."""
    whole = np.array([dtype.kind in "iub" for dtype in case.background.dtypes])
    low, high = np.where(whole, np.ceil(low), low), np.where(whole, np.floor(high), high)
    least, most = case.background.min().to_numpy(np.float64), case.background.max().to_numpy(np.float64)
    free = ~case.background.columns.isin(case.constraints.get("immutable", ()))
    shares = (np.minimum(high, most) - np.maximum(low, least)) / np.where(most > least, most - least, 1.0)
    return float(np.clip(shares, 0.0, 1.0)[free].mean())
