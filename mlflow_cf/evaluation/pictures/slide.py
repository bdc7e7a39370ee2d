"""What all pictures share: the slide that they are drawn on, its letters, colours and panels."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import PercentFormatter

from mlflow_cf.features import Floats
from mlflow_cf.plots import COLOURS

SIZE: Final = (12.8, 7.2)  # inches: 16:9
DPI: Final = 120
TITLE: Final = 21.0  # points
LABEL: Final = 14.0
SMALL: Final = 11.0
TITLE_LINE: Final = 74  # characters
DARK: Final = "#222222"
GREY: Final = "#5A5A5A"
LIGHT: Final = "#E3E3E3"
MOST_SERIES: Final = 6  # explainers or versions of one picture, each with a colour
MOST_LINES: Final = 12  # groups, features or bars of one panel
DODGE: Final = 0.7  # of the distance between two lines: what the markers of all series take
FAMILY: Final = "DejaVu Sans"  # comes with matplotlib
# Fonts that have what the one above has not, if the machine has them.
OTHERS: Final = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC", "Hiragino Sans", "Microsoft YaHei",
    "SimHei", "WenQuanYi Zen Hei", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali",
)  # fmt: skip
UNKNOWN: Final = "\N{WHITE SQUARE}"  # in the place of a letter that no font here has
JOINERS: Final = "\u200c\u200d"  # of letters; other marks without a shape are left out, such as those of direction


def slide(title: str, note: str = "") -> Figure:
    """Return an empty slide with what was found as its title, and small print below; both are text as it stands."""
    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12, wspace=0.03)
    figure = Figure(figsize=SIZE, dpi=DPI, layout=layout)
    lines = textwrap.wrap(title, TITLE_LINE, max_lines=2, placeholder=" …", break_on_hyphens=False)
    figure.suptitle(
        "\n".join(map(literal, lines)), x=0.015, ha="left", fontsize=TITLE, fontweight="bold", color=DARK
    )  # fmt: skip
    if note:
        small = textwrap.shorten(note, 190, placeholder=" …")
        figure.supxlabel(literal(small), x=0.015, ha="left", fontsize=SMALL, color=GREY)
    return figure


def finished(figure: Figure) -> Figure:
    """Return a drawn slide all of whose letters are there."""
    fonts = list(_fonts()[0])
    if len(fonts) > 1:
        for text in _texts(figure):
            text.set_fontfamily(fonts)
    return figure


def tidy(axes: Axes, *, shares: bool = False) -> None:
    """Leave out of a panel what says nothing; its horizontal axis may tell shares."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.tick_params(labelsize=LABEL, length=0, colors=DARK)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.grid(axis="x", color=LIGHT, linewidth=0.8)
    axes.set_axisbelow(True)
    if shares:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def named_lines(axes: Axes, names: Sequence[str]) -> None:
    """Name the lines of a panel, the first one above."""
    axes.set_yticks(range(len(names)), [literal(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)


def key(figure: Figure, names: Sequence[str], colours: Sequence[str]) -> None:
    """Say below the title which colour is whose."""
    dots = [Line2D([], [], marker="o", markersize=10, linestyle="none", color=colour) for colour in colours]
    labels = [literal(name) for name in names]
    columns = min(len(names), 4)
    figure.legend(dots, labels, loc="outside upper left", ncols=columns, frameon=False, fontsize=LABEL)


def dodged(count: int) -> Floats:
    """Return how far from its line each of so many series is drawn, so that no marker hides another."""
    if count < 2:
        return np.zeros(count)
    return np.linspace(-DODGE / 2, DODGE / 2, count)


def colours_of(count: int) -> list[str]:
    """Return a colour for each of up to seven series."""
    return list(COLOURS[:count])


def literal(text: str) -> str:
    """Return text that matplotlib draws as it stands: no formula, no hidden label, no letter without a shape."""
    known = _fonts()[1]
    drawn = "".join(_mark(mark, known) for mark in text)
    return f"{' ' if drawn.startswith('_') else ''}{drawn}".replace("$", r"\$")


def _mark(mark: str, known: frozenset[int]) -> str:
    if mark == "\n" or mark in JOINERS or (mark.isascii() and mark.isprintable()):
        return mark
    if unicodedata.category(mark) == "Cf":
        return ""
    return mark if ord(mark) in known and mark.isprintable() else UNKNOWN


def _texts(figure: Figure) -> Iterable[Text]:
    for axes in figure.axes:
        yield from (*axes.get_xticklabels(), *axes.get_yticklabels())
    yield from figure.findobj(Text)


@cache
def _fonts() -> tuple[tuple[str, ...], frozenset[int]]:
    """Return the fonts that are used, and which letters they have, in bold too."""
    installed = {font.name for font in fontManager.ttflist}
    families = (FAMILY, *(name for name in OTHERS if name in installed))
    letters: set[int] = set()
    for name in families:
        weights: tuple[Any, ...] = ("normal", "bold")
        paths = [findfont(FontProperties(family=[name], weight=weight)) for weight in weights]
        letters |= set.intersection(*(set(FT2Font(path).get_charmap()) for path in paths))
    return families, frozenset(letters)
