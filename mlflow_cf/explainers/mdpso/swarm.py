"""The swarm: particles drawn to their own best position and to that of all, and away from each other (section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlflow_cf.explainers.mdpso.active import Active
from mlflow_cf.explainers.mdpso.fitness import Fitness
from mlflow_cf.explainers.mdpso.landed import UNRATED, Landed, Places
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes

CAP = 0.5  # of the width of a box, the largest step


@dataclass(frozen=True)
class Motion:
    """How particles move.

    Attributes:
        c0, c0_end: how much of the velocity is kept, at first and at last.
        c1, c2: how much the own best position draws, and that of all.
        c3: how much particles are driven from the mean of all, or of the better half of them.
        from_best: whether it is that of the better half.
        snap_back: how often a particle puts one change back.
        snap_position: whether particles stand where they came down.
    """

    c0: float = 0.7
    c0_end: float = 0.4
    c1: float = 1.5
    c2: float = 1.5
    c3: float = 0.1
    from_best: bool = False
    snap_back: float = 0.1
    snap_position: bool = False

    def kept(self, iteration: int, iterations: int) -> float:
        """Return how much of the velocity is kept in an iteration, counted from 0."""
        share = iteration / (iterations - 1) if iterations > 1 else 0.0
        return self.c0 + (self.c0_end - self.c0) * share


@dataclass(frozen=True, eq=False)
class Converged:
    """Where particles are in the end, (m,) places each: `final`, and the best that each has met."""

    final: Places
    best: Places
    iterations: int


class Swarm:
    """Particles of one search; positions (D, m) have a column for each of them."""

    def __init__(
        self, active: Active, landed: Landed, motion: Motion, particles: int, rng: np.random.Generator
    ) -> None:
        self.active, self.landed, self.motion, self.rng = active, landed, motion, rng
        self.low, self.high = active.low[:, None], active.high[:, None]
        self.cap = CAP * (self.high - self.low)
        self.X = self.low + rng.random((len(self.low), particles)) * (self.high - self.low)
        self.V = np.zeros_like(self.X)
        self._width = np.where(self.high > self.low, self.high - self.low, 1.0)
        self._resettable = np.flatnonzero(active.free)

    def run(self, iterations: int) -> Converged:
        """Move all particles so many times, at once, by what the last move has shown."""
        places = self._land()
        best, own = places, self.X.copy()
        fitness = self.landed.fitness(best)
        leader = fitness.best
        lead, lead_fitness = own[:, [leader]].copy(), fitness.at(leader)
        done = 0
        while done < iterations and not self.landed.ended:
            self._move(own, lead, fitness, self.motion.kept(done, iterations))
            places = self._land(reset=True)
            found = self.landed.fitness(places)
            better = found.better(fitness)
            best = np.where(better, places, best)
            np.copyto(own, self.X, where=better)
            fitness = self.landed.fitness(best)
            leader = fitness.best
            if fitness.at(leader).better(lead_fitness)[0]:
                lead, lead_fitness = own[:, [leader]].copy(), fitness.at(leader)
            done += 1
        return Converged(places[places != UNRATED], best[best != UNRATED], done)

    def _move(self, own: Floats, lead: Floats, fitness: Fitness, kept: float) -> None:
        """Change velocities and positions, within the box."""
        motion, X, V = self.motion, self.X, self.V
        V *= kept
        for c, towards in ((motion.c1, own), (motion.c2, lead)):
            step = towards - X
            step *= self.rng.random(X.shape)
            step *= c
            V += step
        numeric = self.active.numeric
        if motion.c3 and len(numeric):
            away = self._away(X[numeric], fitness)
            V[numeric] += motion.c3 * self.rng.random(away.shape) * away
        np.maximum(np.minimum(V, self.cap, out=V), -self.cap, out=V)
        X += V
        inside = np.maximum(np.minimum(X, self.high), self.low)
        V *= inside == X
        self.X = inside

    def _away(self, X: Floats, fitness: Fitness) -> Floats:
        """Return the directions (n, m), of length 1, from the mean to positions (n, m); 0 for what is there."""
        among = X
        if self.motion.from_best:
            among = X[:, fitness.order[: (X.shape[1] + 1) // 2]]
        away = X - among.mean(axis=1, keepdims=True)
        length = np.sqrt((away * away).sum(axis=0))
        directions: Floats = away / np.where(length > 0, length, 1.0)
        return directions

    def _land(self, *, reset: bool = False) -> Places:
        """Return the places of the rows where particles come down."""
        active = self.active
        codes, numbers = active.land(self.X)
        if reset and self.motion.snap_back:
            codes, numbers = self._put_back(codes, numbers)
        codes, numbers = self._limited(codes, numbers)
        places = self.landed.places(codes, numbers)
        if self.motion.snap_position:
            self.X = self._snapped(places)
        return places

    def _put_back(self, codes: Codes, numbers: Floats) -> tuple[Codes, Floats]:
        """Put one change of some particles back, in their positions too."""
        active = self.active
        chance, which = self.rng.random((2, len(codes)))
        some = np.flatnonzero(chance < self.motion.snap_back)
        changed = active.changed(codes[some], numbers[some]) & active.free
        counts = changed.sum(axis=1)
        nth = (which[some] * counts).astype(np.intp)
        group = (changed.cumsum(axis=1) > nth[:, None]).argmax(axis=1)
        for particle, number in zip(some[counts > 0].tolist(), group[counts > 0].tolist(), strict=True):
            part = active.parts[number]
            self.X[part, particle], self.V[part, particle] = active.own[part], 0.0
        back = np.zeros((len(some), len(active.units)), dtype=np.bool_)
        back[np.arange(len(some)), group] = counts > 0
        codes[some], numbers[some] = active.put_back(codes[some], numbers[some], back)
        return codes, numbers

    def _limited(self, codes: Codes, numbers: Floats) -> tuple[Codes, Floats]:
        """Keep as many changes as a row may have: those that must be, then those farthest from the row in its box."""
        active, most = self.active, self.active.problem.most_changes
        if most >= len(active.units):
            return codes, numbers
        changed = active.changed(codes, numbers)
        if (changed.sum(axis=1) <= most).all():
            return codes, numbers
        far = np.maximum.reduceat(np.abs(self.X - active.own[:, None]) / self._width, active.starts, axis=0).T
        far = np.where(changed, np.where(active.free, far, np.inf), -1.0)
        rank = np.argsort(np.argsort(-far, axis=1, kind="stable"), axis=1, kind="stable")
        return active.put_back(codes, numbers, changed & (rank >= most))

    def _snapped(self, places: Places) -> Floats:
        """Return the positions (D, m) of rows; those of unrated ones stay."""
        if not len(self.landed):
            return self.X
        rows = self.landed.rows(np.maximum(places, 0)).T
        parts = [unit.positions(rows[list(unit.group.columns)]) for unit in self.active.units]
        snapped = np.clip(np.concatenate(parts), self.low, self.high)
        return np.where(places == UNRATED, self.X, snapped)
