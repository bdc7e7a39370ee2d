"""Convex hulls of favourable background rows, in which CE-OCL keeps its answers (the data manifold).

``x + s = sum(lambda_i * point_i)``, ``sum(lambda) = 1``, ``lambda >= 0`` and ``|s| <= eps`` (CE-OCL section 2.1), over
numbers scaled by their range and one coordinate for each level. What the hulls are made of is learned from the
background once; every row to explain has a region of its own, made of the points nearest to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, csr_array, eye_array

from mlflow_cf.errors import InputError
from mlflow_cf.explainers.explainer import Facts, Learned, known_labels
from mlflow_cf.features import Floats
from mlflow_cf.features.embedding import Embedding
from mlflow_cf.goal.targets import SumTarget
from mlflow_cf.milp.program import Affine, Columns, Entries, Program, total
from mlflow_cf.milp.variables import Chosen, Variables
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.unlogged import unlogged

Rows = NDArray[np.integer[Any]]

MOST_POINTS: Final = 2_000
MOST_KNOWN: Final = 20  # points handed over as answers
MOST_LATE: Final = 100  # of the nearest points, which are looked at even when the clock has run out: 1 ms
AT_ONCE: Final = 4_096  # rows whose vectors are in memory together
STARTS: Final = 10  # of k-means, the best of which is kept
ROWS: Final = "rows"
LABELS: Final = "labels"
CENTRES: Final = "hulls"

PENALTY: Final = 1e5  # of leaving the hull, as in the paper's code
MOST_DIMENSIONS: Final = 5  # of a hull whose corners are looked for: 0.06 s for 2,000 points; 1.1 s with one more

Norm = Literal["l1", "l2", "linf"]


@dataclass(frozen=True)
class Enlarged:
    """By how much a hull is enlarged.

    Attributes:
        eps: the largest distance from the hull in scaled coordinates.
        norm: how it is measured. For ``l2`` the ball of ``l1`` stands, which lies inside of that of ``l2``: every
            answer is sound, some are missed.
        penalty: what each unit of that distance (``l1``) costs instead, however far; 0: `eps` holds.
    """

    eps: float = 0.0
    norm: Norm = "l1"
    penalty: float = 0.0


@dataclass(frozen=True, eq=False)
class Region:
    """Hulls of points, in one of which an answer must lie.

    Attributes:
        embedding: how rows become vectors.
        points: (n, width) vectors, n >= 1, distinct; clusters: (n,) the hull that each belongs to.
        enlarged: by how much the hulls are enlarged.
        whole: whether these are all points; of fewer, hulls are smaller, and that nothing is in them proves nothing.
    """

    embedding: Embedding
    points: Floats
    clusters: NDArray[np.intp]
    enlarged: Enlarged = Enlarged()
    whole: bool = True

    @property
    def exact(self) -> bool:
        """Whether it leaves out no row that is asked for and adds no price, so that bounds and proofs of none hold."""
        return self.whole and not self.enlarged.penalty and (self.enlarged.norm != "l2" or not self.enlarged.eps)

    def add(self, program: Program, variables: Variables) -> None:
        """Require that the new row lies in one of the hulls, or near it."""
        shares = self._add_shares(program)
        slack = self._add_slack(program)
        place, at = np.nonzero(self.points)
        mixture = Entries(at, shares[place], -self.points[place, at])
        program.require(_coordinates(variables, self.embedding), 0.0, 0.0, mixture, slack)

    def apart(self, vector: Floats) -> float:
        """Return the distance of a vector (width,) from the nearest hull, by the region's norm; ``l1`` for ``l2``."""
        return min(self._apart(vector, self.points[self.clusters == cluster]) for cluster in np.unique(self.clusters))

    def _apart(self, vector: Floats, points: Floats) -> float:
        from scipy.optimize import linprog  # noqa: PLC0415  a server loads faster without

        width, count = len(vector), len(points)
        slacks = 1 if self.enlarged.norm == "linf" else width
        spread = csr_array(np.ones((width, 1))) if slacks == 1 else eye_array(width)
        here = csr_array(points.T)
        found = linprog(
            np.append(np.zeros(count), np.ones(slacks)),
            A_ub=block_array([[here, -spread], [-here, -spread]]),
            b_ub=np.append(vector, -vector),
            A_eq=np.append(np.ones(count), np.zeros(slacks))[None],
            b_eq=[1.0],
        )
        return float(found.fun) if found.status == 0 else np.inf

    def _add_shares(self, program: Program) -> Columns:
        """Return the columns of the points' shares: those of one hull's points add up to 1, and all others are 0."""
        shares = program.add_columns(len(self.points))
        names, cluster = np.unique(self.clusters, return_inverse=True)
        count = len(names)
        if count == 1:
            program.add_rows(1, 1.0, 1.0, Entries(cluster, shares, 1.0))
            return shares
        chosen = program.add_binaries(count)
        program.add_rows(count, 0.0, 0.0, Entries(cluster, shares, 1.0), Entries(np.arange(count), chosen, -1.0))
        program.require([Affine(chosen, np.ones(count), 0.0, 0.0, float(count))], 1.0, 1.0)
        return shares

    def _add_slack(self, program: Program) -> Entries:
        """Return the coefficients by which hulls are enlarged, in the constraints of all coordinates."""
        width, enlarged = self.embedding.width, self.enlarged
        at = np.arange(width)
        if not enlarged.eps and not enlarged.penalty:
            return Entries(at[:0], at[:0], 0.0)
        most = np.inf if enlarged.penalty else enlarged.eps
        if enlarged.norm == "linf" and not enlarged.penalty:
            return Entries(at, program.add_columns(width, -most, most), 1.0)
        up, down = (program.add_columns(width, 0.0, most, cost=enlarged.penalty) for _ in range(2))
        both = np.concatenate([up, down])
        if not enlarged.penalty:
            program.require([Affine(both, np.ones(len(both)), 0.0, 0.0, np.inf)], -np.inf, enlarged.eps)
        return Entries(np.tile(at, 2), both, np.repeat([1.0, -1.0], width))


