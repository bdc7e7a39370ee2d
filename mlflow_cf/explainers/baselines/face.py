"""FACE: the favourable background row that the cheapest path over similar rows leads to.

Rows are the nodes of a graph, with edges between near ones; a path is cheap where the background is dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.explainer import Candidates, Facts, Learned, Learning, Search, Span, asked, check_options
from mlflow_cf.features import UNIT_MISMATCH, Embedding, FeatureSpace, Floats
from mlflow_cf.plans.plan import Plan, PlannedStep
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.search.population import batches
from mlflow_cf.stepwise import Steps

Kind = Literal["knn", "epsilon"]
MOST_ROWS: Final = 2_000
LEAST_DENSITY: Final = 1e-12  # of the largest
AT_ONCE: Final = 1_000  # edges whose densities are in memory together
TOGETHER: Final = 128  # rows that are compared with all others in one step: 30 ms over 300 columns


@dataclass(frozen=True, eq=False)
class NeighbourGraph:
    """Distinct background rows as points, with directed edges in both directions.

    Numbers are scaled by their range, a mismatch of levels is a distance of 1. Where `density` counts, an edge weighs
    its length times what its middle's density, as a share of the largest one of all rows, has as negative logarithm.
    The density is a Gaussian kernel estimate with one width for all coordinates, from Scott's rule for as many
    dimensions as there are features and the mean variance of a feature.

    Attributes:
        embedding: how rows become points.
        rows: (n,) the places of the rows in the background.
        points: (n, width).
        first: (n + 1,) where the edges of every row start; ends: (e,) where they lead; weights: (e,) what they weigh.
        reach: (n,) how near another point must be to be a neighbour, by this row's own measure.
        densities: (n,) as shares of the largest; peak: the largest; width: of the kernels.
    """

    embedding: Embedding
    rows: Codes
    points: Floats
    first: Codes
    ends: Codes
    weights: Floats
    reach: Floats
    densities: Floats
    peak: float
    width: float

    @classmethod
    def fitted(cls, space: FeatureSpace, background: Floats, options: FACE, seed: int) -> Steps[NeighbourGraph]:
        """Learn from coded background rows (m, d), a random part of the distinct ones if there are more than 2,000."""
        _, found = np.unique(np.where(np.isnan(background), np.inf, background), axis=0, return_index=True)
        rows = np.sort(found)
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False))
        embedding = Embedding.fit(space, background, level_weight=UNIT_MISMATCH)
        points = embedding.vectors(background[rows])
        variance = float(points.var(axis=0).sum()) / len(space)
        # Scott's factor times the deviation of a feature; any, if all rows are alike
        width = float(len(rows) ** (-1 / (len(space) + 4)) * np.sqrt(variance)) if variance > 0 else 1.0
        distance, dense = np.empty((len(rows), len(rows))), np.ones(len(rows))
        reach = np.full(len(rows), options.radius)
        last = min(options.k, len(rows) - 1) - 1
        for start in range(0, len(rows), TOGETHER):
            part = slice(start, start + TOGETHER)
            distance[part] = _distances(points[part], points)
            dense[part] = _density(distance[part] ** 2, width)
            distance[part][:, part][np.diag_indices(len(dense[part]))] = np.inf
            if options.graph == "knn":
                reach[part] = np.partition(distance[part], last, axis=1)[:, last] if last >= 0 else 0.0
            yield
        start_at, ends = np.nonzero((distance <= reach[:, None]) | (distance <= reach))
        first = np.searchsorted(start_at, np.arange(len(rows) + 1))
        lengths, peak = distance[start_at, ends], float(dense.max())
        yield
        if options.density:
            np.fill_diagonal(distance, 0.0)
            lengths = lengths * (yield from _rarity(distance**2, start_at, ends, width, peak))
        return cls(embedding, rows, points, first, ends, lengths, reach, dense / peak, peak, width)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learned as arrays by name."""
        own = {name: getattr(self, name) for name in ARRAYS}
        numbers = {name: np.array(getattr(self, name)) for name in ("peak", "width")}
        return {**own, **numbers, **self.embedding.to_arrays()}

    @classmethod
    def from_arrays(cls, space: FeatureSpace, arrays: Mapping[str, NDArray[Any]]) -> NeighbourGraph:
        """Rebuild from `to_arrays`."""
        embedding = Embedding.from_arrays(space, arrays)
        own = {name: arrays[name] for name in ARRAYS}
        return cls(embedding, **own, peak=float(arrays["peak"]), width=float(arrays["width"]))

    @cached_property
    def starts(self) -> Codes:
        """(e,) the row at which every edge starts."""
        return np.arange(len(self.rows)).repeat(np.diff(self.first))

    def edges_of(self, point: Floats, options: FACE) -> tuple[Codes, Floats]:
        """Return which rows a further point (width,) has edges to, equal ones too, and what they weigh."""
        distance = _distances(point[None], self.points)[0]
        reach = options.radius
        if options.graph == "knn":
            others = distance[distance > 0]  # no row is its own neighbour
            place = min(options.k, len(others)) - 1
            reach = float(np.partition(others, place)[place]) if len(others) else 0.0
        ends = np.flatnonzero((distance <= reach) | (distance <= self.reach))
        weights = distance[ends]
        if options.density:
            among = _distances(self.points[ends], self.points) ** 2
            middle = (distance**2 + among) / 2 - (distance[ends] ** 2)[:, None] / 4
            weights = weights * _negative_log(_density(middle, self.width) / self.peak)
        return ends, weights


