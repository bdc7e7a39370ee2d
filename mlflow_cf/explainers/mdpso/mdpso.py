"""MD-PSO (Shekhar et al. 2023): a mixed-discrete particle swarm over the features that tell most."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, StrictBool

from mlflow_cf.errors import InputError
from mlflow_cf.explainers.explainer import (
    Candidates,
    Facts,
    Learned,
    Learning,
    Search,
    Span,
    asked,
    check_names,
    check_options,
)
from mlflow_cf.explainers.mdpso.active import Active, active_set, information_values
from mlflow_cf.explainers.mdpso.landed import UNRATED, Fitness, Landed, Objective, PaperSum, Places
from mlflow_cf.explainers.mdpso.selection import Pick, left_by_sparse, picked, spares, sparse
from mlflow_cf.features import Floats
from mlflow_cf.features.embedding import UNIT_MISMATCH, Embedding
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.more_sets import more_sets, nearer
from mlflow_cf.search.snapping import codes_of
from mlflow_cf.validation import Number

BoxKind = Literal["relative", "absolute"]
Among = Literal["both", "final", "best"]
Divergence = Literal["all", "better_half"]
EPSILON: Final = Span(0, 10)
WEIGHT: Final = Span(0, 1e3)
Weight = Annotated[Number, Field(ge=WEIGHT.least, le=WEIGHT.most)]
OPTIONS: Final = {
    "epsilon": EPSILON,
    "box": BoxKind,
    "h": Span(1, 10_000, whole=True),
    "particles": Span(1, 1_000, whole=True),
    "iterations": Span(0, 10_000, whole=True),
    "c0": Span(0, 2),
    "c0_end": Span(0, 2),
    "c1": Span(0, 10),
    "c2": Span(0, 10),
    "c3": Span(0, 10),
    "divergence": Divergence,
    "snap_back": Span(0, 1),
    "objective": Objective,
    "among": Among,
    "pick": Pick,
}
CAP: Final = 0.5  # of the width of a box, the largest step
MANY: Final = 0.25  # of all rows: so many hold a number's least value, which a relative box freezes
SOME: Final = 0.33  # of all numbers: so many are like that


@dataclass(frozen=True)
class MDPSO:
    """A swarm of particles in a box around the row, over the features with the largest information value.

    Reference: Shekhar et al., MD-PSO (2023).

    Attributes:
        epsilon: how far a number may go: as a share of its own scaled value, or of its range; see `box`.
        epsilon_by_feature: other values of it for some features, by name.
        box: ``relative``, as in the paper: scaled by its range, a number z stays in ``z (1 +- epsilon)``, so that the
            least value is frozen; ``absolute``: in ``z +- epsilon``.
        h: how many features may change, beside those that must; a declared group counts once.
        particles, iterations: so many rows are scored at the start and in every iteration, but for those met before.
        c0, c0_end: how much of its velocity a particle keeps, at first and at last.
        c1, c2: how strongly its own best position draws it, and that of all.
        c3: how strongly it is driven away from the mean of the population.
        divergence: from the mean of ``all``, or of the ``better_half``.
        snap_back: probability with which a particle puts one change back, in each iteration.
        snap_position: whether a particle stands where its row is, as the paper can be read; else categories flip late.
        objective: ``distance``: valid rows first, then by what the score lacks, then by the problem's distance;
            ``paper``: the sum that the paper prints, under which the row itself beats most answers.
        weights: of that sum's terms: what the score lacks, Gower's distance, the number of changes.
        among: which rows become answers: the ``final`` ones, the ``best`` that each particle has met, or ``both``.
        spares: whether the other valid rows that were met stand behind these: polishing makes some answers equal.
        pick: of several answers: of each cluster the ``best`` row, or one at ``random`` as in the paper; ``nearest``:
            without clusters; ``sparse``: the nearest one, then those with fewest changes and nearest in median absolute
            deviations, see `selection`. Without polish, by the paper's sum, or for ``diversity="near"``, the best.
        polish: whether needless changes are undone.
    """

    epsilon: float = 0.5
    epsilon_by_feature: Mapping[str, float] = field(default_factory=dict)
    box: BoxKind = "relative"
    h: int = 10
    particles: int = 50
    iterations: int = 100
    c0: float = 0.7
    c0_end: float = 0.4
    c1: float = 1.5
    c2: float = 1.5
    c3: float = 0.1
    divergence: Divergence = "all"
    snap_back: float = 0.1
    snap_position: bool = False
    objective: Objective = "distance"
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    among: Among = "both"
    spares: bool = True
    pick: Pick = "sparse"
    polish: bool = True

    name: ClassVar[str] = "mdpso"
    learned_by: ClassVar[tuple[str, ...]] = ()
    by_request: ClassVar[Mapping[str, Any]] = {
        **asked(OPTIONS),
        "weights": tuple[Weight, Weight, Weight],
        **dict.fromkeys(("snap_position", "spares", "polish"), StrictBool),
    }

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))  # a list, where it was read from JSON
        check_options(self, OPTIONS)
        for feature, epsilon in self.epsilon_by_feature.items():
            EPSILON.check(f"explainer.epsilon_by_feature.{feature}", epsilon)
        if len(self.weights) != 3:
            raise InputError("explainer.weights", f"{self.weights!r} are not three", "such as (1, 1, 1)")
        for weight in self.weights:
            WEIGHT.check("explainer.weights", weight)

    def check(self, facts: Facts, count: int) -> None:
        """Refuse what is said of features that are not there."""
        del count
        check_names("explainer.epsilon_by_feature", self.epsilon_by_feature, facts.space)

    def learn(self, facts: Facts) -> Learning:
        """Learn how much each feature tells, and how rows become positions, whatever a request may ask."""
        if self.box == "relative":
            _warn_of_frozen(facts)
        information = yield from information_values(facts)
        arrays = {"information": information, **Embedding.fit(facts.space, facts.background).to_arrays()}
        target = facts.target.target
        column = 0 if target.interval or target.differs else target.column(facts.target.model)
        return Learned(arrays, {"column": column})

    def bound(self, learned: Learned) -> Search:
        """Return the search, which knows what each feature tells."""
        information, column = learned.arrays["information"], learned.plain["column"]
        width = learned.arrays["centre"].shape
        if information.ndim != 2 or information.shape[1:] != width or not 0 <= column < len(information):
            raise ValueError("what is no information value")
        return partial(self._search, learned)

    def _search(self, learned: Learned, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Run the swarm in its box, and hand over the best row of every cluster first."""
        embedding = Embedding.from_arrays(problem.space, dict(learned.arrays))
        telling = learned.arrays["information"][_column(learned, problem)]
        active = active_set(problem, embedding, telling, self.h, self.ends)
        names = [problem.space.names[column] for unit in active.units for column in unit.group.columns]
        told: dict[str, Any] = {"active": names, "frozen": list(active.frozen)}
        if not active.units:
            return Candidates(problem.x0[None][:0], {**told, "iterations": 0, "valid": 0})
        paper = PaperSum(problem, self.weights) if self.objective == "paper" else None
        part = budget.part(left_by_sparse(budget)) if self._sparse(problem) else budget
        landed = Landed(active, part, self.particles * (self.iterations + 1), paper)
        final, best, iterations = Swarm(active, landed, self, rng).run()
        if part is not budget:
            budget.take(part.used)
        places = np.unique(np.concatenate({"final": [final], "best": [best], "both": [final, best]}[self.among]))
        places = places[landed.fitness(places).valid]
        rows, fitness = landed.rows(places), landed.fitness(places)
        vectors = replace(embedding, level_weight=UNIT_MISMATCH).vectors(rows)
        pick = "nearest" if self._sparse(problem) else self.pick  # what is sparse is looked for among all of them
        order = picked(vectors, fitness, problem.count, pick, rng)
        found = rows[order]
        beside = landed.rows(landed.valid_beside(places)) if self.spares else found[:0]
        told |= {"iterations": iterations, "valid": len(places)}
        if not self.polish or problem.count == 1 or not len(found):
            return Candidates(_with_spares(problem, found, beside), told)
        reach = active.reachable(rows)
        codes = codes_of(reach, found)

        def more() -> Floats:
            """Return rows of other changed sets."""
            return reach.rows(more_sets(reach, budget, codes))

        if not self._sparse(problem):
            found = np.concatenate([reach.rows(nearer(reach, budget, codes)), found])
            return Candidates(_with_spares(problem, found, beside), told, more=more)
        picks, others = sparse(reach, budget, codes)
        behind = _with_spares(problem, np.concatenate([reach.rows(others), found]), beside)
        return Candidates(reach.rows(picks), told, more=lambda: np.concatenate([behind, more()]))

    def _sparse(self, problem: Problem) -> bool:
        """Whether several answers are those with few changes of few deviations."""
        several = self.polish and problem.count > 1 and not problem.variety.near
        return several and self.pick == "sparse" and self.objective == "distance"

    def ends(self, name: str, own: float) -> tuple[float, float]:
        """Return the box of a scaled number (section 2, step 4), which its own value is in."""
        epsilon = self.epsilon_by_feature.get(name, self.epsilon)
        reach = epsilon * own if self.box == "relative" else epsilon
        return min(max(0.0, own - reach), own), max(min(1.0, own + reach), own)

    def kept_velocity(self, iteration: int) -> float:
        """Return how much of the velocity is kept in an iteration, counted from 0."""
        share = iteration / (self.iterations - 1) if self.iterations > 1 else 0.0
        return self.c0 + (self.c0_end - self.c0) * share


