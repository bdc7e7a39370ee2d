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
    """Return the cluster (m,) of each point (m, w)."""
    from sklearn.cluster import KMeans  # noqa: PLC0415  half a second that no server needs
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    clusters = min(clusters, len(np.unique(points, axis=0)))
    kept = KMeans(clusters, n_init=STARTS, random_state=int(rng.integers(2**32)))
    with threadpool_limits(1, user_api="openmp"):  # with more, sums differ in the last bit, and few points take longer
        return np.asarray(kept.fit_predict(points), dtype=np.intp)
