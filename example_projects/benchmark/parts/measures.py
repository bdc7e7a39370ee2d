"""The figures of a method's answers: one code for every method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, Case
from cases.independent import broken, distance, known_values, spreads, unknown
from numpy.typing import NDArray
from rivals.turns import Asked, Row

Weights = tuple[float, float]  # of the share of changed features, and of the mean change
DEFAULT: Weights = (0.5, 0.5)  # mlflow_cf's own distance
TOLD = ("generations", "candidates", "cells_naive", "cells_delta")


def accepted(case: Case, rows: Sequence[Row]) -> NDArray[np.bool_]:
    """Ask the fitted pipeline itself about decoded rows; return (m,) whether it finds each favourable."""
    if not rows:
        return np.empty(0, dtype=np.bool_)
    frame = pd.DataFrame(list(rows))[list(case.background)].astype(case.background.dtypes.to_dict())
    return np.asarray(case.model.predict(frame) == FAVOURABLE)


def answers(case: Case, asked: Sequence[Asked], weights: Weights) -> pd.DataFrame:
    """Return a line per row to explain: is there an answer, is it valid, does it meet the constraints, how far is it.

    Columns: answered; valid, lawful and known (it proposes only values of the background), all False without an
    answer; distance, changed (features) and breaks (constraints), NaN without one; proved: nothing is nearer, or there
    is none; cpu, wall and search (CPU of the search alone, NaN where it is not told), seconds; faults and reason
    (words).
    """
    spread, known = spreads(case.background), known_values(case.background)
    valid = iter(accepted(case, [a.row for a in asked if a.row is not None]).tolist())
    lines: list[dict[str, Any]] = []
    for a in asked:
        line: dict[str, Any] = {"answered": False, "valid": False, "lawful": False, "known": False}
        line |= {**dict.fromkeys(("distance", "changed", "breaks"), np.nan), "cpu": a.cpu, "wall": a.wall, "faults": ""}
        if a.row is not None:
            against, strange = broken(case.constraints, a.x0, a.row), unknown(known, a.x0, a.row)
            line |= {"answered": True, "valid": next(valid), "lawful": not against, "known": not strange}
            line["distance"] = distance(weights, spread, a.x0, a.row)
            line["changed"] = float(sum(a.x0[name] != a.row[name] for name in a.x0))
            line["breaks"] = float(len(against))
            line["faults"] = ", ".join([*against, *strange])
        line |= {"proved": a.reply.proved, "search": a.reply.diagnostics.get("search_cpu", np.nan)}
        lines.append({**line, "reason": a.reply.reason})
    return pd.DataFrame(lines)


def figures(lines: pd.DataFrame, asked: Sequence[Asked]) -> dict[str, float]:
    """Return the figures of one method; what does not apply is left out.

    Shares: coverage, and among the answers validity, lawful, known. Means over the answers: distance, changed, breaks.
    Seconds per row: median and 95 % of cpu, wall and search. Means of what the search tells: TOLD.
    """
    found = lines[lines["answered"]]
    told = pd.DataFrame([dict(a.reply.diagnostics) for a in asked])
    means = {key: told[key].dropna().mean() for key in TOLD if key in told}
    every = {
        "coverage": lines["answered"].mean(),
        "validity": found["valid"].mean(),
        **{key: found[key].mean() for key in ("lawful", "known", "distance", "changed", "breaks")},
        **means,
        **{f"{clock}_p{p}": lines[clock].quantile(p / 100) for clock in ("wall", "cpu", "search") for p in (50, 95)},
    }
    return {key: float(value) for key, value in every.items() if not np.isnan(value)}


def broken_promises(name: str, lines: pd.DataFrame) -> list[str]:
    """Return every answer of a method of ours that the model rejects or that breaks a constraint, in words."""
    found = lines[lines["answered"]]
    rejected = [f"BROKEN: {name}, row {at}: the pipeline rejects the answer" for at in found.index[~found["valid"]]]
    return rejected + [f"BROKEN: {name}, row {at}: {what}" for at, what in found["faults"].items() if what]


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return cells of equal columns as text: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  "
        + line[0].ljust(widths[0])
        + "".join(f"   {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        for line in lines
    )
