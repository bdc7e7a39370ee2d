"""Bars with their numbers, a panel for each explainer or version: no bar stands in front of another."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mlflow_cf.evaluation.names import percent
from mlflow_cf.evaluation.pictures import slide
from mlflow_cf.evaluation.pictures.slide import DARK, LABEL, MOST_LINES, SMALL, literal


def bar_panels(table: pd.DataFrame, title: str, note: str, noun: str) -> Figure:
    """Return a slide of shares.

    Args:
        table: a line per bar, the most telling first, and a column per panel; both have the names that are shown.
        title, note: of the slide.
        noun: what bars are called, where there are too many.
    """
    left = len(table) - MOST_LINES
    shown = table.iloc[:MOST_LINES]
    figure = slide.slide(title, f"{note} {left} more {noun} are left out." if left > 0 else note)
    panels = figure.subplots(1, len(shown.columns), sharex=True, sharey=True, squeeze=False)[0]
    reach = max(float(np.nanmax(shown.to_numpy(np.float64), initial=0.0)), 0.01) * (1.1 + 0.12 * len(panels))
    for at, (axes, colour) in enumerate(zip(panels, slide.colours_of(len(panels)), strict=True)):
        values = shown.iloc[:, at].to_numpy(np.float64)
        slide.tidy(axes, shares=True)
        axes.barh(range(len(values)), np.nan_to_num(values), 0.68, color=colour)
        for place, value in enumerate(values):
            if not np.isnan(value):
                axes.text(value, place, f" {percent(value)}", va="center", fontsize=LABEL - len(panels) / 2, color=DARK)
        if len(panels) > 1:
            axes.set_title(literal(str(shown.columns[at])), fontsize=LABEL, color=DARK, loc="left")
        axes.tick_params(axis="x", labelsize=SMALL)
        axes.set_xlim(0, reach)
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
    slide.named_lines(panels[0], [str(name) for name in shown.index])
    return figure
