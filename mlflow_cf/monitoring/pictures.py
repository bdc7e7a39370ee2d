"""Pictures of monitoring: what moved from window to window, which features advice leans on, and what people did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mlflow_cf.evaluation.names import group_name, percent, short
from mlflow_cf.evaluation.pictures import slide
from mlflow_cf.evaluation.pictures.slide import DARK, GREY, LABEL, LIGHT, MOST_SERIES, SMALL, finished, literal

MEASURES: Final = {
    "coverage": "share with an answer",
    "status.busy": "share busy",
    "proof.optimal": "share proved nearest",
    "distance": "mean distance",
    "n_changed": "mean number of changes",
    "seconds_p50": "median seconds",
}
BURDEN: Final = ("coverage", "distance", "n_changed")
SHARES: Final = ("coverage", "status.busy", "proof.optimal")
OUTCOMES: Final = {
    "acted": "acted, of those who told",
    "complete": "made all changes of an answer",
    "validity": "decided as wanted after acting",
    "days_p50": "median days to act",
}


class Watched(Protocol):
    """What is drawn of a result; see `Monitoring`."""

    @property
    def windows(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def features(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def outcomes(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def spans(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def drift(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def headline(self) -> str: ...  # noqa: D102


def pictures(found: Watched) -> Iterator[tuple[str, Figure]]:
    """Yield names and pictures of monitoring; those that would be empty are left out."""
    names = found.spans["window"].tolist()
    own = found.windows[found.windows["group"] == ""]
    yield "windows", finished(_panels(own, MEASURES, names, found.headline, found.drift))
    if len(found.features):
        yield "advice", finished(_advice(found, names))
    if (found.windows["group"] != "").any():
        yield "groups", finished(_groups(found, names))
    told = found.outcomes[found.outcomes["group"] == ""] if len(found.outcomes) else found.outcomes
    if len(told):
        acted = told[told["measure"] == "acted"]
        share = float((acted["value"] * acted["count"]).sum() / max(acted["count"].sum(), 1))
        title = f"{percent(share)} of {int(acted['count'].sum()):,} people who told acted on the advice"
        yield "outcomes", finished(_panels(told, OUTCOMES, names, title, None))


def _panels(
    table: pd.DataFrame, measures: dict[str, str], names: list[str], title: str, drift: pd.DataFrame | None
) -> Figure:
    """Return a panel per measure: its value in every window, with intervals; what drifted is marked."""
    shown = [name for name in measures if (table["measure"] == name).any()]
    note = "Lines hold 95 %. The first window is the reference."
    figure = slide.slide(title, note if drift is None else f"{note} Filled: differs by more than chance.")
    columns = min(len(shown), 3)
    panels = figure.subplots(-(-len(shown) // max(columns, 1)), columns, squeeze=False).ravel()
    for axes, name in zip(panels, shown, strict=False):
        own = table[table["measure"] == name].set_index("window").reindex(names)
        hit = _drifted(drift, name.removesuffix("_p50"), "", names)
        _trend(
            axes,
            own["value"],
            own["low"],
            own["high"],
            hit,
            share=name in SHARES or (drift is None and name != "days_p50"),
        )
        axes.set_title(measures[name], fontsize=LABEL, color=DARK, loc="left")
        _named_windows(axes, names, columns)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    return figure


def _advice(found: Watched, names: list[str]) -> Figure:
    """Return a panel per feature, those whose share moves most: the share of answers that change it."""
    shares = found.features.pivot_table(index="feature", columns="window", values="share", sort=False).reindex(
        columns=names
    )
    moved = (shares.max(axis=1) - shares.min(axis=1)).sort_values(ascending=False, kind="stable").index[:MOST_SERIES]
    left = len(shares) - len(moved)
    note = "Share of the nearest answers that change a feature; lines hold 95 %. Filled: differs by more than chance."
    title = f"What answers advise to change: {literal(short(str(moved[0])))} moves most"
    figure = slide.slide(title, f"{note} {left} features that move less are left out." if left else note)
    columns = min(len(moved), 3)
    panels = figure.subplots(-(-len(moved) // columns), columns, squeeze=False).ravel()
    for axes, name in zip(panels, moved, strict=False):
        own = found.features[found.features["feature"] == name].set_index("window").reindex(names)
        _trend(
            axes, own["share"], own["low"], own["high"], _drifted(found.drift, "advised", str(name), names), share=True
        )
        axes.set_title(literal(short(str(name).replace("_", " "))), fontsize=LABEL, color=DARK, loc="left")
        _named_windows(axes, names, columns)
    for axes in panels[len(moved) :]:
        axes.set_visible(False)
    return figure


def _groups(found: Watched, names: list[str]) -> Figure:
    """Return a panel per measure of what people have to bear: its value in every window, a colour per group."""
    table = found.windows[found.windows["group"] != ""]
    sizes = table[table["measure"] == "coverage"].groupby("group", sort=False)["count"].sum()
    groups = [name for name in sizes.index if name in set(sizes.nlargest(MOST_SERIES).index)]
    left = len(sizes) - len(groups)
    columns = [str(name).partition(".")[0] for name in groups]
    colours = dict(zip(groups, slide.colours_of(len(groups)), strict=True))
    key = {group_name(str(name), columns): colour for name, colour in colours.items()}
    note = (
        f"Lines hold 95 %. The first window is the reference.{f' {left} smaller groups are left out.' if left else ''}"
    )
    figure = slide.slide("What people of each group have to bear", note, key)
    panels = figure.subplots(1, len(BURDEN), squeeze=False).ravel()
    for axes, name in zip(panels, BURDEN, strict=True):
        for group, colour in colours.items():
            own = table[(table["measure"] == name) & (table["group"] == group)].set_index("window").reindex(names)
            _line(axes, own["value"], own["low"], own["high"], colour)
        _tidy(axes, share=name in SHARES)
        axes.set_title(MEASURES[name], fontsize=LABEL, color=DARK, loc="left")
        _named_windows(axes, names, len(BURDEN))
    return figure


def _drifted(drift: pd.DataFrame | None, measure: str, feature: str, names: list[str]) -> list[bool]:
    """Return in which windows a series drifts."""
    if drift is None or not len(drift):
        return [False] * len(names)
    own = drift[
        (drift["measure"] == measure) & (drift["feature"] == feature) & (drift["group"] == "") & drift["drifted"]
    ]
    return [name in set(own["window"]) for name in names]


def _trend(axes: Axes, value: pd.Series, low: pd.Series, high: pd.Series, drifted: list[bool], *, share: bool) -> None:
    """Draw a panel with the values of windows, and mark what drifted."""
    colours = slide.colours_of(MOST_SERIES)
    _line(axes, value, low, high, colours[0])
    hit = np.array(drifted)
    axes.plot(np.flatnonzero(hit), value.to_numpy(np.float64)[hit], "o", color=colours[-1], markersize=8, zorder=5)
    _tidy(axes, share=share)


def _line(axes: Axes, value: pd.Series, low: pd.Series, high: pd.Series, colour: str) -> None:
    """Draw the values of windows with their intervals."""
    mean, ends = value.to_numpy(np.float64), (low.to_numpy(np.float64), high.to_numpy(np.float64))
    reach = np.nan_to_num(np.maximum([mean - ends[0], ends[1] - mean], 0.0))
    axes.errorbar(
        np.arange(len(mean)), mean, yerr=reach, fmt="o-", color=colour, mfc="white", markersize=5, linewidth=1.2,
        elinewidth=1.5,
    )  # fmt: skip


def _tidy(axes: Axes, *, share: bool) -> None:
    """Leave out of a panel what says nothing; its vertical axis may tell shares."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(axis="y", color=LIGHT, linewidth=0.8)
    axes.tick_params(labelsize=SMALL, length=0, colors=DARK)
    axes.margins(y=0.15)
    low, high = axes.get_ylim()
    ticks = MaxNLocator(4).tick_values(low, high)
    if share:
        low, high = max(low, 0.0), min(high, 1.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])


def _named_windows(axes: Axes, names: list[str], columns: int) -> None:
    """Name as many windows as there is room for."""
    room = max(8 // max(columns, 1), 2)
    kept = sorted({*range(0, len(names), max(-(-len(names) // room), 1))})
    axes.set_xticks(kept, [literal(names[at]) for at in kept])