def corners(points: Floats) -> NDArray[np.intp]:
    """Return which points (n, width) have the same convex hull as all of them; of many numbers, all.

    A coordinate that is at one of its two ends for every point, such as that of a level, parts them into faces of a
    box: a corner of the hull of such a face is one of the whole, and no mixture of points leaves a corner of the box.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    at_ends = ((points == low) | (points == high)).all(axis=0)
    inner = points[:, ~at_ends]
    if inner.shape[1] > MOST_DIMENSIONS:
        return np.arange(len(points))
    _, face = np.unique(points[:, at_ends], axis=0, return_inverse=True)
    parts = [np.flatnonzero(face == number) for number in range(int(face.max()) + 1)]
    return np.sort(np.concatenate([part[_corners(inner[part])] for part in parts]))


def _corners(points: Floats) -> NDArray[np.intp]:
    """Return the corners of the hull of points (n, k); all points where these lie in a plane."""
    width = points.shape[1]
    if width == 0:
        return np.zeros(1, dtype=np.intp)
    if width == 1:
        return np.unique([points.argmin(), points.argmax()])
    spread = points.max(axis=0) > points.min(axis=0)
    if not spread.all():
        return _corners(points[:, spread])
    if len(points) <= width + 1:
        return np.arange(len(points))
    from scipy.spatial import ConvexHull, QhullError  # noqa: PLC0415  as above

    try:
        return np.asarray(ConvexHull(points).vertices, dtype=np.intp)
    except QhullError:
        return np.arange(len(points))


def _coordinates(variables: Variables, embedding: Embedding) -> list[Affine]:
    """Return the vector of the new row as expressions, coordinate by coordinate."""
    found: dict[int, Affine] = {}
    for variable in variables.groups:
        if isinstance(variable, Chosen):
            rows = np.tile(variables.problem.x0, (len(variable.codes), 1))
            rows[:, list(variable.columns)] = variable.actions
            vectors = embedding.vectors(rows)
            for column in variable.columns:
                places = range(*embedding.blocks[column].indices(embedding.width))
                found.update({at: Affine.chosen(variable.selectors, vectors[:, at]) for at in places})
            continue
        column = variable.column
        stays = variables.missing(column).times(float(embedding.fill[column]))  # then it stands where the median does
        value = total([variable.value, stays]).plus(-float(embedding.centre[column]))
        found[embedding.blocks[column].start] = value.times(1.0 / (float(embedding.scale[column]) or 1.0))
    return [found[at] for at in range(embedding.width)]


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
        wanted = rows[_meets(labels[rows], _wanted(facts))]
        points = np.unique(embedding.vectors(facts.background[wanted]), axis=0)
        if len(points) > 1:
            from sklearn.cluster import KMeans  # noqa: PLC0415  half a second that no server needs

            kept = KMeans(min(clusters, len(points)), n_init=STARTS, random_state=facts.seed % 2**32)
            means = unlogged(kept.fit, points)
            centres = np.asarray(means.cluster_centers_, dtype=np.float64)
    return Learned({**embedding.to_arrays(), ROWS: rows, LABELS: labels[rows], CENTRES: centres})


def check_learned(learned: Learned) -> None:
    """Raise an error for arrays that `learn_region` did not write.

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
    """Return the background rows (positions) with the wanted label nearest to a problem's row, `MOST_POINTS` at most.

    Raises:
        InputError: no background row has the label that is wanted.
    """
    target = None if problem.scorer is None else problem.scorer.targets[0]
    rows, labels = learned.arrays[ROWS], learned.arrays[LABELS]
    near = rows[:0] if target is None else rows[_meets(labels, target)]
    if not len(near):
        raise _empty()
    if len(near) <= MOST_POINTS:
        return near
    embedding = Embedding.from_arrays(problem.space, learned.arrays)
    own = embedding.vectors(problem.x0[None])
    parts = (problem.background[near[start : start + AT_ONCE]] for start in range(0, len(near), AT_ONCE))
    away = np.concatenate([((embedding.vectors(part) - own) ** 2).sum(axis=1) for part in parts])
    return near[np.sort(np.argsort(away, kind="stable")[:MOST_POINTS])]


def region_of(learned: Learned, problem: Problem, near: Rows, enlarged: Enlarged) -> Region:
    """Return the region for the row of a problem, made of the corners of the hulls of the background rows `near` it."""
    from scipy.spatial.distance import cdist  # noqa: PLC0415  as above

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


def check_region(facts: Facts) -> None:
    """Refuse a hull of rows with the wanted label where no background row has it.

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
