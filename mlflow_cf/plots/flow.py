"""Which action stands at which position of plans, and what follows it (Naumann and Ntoutsi 2021, Fig. 5)."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path

from mlflow_cf.plots.told import ToldPlans, ToldStep, ink, literal, told_plans
from mlflow_cf.words.result import Explanation

GAP: Final = 0.02  # between the blocks of a column, whose plans are 1 high together
WIDTH: Final = 0.5  # of a block; columns are 1 apart
LOW: Final = 0.03  # a lower block has no label
TALL: Final = 0.08  # one that is not as tall has no room for a name
LINE: Final = 0.04  # more for each further line of it
NAME_WIDTH: Final = 14  # characters of a line
MOST_LABELLED: Final = 10  # positions that leave blocks wide enough for labels
END_COLOUR: Final = "#E3E3E3"


@dataclass(frozen=True)
class Block:
    """The plans that have one action at a position, or that ended before it.

    Attributes:
        position: from 1; kind: the number of the action, or None where plans have ended.
        share: of all plans.
        top: where the block begins, downwards.
    """

    position: int
    kind: int | None
    share: float
    top: float


@dataclass(frozen=True)
class Ribbon:
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
    number = len(told.plans)
    size = (2.6 + 1.9 * min(told.longest, MOST_LABELLED), 5.4 if number > 1 else 2.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    for ribbon in ribbons(told, blocks):
        _draw_ribbon(axes, ribbon, _colour(told, ribbon.source.kind))
    for block in blocks:
        _draw_block(axes, block, told)
    bottom = max(block.top + block.share for block in blocks)
    axes.set(
        xlim=(1 - WIDTH, told.longest + WIDTH), ylim=(bottom + GAP, -GAP), xlabel="position in the plan", yticks=[]
    )
    axes.set_xticks(range(1, told.longest + 1))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"The order of actions in {f'{number:,} plans' if number > 1 else 'a plan'}")
    _legend(figure, told, blocks)
    return figure


def stacked(told: ToldPlans) -> list[Block]:
    """Return the blocks of all positions, column by column, ends last."""
    blocks = list[Block]()
    for position in range(1, told.longest + 1):
        often = Counter(_kind(plan, position) for plan in told.plans if len(plan) >= position - 1)
        top = 0.0
        for kind in sorted(often, key=_rank):
            share = often[kind] / len(told.plans)
            blocks.append(Block(position, kind, share, top))
            top += share + GAP
    return blocks


def ribbons(told: ToldPlans, blocks: Sequence[Block]) -> list[Ribbon]:
    """Return what leads from block to block; ribbons of a block lie in the order of the blocks at their other ends."""
    at = {(block.position, block.kind): block for block in blocks}
    steps = [(position, plan) for plan in told.plans for position in range(1, min(len(plan) + 1, told.longest))]
    often = Counter((position, _kind(plan, position), _kind(plan, position + 1)) for position, plan in steps)
    left, entered = dict[Block, float](), dict[Block, float]()
    found = list[Ribbon]()
    for position, first, second in sorted(often, key=lambda move: (move[0], _rank(move[1]), _rank(move[2]))):
        source, target = at[position, first], at[position + 1, second]
        share = often[position, first, second] / len(told.plans)
        leaves, enters = left.get(source, source.top), entered.get(target, target.top)
        found.append(Ribbon(source, target, share, leaves, enters))
        left[source], entered[target] = leaves + share, enters + share
    return found


def _kind(plan: Sequence[ToldStep], position: int) -> int | None:
    return plan[position - 1].kind if position <= len(plan) else None


def _rank(kind: int | None) -> float:
    return math.inf if kind is None else kind


def _draw_ribbon(axes: Axes, ribbon: Ribbon, fill: str) -> None:
    left, right = ribbon.source.position + WIDTH / 2, ribbon.target.position - WIDTH / 2
    middle = (left + right) / 2
    upper = [(left, ribbon.leaves), (middle, ribbon.leaves), (middle, ribbon.enters), (right, ribbon.enters)]
    lower = [(x, y + ribbon.share) for x, y in reversed(upper)]
    curve = [Path.CURVE4] * 3
    codes = [Path.MOVETO, *curve, Path.LINETO, *curve, Path.CLOSEPOLY]
    path = Path([*upper, *lower, upper[0]], codes)
    axes.add_patch(PathPatch(path, facecolor=fill, alpha=0.4, linewidth=0))


def _draw_block(axes: Axes, block: Block, told: ToldPlans) -> None:
    """Draw a block, with its share, and its name where there is room."""
    corner = (block.position - WIDTH / 2, block.top)
    fill = _colour(told, block.kind)
    axes.add_patch(Rectangle(corner, WIDTH, block.share, facecolor=fill, edgecolor="white", linewidth=0.5))
    if block.share < LOW or told.longest > MOST_LABELLED:
        return
    name = "end" if block.kind is None else told.names[block.kind]
    lines = textwrap.wrap(name, NAME_WIDTH)
    room = block.share >= TALL + LINE * (len(lines) - 1)
    label = "\n".join([*(lines if room else []), f"{block.share:.0%}"])
    axes.text(
        block.position, block.top + block.share / 2, literal(label),
        ha="center", va="center", fontsize=7.5, linespacing=1.05, color=ink(fill),
    )  # fmt: skip


def _legend(figure: Figure, told: ToldPlans, blocks: Sequence[Block]) -> None:
    kinds = sorted({block.kind for block in blocks}, key=_rank)
    patches = [Patch(facecolor=_colour(told, kind)) for kind in kinds]
    names = ["end of the plan" if kind is None else literal(told.names[kind]) for kind in kinds]
    figure.legend(patches, names, loc="outside right center", frameon=False, fontsize=9, title="action")


def _colour(told: ToldPlans, kind: int | None) -> str:
    return END_COLOUR if kind is None else told.colours[kind]
