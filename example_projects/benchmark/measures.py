"""Ask an explainer row by row, measure its answers, and set the figures beside the paper's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from data_sets import FAVOURABLE, Case
from independent import broken, known_values, mean_change, spreads
from tree_boxes import Nearest

from mlflow_cf import ExplainedModel, Explanation
from mlflow_cf.explainers import Explainer

Row = dict[str, Any]

LINES: Mapping[str, tuple[str, str]] = {
    "validity": ("valid, asked again", "{:.1%}"),
    "lawful": ("meet the constraints", "{:.1%}"),
    "coverage": ("rows with an answer", "{:.1%}"),
    "changed": ("changed features, mean", "{:.2f}"),
    "l1": ("l1 distance, mean", "{:.5f}"),
    "over_pairs": ("l1 / optimum of <= 2 changes, mean", "{:.3f}"),
    "over_optimum": ("l1 / optimum, mean", "{:.3f}"),
    "at_optimum": ("answers that are optimal", "{:.1%}"),
    "generations": ("generations, mean", "{:.2f}"),
    "candidates": ("explored candidates, mean", "{:,.0f}"),
    "wall_p50": ("seconds per row, median", "{:.4f}"),
    "wall_p95": ("seconds per row, 95 %", "{:.4f}"),
    "cpu_p50": ("CPU seconds per row, median", "{:.4f}"),
    "cpu_p95": ("CPU seconds per row, 95 %", "{:.4f}"),
}

# Schleich et al., VLDB 2021: decision tree with scikit-learn's settings, 5,000 rejected rows, l1, constraints without
# implications, their machine. WIT is the method of NearestRow. "-" stands for what the paper does not tell.
PAPER: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "credit": {
        "GeCo, paper": {
            "coverage": "100.0%",
            "changed": "1.27",
            "generations": "4.22",
            "candidates": "18,100",
            "wall_p50": "< 0.3",
        },
        "WIT, paper": {"coverage": "100.0%", "changed": "3.97"},
    },
    "adult": {
        "GeCo, paper": {"coverage": "100.0%", "generations": "4.66", "candidates": "15,300", "wall_p50": "< 0.3"},
        "WIT, paper": {"coverage": "97.9%"},
    },
}


@dataclass(frozen=True, eq=False)
class Asked:
    """One row, the explanation it got, and the seconds that took."""

    x0: Row
    explanation: Explanation
    wall: float
    cpu: float

    @property
    def row(self) -> Row | None:
        """The counterfactual, if there is one."""
        found = self.explanation.counterfactuals
        return dict(found[0].row) if found else None


def ask(explained: ExplainedModel, explainer: Explainer, rows: pd.DataFrame, say: Callable[[int], None]) -> list[Asked]:
    """Explain `rows` one request at a time, as a server would; `say` hears how many are done."""
    explained.explain(rows.iloc[[0]], explainer=explainer)  # what happens once is not the price of a row
    asked = []
    for position, x0 in enumerate(rows.to_dict("records")):
        wall, cpu = time.perf_counter(), time.process_time()
        (explanation,) = explained.explain(rows.iloc[[position]], explainer=explainer)
        spent = time.perf_counter() - wall, time.process_time() - cpu
        asked.append(Asked({str(name): value for name, value in x0.items()}, explanation, *spent))
        say(position + 1)
    return asked


def faults(case: Case, asked: Sequence[Asked]) -> dict[int, list[str]]:
    """Return position -> what its counterfactual breaks, by the independent checker; only rows that break something."""
    known = known_values(case.background)
    found = {at: broken(case.constraints, known, a.x0, a.row) for at, a in enumerate(asked) if a.row is not None}
    return {at: what for at, what in found.items() if what}


def accepted(case: Case, rows: Sequence[Row]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Ask the fitted pipeline itself about decoded rows; return (m,) whether it finds each favourable."""
    if not rows:
        return np.empty(0, dtype=np.bool_)
    frame = pd.DataFrame(list(rows))[list(case.background)].astype(case.background.dtypes.to_dict())
    return np.asarray(case.model.predict(frame) == FAVOURABLE)


def measure(case: Case, asked: Sequence[Asked], optima: Sequence[Sequence[Nearest]]) -> dict[str, float]:
    """Return the figures of LINES for one explainer; what does not apply is left out.

    Args:
        case: model and rows.
        asked: one per rejected row.
        optima: per row, the nearest counterfactuals within 1, within 2 and within any number of changes.
    """
    found = [a for a in asked if a.row is not None]
    rows = [a.row for a in found if a.row is not None]
    spread = spreads(case.background)
    answered = np.array([a.row is not None for a in asked])
    l1 = np.array([mean_change(spread, a.x0, row) for a, row in zip(found, rows, strict=True)])
    pairs, best = (np.array([row[at].distance for row in optima])[answered] for at in (1, 2))
    wall, cpu = np.array([a.wall for a in asked]), np.array([a.cpu for a in asked])
    diagnostics = pd.DataFrame([dict(a.explanation.diagnostics) for a in asked])
    figures = {
        "validity": _mean(accepted(case, rows)),
        "lawful": 1 - len(faults(case, asked)) / len(rows) if rows else np.nan,
        "coverage": len(rows) / len(asked),
        "changed": _mean([sum(a.x0[name] != row[name] for name in row) for a, row in zip(found, rows, strict=True)]),
        "l1": _mean(l1),
        "over_pairs": _mean((l1 / pairs)[np.isfinite(pairs)]),
        "over_optimum": _mean(l1 / best),
        "at_optimum": _mean(l1 <= best * (1 + 1e-9)),
        **{key: _mean(diagnostics[key].dropna()) for key in ("generations", "candidates") if key in diagnostics},
        **{f"wall_p{p}": float(np.percentile(wall, p)) for p in (50, 95)},
        **{f"cpu_p{p}": float(np.percentile(cpu, p)) for p in (50, 95)},
    }
    return {key: value for key, value in figures.items() if not np.isnan(value)}


def table(name: str, measured: Mapping[str, Mapping[str, float]]) -> str:
    """Return an aligned table for one data set: a line per figure, a column per explainer, then the paper's."""
    columns: dict[str, Mapping[str, str]] = {
        method: {key: LINES[key][1].format(value) for key, value in figures.items()}
        for method, figures in measured.items()
    }
    columns.update(PAPER.get(name, {}))
    lines = [["", *columns]]
    lines += [[label, *(cells.get(key, "-") for cells in columns.values())] for key, (label, _) in LINES.items()]
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return cells of equal columns as text: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  "
        + line[0].ljust(widths[0])
        + "".join(f"   {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        for line in lines
    )


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else np.nan
