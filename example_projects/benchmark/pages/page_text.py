"""The page of results as text: tables of markdown that are read as they stand."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pages.page import Tried

Figures = dict[str, float]

WIDTH = 120
ENOUGH = 0.5  # of the rows: explainers that answer fewer do not decide which rows are shared
ABOUT_AS_MANY = 0.05  # of the rows: those that answer so many fewer than the best are still compared
AS_FAST = 1.2  # of the time of the fastest
# Figure -> head of its column, and how it is written.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "answered": ("answers", "{:.0%}"),
    "distance": ("distance", "{:.3f}"),
    "own_distance": ("own", "{:.3f}"),
    "of_nearest": ("/ best", "{:.2f}"),
    "changed": ("changes", "{:.1f}"),
    "plausible": ("plausible", "{:.0%}"),
    "proved": ("proved", "{:.0%}"),
    "several": ("three", "{:.0%}"),
    "diverse": ("diverse", "{:.2f}"),
    "cpu_ms": ("ms", ""),
    "cpu_ms_95": ("95 %", ""),
    "several_cpu_ms": ("ms of 3", ""),
    "evaluations": ("scored", "{:,.0f}"),
    "calls": ("calls", "{:.0f}"),
}
LEGEND = """\
How to read it. `answers`: rows with a counterfactual. `distance`: mean over the rows that all explainers of that table
answered which answered at least half; `own`: mean over those that the explainer answered itself; `/ best`: mean of
its distance / the smallest that any explainer found for the same row (1.00: nobody was nearer). `changes`: changed
features. `plausible`: share of the answers that are inliers of the background (LOF). `proved`: rows of which it is
certified that nothing is nearer, or that there is no answer. `three`: rows with all three answers where three were
asked for; `diverse`: how far these are apart (norm_diversity, numbers alone: 0 the same, 1 in opposite directions).
`ms`, `95 %`: CPU of a whole call with one row and one answer, median and 95 %; `ms of 3`: median with three answers.
`scored`: rows scored, `calls`: calls of the model itself, medians. `-`: says nothing here."""


def figures(lines: pd.DataFrame) -> dict[str, Figures]:
    """Return explainer -> its figures from lines per explainer, model and row; NaN where one says nothing."""
    told = {}
    for name, own in with_shared(lines).groupby("explainer", sort=False):
        found = own[own["answered"]]
        told[str(name)] = {
            "answered": own["answered"].mean(),
            "distance": found.loc[found["shared"], "distance"].mean(),
            "own_distance": found["distance"].mean(),
            "of_nearest": (found["distance"] / found["nearest"]).mean(),
            "changed": found["changed"].mean(),
            "plausible": found["plausible"].mean(),
            "proved": own["proved"].mean(),
            "several": own["several"].mean(),
            "diverse": own["diverse"].mean(),
            "cpu_ms": 1_000 * own["cpu"].median(),
            "cpu_ms_95": 1_000 * own["cpu"].quantile(0.95),
            "several_cpu_ms": 1_000 * own["several_cpu"].median(),
            "evaluations": own["evaluations"].median(),
            "calls": own["calls"].median(),
        }
    return {name: {key: float(value) for key, value in values.items()} for name, values in told.items()}


def with_shared(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the lines with two more columns.

    They are nearest, the smallest distance of any explainer to that row under that model; and shared: all explainers
    answered the row, but for those that answered fewer than half of all, whose lines are not shared.
    """
    same = [lines["model"], lines["row"]]
    many = lines["answered"].groupby(lines["explainer"]).transform("mean") >= ENOUGH
    shared = (lines["answered"] | ~many).groupby(same).transform("all") & many
    return lines.assign(nearest=lines["distance"].groupby(same).transform("min"), shared=shared)


def together(tried: Sequence[Tried]) -> dict[str, Figures]:
    """Return explainer -> its figures over all models that no explainer refused; what says nothing is left out."""
    taken = [one.lines for one in tried if not one.refused]
    found = figures(pd.concat(taken, ignore_index=True)) if taken else {}
    return {name: {key: value for key, value in told.items() if not np.isnan(value)} for name, told in found.items()}


