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
from mlflow_cf.explainers.explainer import Candidates, Search
from mlflow_cf.explainers.learned import Facts, Learned, Learning
from mlflow_cf.explainers.mdpso.active import Active, active_set
from mlflow_cf.explainers.mdpso.coordinates import BoxKind, BoxOptions
from mlflow_cf.explainers.mdpso.fitness import Objective, PaperSum
from mlflow_cf.explainers.mdpso.information import information_values
from mlflow_cf.explainers.mdpso.landed import Landed, Places
from mlflow_cf.explainers.mdpso.selection import Pick, picked, spares
from mlflow_cf.explainers.mdpso.sparse import left_by_sparse, sparse
from mlflow_cf.explainers.mdpso.swarm import Converged, Motion, Swarm
from mlflow_cf.explainers.options import Span, asked, check_names, check_options
from mlflow_cf.features import Floats
from mlflow_cf.features.embedding import UNIT_MISMATCH, Embedding
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.more_sets import more_sets, nearer
from mlflow_cf.search.seeds import codes_of
from mlflow_cf.validation import Number

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
MANY: Final = 0.25  # of all rows: so many hold a number's least value, which a relative box freezes
SOME: Final = 0.33  # of all numbers: so many are like that


@dataclass(frozen=True)
class MDPSO:
    """A swarm of particles in a box around the row, over the features with the largest information value.

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
            deviations, see `sparse.py`. Without polish, by the paper's sum, or for ``diversity="near"``, the best.
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
        options = BoxOptions(self.box, self.epsilon, self.epsilon_by_feature)
        active = active_set(problem, embedding, telling, self.h, options)
        told: dict[str, Any] = {"active": _names(active), "frozen": list(active.frozen)}
        if not active.units:
            return Candidates(problem.x0[None][:0], {**told, "iterations": 0, "valid": 0})
        paper = PaperSum(problem, self.weights) if self.objective == "paper" else None
        part = budget.part(left_by_sparse(budget)) if self._sparse(problem) else budget
        landed = Landed(active, part, self.particles * (self.iterations + 1), paper)
        end = Swarm(active, landed, self._motion, self.particles, rng).run(self.iterations)
        if part is not budget:
            budget.take(part.used)
        places = self._kept(landed, end)
        rows, fitness = landed.rows(places), landed.fitness(places)
        vectors = replace(embedding, level_weight=UNIT_MISMATCH).vectors(rows)
        pick = "nearest" if self._sparse(problem) else self.pick  # what is sparse is looked for among all of them
        order = picked(vectors, fitness, problem.count, pick, rng)
        found = rows[order]
        beside = landed.rows(landed.valid_beside(places)) if self.spares else found[:0]
        told |= {"iterations": end.iterations, "valid": len(places)}
        if not self.polish or problem.count == 1 or not len(found):
            return Candidates(_with_spares(problem, found, beside), told)
        reach = active.reachable(rows)
        codes = codes_of(reach, found)
        more = partial(_more, reach, budget, codes)
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

    @property
    def _motion(self) -> Motion:
        from_best = self.divergence == "better_half"
        return Motion(self.c0, self.c0_end, self.c1, self.c2, self.c3, from_best, self.snap_back, self.snap_position)

    def _kept(self, landed: Landed, end: Converged) -> Places:
        """Return the places of the distinct valid rows that may become answers."""
        parts = {"final": [end.final], "best": [end.best], "both": [end.final, end.best]}[self.among]
        places = np.unique(np.concatenate(parts))
        return places[landed.fitness(places).valid]


def _with_spares(problem: Problem, found: Floats, beside: Floats) -> Floats:
    """Return rows found (m, d), and behind them some of other valid rows (n, d)."""
    return np.concatenate([found, beside[spares(problem.changed(found), problem.changed(beside), problem.count)]])


def _more(reach: Problem, budget: Budget, codes: Codes) -> Floats:
    """Return rows (m, d) of other changed sets than favourable candidates (k, G) have."""
    return reach.rows(more_sets(reach, budget, codes))


def _column(learned: Learned, problem: Problem) -> int:
    """Return which information values speak of what is wanted; any label but the own one is told apart as that one."""
    bound = problem.target
    if bound is None:
        return int(learned.plain["column"])
    if bound.target.interval:
        return 0
    return max(bound.own, 0) if bound.target.differs else bound.target.column(bound.model)


def _names(active: Active) -> list[str]:
    """Return the names of the features that may change."""
    return [active.problem.space.names[column] for unit in active.units for column in unit.group.columns]


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