class Swarm:
    """Particles of one search; positions (D, m) have a column for each of them.

    They are drawn to their own best position and to that of all, and away from each other (section 3).
    """

    def __init__(self, active: Active, landed: Landed, how: MDPSO, rng: np.random.Generator) -> None:
        self.active, self.landed, self.how, self.rng = active, landed, how, rng
        self.low, self.high = active.low[:, None], active.high[:, None]
        self.cap = CAP * (self.high - self.low)
        self.X = self.low + rng.random((len(self.low), how.particles)) * (self.high - self.low)
        self.V = np.zeros_like(self.X)
        self._width = np.where(self.high > self.low, self.high - self.low, 1.0)
        self._resettable = np.flatnonzero(active.free)

    def run(self) -> tuple[Places, Places, int]:
        """Move all particles in every iteration, at once, by what the last move has shown.

        Return where they are in the end, the best that each has met, places (m,) each, and the number of iterations.
        """
        places = self._land()
        best, own = places, self.X.copy()
        fitness = self.landed.fitness(best)
        leader = fitness.best
        lead, lead_fitness = own[:, [leader]].copy(), fitness.at(leader)
        done = 0
        while done < self.how.iterations and not self.landed.ended:
            self._move(own, lead, fitness, self.how.kept_velocity(done))
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
        return places[places != UNRATED], best[best != UNRATED], done

    def _move(self, own: Floats, lead: Floats, fitness: Fitness, kept: float) -> None:
        """Change velocities and positions, within the box."""
        how, X, V = self.how, self.X, self.V
        V *= kept
        for c, towards in ((how.c1, own), (how.c2, lead)):
            step = towards - X
            step *= self.rng.random(X.shape)
            step *= c
            V += step
        numeric = self.active.numeric
        if how.c3 and len(numeric):
            away = self._away(X[numeric], fitness)
            V[numeric] += how.c3 * self.rng.random(away.shape) * away
        np.maximum(np.minimum(V, self.cap, out=V), -self.cap, out=V)
        X += V
        inside = np.maximum(np.minimum(X, self.high), self.low)
        V *= inside == X
        self.X = inside

    def _away(self, X: Floats, fitness: Fitness) -> Floats:
        """Return the directions (n, m), of length 1, from the mean to positions (n, m); 0 for what is there."""
        among = X
        if self.how.divergence == "better_half":
            among = X[:, fitness.order[: (X.shape[1] + 1) // 2]]
        away = X - among.mean(axis=1, keepdims=True)
        length = np.sqrt((away * away).sum(axis=0))
        directions: Floats = away / np.where(length > 0, length, 1.0)
        return directions

    def _land(self, *, reset: bool = False) -> Places:
        """Return the places of the rows where particles come down."""
        active = self.active
        codes, numbers = active.land(self.X)
        if reset and self.how.snap_back:
            codes, numbers = self._put_back(codes, numbers)
        codes, numbers = self._limited(codes, numbers)
        places = self.landed.places(codes, numbers)
        if self.how.snap_position and len(self.landed):  # particles at unrated rows stay
            rows = self.landed.rows(np.maximum(places, 0)).T
            parts = [unit.positions(rows[list(unit.group.columns)]) for unit in active.units]
            snapped = np.clip(np.concatenate(parts), self.low, self.high)
            self.X = np.where(places == UNRATED, self.X, snapped)
        return places

    def _put_back(self, codes: Codes, numbers: Floats) -> tuple[Codes, Floats]:
        """Put one change of some particles back, in their positions too."""
        active = self.active
        chance, which = self.rng.random((2, len(codes)))
        some = np.flatnonzero(chance < self.how.snap_back)
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


def _with_spares(problem: Problem, found: Floats, beside: Floats) -> Floats:
    """Return rows found (m, d), and behind them some of other valid rows (n, d)."""
    return np.concatenate([found, beside[spares(problem.changed(found), problem.changed(beside), problem.count)]])


def _column(learned: Learned, problem: Problem) -> int:
    """Return which information values speak of what is wanted; any label but the own one is told apart as that one."""
    bound = problem.target
    if bound is None:
        return int(learned.plain["column"])
    if bound.target.interval:
        return 0
    return max(bound.own, 0) if bound.target.differs else bound.target.column(bound.model)


def _warn_of_frozen(facts: Facts) -> None:
    """Warn where a relative box leaves most rows little: a number that has its least value cannot change."""
    numbers = [at for at, f in enumerate(facts.space.features) if f.numeric and not f.constant]
    least = {facts.space.names[at]: np.mean(facts.background[:, at] == facts.space.features[at].low) for at in numbers}
    frozen = [name for name, share in least.items() if share >= MANY]
    if numbers and len(frozen) >= SOME * len(numbers):
        text = (
            f"explainer.box: a relative box freezes a number that has its least value, as many rows have of "
            f"{', '.join(frozen)}; use MDPSO(box='absolute')"
        )
        warnings.warn(text, stacklevel=2)
