"""Where favourable rows lie: learned from the background once, a region of hulls for every row to explain."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from mlflow_cf.errors import InputError
from mlflow_cf.explainers.learned import Facts, Learned, known_labels
from mlflow_cf.features import Floats
from mlflow_cf.features.embedding import Embedding
from mlflow_cf.goal.raw_scores import SumTarget
from mlflow_cf.milp.manifold import Enlarged, Region, corners
from mlflow_cf.problem import Budget, Problem

Rows = NDArray[np.integer[Any]]

MOST_POINTS: Final = 2_000
MOST_KNOWN: Final = 20  # points handed over as answers
MOST_LATE: Final = 100  # of the nearest points, which are looked at even when the clock has run out: 1 ms
AT_ONCE: Final = 4_096  # rows whose vectors are in memory together
STARTS: Final = 10  # of k-means, the best of which is kept
ROWS: Final = "rows"
LABELS: Final = "labels"
CENTRES: Final = "hulls"


def learn_region(facts: Facts, clusters: int) -> Learned:
    """Learn how rows become vectors, which are distinct, what the label of each is, and the centres of `clusters`.

    The labels are those of training, or else what the model says. Centres are those of the rows that meet the policy's
    target (k-means, seeded).
    """
    embedding, labels = Embedding.fit(facts.space, facts.background), known_labels(facts)
    known = np.where(np.isnan(facts.background), np.inf, facts.background)
    _, first = np.unique(np.column_stack([labels, known]), axis=0, return_index=True)
    rows = np.sort(first)
    centres = np.empty((0, embedding.width))
    if clusters > 1:
        favourable = rows[_meets(labels[rows], _wanted(facts))]
        centres = _centres(embedding.vectors(facts.background[favourable]), clusters, facts.seed)
    return Learned({**embedding.to_arrays(), ROWS: rows, LABELS: labels[rows], CENTRES: centres})


def check_learned(learned: Learned) -> None:
    """Refuse what `learn_region` did not write.

    Raises:
        KeyError, ValueError: something is missing, or does not go together.
    """
    rows, labels, centres = (learned.arrays[name] for name in (ROWS, LABELS, CENTRES))
    width = learned.arrays["centre"].shape
    sound = rows.ndim == 1 and rows.dtype.kind == "i" and rows.shape == labels.shape and bool((rows >= 0).all())
    sound = sound and centres.ndim == 2 and learned.arrays["level_weight"].shape == ()
    if not sound or any(learned.arrays[name].shape != width for name in ("scale", "fill")):
        raise ValueError("what is no region")


def favourable_rows(learned: Learned, problem: Problem) -> Rows:
    """Return those rows of the background with the wanted label that are nearest to a problem's row.

    Raises:
        InputError: no background row has the label that is wanted.
    """
    target = None if problem.scorer is None else problem.scorer.targets[0]
    rows, labels = learned.arrays[ROWS], learned.arrays[LABELS]
    favourable = rows[:0] if target is None else rows[_meets(labels, target)]
    if not len(favourable):
        raise _empty()
    return _nearest(Embedding.from_arrays(problem.space, learned.arrays), problem.background, favourable, problem.x0)


def region_of(learned: Learned, problem: Problem, near: Rows, enlarged: Enlarged) -> Region:
    """Return the region for the row of a problem, made of the corners of the hulls of the background rows `near` it."""
    embedding, centres = Embedding.from_arrays(problem.space, learned.arrays), learned.arrays[CENTRES]
    points = embedding.vectors(problem.background[near])
    clusters = cdist(points, centres).argmin(axis=1) if len(centres) else np.zeros(len(points), dtype=np.intp)
    hulls = (np.flatnonzero(clusters == cluster) for cluster in np.unique(clusters))
    kept = np.sort(np.concatenate([hull[corners(points[hull])] for hull in hulls]))
    return Region(embedding, points[kept], clusters[kept], enlarged, whole=len(near) < MOST_POINTS)


def known_inside(problem: Problem, near: Rows, budget: Budget) -> Floats:
    """Return those of the background rows `near` that meet the target and all constraints, nearest first, a few."""
    rows = problem.background[near]
    rows = rows[problem.check(rows)]
    distance = problem.bound_distance.distance(problem.columns, rows, problem.x0)
    rows = rows[np.argsort(distance, kind="stable")]
    rows = rows[: budget.take(len(rows)) or budget.take(min(len(rows), MOST_LATE), even_late=True)]
    return np.asarray(rows[problem.rate(rows).favourable][:MOST_KNOWN] if len(rows) else rows)


def _nearest(embedding: Embedding, background: Floats, rows: Rows, x0: Floats) -> Rows:
    """Return those of some rows of the background that are nearest to x0 (d,), no more than `MOST_POINTS`."""
    if len(rows) <= MOST_POINTS:
        return rows
    own = embedding.vectors(x0[None])
    parts = (embedding.vectors(background[rows[start : start + AT_ONCE]]) for start in range(0, len(rows), AT_ONCE))
    away = np.concatenate([((part - own) ** 2).sum(axis=1) for part in parts])
    return rows[np.sort(np.argsort(away, kind="stable")[:MOST_POINTS])]


def check_region(facts: Facts) -> None:
    """Refuse the hull of a class that no row has.

    Raises:
        InputError: none has it.
    """
    if not _meets(known_labels(facts), _wanted(facts)).any():
        raise _empty()


def _empty() -> InputError:
    fact = "no row of the background has the label that is wanted"
    return InputError("explainer.manifold", fact, 'pass labels that have it, or use "none"')


def _wanted(facts: Facts) -> SumTarget:
    """Return the policy's target."""
    return facts.target.of_sums("identity", 0, len(facts.target.model.classes) or 1)


def _meets(labels: Floats, target: SumTarget) -> NDArray[np.bool_]:
    """Return (n,) which labels or values are wanted."""
    met: NDArray[np.bool_] = labels == target.column
    if target.kind == "interval":
        met = (labels >= target.low) & (labels <= target.high)
    elif target.kind == "other":
        met = (labels >= 0) & ~met
    return met


def _centres(points: Floats, clusters: int, seed: int) -> Floats:
    """Return the centres (c, width) of clusters; none where all points (n, width) are one."""
    points = np.unique(points, axis=0)
    if len(points) <= 1:
        return np.empty((0, points.shape[1]))
    from sklearn.cluster import KMeans  # noqa: PLC0415  half a second that no server needs

    found = KMeans(min(clusters, len(points)), n_init=STARTS, random_state=seed % 2**32).fit(points)
    centres: Floats = np.asarray(found.cluster_centers_, dtype=np.float64)
    return centres
