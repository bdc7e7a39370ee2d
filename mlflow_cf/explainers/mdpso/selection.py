"""Which of the rows that a swarm has found are told first: one of each cluster (MD-PSO section 5)."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.mdpso.fitness import Fitness
from mlflow_cf.features import Floats

Pick = Literal["sparse", "best", "random", "nearest"]
Rows = NDArray[np.intp]
STARTS: Final = 10  # of k-means, the best of which is kept
MOST_ROUNDS: Final = 100
SPARES: Final = 10  # for each answer that is wanted


def picked(vectors: Floats, fitness: Fitness, count: int, pick: Pick, rng: np.random.Generator) -> Rows:
    """Return the order (m,) of rows: one of each of `count` clusters, then the rest by fitness.

    Args:
        vectors: (m, w) of distinct valid rows.
        fitness: of each.
        count: how many answers are wanted; for one there are no clusters.
        pick: of each cluster one at ``random``, or else the best; ``nearest``: no clusters, all by fitness.
        rng: source of randomness.
    """
    order = fitness.order
    if count <= 1 or len(vectors) <= count or pick == "nearest":
        return order
    clusters = k_means(vectors, count, rng)
    rank = np.argsort(order, kind="stable")
    first = []
    for cluster in np.unique(clusters):
        members = np.flatnonzero(clusters == cluster)
        chosen = rng.choice(members) if pick == "random" else members[rank[members].argmin()]
        first.append(int(chosen))
    first.sort(key=lambda row: int(rank[row]))
    return np.concatenate([np.array(first, dtype=np.intp), order[~np.isin(order, first)]])


def spares(changed: Bools, beside: Bools, count: int) -> Rows:
    """Return some of the rows that change the groups `beside` (n, G), to stand behind answers that change `changed`.

    Those whose changes contain none of those before come first: what contains others may turn into them once needless
    changes are undone, and to prove that costs calls of the model. Then a few more, as they come.
    """
    minimal: list[int] = []
    known = np.unique(changed, axis=0)
    _, first = np.unique(np.packbits(beside, axis=1), axis=0, return_index=True)
    for row in np.sort(first).tolist():
        flags = beside[row]
        if len(minimal) == SPARES * count:
            break
        if not (known <= flags).all(axis=1).any():
            minimal.append(row)
            known = np.concatenate([known, flags[None]])
    others = np.setdiff1d(np.arange(min(len(beside), SPARES * count)), minimal)
    return np.concatenate([np.array(minimal, dtype=np.intp), others])


def k_means(points: Floats, clusters: int, rng: np.random.Generator) -> Rows:
    """Return the cluster (m,) of each point (m, w): k-means++ and Lloyd's rounds, the best of ten starts.

    Far fewer points than a general implementation is made for: all starts move at once, and nothing is imported.
    """
    centres = np.stack([_start(points, clusters, rng) for _ in range(STARTS)])
    nearest = np.full((STARTS, len(points)), -1)
    for _ in range(MOST_ROUNDS):
        away = _squares(points, centres)
        found = away.argmin(axis=2)
        if (found == nearest).all():
            break
        nearest = found
        member = (nearest[:, :, None] == np.arange(clusters)).astype(np.float64)
        sizes = member.sum(axis=1)[:, :, None]
        centres = np.where(sizes > 0, member.swapaxes(1, 2) @ points / np.maximum(sizes, 1.0), centres)
    within = _squares(points, centres).min(axis=2).sum(axis=1)
    return np.asarray(nearest[within.argmin()])


def _start(points: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """Return centres (k, w) far apart: each is a point, likelier the farther it is from those before (k-means++)."""
    chosen = [int(rng.integers(len(points)))]
    away = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < clusters:
        total = away.cumsum()
        at = int(np.searchsorted(total, rng.random() * total[-1], side="right")) if total[-1] > 0 else 0
        chosen.append(min(at, len(points) - 1))
        away = np.minimum(away, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen]


def _squares(points: Floats, centres: Floats) -> Floats:
    """Return the squared distances (s, m, k) of points (m, w) from the centres (s, k, w) of every start."""
    found: Floats = ((points[None, :, None, :] - centres[:, None, :, :]) ** 2).sum(axis=3)
    return found
