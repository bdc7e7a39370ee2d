"""Figures of plans: in which order things are done, and what each does to the prediction where it stands.

They are `matplotlib.figure.Figure` objects, ready for ``mlflow.log_figure(figure, "plans/sequence_flow.png")``, after
Figures 5 and 6 of Naumann and Ntoutsi (2021).
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path

from mlflow_cf.cards.colours import COLOURS, literal
from mlflow_cf.errors import InputError
from mlflow_cf.features import Floats
from mlflow_cf.words.result import Counterfactual, Explanation

__all__ = ["position_effect", "sequence_flow"]

MOST_ACTIONS: Final = len(COLOURS) - 1  # with a colour of their own
LONGEST_NAME: Final = 40  # characters shown


class ToldStep(NamedTuple):
    """One step of a plan.

    Attributes:
        kind: the number of its action among `ToldPlans.names`.
        gain: how much the probability of the wanted label rises by it; None if that is not known.
    """

    kind: int
    gain: float | None


@dataclass(frozen=True)
class ToldPlans:
    """All plans of some explanations.

    Attributes:
        names: of the actions, those that come first on average first; of more than seven the rarest are one, named
            after their number.
        colours: of the actions, by their names alone, so that figures of the same actions have the same ones.
        plans: the steps of each.
    """

    names: tuple[str, ...]
    colours: tuple[str, ...]
    plans: tuple[tuple[ToldStep, ...], ...]

    @property
    def longest(self) -> int:
        """The number of steps of the longest plan."""
        return max(map(len, self.plans))


def told_plans(explanations: Iterable[Explanation]) -> ToldPlans:
    """Return the plans of all counterfactuals.

    Raises:
        InputError: something that is no explanation, or no plan in any.
    """
    if isinstance(explanations, Explanation):
        explanations = [explanations]
    with_plans = list[tuple[Explanation, Counterfactual]]()
    for number, explanation in enumerate(explanations):
        if not isinstance(explanation, Explanation):
            path, kind = f"explanations[{number}]", type(explanation).__name__
            raise InputError(path, f"a {kind}, not an explanation", "pass what `explain` of an explained model returns")
        with_plans += [(explanation, found) for found in explanation.counterfactuals if found.plan]
    if not with_plans:
        fix = "declare actions or relationships in the constraints, or take an explainer that plans, such as 'cscf'"
        raise InputError("explanations", "no answer has a plan", fix)
    often, places = Counter[str](), Counter[str]()
    for at, step in (one for _, found in with_plans for one in enumerate(found.plan)):
        often[step.action] += 1
        places[step.action] += at
    frequent = [action for action, _ in often.most_common(MOST_ACTIONS)]
    order = sorted(frequent, key=lambda action: places[action] / often[action])
    rest = len(often) - len(order)
    names = [_shortened(action) for action in order] + ([f"{rest} other actions"] if rest else [])
    colours = [COLOURS[sorted(order).index(action)] for action in order] + [COLOURS[-1]] * (rest > 0)
    kinds = {action: order.index(action) if action in order else MOST_ACTIONS for action in often}
    plans = []
    for explanation, found in with_plans:
        known = [explanation.probability, *(step.probability for step in found.plan)]
        gains = [None if a is None or b is None else b - a for a, b in pairwise(known)]
        plans.append(tuple(ToldStep(kinds[step.action], gain) for step, gain in zip(found.plan, gains, strict=True)))
    return ToldPlans(tuple(names), tuple(colours), tuple(plans))


def _shortened(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"


def ink(fill: str) -> str:
    """Return the colour of letters on this one: black or white, by its luminance."""
    red, green, blue = (int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45 else "black"


GAP: Final = 0.02  # between the blocks of a column, whose plans are 1 high together
WIDTH: Final = 0.5  # of a block; columns are 1 apart
LOW: Final = 0.03  # a lower block has no label
TALL: Final = 0.08  # one that is not as tall has no room for a name
LINE: Final = 0.04  # more for each further line of it
NAME_WIDTH: Final = 14  # characters of a line
MOST_LABELLED: Final = 10  # positions that leave blocks wide enough for labels
END_COLOUR: Final = "#E3E3E3"


class Block(NamedTuple):
    """The plans that have one action at a position, or that ended before it.

    Attributes:
        position: from 1; kind: the number of the action; where plans have ended, the number of all actions.
        share: of all plans.
        top: where the block begins, downwards.
    """

    position: int
    kind: int
    share: float
    top: float


class Ribbon(NamedTuple):
    """The plans that go from one block to another: their share, and where it leaves and enters the blocks."""

    source: Block
    target: Block
    share: float
    leaves: float
    enters: float


def sequence_flow(explanations: Iterable[Explanation]) -> Figure:
    """Return a figure of the order of actions over all plans.

    A column is a position; its blocks are the actions that stand there, as high as the share of plans; ribbons lead to
    what comes next, or to the end of a plan.

    Args:
        explanations: as `explain` of an explained model returns them; all counterfactuals with a plan count.

    Raises:
        InputError: something that is no explanation, or no plan in any.
    """
    told = told_plans(explanations)
    blocks = stacked(told)
    number, colours = len(told.plans), (*told.colours, END_COLOUR)
    size = (2.6 + 1.9 * min(told.longest, MOST_LABELLED), 5.4 if number > 1 else 2.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    for ribbon in ribbons(told, blocks):
        _draw_ribbon(axes, ribbon, colours[ribbon.source.kind])
    for block in blocks:
        label = (*told.names, "end")[block.kind] if told.longest <= MOST_LABELLED else ""
        _draw_block(axes, block, colours[block.kind], label)
    bottom = max(block.top + block.share for block in blocks)
    axes.set(
        xlim=(1 - WIDTH, told.longest + WIDTH), ylim=(bottom + GAP, -GAP), xlabel="position in the plan", yticks=[]
    )
    axes.set_xticks(range(1, told.longest + 1))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"The order of actions in {f'{number:,} plans' if number > 1 else 'a plan'}")
    kinds = sorted({block.kind for block in blocks})
    patches = [Patch(facecolor=colours[kind]) for kind in kinds]
    names = [literal((*told.names, "end of the plan")[kind]) for kind in kinds]
    figure.legend(patches, names, loc="outside right center", frameon=False, fontsize=9, title="action")
    return figure


def _kinds(told: ToldPlans) -> list[list[int]]:
    """Return what stands at each position of each plan, its end last."""
    return [[*(step.kind for step in plan), len(told.names)] for plan in told.plans]


def stacked(told: ToldPlans) -> list[Block]:
    """Return the blocks of all positions, column by column, ends last."""
    blocks = list[Block]()
    for position in range(1, told.longest + 1):
        often = Counter(kinds[position - 1] for kinds in _kinds(told) if len(kinds) >= position)
        top = 0.0
        for kind, number in sorted(often.items()):
            share = number / len(told.plans)
            blocks.append(Block(position, kind, share, top))
            top += share + GAP
    return blocks


def ribbons(told: ToldPlans, blocks: Sequence[Block]) -> list[Ribbon]:
    """Return what leads from block to block; ribbons of a block lie in the order of the blocks at their other ends."""
    at = {(block.position, block.kind): block for block in blocks}
    pairs = (enumerate(pairwise(kinds[: told.longest]), start=1) for kinds in _kinds(told))
    often = Counter((position, *pair) for moves in pairs for position, pair in moves)
    left, entered = dict[Block, float](), dict[Block, float]()
    found = list[Ribbon]()
    for (position, first, second), number in sorted(often.items()):
        source, target = at[position, first], at[position + 1, second]
        share = number / len(told.plans)
        leaves, enters = left.get(source, source.top), entered.get(target, target.top)
        found.append(Ribbon(source, target, share, leaves, enters))
        left[source], entered[target] = leaves + share, enters + share
    return found


def _draw_ribbon(axes: Axes, ribbon: Ribbon, fill: str) -> None:
    left, right = ribbon.source.position + WIDTH / 2, ribbon.target.position - WIDTH / 2
    middle = (left + right) / 2
    upper = [(left, ribbon.leaves), (middle, ribbon.leaves), (middle, ribbon.enters), (right, ribbon.enters)]
    lower = [(x, y + ribbon.share) for x, y in reversed(upper)]
    curve = [Path.CURVE4] * 3
    path = Path([*upper, *lower, upper[0]], [Path.MOVETO, *curve, Path.LINETO, *curve, Path.CLOSEPOLY])
    axes.add_patch(PathPatch(path, facecolor=fill, alpha=0.4, linewidth=0))


def _draw_block(axes: Axes, block: Block, fill: str, name: str) -> None:
    """Draw a block; with a name also its share, and the name itself where there is room."""
    corner = (block.position - WIDTH / 2, block.top)
    axes.add_patch(Rectangle(corner, WIDTH, block.share, facecolor=fill, edgecolor="white", linewidth=0.5))
    if block.share < LOW or not name:
        return
    lines = textwrap.wrap(name, NAME_WIDTH)
    room = block.share >= TALL + LINE * (len(lines) - 1)
    label = "\n".join([*(lines if room else []), f"{block.share:.0%}"])
    axes.text(
        block.position, block.top + block.share / 2, literal(label),
        ha="center", va="center", fontsize=7.5, linespacing=1.05, color=ink(fill),
    )  # fmt: skip


MOST_COLUMNS: Final = 4  # panels side by side
MOST_DOTS: Final = 200  # of one action at one position
ASIDE: Final = 0.15  # dots stand so far left of their position, mean and deviation so far right
SPREAD: Final = 0.3  # of the dots
GOLDEN: Final = (math.sqrt(5) - 1) / 2  # multiples of it scatter evenly without chance


def position_effect(explanations: Iterable[Explanation]) -> Figure:
    """Return a figure of how the probability of the wanted label changes by each action, by position.

    A panel is an action; it has a dot for every plan, and mean and standard deviation over the plans. Steps after or
    before which no probability is known are left out.

    Args:
        explanations: as `explain` of an explained model returns them; all counterfactuals with a plan count.

    Raises:
        InputError: something that is no explanation, no plan in any, or none that tells probabilities.
    """
    told = told_plans(explanations)
    found = effects(told)
    if not found:
        fix = "explain a model that gives probabilities"
        raise InputError("explanations", "no plan tells the probability after its steps", fix)
    kinds = sorted({kind for kind, _ in found})
    rows = math.ceil(len(kinds) / MOST_COLUMNS)
    columns = math.ceil(len(kinds) / rows)
    width = min(max(1.0 + 0.5 * told.longest, 2.6), 14.0 / columns)
    figure = Figure(figsize=(max(0.8 + width * columns, 5.2), 1.2 + 2.4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for number, (axes, kind) in enumerate(zip(panels.flat, kinds, strict=False)):
        _draw_effects(axes, {position: gains for (of, position), gains in found.items() if of == kind}, told, kind)
        if number + columns >= len(kinds):
            axes.set_xlabel("position in the plan", fontsize=8)
    for axes in panels[:, 0]:
        axes.set_ylabel("change of the probability", fontsize=8)
    for axes in panels.flat[len(kinds) :]:
        axes.set_visible(False)
    ends = [0.0, *(np.mean(gains) + side * np.std(gains) for gains in found.values() for side in (-1, 1))]
    low, high = (
        min(*ends, *(gains[0] for gains in found.values())),
        max(*ends, *(gains[-1] for gains in found.values())),
    )
    span = max(high - low, 0.05)
    panels[0, 0].set_ylim(low - 0.06 * span, high + 0.2 * span)  # there is room for the numbers of plans above
    figure.suptitle("How the wanted label's probability changes with each action", fontsize=11)
    dot = Line2D([], [], marker="o", linestyle="none", markersize=4, color=COLOURS[-1], alpha=0.75)
    mean = Line2D([], [], marker="D", markersize=4, color="black", linewidth=1.2)
    labels = ["one plan", "mean and standard deviation of n plans"]
    figure.legend([dot, mean], labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def effects(told: ToldPlans) -> dict[tuple[int, int], Floats]:
    """Return by how much the probability rises in each plan, ascending, by action and position; where that is known."""
    gains = dict[tuple[int, int], list[float]]()
    for plan in told.plans:
        for position, step in enumerate(plan, start=1):
            if step.gain is not None:
                gains.setdefault((step.kind, position), []).append(step.gain)
    return {place: np.sort(known) for place, known in sorted(gains.items())}


def _draw_effects(axes: Axes, own: Mapping[int, Floats], told: ToldPlans, kind: int) -> None:
    """Draw the gains of one action by position."""
    axes.axhline(0, color="#B0B0B0", linewidth=0.8, zorder=0)
    for position, gains in own.items():
        dots = gains[:: math.ceil(len(gains) / MOST_DOTS)]
        aside = SPREAD * (np.arange(1, len(dots) + 1) * GOLDEN % 1 - 0.5) if len(dots) > 1 else 0.0
        places = np.full(len(dots), position - ASIDE) + aside
        axes.scatter(places, dots, s=14, color=told.colours[kind], edgecolor="#444444", linewidth=0.25, alpha=0.75)
        axes.errorbar(
            position + ASIDE, np.mean(gains), np.std(gains), color="black", fmt="D", markersize=4, capsize=2.5
        )
        axes.text(
            position, 0.99, f"n={len(gains)}",
            transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=7, color="#555555",
        )  # fmt: skip
    axes.set_title(literal("\n".join(textwrap.wrap(told.names[kind], 22))), fontsize=9)
    axes.set_xlim(0.5, told.longest + 0.5)
    axes.set_xticks(range(1, told.longest + 1))
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
