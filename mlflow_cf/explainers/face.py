"""FACE: the favourable row of the background to which the cheapest way over similar rows leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Literal

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.explainer import Candidates, Search
from mlflow_cf.explainers.learned import Facts, Learned, Learning
from mlflow_cf.explainers.options import Span, asked, check_options
from mlflow_cf.features import Floats
from mlflow_cf.plans.plan import Plan, PlannedStep
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.search.neighbour_graph import GraphOptions, Kind, NeighbourGraph, cheapest_ways, check_arrays
from mlflow_cf.search.population import portions

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

    @property
    def _options(self) -> GraphOptions:
        return GraphOptions(self.graph, self.k, self.radius, self.density)

    def learn(self, facts: Facts) -> Learning:
        """Learn the graph of the background, or of a part of it."""
        graph = yield from NeighbourGraph.fitted(facts.space, facts.background, self._options, facts.seed)
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
        """Return what the cheapest way to each row costs, and the row before each; only steps that may be taken."""
        near, lengths = graph.edges_of(own, self._options)
        kept = problem.check(rows[near])
        start, end, weights = graph.starts, graph.ends, graph.weights
        if problem.steps is not None:
            over = problem.steps.reachable(rows, problem.x0)
            edges = np.flatnonzero(over[start] & over[end])
            edges = edges[problem.steps.allowed(rows, start[edges], end[edges])]
            start, end, weights = start[edges], end[edges], weights[edges]
        return cheapest_ways((start, end, weights), len(rows), (near[kept], lengths[kept]))


def _favourable(problem: Problem, rows: Floats, places: Codes | None, least: float, budget: Budget) -> Bools:
    """Return (n,) which rows (n, d) are answers; nothing is scored where they have `places` in the background."""
    good = problem.check(rows)
    if places is not None:
        rating = problem.rate_background()
        return np.asarray(good & rating.favourable[places] & (rating.grade[places] >= least))
    asked = np.flatnonzero(good)
    good[:] = False
    for part in portions(len(asked), budget):
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