def frame(data: str, tried: Sequence[Tried]) -> pd.DataFrame:
    """Return a line per model and explainer of a data set, with all figures, or the reason of a refusal."""
    lines = []
    for one in tried:
        keys = {"data_set": data, "model": one.model}
        lines += [{**keys, "explainer": name, **told, "refused": ""} for name, told in figures(one.lines).items()]
        lines += [{**keys, "explainer": name, "refused": reason} for name, reason in one.refused.items()]
    return pd.DataFrame(lines)


def page(tried: Sequence[Tried], limit_s: float) -> str:
    """Return the page of one data set: all models together, each on its own, how to read it, and what went wrong."""
    case, pooled = tried[0].case, together(tried)
    taken = ", ".join(one.model for one in tried if not one.refused)
    told = [key for key, names in case.constraints.items() if names]
    shape = f"{len(case.background):,} rows of background, {len(case.background.columns)} features"
    asked = f"constraints: {', '.join(told) or 'none'}; {limit_s:g} s a row at most, one answer and three."
    blocks = [
        f"# {case.name}: every explainer on every model",
        f"{len(case.rejected)} held-out rows that each model rejects, {shape},\n{asked}",
    ]
    if pooled:
        blocks += [f"## Together: {taken}", table(pooled), in_short(pooled)]
    for one in tried:
        blocks += [f"## {one.model} (accuracy {one.case.accuracy:.0%})", table(figures(one.lines))]
        blocks += [f"`{name}` does not take this model: {reason}" for name, reason in one.refused.items()]
    return "\n\n".join(filter(None, [*blocks, LEGEND, promises(tried)]))


def table(told: Mapping[str, Figures]) -> str:
    """Return an aligned table of markdown: a line per explainer."""
    lines = [["explainer", *(head for head, _ in COLUMNS.values())]]
    for name, values in told.items():
        lines.append([name, *(written(values.get(key, np.nan), form) for key, (_, form) in COLUMNS.items())])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = [
        [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])


def in_short(told: Mapping[str, Figures]) -> str:
    """Return who does best by each figure that users choose by, among those that answer about as many rows; or ""."""
    most = max(values["answered"] for values in told.values())
    kept = {name: values for name, values in told.items() if values["answered"] >= most - ABOUT_AS_MANY}
    wanted = {
        "nearest": ("of_nearest", min),
        "fewest changes": ("changed", min),
        "most plausible": ("plausible", max),
        "most often proved": ("proved", max),
        "most diverse": ("diverse", max),
        "fastest": ("cpu_ms", min),
    }
    best = []
    for what, (key, choose) in wanted.items():
        known = {name: values[key] for name, values in kept.items() if key in values}
        if len(set(known.values())) > 1:  # else nobody stands out
            value, form = choose(known.values()), COLUMNS[key][1]
            alike = {name for name in known if written(known[name], form) == written(value, form)}
            alike |= {name for name in known if key == "cpu_ms" and known[name] <= AS_FAST * value}
            names = [name for name in known if name in alike]
            best.append(f"{what} {', '.join(names)} ({written(value, form)})")
    if not best:
        return ""
    text = f"Among those that answer {max(0.0, most - ABOUT_AS_MANY):.0%} of the rows or more: {'; '.join(best)}."
    return textwrap.fill(text, WIDTH)


def promises(tried: Sequence[Tried]) -> str:
    """Return how many promises were kept, and those that were not."""
    promised = [gate for one in tried for gate in one.gates()]
    missed = [f"{gate} ({name})" for name, gate in promised if not gate.kept]
    kept = f"{len(promised) - len(missed)} of {len(promised)} promises (valid, lawful, time limit) were kept."
    return "\n".join([kept, *missed, *(line for one in tried for line in one.broken)])


def written(value: float, form: str) -> str:
    """Return a figure in the form of its column; milliseconds have none."""
    if np.isnan(value):
        return "-"
    return form.format(value) if form else f"{value:,.{0 if value >= 99.95 else 1}f}"
