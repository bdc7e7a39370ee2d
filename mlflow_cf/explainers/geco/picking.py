"""The neighbours worth keeping out of all that were swept, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.thresholds import SWEPT
from mlflow_cf.goal.raw_scores import Targets, lacking, rate_sums, rounding
from mlflow_cf.kernel import kernel
from mlflow_cf.problem.action_table import ActionArrays, Within

Array = NDArray[Any]


class Parents(NamedTuple):
    """Candidates (p, G) by code, and what their actions add to the distance."""

    codes: Array
    costs: Array
    peaks: Array


class PickedGroups(NamedTuple):
    """Which groups (p, G) of which candidates to change, and (p, actions) where the rules over several groups hold."""

    groups: Array
    held: Array


class ActionScores(NamedTuple):
    """What every action of every candidate (p, actions) lacks, and a verdict where that is next to nothing.

    The verdict is 1 for favourable, 0 for not, -1 in doubt; `near` is what is next to nothing.
    """

    lacks: Array
    verdict: Array
    near: float


def pick(
    parents: Parents, flat: ActionArrays, wanted: PickedGroups, sums: Array, targets: Targets, within: Within
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the neighbours worth keeping: parent, action, favourable or not (-1: in doubt), shortfall, distance.

    The distance may be off by what rounding makes of another order of adding up.

    Args:
        parents: whose neighbours; flat: what their groups may take.
        wanted: which neighbours.
        sums: (p, actions, k) of the neighbours, rated against `targets`; NaN where nothing is wanted.
        within: only what is nearer counts, and changes no more groups.
    """
    found = np.empty((5, sums.shape[0] * sums.shape[1]))
    count = pick_into(parents, flat, wanted, _rated(sums, targets), within, found)
    whole: Array = found[:2, :count].astype(np.intp)
    return whole[0], whole[1], found[2, :count], found[3, :count], found[4, :count]


def _rated(sums: Array, targets: Targets) -> ActionScores:
    """Rate all sums (p, actions, k), also those of no action that is wanted: to select these takes longer."""
    flat = sums.reshape(-1, sums.shape[2])
    lacks, verdict = lacking(flat, targets), np.zeros(len(flat), np.int8)
    near = rounding(flat, targets, SWEPT)
    close = np.flatnonzero(np.abs(lacks) <= near)  # of others no exponentials are needed to tell
    favourable, _, margin = rate_sums(flat[close], targets)
    verdict[close] = np.where(margin < SWEPT, -1, favourable)
    return ActionScores(lacks.reshape(sums.shape[:2]), verdict.reshape(sums.shape[:2]), near)


@kernel
def pick_into(
    parents: Parents, flat: ActionArrays, wanted: PickedGroups, rated: ActionScores, within: Within, found: Array
) -> int:
    """Write what `pick` returns into the lines of `found`, and return how many there are."""
    code, cost, peak, start, own = flat.code, flat.cost, flat.peak, flat.start, flat.own_code
    c, cutoff, most, count = within.c, within.limit, within.most, 0
    for parent in range(len(parents.codes)):
        mine, costs, peaks = parents.codes[parent], parents.costs[parent], parents.peaks[parent]
        base, changes = 0.0, 0
        for group in range(own.size):
            base += costs[group]
            changes += mine[group] != own[group]
        for group in range(own.size):
            if not wanted.groups[parent, group]:
                continue
            highest = 0.0
            if c > 0:
                for other in range(own.size):
                    highest = max(highest, peaks[other] if other != group else 0.0)
            others, rest, best = changes - (mine[group] != own[group]), base - costs[group], np.inf
            for at in range(start[group], start[group + 1]):
                far = rest + cost[at] + c * max(highest, peak[at])
                if far >= cutoff:
                    break
                changed = others + (code[at] != own[group])
                if not wanted.held[parent, at] or code[at] == mine[group] or not 0 < changed <= most:
                    continue
                lacks = rated.lacks[parent, at]
                verdict = np.int8(lacks < 0)
                if abs(lacks) <= rated.near:
                    verdict = rated.verdict[parent, at]
                lacks = max(lacks, 0.0) if lacks == lacks else np.inf  # noqa: PLR0124  NaN
                if verdict != 0 or lacks < best:
                    found[0, count], found[1, count], found[2, count] = parent, at, verdict
                    found[3, count], found[4, count] = lacks, far
                    best, count = min(lacks, best), count + 1
                if verdict > 0:
                    break
    return count
