"""One counterfactual as a figure for a slide."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from mlflow_cf.cards.colours import COLOURS, literal
from mlflow_cf.cards.pictures import HEIGHT, WIDTH, Pictures
from mlflow_cf.cards.row import AnswerShown, ChangeShown, Record, answer_of
from mlflow_cf.errors import InputError
from mlflow_cf.words.phrases import Language
from mlflow_cf.words.sentences import Speaker

FROM, TO, BARS, INK = COLOURS[5], COLOURS[0], "#C4CCD4", "#24292F"
MOST_PANELS: Final = 6
SIZE: Final = 12  # of letters
WIDE: Final = 76  # letters of a line
LOW: Final = -7.0  # where marks stand, below the bars


def figure(record: Record, pictures: Pictures, language: Language, number: int) -> Figure:
    """Return a figure of a counterfactual: a panel per change, then the probability, before and after.

    Args:
        record: of a reply.
        pictures: distributions of the features.
        language: of the words.
        number: of the counterfactual, from 1.

    Raises:
        InputError: there is no counterfactual of this number.
    """
    found = record["counterfactuals"]
    if not 1 <= number <= len(found):
        fact = f"there are {len(found)} ({record['status']}{': ' if record['reason'] else ''}{record['reason'][:200]})"
        raise InputError("counterfactual", fact, "give a number from 1 on, of a row that has one")
    speaker = Speaker(language, pictures.known)
    shown = answer_of(record, found[number - 1], pictures, speaker)
    changes = shown.changes[:MOST_PANELS]
    title = wrap(shown.sentence, WIDE)
    panels = len(changes) + (shown.bar is not None)
    drawn = Figure(figsize=(10.0, 1.3 + 0.32 * len(title) + 1.05 * panels), layout="constrained")
    drawn.suptitle(literal("\n".join(title)), fontsize=SIZE + 2, color=INK)
    axes: Sequence[Axes] = drawn.subplots(panels, squeeze=False)[:, 0].tolist() if panels else ()
    for one, change in zip(axes, changes, strict=False):
        _draw_change(one, change)
    if shown.bar is not None:
        _draw_probability(axes[-1], shown)
    drawn.supxlabel(
        literal(_facts(shown, speaker, len(found[number - 1]["changes"]) - len(changes))), fontsize=SIZE, color=INK
    )
    return drawn


def _facts(shown: AnswerShown, speaker: Speaker, left: int) -> str:
    more = [speaker.say("more_changes", count=left)] if left > 0 else []
    return "\n".join(["  ·  ".join([shown.proof, *shown.facts, *more]), *wrap(shown.region, WIDE + 10)])


def _draw_change(axes: Axes, change: ChangeShown) -> None:
    """Draw one change on its distribution, or in words alone where nothing is known of that."""
    _bare(axes, f"{change.name.short}\n{change.old.short} → {change.new.short}")
    axes.set(xlim=(0, WIDTH), ylim=(LOW - 5, HEIGHT))
    picture = change.picture
    if picture is None:
        return
    for bar in picture.drawing.bars:
        axes.add_patch(Rectangle((bar.left, 0), bar.width, bar.height, color=BARS, linewidth=0.5))
    for left, width in picture.bands:
        axes.add_patch(Rectangle((left, 0), width, HEIGHT, facecolor=TO, alpha=0.15, linewidth=0))
    axes.axhline(0, color=BARS, linewidth=1)
    _draw_marks(axes, (picture.old, picture.new), LOW)


def _draw_probability(axes: Axes, shown: AnswerShown) -> None:
    _bare(axes, shown.likely.replace(" ", "\n", 1))
    axes.set(xlim=(0, 100), ylim=(-1, 1))
    axes.axhline(0, color=BARS, linewidth=6, solid_capstyle="round")
    _draw_marks(axes, shown.bar or (None, None), 0)


def _draw_marks(axes: Axes, ends: Sequence[float | None], height: float) -> None:
    """Draw where a change begins, as a ring, and where it ends, as a diamond, with an arrow between them."""
    old, new = ends
    if old is not None and new is not None and old != new:
        arrow = {"arrowstyle": "->", "color": INK, "linewidth": 1.2, "shrinkA": 5, "shrinkB": 5}
        axes.annotate("", (new, height), (old, height), arrowprops=arrow, annotation_clip=False)
    for place, mark, colour, fill in ((old, "o", FROM, "white"), (new, "D", TO, TO)):
        if place is not None:
            axes.add_line(
                Line2D(
                    [place], [height], linestyle="none", clip_on=False, marker=mark, markersize=9, markeredgewidth=2,
                    markerfacecolor=fill, markeredgecolor=colour,
                )
            )  # fmt: skip


def _bare(axes: Axes, label: str) -> None:
    axes.set_axis_off()
    axes.text(
        -0.02, 0.5, literal(label), transform=axes.transAxes, ha="right", va="center", fontsize=SIZE, color=INK
    )  # fmt: skip
