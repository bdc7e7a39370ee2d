"""Growing spheres: points drawn in ever larger layers around the row until one of them is favourable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

import numpy as np

from mlflow_cf.errors import InputError
from mlflow_cf.explainers.explainer import Candidates, Facts, Span, asked, check_options
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.problem.points import limits, with_values
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import Seen, score_within
from mlflow_cf.search.snapping import Snapping

Categorical = Literal["frozen", "resample"]
Variant = Literal["paper", "carla"]
HALVINGS: Final = 20
LAYERS: Final = 1000  # of CARLA's version at most
OPTIONS: Final = {
    "samples": Span(1, 10_000, whole=True),
    "step": Span(1e-3, 1),
    "radius": Span(1e-3, 100),
    "categorical": Categorical,
    "variant": Variant,
}


@dataclass(frozen=True)
class GrowingSpheres:
    """A ball around the row shrinks until nothing in it is favourable; layers around it grow until something is.

    Numbers, dates and ranks are scaled by their range. Points move to the nearest admissible values before they are
    scored, and those that break a rule over several groups are repaired. Where only so many groups may change, the
    largest changes of a point count. The nearest favourable point (Euclidean) of the first layer that has one then
    gets its smallest changes undone, as long as it stays favourable. Every answer wanted is a search of its own.
    Reference: Laugel et al., Inverse classification for comparison-based interpretability (2017), algorithms 1 and 2.

    Attributes:
        samples: points in the ball, and in each layer.
        step: thickness of a layer.
        radius: that of the first ball.
        categorical: ``frozen``: groups with a level keep theirs, but for rules; ``resample``: drawn evenly.
        variant: ``carla``: as in CARLA (Pawelczyk et al. 2021): no ball and no change undone, layers from the row on
            with radii drawn evenly, levels resampled, points beyond the background's range.
    """

    samples: int = 1000
    step: float = 0.02
    radius: float = 1.0
    categorical: Categorical = "frozen"
    variant: Variant = "paper"

    name: ClassVar[str] = "growing_spheres"
    polish: ClassVar[bool] = False
    by_request: ClassVar[Mapping[str, Any]] = asked(OPTIONS)

    def __post_init__(self) -> None:
        check_options(self, OPTIONS)

    @property
    def resamples(self) -> bool:
        """Whether levels are drawn."""
        return self.categorical == "resample" or self.variant == "carla"

    def check(self, facts: Facts, count: int) -> None:
        """Refuse data without numbers where levels stay as they are."""
        del count
        if not self.resamples and not any(feature.has_order for feature in facts.space.features):
            fact = "no feature is a number, and levels stay as they are"
            raise InputError("explainer.categorical", fact, "use 'resample', or another explainer")

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Grow spheres once for every answer wanted; return the points found, nearest first."""
        balls = Balls.of(problem, rng, levels=self.resamples, clip=self.variant == "paper")
        run = _Run(self, balls, budget)
        found = [run.once() for _ in range(balls.problem.count)] if len(balls.columns) or balls.levels else []
        codes = np.concatenate([np.empty((0, len(problem.groups)), dtype=np.intp), *found])
        nearest = np.argsort(balls.problem.distance(codes), kind="stable")
        return Candidates(balls.problem.rows(codes[nearest]), {"layers": run.layers, "failed": len(found) - len(codes)})


class _Run:
    """The searches for one row, which share what they know of points met before."""

    def __init__(self, options: GrowingSpheres, balls: Balls, budget: Budget) -> None:
        self.options, self.balls, self.budget = options, balls, budget
        self.layers = 0
        self._seen, self._cascade = Seen(balls.problem), Cascade(balls.problem)
        self._known = np.empty(0, dtype=np.uint64)  # the keys of favourable points

    def once(self) -> Codes:
        """Return (1, G) the codes of what is found, or (0, G)."""
        paper = self.options.variant == "paper"
        inner = self._shrunk() if paper else 0.0
        diagonal = max(np.sqrt(len(self.balls.columns)), 1.0)  # no point of the background's range is farther away
        end = diagonal if paper else self.options.step * LAYERS
        found = np.empty((0, len(self.balls.problem.groups)), dtype=np.intp)
        while not self.budget.spent and not len(found) and inner < end:
            outer = inner + self.options.step
            found = self._favourable(inner, outer, "volume" if paper else "radius")
            self.layers, inner = self.layers + 1, outer
        nearest = found[np.argsort(self.balls.away(found), kind="stable")[:1]]
        return self._selected(nearest) if paper and len(nearest) else nearest

    def _shrunk(self) -> float:
        """Return the radius of a ball without favourable points."""
        radius = self.options.radius
        for _ in range(HALVINGS):
            if self.budget.spent or not len(self._favourable(0.0, radius, "volume")):
                break
            radius /= 2
        return radius

    def _favourable(self, inner: float, outer: float, radii: Radii) -> Codes:
        """Return the favourable ones (m, G) of points drawn between two radii; none is scored twice."""
        codes = self._cascade.repair(self.balls.draw(inner, outer, self.options.samples, radii))
        new = self._seen.new(codes)
        scored = score_within(self.balls.problem, codes[new], self.budget)
        self._seen.remember(len(scored))
        self._known = np.concatenate([self._known, self._seen.keys.of(scored.codes[scored.favourable])])
        return np.asarray(codes[np.isin(self._seen.keys.of(codes), self._known)])

    def _selected(self, found: Codes) -> Codes:
        """Undo the smallest changes of one point (1, G), one after the other, up to the first that it needs."""
        problem = self.balls.problem
        changes = self.balls.changes(found)[0]
        free = np.array([group.own_allowed for group in problem.groups])
        undone = np.flatnonzero((found[0] != problem.own) & free)
        undone = undone[np.argsort(changes[undone], kind="stable")]
        chain = np.repeat(found, len(undone) + 1, axis=0)
        for place, number in enumerate(undone, start=1):
            chain[place:, number] = problem.own[number]
        lawful = problem.held(chain) & (chain != problem.own).any(axis=1)
        lawful[0] = True
        chain = chain[: int(np.append(lawful, False).argmin())]
        good = score_within(problem, chain[1:], self.budget).favourable
        return chain[[int(np.append(good, False).argmin())]]


