"""How much the prediction gains by an action where it stands in a plan (Naumann and Ntoutsi 2021, Fig. 6)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mlflow_cf.errors import InputError
from mlflow_cf.plots.told import COLOURS, ToldPlans, literal, told_plans
from mlflow_cf.words.result import Explanation

MOST_COLUMNS: Final = 4  # panels side by side
MOST_DOTS: Final = 200  # of one action at one position
ASIDE: Final = 0.15  # dots stand so far left of their position, mean and deviation so far right
SPREAD: Final = 0.3  # of the dots
GOLDEN: Final = (math.sqrt(5) - 1) / 2  # multiples of it scatter evenly without chance


@dataclass(frozen=True)
class Effect:
    """What one action does at one position.

    Attributes:
        gains: how much the probability of the wanted label rises, in each plan, ascending.
    """

    gains: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return math.fsum(self.gains) / len(self.gains)

    @property
    def deviation(self) -> float:
        """Their standard deviation; 0 of a single one."""
        return float(np.std(self.gains))


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
        own = {position: effect for (of, position), effect in found.items() if of == kind}
        _draw(axes, own, told, kind)
        if number + columns >= len(kinds):
            axes.set_xlabel("position in the plan", fontsize=8)
    for axes in panels[:, 0]:
        axes.set_ylabel("change of the probability", fontsize=8)
    for axes in panels.flat[len(kinds) :]:
        axes.set_visible(False)
    panels[0, 0].set_ylim(_reach(found.values()))
    figure.suptitle("How the wanted label's probability changes with each action", fontsize=11)
    _legend(figure)
    return figure


def effects(told: ToldPlans) -> dict[tuple[int, int], Effect]:
    """Return what each action does at each position, as far as that is known."""
    gains = dict[tuple[int, int], list[float]]()
    for step in (step for plan in told.plans for step in plan):
        if step.gain is not None:
            gains.setdefault((step.kind, step.position), []).append(step.gain)
    return {place: Effect(tuple(sorted(known))) for place, known in sorted(gains.items())}


def _draw(axes: Axes, own: Mapping[int, Effect], told: ToldPlans, kind: int) -> None:
    axes.axhline(0, color="#B0B0B0", linewidth=0.8, zorder=0)
    for position, effect in own.items():
        gains = effect.gains[:: math.ceil(len(effect.gains) / MOST_DOTS)]
        aside = SPREAD * (np.arange(1, len(gains) + 1) * GOLDEN % 1 - 0.5) if len(gains) > 1 else 0.0
        places = np.full(len(gains), position - ASIDE) + aside
        axes.scatter(places, gains, s=14, color=told.colours[kind], edgecolor="#444444", linewidth=0.25, alpha=0.75)
        axes.errorbar(
            position + ASIDE, effect.mean, effect.deviation, color="black", fmt="D", markersize=4, capsize=2.5
        )
        axes.text(
            position, 0.99, f"n={len(effect.gains)}",
            transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=7, color="#555555",
        )  # fmt: skip
    axes.set_title(literal("\n".join(textwrap.wrap(told.names[kind], 22))), fontsize=9)
    axes.set_xlim(0.5, told.longest + 0.5)
    axes.set_xticks(range(1, told.longest + 1))
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _reach(found: Iterable[Effect]) -> tuple[float, float]:
    """Return where the vertical axis begins and ends, with room for the numbers of plans above."""
    ends = [0.0]
    for effect in found:
        ends += [effect.gains[0], effect.gains[-1], effect.mean - effect.deviation, effect.mean + effect.deviation]
    low, high = min(ends), max(ends)
    span = max(high - low, 0.05)
    return low - 0.06 * span, high + 0.2 * span


def _legend(figure: Figure) -> None:
    dot = Line2D([], [], marker="o", linestyle="none", markersize=4, color=COLOURS[-1], alpha=0.75)
    mean = Line2D([], [], marker="D", markersize=4, color="black", linewidth=1.2)
    labels = ["one plan", "mean and standard deviation of n plans"]
    figure.legend([dot, mean], labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
