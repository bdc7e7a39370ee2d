"""Pictures of versions compared: what survives, who carries the burden, what is advised, and how metrics moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mlflow_cf.evaluation.compare.comparison import OVERVIEW, Comparison
from mlflow_cf.evaluation.findings import heaviest, metric_name, metric_value, most_changed, moved, survived
from mlflow_cf.evaluation.names import LONGEST, explainer_name, group_lines, percent, short
from mlflow_cf.evaluation.pictures import slide
from mlflow_cf.evaluation.pictures.bars import bar_panels
from mlflow_cf.evaluation.pictures.slide import DARK, GREY, LABEL, MOST_SERIES, SMALL, finished, literal
from mlflow_cf.plots import ink

MOST_VERSIONS: Final = 12  # of the map
SHADES: Final = "Blues"


def pictures(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    """Yield names and pictures of a comparison; those that would be empty are left out."""
    if len(comparison.survival) and comparison.survival["survival"].notna().any():
        yield "survival", finished(_survival(comparison.survival_matrix()))
    if len(comparison.burden) and comparison.burden["mean"].notna().any():
        yield "burden", finished(_burden(comparison.of_the_first(comparison.burden), comparison.columns))
    if len(comparison.advice) and comparison.advice["share"].notna().any():
        yield "advice", finished(_advice(comparison.of_the_first(comparison.advice)))
    if len(comparison.aggregates) and len(comparison.versions) > 1 and comparison.overview().notna().any(axis=None):
        yield "metrics", finished(_metrics(comparison.overview()))


def _survival(matrix: pd.DataFrame) -> Figure:
    """Return a survival matrix (versions, versions) as a map with its shares written in."""
    left = len(matrix) - MOST_VERSIONS
    shown = matrix.iloc[-MOST_VERSIONS:, -MOST_VERSIONS:]
    names, values = [short(name) for name in shown.index], shown.to_numpy(np.float64)
    note = "Share of the answers issued under the line's version that the column's version predicts as wanted."
    figure = slide.slide(
        survived(matrix), f"{note} The newest {len(names)} of {len(matrix)} versions." if left > 0 else note
    )
    axes = figure.add_subplot()
    shades = colormaps[SHADES]
    axes.imshow(np.nan_to_num(values), vmin=0, vmax=1.15, cmap=shades, aspect="auto")
    for row, line in enumerate(values):
        for column, share in enumerate(line):
            text, colour = ("", DARK) if np.isnan(share) else (percent(share), ink(to_hex(shades(share / 1.15))))
            axes.text(column, row, text, ha="center", va="center", fontsize=_fitting(len(names)), color=colour)
    axes.set_xticks(range(len(names)), [literal(_folded(name, len(names))) for name in names])
    axes.set_yticks(range(len(names)), [literal(name) for name in names])
    axes.tick_params(labelsize=LABEL if len(names) < 8 else SMALL, length=0, colors=DARK)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(1, len(names)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(names)) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=3)
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel("judged by", fontsize=LABEL, color=GREY)
    axes.set_ylabel("issued under", fontsize=LABEL, color=GREY)
    return figure


def _burden(burden: pd.DataFrame, columns: Sequence[str]) -> Figure:
    """Return one panel per measure: its mean in every group, with intervals, a colour per version."""
    every, measures = list(dict.fromkeys(burden["version"])), list(dict.fromkeys(burden["measure"]))
    versions = every[-MOST_SERIES:]
    sizes = burden[burden["measure"] == measures[0]].groupby("group", sort=False)["rows"].max()
    largest = set(
        sizes.drop("", errors="ignore")
        .sort_values(ascending=False, kind="stable")
        .index[: slide.most_groups(len(versions))]
    )
    groups = ["", *(group for group in sizes.index if group in largest)]
    left = len(sizes.drop("", errors="ignore")) - len(largest)
    note = "Lines hold 95 % of the bootstrap draws; groups of fewer than five rows have none."
    note += f" The {len(largest)} largest groups; {left} more are in the tables." if left else ""
    note += f" The newest {len(versions)} of {len(every)} versions." if len(every) > len(versions) else ""
    colours, places = slide.colours_of(len(versions)), slide.dodged(len(versions))
    size = slide.marker(len(versions), len(groups))
    key = dict(zip(map(short, versions), colours, strict=True))
    figure = slide.slide(heaviest(burden, groups, columns), note, key)
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        slide.tidy(axes, shares=measure == "coverage")
        axes.set_title(measure.replace("_", " "), fontsize=LABEL, color=DARK, loc="left")
        for version, colour, place in zip(versions, colours, places, strict=True):
            own = burden[(burden["measure"] == measure) & (burden["version"] == version)]
            own = own.set_index("group").reindex(groups)
            mean, low, high = (own[name].to_numpy(np.float64) for name in ("mean", "low", "high"))
            reach = np.nan_to_num(np.maximum([mean - low, high - mean], 0.0))
            heights = np.arange(len(groups)) + place
            axes.errorbar(mean, heights, xerr=reach, fmt="o", color=colour, markersize=size, elinewidth=2)
        if len(groups) > 1:
            axes.axhline(0.5, color=GREY, linewidth=0.8)
        axes.margins(x=0.1)
        axes.set_xlim(left=0)
    slide.named_lines(panels[0], group_lines(groups, columns))
    return figure


def _advice(advice: pd.DataFrame) -> Figure:
    """Return the share of answers that change each feature, a panel per version."""
    every = list(dict.fromkeys(advice["version"]))
    versions = every[-MOST_SERIES:]
    shares = advice.pivot_table("share", "feature", "version", sort=False, dropna=False)[versions]
    shares = shares[shares.max(axis=1) > 0]
    shares = shares.sort_values(versions[-1], ascending=False, kind="stable")
    shares.index = pd.Index([short(str(name).replace("_", " ")) for name in shares.index])
    shares.columns = pd.Index([short(version) for version in versions])
    note = "Share of the nearest answers that change a feature."
    note += f" The newest {len(versions)} of {len(every)} versions." if len(every) > len(versions) else ""
    return bar_panels(shares, most_changed(shares.iloc[:, -1], "advises to change"), note, "features")


def _metrics(overview: pd.DataFrame) -> Figure:
    """Return a panel per metric: its value under every version, a colour per explainer."""
    versions = list(dict.fromkeys(overview.index.get_level_values("version")))
    explainers = list(dict.fromkeys(overview.index.get_level_values("explainer")))[:MOST_SERIES]
    names = [name for name in OVERVIEW if name in overview.columns and overview[name].notna().any()]
    colours = dict(zip(explainers, slide.colours_of(len(explainers)), strict=True))
    key = {explainer_name(name): colour for name, colour in colours.items()}
    figure = slide.slide(moved(overview, versions), "Means over the same rows, the oldest version first.", key)
    rows = 2 if len(names) > 3 else 1
    panels = list(figure.subplots(rows, -(-len(names) // rows), squeeze=False).flat)
    for axes, name in zip(panels, names, strict=False):
        _metric(axes, overview[name], name, versions, colours)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    return figure


def _metric(axes: Axes, values: pd.Series[float], name: str, versions: Sequence[str], colours: dict[str, str]) -> None:
    single = len(colours) == 1 and len(versions) <= MOST_SERIES  # there is room for numbers
    slide.tidy(axes)
    axes.grid(visible=False)
    axes.set_title(metric_name(name), fontsize=LABEL, color=DARK, loc="left")
    for explainer, colour in colours.items():
        own = [float(values.get((version, explainer), np.nan)) for version in versions]
        axes.plot(range(len(versions)), own, "o-", color=colour, linewidth=2, markersize=8)
        for place, value in enumerate(own) if single else ():
            if not np.isnan(value):
                beside = own[max(place - 1, 0) : place] + own[place + 1 : place + 2]
                below = bool(value < np.nanmin([*beside, np.inf]) and len(own) > 1)
                axes.annotate(
                    metric_value(name, value), (place, value), (0, -18 if below else 9), textcoords="offset points",
                    ha="center", fontsize=SMALL, color=DARK,
                )  # fmt: skip
    ticks = range(0, len(versions), -(-len(versions) // 4))
    axes.set_xticks(ticks, [literal(_folded(short(versions[at]), 4)) for at in ticks])
    if single:
        axes.set_yticks([])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: literal(metric_value(name, value))))
    axes.tick_params(labelsize=SMALL)
    axes.margins(x=0.2, y=0.4)


def _fitting(count: int) -> float:
    return 24.0 if count < 4 else LABEL if count < 8 else SMALL


def _folded(name: str, count: int) -> str:
    """Return a name on as many lines as its column needs."""
    room = max(60 // max(count, 1), 6)
    return "\n".join(name[at : at + room] for at in range(0, min(len(name), LONGEST), room))
