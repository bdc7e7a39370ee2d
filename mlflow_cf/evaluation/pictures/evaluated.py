"""Pictures of one evaluation: who got an answer, how far it is, what it changes, and how groups differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mlflow_cf.cards.colours import COLOURS
from mlflow_cf.evaluation.findings import Findings, median, most_changed
from mlflow_cf.evaluation.measure.aggregates import STATUSES
from mlflow_cf.evaluation.names import explainer_name, group_lines, number, percent, short
from mlflow_cf.evaluation.pictures import slide
from mlflow_cf.evaluation.pictures.bars import bar_panels
from mlflow_cf.evaluation.pictures.slide import (
    DARK,
    GREY,
    LABEL,
    MOST_SERIES,
    SMALL,
    finished,
    literal,
)
from mlflow_cf.plots import ink
from mlflow_cf.reporting.groups import GROUP
from mlflow_cf.words.sentences import counted

BINS: Final = 40
ROOM: Final = 0.05  # share of a bar that has room for its number
STATUS_WORDS: Final[Mapping[str, str]] = {
    "found": "answered",
    "already": "meet the target already",
    "infeasible": "no answer exists, as is proved",
    "not_found": "none found",
    "budget": "cut by a limit",
    "invalid": "cannot be explained",
}
STATUS_COLOURS: Final[Mapping[str, str]] = {
    "found": COLOURS[0], "already": "#BDBDBD", "infeasible": COLOURS[1], "not_found": COLOURS[5],
    "budget": COLOURS[6], "invalid": COLOURS[3],
}  # fmt: skip

Named = Callable[[str], str]


def pictures(
    paths: Mapping[str, Path], table: pd.DataFrame, ranking: Sequence[str], named: Named | None = None
) -> Iterator[tuple[str, Figure]]:
    """Yield names and pictures of evaluated explainers.

    Args:
        paths: the lines of each explainer, by its name.
        table: all `aggregates`.
        ranking: the explainers, the winner first; the first six are drawn.
        named: what people call a feature; None: its name.
    """
    shown = {name: paths[name] for name in ranking[:MOST_SERIES]}
    columns = [
        name.removeprefix(GROUP) for name in pq.read_schema(next(iter(shown.values()))).names if name.startswith(GROUP)
    ]
    facts = {name: pd.read_parquet(path, columns=["mixed", "changed"]) for name, path in shown.items()}
    findings = Findings(table, ranking, columns)
    more = len(ranking) - len(shown)
    note = f"The best {len(shown)} of {len(ranking)} explainers." if more else ""
    yield "outcomes", finished(_outcomes(list(shown), findings, note))
    lines = len(next(iter(facts.values())))
    if lines < findings.own.get("rows", lines):
        note = f"Drawn from a sample of {counted(lines, 'row')}. {note}".strip()
    if any(one["mixed"].notna().any() for one in facts.values()):
        yield "distances", finished(_distances(facts, findings, note))
        yield "changed_features", finished(_changed(facts, note, named or (lambda name: name.replace("_", " "))))
    if (table["group"] != "").any():
        yield "groups", finished(_groups(table, findings, list(shown), note))


def _outcomes(names: Sequence[str], findings: Findings, note: str) -> Figure:
    figures = {explainer_name(name): findings.whole[name] for name in names}
    counts = {name: [own[f"status/{status}"] for status in STATUSES] for name, own in figures.items()}
    table = pd.DataFrame(counts, index=list(STATUSES)).astype("int64")
    table = table[table.sum(axis=1) > 0]
    rows = int(findings.own["rows"])
    key = {STATUS_WORDS[str(status)]: STATUS_COLOURS[str(status)] for status in table.index}
    several = len(table.columns) > 1
    said = f"{counted(rows, 'row')}. {note}".strip()
    figure = slide.slide(findings.outcomes(), said, key if several else None)
    axes = figure.add_subplot()
    slide.tidy(axes)
    if several:
        _one_bar_an_explainer(axes, table)
    else:
        _one_bar_a_status(axes, table.iloc[:, 0])
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("rows", fontsize=LABEL, color=GREY)
    return figure


def _one_bar_a_status(axes: Axes, counts: pd.Series[int]) -> None:
    total = max(int(counts.sum()), 1)
    colours = [STATUS_COLOURS[str(status)] for status in counts.index]
    axes.barh(range(len(counts)), counts.to_numpy(), 0.6, color=colours)
    slide.named_lines(axes, [STATUS_WORDS[str(status)] for status in counts.index])
    for place, count in enumerate(counts):
        text = f" {count:,} ({percent(count / total)})"
        axes.text(count, place, text, va="center", fontsize=LABEL, color=DARK)
    axes.set_xlim(0, max(counts.max(), 1) * 1.18)


def _one_bar_an_explainer(axes: Axes, table: pd.DataFrame) -> None:
    total = max(int(table.sum().max()), 1)
    starts = np.zeros(len(table.columns))
    for status, counts in table.iterrows():
        colour = STATUS_COLOURS[str(status)]
        values = counts.to_numpy(np.float64)
        axes.barh(range(len(values)), values, 0.62, left=starts, color=colour, edgecolor="white", linewidth=1)
        for place, (start, value) in enumerate(zip(starts, values, strict=True)):
            if value / total >= ROOM:
                axes.text(start + value / 2, place, f"{value:,.0f}", ha="center", va="center", fontsize=LABEL,
                          color=ink(colour))  # fmt: skip
        starts = starts + values
    slide.named_lines(axes, list(table.columns))
    axes.set_xlim(0, total)


def _distances(facts: Mapping[str, pd.DataFrame], findings: Findings, note: str) -> Figure:
    known = {name: one["mixed"].dropna() for name, one in facts.items() if one["mixed"].notna().any()}
    medians = {name: median(values) for name, values in known.items()}
    said = "Shares of the answers by their distance; the line is the median. "
    said += "Each explainer's are those of the rows that it answers. " if len(known) > 1 else ""
    figure = slide.slide(findings.distances(medians), f"{said}{note}")
    largest = max(values.max() for values in known.values()) or 1.0
    panels = figure.subplots(len(known), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, values), colour in zip(panels, known.items(), slide.colours_of(len(known)), strict=True):
        slide.tidy(axes)
        weights = np.full(len(values), 1 / len(values))
        axes.hist(values, bins=BINS, range=(0.0, float(largest)), weights=weights, color=colour, alpha=0.85)
        axes.axvline(medians[name], color=DARK, linewidth=2)
        text = f"  {number(medians[name])}"
        axes.text(medians[name], 0.97, text, transform=axes.get_xaxis_transform(), va="top", fontsize=LABEL, color=DARK)
        axes.set_yticks([])
        words = f"{explainer_name(name)}\n{counted(len(values), 'answer')}"
        axes.set_ylabel(literal(words), rotation=0, ha="right", va="center", fontsize=LABEL, color=DARK)
        axes.set_xlim(0, largest * 1.02)
    panels[-1].set_xlabel("distance", fontsize=LABEL, color=GREY)
    return figure


def _changed(facts: Mapping[str, pd.DataFrame], note: str, named: Named) -> Figure:
    shares = {}
    for name, one in facts.items():
        answered = [list(changed) for changed in one["changed"] if len(changed)]
        counts = Counter(feature for changed in answered for feature in changed)
        shares[explainer_name(name)] = pd.Series(counts, dtype="float64") / max(len(answered), 1)
    table = pd.DataFrame(shares).fillna(0.0)
    table = table.loc[table.max(axis=1).sort_values(ascending=False, kind="stable").index]
    table.index = pd.Index([short(named(str(feature))) for feature in table.index])
    said = f"Share of the nearest answers that change a feature. {note}".strip()
    return bar_panels(table, most_changed(table.iloc[:, 0], "changes"), said, "features")


PANELS: Final = {"coverage": "share of rows with an answer", "mixed": "mean distance of the answers"}


def _groups(table: pd.DataFrame, findings: Findings, names: Sequence[str], note: str) -> Figure:
    sizes = table[(table["metric"] == "rows") & (table["group"] != "")].drop_duplicates("group").set_index("group")
    largest = set(sizes["value"].sort_values(ascending=False, kind="stable").index[: slide.most_groups(len(names))])
    groups = ["", *(group for group in sizes.index if group in largest)]
    left = len(sizes) - len(largest)
    said = "Lines are standard errors; groups of fewer than ten rows have none. "
    said += f"The {len(largest)} largest groups; {left} more are in the tables. " if left else ""
    colours, places = slide.colours_of(len(names)), slide.dodged(len(names))
    size = slide.marker(len(names), len(groups))
    key = dict(zip(map(explainer_name, names), colours, strict=True))
    figure = slide.slide(findings.groups(), f"{said}{note}", key)
    panels = figure.subplots(1, len(PANELS), sharey=True)
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        slide.tidy(axes, shares=metric == "coverage")
        axes.set_title(title, fontsize=LABEL, color=DARK, loc="left")
        for name, colour, place in zip(names, colours, places, strict=True):
            own = table[(table["metric"] == metric) & (table["explainer"] == name)]
            own = own.set_index("group").reindex(groups)
            values, errors = own["value"].to_numpy(np.float64), own["standard_error"].fillna(0.0).to_numpy(np.float64)
            heights = np.arange(len(groups)) + place
            axes.errorbar(values, heights, xerr=errors, fmt="o", color=colour, markersize=size, elinewidth=2)
            for value, height in zip(values, heights, strict=True) if len(names) == 1 else ():
                if not np.isnan(value):
                    text = percent(value) if metric == "coverage" else number(value)
                    axes.annotate(text, (value, height), (0, 8), textcoords="offset points", ha="center",
                                  fontsize=SMALL, color=DARK)  # fmt: skip
        axes.axhline(0.5, color=GREY, linewidth=0.8)
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
    slide.named_lines(panels[0], group_lines(groups, findings.columns))
    return figure
