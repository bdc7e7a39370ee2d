"""The tables of explainers in docs/explainers.md: written between marks of that page, so that no figure is typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pages.page_text import COLUMNS, Figures, written

if TYPE_CHECKING:
    from pages.page import Tried

START = "<!-- {} as make bench wrote it -->"
END = "<!-- end of {} -->"
HEADS: Mapping[str, str] = {
    "answered": "rows answered",
    "of_nearest": "distance / the nearest found",
    "changed": "changed features",
    "plausible": "plausible",
    "proved": "proved",
    "cpu_ms": "ms",
    "cpu_ms_95": "ms, 95 %",
}


def write(path: Path, tried: Sequence[Tried], told: Mapping[str, Figures], seed: int) -> None:
    """Replace what stands between the marks of a data set in a page by the figures of all models together.

    Raises:
        ValueError: the page lacks a mark, or no model was taken by all explainers.
    """
    text = path.read_text(encoding="utf-8")
    start, end = (mark.format(tried[0].case.name) for mark in (START, END))
    if start not in text or end not in text:
        raise ValueError(f"{path} lacks the line {start} or {end}")
    if not told:
        raise ValueError("there is no model that all explainers take")
    before, after = text.partition(start)[0], text.partition(end)[2]
    path.write_text(f"{before}{start}\n{told_of(tried, told, seed)}\n{end}{after}", encoding="utf-8")


def told_of(tried: Sequence[Tried], told: Mapping[str, Figures], seed: int) -> str:
    """Return the table, below a line that says what was measured and how to measure it again."""
    case, models = tried[0].case, [one.model for one in tried if not one.refused]
    rows = len(case.rejected)
    command = f"--parts page --data-sets {case.name} --models {','.join(models)} --rows {rows} --seed {seed}"
    lines = [f"Measured by `make bench ARGS='{command} --docs docs/explainers.md'`:", ""]
    lines += [f"| explainer | {' | '.join(HEADS.values())} |", f"|---|{'---:|' * len(HEADS)}"]
    for name, values in told.items():
        cells = [written(values.get(key, float("nan")), COLUMNS[key][1]) for key in HEADS]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)
