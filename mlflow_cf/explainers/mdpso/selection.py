"""Which of the rows that a swarm has found are told first: one of each cluster (MD-PSO section 5), or sparse ones.

`sparse` ones have few changes of few deviations, as the paper measures proximity and sparsity (section 6). By the
ranges of numbers, which have long tails, an answer that changes another feature by hundreds of deviations comes before
a second value of a feature that needs little change; and so for every feature more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.mdpso.landed import Fitness
from mlflow_cf.features import Floats
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance, Budget, Codes, Problem
from mlflow_cf.search.more_sets import LEAST_EVALUATIONS, SPARE, MoreSets
from mlflow_cf.search.population import near_copies
from mlflow_cf.unlogged import unlogged

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
        return np.asarray(unlogged(kept.fit_predict, points), dtype=np.intp)


# In median absolute deviations. Five answers each to 25 rows of COMPAS, geometric means of proximity and sparsity as
# shares of random search's: on 11 forests .40 and .95 where a change counts 3, sparser on 8 of them, .46 and .88
# where it counts 5, sparser on all; on 19 forests .36 and .86 where it counts 6, nearer and sparser on all.
CHANGE: Final = 6.0  # what a changed feature counts
# What an answer counts beside that changes the same features as a nearer one. Without this, and 5 for a change, the 11
# forests have 2.8 distinct sets of changed features among five answers instead of 3.1.
AGAIN: Final = 1.0
MOST_TRIES: Final = 4  # of picking others in place of what has a redundant change


def sparse(problem: Problem, budget: Budget, known: Codes) -> tuple[Codes, Codes]:
    """Return as many picks (k, G) as are wanted or there are, the nearest one first, and others to stand behind them.

    Args:
        problem: the row to explain, with the number of answers that are wanted.
        budget: at most as many evaluations are taken as before, and never what proving the answers may need.
        known: (m, G) favourable candidates.
    """
    proof = (2 * problem.count + SPARE) * (1 + problem.most_changes)
    most = max(budget.left // 2, budget.left - proof)
    part = budget.part(min(max(budget.used, LEAST_EVALUATIONS), most))
    search = MoreSets(in_deviations(problem), part, known)
    search.run()
    budget.take(part.used)
    pool, leads = search.pool()
    redundant = search.redundant(pool)
    picks = _picks(problem, search.problem, pool, leads, ~redundant)
    for _ in range(MOST_TRIES):
        redundant[picks] = search.redundant(pool[picks], budget)
        if not redundant[picks].any():
            break
        redundant |= search.redundant(pool)  # of what is known now
        picks = _picks(problem, search.problem, pool, leads, ~redundant)
    picks = picks[~redundant[picks]]
    return pool[picks], search.answers.codes[~np.isin(np.arange(len(search.answers)), picks)]


def left_by_sparse(budget: Budget) -> int:
    """Return how many evaluations the swarm may take, so that `sparse` can look for several answers: at least half."""
    return max(budget.left // 2, budget.left - LEAST_EVALUATIONS)


def in_deviations(problem: Problem) -> Problem:
    """Return the problem with the distance `CHANGE` * changed features + sum of changes in deviations, up to a factor.

    A change of levels is one deviation; the weights of features are those of the problem's own distance.
    """
    total = CHANGE + 1
    distance = BoundDistance.bind(Distance(CHANGE / total, 1 / total, 0.0, scale="mad"), problem.space)
    distance = replace(distance, weights=problem.bound_distance.weights)
    groups = []
    for group in problem.groups:
        cost, peak = distance.parts(group.columns, group.actions, problem.x0[list(group.columns)])
        groups.append(group.taking(group.bound._replace(cost=cost, peak=peak)))
    return replace(problem, groups=tuple(groups), bound_distance=distance)


def _picks(problem: Problem, measured: Problem, pool: Codes, leads: Bools, kept: Bools) -> Codes:
    """Return positions of picks among favourable candidates (m, G): the nearest, then by deviations, no near-copies.

    Args:
        problem: with its own distance; measured: the same in deviations.
        pool: the candidates; leads: (m,) which are the best of what they change; kept: (m,) which may be picked.
    """
    again = AGAIN / (CHANGE + 1) / measured.bound_distance.all_weights
    order = np.lexsort((~leads, measured.distance(pool) + again * ~leads))
    if len(pool):
        order = np.append(np.where(kept, problem.distance(pool), np.inf).argmin(), order)
    rows = problem.rows(pool)
    chosen: list[int] = []
    while len(chosen) < problem.count and kept.any():
        chosen.append(int(order[kept[order].argmax()]))
        kept = kept & ~near_copies(problem, rows, rows[chosen[-1]])
    return np.array(chosen, dtype=np.intp)
