"""The neighbours worth keeping out of all that were swept, compiled."""

from __future__ import annotations

import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.problem.compiled import Array, rate_one

DOUBT = 1e-5  # sums of a sweep are rounded otherwise than those of a single row, which may be sums in float32


@kernel
def pick(
    parents: Array, own: Array, parts: Array, tops: Array, c: float, choices: tuple[Array, ...], wanted: Array,
    held: Array, sums: Array, targets: Array, bar: float, most: int,
) -> tuple[Array, Array, Array, Array, Array]:  # fmt: skip
    """Return the neighbours worth keeping: parent, choice, favourable or not (-1: in doubt), grade, distance.

    The distance may be off by what rounding makes of another order of adding up.

    Args:
        parents: (p, G) codes; parts, tops: (p, G) what they add to the distance, of which c times the largest top.
        own: (G,) codes of the row to explain.
        choices: code, part, top and start of `Choices`.
        wanted: (p, G) which groups of which parents are changed.
        held: (p, choices) whether the rules over several groups hold.
        sums: (p, choices, k) of the neighbours, rated against `targets`.
        bar: only what is nearer counts.
        most: groups that may change.
    """
    code, part, top, start = choices
    scores = np.empty(targets["classes"].max())
    found, count = np.empty((5, sums.shape[0] * sums.shape[1])), 0
    for parent in range(len(parents)):
        base, changes = parts[parent].sum(), (parents[parent] != own).sum()
        for group in range(own.size):
            if not wanted[parent, group]:
                continue
            highest = 0.0
            if c > 0:
                for other in range(own.size):
                    highest = max(highest, tops[parent, other] if other != group else 0.0)
            others, rest, best = changes - (parents[parent, group] != own[group]), base - parts[parent, group], -1.0
            for at in range(start[group], start[group + 1]):
                far = rest + part[at] + c * max(highest, top[at])
                if far >= bar:
                    break
                changed = others + (code[at] != own[group])
                if not held[parent, at] or code[at] == parents[parent, group] or not 0 < changed <= most:
                    continue
                favourable, grade, margin = rate_one(sums[parent, at], targets, scores)
                doubtful = margin < DOUBT
                if doubtful or favourable or grade > best:
                    found[0, count], found[1, count], found[3, count], found[4, count] = parent, at, grade, far
                    found[2, count] = -1 if doubtful else favourable
                    best, count = max(grade, best), count + 1
                if favourable and not doubtful:
                    break
    whole: Array = found[:2, :count].astype(np.intp)
    return whole[0], whole[1], found[2, :count], found[3, :count], found[4, :count]