Radii = Literal["volume", "radius"]  # what is drawn evenly
POINTS = 1001  # of a continuous number, evenly between the ends of what is allowed


@dataclass(frozen=True, eq=False)
class Balls:
    """Draws points around a row, over the features with an order, scaled by their range; a candidate is nearest.

    Attributes:
        problem: the row, with even points of continuous numbers.
        rng: source of randomness.
        columns: (p,) features that are drawn: those of groups without levels that may change, where the row has a known
            value.
        levels: the groups with levels that are drawn, too.
        span: (d,) the range of every feature; 0: only whether it changes counts.
        clip: whether points stay within the background's range.
    """

    problem: Problem
    rng: np.random.Generator
    columns: Codes
    levels: tuple[int, ...]
    span: Floats
    clip: bool

    @classmethod
    def of(cls, problem: Problem, rng: np.random.Generator, *, levels: bool, clip: bool) -> Balls:
        """Return the balls around a problem's row; `levels`: whether levels are drawn, too."""
        intervals = {n: group for n, group in enumerate(problem.groups) if group.interval is not None}
        if intervals:
            points = {n: np.linspace(*limits(problem, group), POINTS) for n, group in intervals.items()}
            problem = with_values(problem, points)
        features = problem.space.features
        span = np.array([feature.high - feature.low if feature.has_order else 0.0 for feature in features])
        span[~(problem.x0 < [feature.unknown_from for feature in features])] = 0.0
        free = [n for n, group in enumerate(problem.groups) if group.proposals]
        ordered = [n for n in free if all(features[column].has_order for column in problem.columns[n])]
        columns = [column for n in ordered for column in problem.columns[n] if span[column] > 0]
        drawn = tuple(n for n in free if n not in ordered) if levels else ()
        return cls(problem, rng, np.array(columns, dtype=np.intp), drawn, span, clip)

    def draw(self, inner: float, outer: float, count: int, radii: Radii) -> Codes:
        """Return the codes (count, G) of points between two radii, before any rule over several groups."""
        problem, p = self.problem, len(self.columns)
        Z = np.tile(problem.x0, (count, 1))
        if p:
            directions = self.rng.standard_normal((count, p))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            if radii == "volume":  # (inner / outer)^p first: inner^p alone underflows
                radius = outer * self.rng.uniform((inner / outer) ** p, 1.0, count) ** (1 / p)
            else:
                radius = self.rng.uniform(inner, outer, count)
            Z[:, self.columns] += directions * radius[:, None] * self.span[self.columns]
            if self.clip:
                low, high = np.array([(f.low, f.high) for f in problem.space.features]).T
                Z[:, self.columns] = Z[:, self.columns].clip(low[self.columns], high[self.columns])
        codes = self._snapping.codes(Z)
        for number in self.levels:
            group = problem.groups[number]
            admissible = np.delete(np.arange(len(group.actions)), [] if group.own_allowed else [group.own])
            codes[:, number] = self.rng.choice(admissible, size=count)
        return self._few(codes)

    @cached_property
    def _snapping(self) -> Snapping:
        return Snapping(self.problem)

    def _few(self, codes: Codes) -> Codes:
        """Put back the smallest changes of candidates (m, G) that change too many groups."""
        problem = self.problem
        most = problem.most_changes
        if most >= min(len(problem.groups), int((codes != problem.own).sum(axis=1).max(initial=0))):
            return codes
        changes = self.changes(codes)
        changes[:, [not group.own_allowed for group in problem.groups]] = np.inf
        smallest = np.argsort(changes, axis=1, kind="stable")[:, : len(problem.groups) - most]
        np.put_along_axis(codes, smallest, problem.own[smallest], axis=1)
        return codes

    def changes(self, codes: Codes) -> Floats:
        """Return the lengths (m, G) of the changes of every group: in ranges, 1 for another level."""
        rows, x0 = self.problem.rows(codes), self.problem.x0
        differs = ~same(rows, x0)
        ranked = (self.span > 0) & ~np.isnan(rows)
        change = np.where(ranked, np.abs(rows - x0) / np.where(self.span > 0, self.span, 1.0), differs)
        return np.column_stack([np.sqrt((change[:, columns] ** 2).sum(axis=1)) for columns in self.problem.columns])

    def away(self, codes: Codes) -> Floats:
        """Return the Euclidean distances (m,) of candidates from the row."""
        return np.asarray(np.sqrt((self.changes(codes) ** 2).sum(axis=1)))