ARRAYS: Final = ("rows", "points", "first", "ends", "weights", "reach", "densities")


def check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that are no graph.

    Raises:
        KeyError, ValueError: something is missing, or does not go together.
    """
    rows, points, first, ends = (arrays[name] for name in ARRAYS[:4])
    n, places = len(rows), (arrays[name].dtype.kind == "i" for name in ("rows", "first", "ends"))
    sound = all(places) and points.ndim == 2 and first.shape == (n + 1,) and n > 0
    sound = sound and all(arrays[name].shape == (n,) for name in ("rows", "reach", "densities"))
    sound = sound and ends.shape == arrays["weights"].shape == (int(first[-1]),) and bool((np.diff(first) >= 0).all())
    sound = sound and len(points) == n and bool((rows >= 0).all() and (ends >= 0).all() and (ends < n).all())
    if not sound or arrays["peak"].shape or arrays["width"].shape or arrays["level_weight"].shape:
        raise ValueError("what is no graph")


def _distances(points: Floats, others: Floats) -> Floats:
    from scipy.spatial.distance import cdist  # noqa: PLC0415  a server loads faster without

    distance: Floats = cdist(points, others)
    return distance


def _density(squares: Floats, width: float) -> Floats:
    """Return the densities (m,), but for a factor, at squared distances (m, n) from the points."""
    density: Floats = np.exp(squares / (-2 * width**2)).mean(axis=1)
    return density


def _rarity(squares: Floats, start: Codes, ends: Codes, width: float, peak: float) -> Steps[Floats]:
    """Return (e,) the negative logarithm of the density in the middle of edges, from all squared distances (n, n)."""
    rare = np.empty(len(start))
    for first in range(0, len(start), AT_ONCE):
        one, other = start[first : first + AT_ONCE], ends[first : first + AT_ONCE]
        # the square of a median of a triangle, by its sides
        middle = (squares[one] + squares[other]) / 2 - squares[one, other][:, None] / 4
        rare[first : first + AT_ONCE] = _negative_log(_density(middle, width) / peak)
        yield
    return rare


def _negative_log(share: Floats) -> Floats:
    rare: Floats = -np.log(share.clip(LEAST_DENSITY, 1.0))
    return rare


Choice = Literal["cheapest", "nearest"]
SPARE: Final = 20  # rows handed over beyond four for each answer wanted: some answers are too much alike
ACTION: Final = "become as a similar row"
OPTIONS: Final = {
    "graph": Kind,
    "k": Span(1, 1_000, whole=True),
    "radius": Span(1e-6, 1e3),
    "tp": Span(0, 1),
    "td": Span(0, 1),
    "choice": Choice,
}


@dataclass(frozen=True)
class FACE:
    """Ways from the row over background rows, each step of which meets the constraints as if it was all there is.

    The answers are rows of the background, in the order of what their ways cost; each has its way as a plan.
    Reference: Poyiadzi et al., FACE: Feasible and actionable counterfactual explanations (2020).

    Attributes:
        graph: ``knn``: a step leads to one of the `k` nearest rows, or from one; ``epsilon``: to a row within `radius`.
        k: how many neighbours.
        radius: numbers are measured in ranges, and another level is a distance of 1.
        density: whether a step costs its length times how rare rows in its middle are (the negative logarithm of their
            density, as a share of the largest), not its length alone.
        tp: the least grade of an answer; for two labels, its probability.
        td: the least density around an answer, as a share of the largest.
        choice: ``nearest``: the answers are ordered by their Euclidean distance from the row, as in CARLA.
    """

    graph: Kind = "knn"
    k: int = 50
    radius: float = 0.25
    density: bool = False
    tp: float = 0.5
    td: float = 0.0
    choice: Choice = "cheapest"

    name: ClassVar[str] = "face"
    polish: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = True
    returns_rows: ClassVar[bool] = True
    learned_by: ClassVar[tuple[str, ...]] = ("graph", "k", "radius", "density")
    by_request: ClassVar[Mapping[str, Any]] = asked(OPTIONS, ("tp", "td", "choice"))

    def __post_init__(self) -> None:
        check_options(self, OPTIONS)

    def learn(self, facts: Facts) -> Learning:
        """Learn the graph of the background, or of a part of it."""
        graph = yield from NeighbourGraph.fitted(facts.space, facts.background, self, facts.seed)
        return Learned(graph.to_arrays())

    def bound(self, learned: Learned) -> Search:
        """Return the search over the graph."""
        check_arrays(learned.arrays)
        return partial(self._search, learned)

    def _search(self, learned: Learned, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Look for the cheapest ways to rows that are favourable and meet the constraints."""
        del rng
        graph = NeighbourGraph.from_arrays(problem.space, learned.arrays)
        rows = problem.background[graph.rows]
        constant = np.array([feature.constant for feature in problem.space.features])
        (own,) = graph.embedding.vectors(np.where(constant, rows[:1], problem.x0))
        known = bool(same(rows[0], problem.x0)[constant].all())
        rows = np.where(constant, problem.x0, rows)  # a row keeps its constants
        ends = _favourable(problem, rows, graph.rows if known else None, self.tp, budget)
        ends &= graph.densities >= self.td
        cost, before = self._ways(graph, problem, rows, own)
        reached = np.flatnonzero(ends & np.isfinite(cost))
        facts = {"rows": len(rows), "edges": len(graph.ends), "favourable": int(ends.sum()), "reached": len(reached)}
        costs = cost[reached]
        if self.choice == "nearest":
            costs = np.sqrt(((graph.points[reached] - own) ** 2).sum(axis=1))
        best = np.argsort(costs, kind="stable")[: 4 * problem.count + SPARE]
        plans = tuple(_plan(rows, cost, before, end) for end in reached[best].tolist())
        return Candidates(rows[reached[best]], facts, plans=plans, costs=costs[best])

    def _ways(self, graph: NeighbourGraph, problem: Problem, rows: Floats, own: Floats) -> tuple[Floats, Codes]:
        """Return what the cheapest way to each row costs, inf without one, and the row before each on it.

        Only steps that may be taken count; the row to explain comes after all others.
        """
        from scipy.sparse import csr_array  # noqa: PLC0415  a server loads faster without
        from scipy.sparse.csgraph import dijkstra  # noqa: PLC0415

        near, lengths = graph.edges_of(own, self)
        kept = problem.check(rows[near])
        start, end, weights = graph.starts, graph.ends, graph.weights
        if problem.steps is not None:
            over = problem.steps.reachable(rows, problem.x0)
            edges = np.flatnonzero(over[start] & over[end])
            edges = edges[problem.steps.allowed(rows, start[edges], end[edges])]
            start, end, weights = start[edges], end[edges], weights[edges]
        count = len(rows)
        first = np.searchsorted(start, np.arange(count + 1))
        lengths = np.append(weights, lengths[kept]).clip(np.finfo(np.float64).tiny)  # one of no weight is an edge still
        ends, pointers = np.append(end, near[kept]), np.append(first, first[-1] + kept.sum())
        matrix = csr_array((lengths, ends, pointers), shape=(count + 1, count + 1))
        cost, before = dijkstra(matrix, indices=count, return_predecessors=True)
        return cost[:count], before[:count].astype(np.intp)


def _favourable(problem: Problem, rows: Floats, places: Codes | None, least: float, budget: Budget) -> Bools:
    """Return (n,) which rows (n, d) are answers; nothing is scored where they have `places` in the background."""
    good = problem.check(rows)
    if places is not None:
        rating = problem.rate_background()
        return np.asarray(good & rating.favourable[places] & (rating.grade[places] >= least))
    asked = np.flatnonzero(good)
    good[:] = False
    for part in batches(len(asked), budget):
        rating = problem.rate(rows[asked[part]])
        good[asked[part]] = rating.favourable & (rating.grade >= least)
    return np.asarray(good)


def _plan(rows: Floats, cost: Floats, before: Codes, end: int) -> Plan:
    """Return the steps of the way to a row."""
    way = [end]
    while before[way[-1]] < len(rows):
        way.append(int(before[way[-1]]))
    way.reverse()
    spent = np.diff(cost[way], prepend=0.0).clip(min=0.0)
    return tuple(PlannedStep(ACTION, float(effort), 1.0, rows[at]) for effort, at in zip(spent, way, strict=True))
