"""The neighbours worth keeping out of all that were swept, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.problem.compiled import Array, rate_one, shortfall_of
from mlflow_cf.search.choices import Flat, Within


class Parents(NamedTuple):
    """Candidates (p, G) by code, and what their tuples add to the distance."""

    codes: Array
    costs: Array
    peaks: Array


class Wanted(NamedTuple):
    """Which groups (p, G) of which candidates to change, and (p, choices) where the rules over several groups hold."""

    groups: Array
    held: Array


class Rated(NamedTuple):
    """Sums (p, choices, k), what they are rated against, and room for the scores of one."""

    sums: Array
    targets: Array
    scores: Array


DOUBT = 1e-5  # sums of a sweep are rounded otherwise than those of a single row, which may be sums in float32


NEAR = 1e-2  # a shortfall beyond this is no matter of rounding, where labels alone are compared


def pick(
    parents: Parents, flat: Flat, wanted: Wanted, sums: Array, targets: Array, within: Within
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the neighbours worth keeping: parent, choice, favourable or not (-1: in doubt), shortfall, distance.

    The distance may be off by what rounding makes of another order of adding up.

    Args:
        parents: whose neighbours; flat: what their groups may take.
        wanted: which neighbours.
        sums: (p, choices, k) of the neighbours, rated against `targets`.
        within: only what is nearer counts, and changes no more groups.
    """
    found, scores = np.empty((5, sums.shape[0] * sums.shape[1])), np.empty(targets["classes"].max())
    count = pick_into(parents, flat, wanted, Rated(sums, targets, scores), within, found)
    whole: Array = found[:2, :count].astype(np.intp)
    return whole[0], whole[1], found[2, :count], found[3, :count], found[4, :count]


@kernel
def pick_into(parents: Parents, flat: Flat, wanted: Wanted, rated: Rated, within: Within, found: Array) -> int:
    """Write what `pick` returns into the lines of `found`, and return how many there are."""
    code, cost, peak, start, own = flat.code, flat.cost, flat.peak, flat.start, flat.own_code
    c, bar, most, count, near = within.c, within.limit, within.most, 0, NEAR
    for number in range(rated.targets.size):
        near = np.inf if rated.targets[number].least > 0 else near
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
                if far >= bar:
                    break
                changed = others + (code[at] != own[group])
                if not wanted.held[parent, at] or code[at] == mine[group] or not 0 < changed <= most:
                    continue
                favourable, doubtful, lacks = False, False, shortfall_of(rated.sums[parent, at], rated.targets)
                if lacks <= near:  # what is farther off needs no exponentials to be told apart
                    favourable, _, margin = rate_one(rated.sums[parent, at], rated.targets, rated.scores)
                    doubtful = margin < DOUBT
                if doubtful or favourable or lacks < best:
                    found[0, count], found[1, count], found[3, count], found[4, count] = parent, at, lacks, far
                    found[2, count] = -1 if doubtful else favourable
                    best, count = min(lacks, best), count + 1
                if favourable and not doubtful:
                    break
    return count
