"""What all pictures share: the slide that they are drawn on, its letters, colours and panels."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
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
from matplotlib.ticker import FixedLocator, MaxNLocator, PercentFormatter

from mlflow_cf.cards.colours import COLOURS
from mlflow_cf.features import Floats

SIZE: Final = (12.8, 7.2)  # inches: 16:9
DPI: Final = 120
TITLE: Final = 21.0  # points
LABEL: Final = 14.0
SMALL: Final = 11.0
TITLE_LINE: Final = 70  # characters
DARK: Final = "#222222"
GREY: Final = "#5A5A5A"
LIGHT: Final = "#E3E3E3"
MOST_SERIES: Final = 6  # explainers or versions of one picture, each with a colour
MOST_LINES: Final = 12  # groups, features or bars of one panel
FEW_LINES: Final = 4  # that a panel has room for at least
DODGE: Final = 0.8  # of the distance between two lines: what the markers of all series take
HEIGHT: Final = 340.0  # points that a panel has at least
LARGEST: Final = 9.0  # marker, in points
MOST_MARKERS: Final = 40  # one above the other
PAD: Final = 0.12  # inches above and below
LINE: Final = 1.25  # height of a line of the title, in letters
KEY_COLUMNS: Final = 4
FAMILY: Final = "DejaVu Sans"  # comes with matplotlib
# Fonts that have what the one above has not, if the machine has them.
OTHERS: Final = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC", "Hiragino Sans", "Microsoft YaHei",
    "SimHei", "WenQuanYi Zen Hei", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali",
)  # fmt: skip
UNKNOWN: Final = "\N{WHITE SQUARE}"  # in the place of a letter that no font here has
JOINERS: Final = "\u200c\u200d"  # of letters; other marks without a shape are left out, such as those of direction


def slide(title: str, note: str = "", key: Mapping[str, str] | None = None) -> Figure:
    """Return an empty slide with what was found as its title.

    Args:
        title, note: text as it stands, above and in small print below.
        key: name -> colour, told below the title; less than two need not be told.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=PAD, wspace=0.03)
    figure = Figure(figsize=SIZE, dpi=DPI, layout=layout)
    lines = textwrap.wrap(title, TITLE_LINE, max_lines=2, placeholder=" …", break_on_hyphens=False)
    known = key if key is not None and len(key) > 1 else {}
    room = [" "] * math.ceil(len(known) / KEY_COLUMNS)  # empty lines of the title, which the layout keeps free
    figure.suptitle(
        "\n".join([*map(literal, lines), *room]), x=0.015, ha="left", fontsize=TITLE, fontweight="bold", color=DARK
    )
    if known:
        dots = [Line2D([], [], marker="o", markersize=11, linestyle="none", color=colour) for colour in known.values()]
        below = 1 - (PAD + len(lines) * TITLE * LINE / 72) / SIZE[1]
        figure.legend(
            dots, [literal(name) for name in known], loc="upper left", bbox_to_anchor=(0.005, below), frameon=False,
            ncols=min(len(known), KEY_COLUMNS), fontsize=LABEL, handletextpad=0.2, labelcolor=DARK,
        ).set_in_layout(False)  # fmt: skip
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
    axes.xaxis.set_major_locator(FixedLocator([0, 0.5, 1]) if shares else MaxNLocator(5))
    if shares:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def named_lines(axes: Axes, names: Sequence[str]) -> None:
    """Name the lines of a panel, the first one above; a few lines are no thicker than many."""
    axes.set_yticks(range(len(names)), [literal(name) for name in names])
    middle, half = (len(names) - 1) / 2, max(len(names), FEW_LINES) / 2 + 0.1
    axes.set_ylim(middle + half, middle - half)
    axes.tick_params(axis="y", labelsize=LABEL if len(names) <= MOST_LINES / 2 else SMALL)


def dodged(count: int) -> Floats:
    """Return how far from its line each of so many series is drawn, so that no marker hides another."""
    places: Floats = np.arange(count, dtype=np.float64) - (count - 1) / 2
    return places * _apart(count)


def marker(count: int, names: int) -> float:
    """Return the size in points of markers of so many series on so many lines."""
    return min(HEIGHT / max(names, FEW_LINES) * _apart(count), LARGEST) if count > 1 else LARGEST


def most_groups(count: int) -> int:
    """Return how many groups one panel has room for where each has the markers of so many series."""
    return min(max(MOST_MARKERS // max(count, 1), 4), MOST_LINES)


def colours_of(count: int) -> list[str]:
    """Return a colour for each of up to seven series."""
    return list(COLOURS[:count])


def literal(text: str) -> str:
    """Return text that matplotlib draws as it stands: no formula, no hidden label, no letter without a shape."""
    known = _fonts()[1]
    drawn = "".join(_mark(mark, known) for mark in text)
    return f"{' ' if drawn.startswith('_') else ''}{drawn}".replace("$", r"\$")


def _apart(count: int) -> float:
    return min(DODGE / max(count, 1), 0.22)


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
