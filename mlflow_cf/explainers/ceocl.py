"""CE-OCL (Maragno, Röber and Birbil 2022): counterfactuals by mixed-integer optimisation with the model embedded.

Several answers come one after the other: after each answer other changes are asked for first, then other values of the
same changes. Where nothing is feasible, families of constraints are added one after the other to name the one that
leaves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Literal, cast

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.explainers.explainer import Candidates, Facts, Learned, Search, Span, asked, check_options
from mlflow_cf.explainers.geco.geco import GeCo
from mlflow_cf.explainers.hull import (
    PENALTY,
    Enlarged,
    Norm,
    check_learned,
    check_region,
    favourable_rows,
    known_inside,
    learn_region,
    region_of,
)
from mlflow_cf.features import Floats
from mlflow_cf.milp.cuts import Cut, OtherChanges, OtherValues
from mlflow_cf.milp.embed import check_linear
from mlflow_cf.milp.minimise import Minimum, lower_bound, minimise
from mlflow_cf.milp.model import MARGIN, SLACK, Aim, CountedOn, Model, Objective
from mlflow_cf.milp.program import NotLinearError
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.problem.actions import GroupActions
from mlflow_cf.problem.binding import same
from mlflow_cf.words.result import Optimum, Proof

Engine = Literal["auto", "best_first", "milp"]
Manifold = Literal["none", "hull"]
Enlarge = Literal["never", "penalty"]
NEARLY: Final = 1e-3  # of an objective: tangents bound squares about so well
OPTIONS: Final = {
    "engine": Engine,
    "objective": Objective,
    "mu": Span(0, 1e5),  # more outweighs all else
    "sparsity_on": CountedOn,
    "margin": Span(0, 1),
    "manifold": Manifold,
    "clusters": Span(1, 100, whole=True),
    "eps": Span(0, 1e3),
    "norm": Norm,
    "enlarge": Enlarge,
}


@dataclass(frozen=True)
class CEOCL:
    """The nearest counterfactuals as the optimum of a program in which the model is embedded.

    Linear models, trees, forests, boosting and ReLU networks can be; others are refused. For the problem's own
    distance the exact best-first search finds the same optimum in less time, so the program is only solved where that
    search does not apply.

    Reference: Maragno, Röber and Birbil, counterfactual explanations by optimisation with constraint learning (2022).

    Attributes:
        engine: ``milp`` always solves the program, ``best_first`` never; ``auto``: where an option below needs it.
        objective: ``distance``, the problem's own; or the paper's ``l1``, ``l1_mad`` (numbers by their median absolute
            deviation) and ``l2``, over scaled numbers and one-hot levels. Answers keep their order.
        mu: what each changed feature costs on top of the objective.
        sparsity_on: ``columns`` lets a changed category count twice, once for each one-hot column, as in the paper's
            code.
        margin: by how much a score exceeds what is needed, so that rounding changes no answer.
        manifold: ``hull`` keeps answers in the convex hull of the background rows that have the wanted label, over
            numbers scaled by their range and one coordinate for each level. Such answers keep their order, and are the
            nearest ones of the hull.
        clusters: the hulls of so many clusters of these rows instead; an answer lies in one of them.
        eps, norm: by how much hulls are enlarged: the distance ``l1`` or ``linf`` from them, or ``l2``, for which that
            of ``l1`` stands.
        enlarge: ``penalty``: where nothing is in the hull, what is as little outside of it as possible.
    """

    engine: Engine = "auto"
    objective: Objective = "distance"
    mu: float = 0.0
    sparsity_on: CountedOn = "features"
    margin: float = MARGIN
    manifold: Manifold = "none"
    clusters: int = 1
    eps: float = 0.0
    norm: Norm = "l1"
    enlarge: Enlarge = "never"

    name: ClassVar[str] = "ceocl"
    by_request: ClassVar[Mapping[str, Any]] = asked(OPTIONS, [name for name in OPTIONS if name != "clusters"])
    learned_by: ClassVar[tuple[str, ...]] = ("clusters",)

    def __post_init__(self) -> None:
        check_options(self, OPTIONS)
        if self.engine == "best_first" and self.keeps_order:
            fact = "best-first search minimises the problem's distance alone"
            raise InputError("explainer.engine", fact, 'use "milp", or leave objective and mu out')

    @property
    def keeps_order(self) -> bool:
        """Whether answers are ordered by what they cost here, and not by their distance among all that there are."""
        return self.objective != "distance" or self.mu > 0 or self.manifold != "none"

    @property
    def needs_rows(self) -> bool:
        """Whether it needs rows of the data, so that a policy that keeps none refuses it."""
        return self.manifold != "none"

    @property
    def polish(self) -> bool:
        """Whether redundant changes may be undone: not where that would cost more."""
        return not self.keeps_order

    @property
    def solves(self) -> bool:
        """Whether a program is solved to find answers."""
        return self.engine == "milp" or self.keeps_order

    def check(self, facts: Facts, count: int) -> None:
        """Refuse models that could not be opened, and those that rows cannot express where they must."""
        GeCo().check(facts, count)
        if facts.structure is None:
            fact = "the model could not be opened, and nothing can be optimised without that"
            raise InputError("explainer", fact, 'use "geco"; describe() says why')
        try:
            if self.solves:
                check_linear(facts.structure)
        except NotLinearError as error:
            fix = f'use "best_first"{", and leave objective, mu and manifold out" if self.keeps_order else ""}'
            raise InputError("explainer.engine", f"a program cannot express {error}", fix) from error
        if self.manifold != "none":
            check_region(facts)

    def learn(self, facts: Facts) -> Learned:
        """Learn the vectors and clusters of background rows, for all that a request may ask."""
        return learn_region(facts, self.clusters)

    def bound(self, learned: Learned) -> Search:
        """Return the search with what was learned."""
        check_learned(learned)
        return partial(self._search, learned)

    def _search(self, learned: Learned, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Solve the program, or let the pipeline prove what GeCo finds."""
        inside = self.manifold != "none"  # where GeCo's answers need not be
        known = Candidates(problem.x0[None][:0]) if inside else GeCo().search(problem, budget, rng)
        if not self.solves or problem.scorer is None:
            return replace(known, certify=not inside)
        seed = int(rng.integers(2**31))
        model = Model(problem, Aim(self.objective, self.mu, self.sparsity_on), self.margin)
        try:
            if inside:
                return self._inside(model, learned, budget, seed)
            return self._solved(model, known.rows, budget, seed)
        except NotLinearError as error:
            return replace(known, diagnostics={**known.diagnostics, "refused": f"a program cannot express {error}"})

    def _solved(self, model: Model, known: Floats, budget: Budget, seed: int) -> Candidates:
        """Return the answers of programs, then those of `known` (m, d); by distance, also a lower bound.

        All known rows must meet the further constraints (families) of the model.
        """
        found = diverse(model, known, budget, seed)
        solved, exact = [one for one in found if one.row is not None], all(family.exact for family in model.families)
        ended = found[-1].status
        diagnostics: dict[str, Any] = {
            "solver": ended,
            "objective": [one.cost for one in solved],
            "bound": [float(one.bound) for one in solved],
        }
        rows = np.array([one.row for one in solved]).reshape(-1, known.shape[1])
        if not len(rows) + len(known) and ended == "infeasible":
            blocking = first_infeasible(replace(model, margin=-LOOSE), budget, seed)
            diagnostics["infeasible"] = blocking or "margin"
            restricted = blocking == "further"
            return Candidates(rows, diagnostics, certify=not restricted, bound=np.inf if restricted and exact else None)
        nearest = len(rows) and exact and model.aim.nearest
        bound = nearest_possible(model, rows, budget, seed) if nearest else None
        if not self.keeps_order:
            return Candidates(np.concatenate([rows, known]), diagnostics, bound=bound)
        complete = len(rows) == model.problem.count or (len(rows) > 0 and ended == "infeasible")
        known = known[[not complete and not same(rows, row).all(axis=1).any() for row in known]]
        costs = np.append(diagnostics["objective"], model.aim.costs(model.problem, known))
        optima = () if model.aim.nearest else _optima(model, solved, exact=exact)
        return Candidates(np.concatenate([rows, known]), diagnostics, costs=costs, bound=bound, optima=optima)

    def _inside(self, model: Model, learned: Learned, budget: Budget, seed: int) -> Candidates:
        """Return the answers in a region; where there are none, those next to it if `enlarge` asks for these.

        Points of the region itself are incumbents.
        """
        near = favourable_rows(learned, model.problem)
        region = region_of(learned, model.problem, near, Enlarged(self.eps, self.norm))
        known, nothing = known_inside(model.problem, near, budget), model.problem.x0[None][:0]
        found = self._solved(replace(model, families=(region,)), known, budget, seed)
        region_used = region
        if not len(found.rows) and found.diagnostics["solver"] == "infeasible" and self.enlarge == "penalty":
            region_used = replace(region, enlarged=Enlarged(norm="l1", penalty=PENALTY))
            found = self._solved(replace(model, families=(region_used,)), nothing, budget, seed)
        solved = found.rows[: len(found.diagnostics["objective"])]  # rows of the background are inside
        slack = self.eps > 0 or region_used is not region  # else the program lets nothing be apart
        apart = [region.apart(vector) if slack else 0.0 for vector in region.embedding.vectors(solved)]
        facts = {"points": len(near), "whole": region.exact, "enlarged": region_used is not region}
        diagnostics = {**found.diagnostics, "manifold": {**facts, "apart": apart}}
        if diagnostics.get("infeasible") == "further":
            diagnostics["infeasible"] = "manifold"
        return replace(found, diagnostics=diagnostics)


def _optima(model: Model, solved: Sequence[Minimum], *, exact: bool) -> tuple[Optimum, ...]:
    """Return the solver's objective and bound of each answer; the bound of the first one holds for all."""
    bound = float(solved[0].bound) if solved and exact and np.isfinite(solved[0].bound) else None
    aim, optima = model.aim, []
    for number, one in enumerate(solved):
        price = float(aim.price(model.problem, cast("Floats", one.row)[None])[0])
        apart = NEARLY * max(one.cost - price, 0.0) + SLACK * max(aim.mu, 1.0)
        optimal = bound is not None and not number and one.cost - bound <= apart
        proof: Proof = "optimal" if optimal else "none" if bound is None else "bounded"
        optima.append(Optimum(aim.text, float(one.cost), None if bound is None else min(bound, float(one.cost)), proof))
    return tuple(optima)


TRIES: Final = 4  # with a margin ten times as large each
SURE: Final = 2e-6  # of scores: an answer nearer to the end of its target may be refused by the model itself
LEAST_MARGIN: Final = 1e-7
LOOSE: Final = 4e-5  # of scores: what misses a target by more is refused by every model that was opened

Blocking = Literal["validity", "sparsity", "rules", "further"]


def diverse(model: Model, known: Floats, budget: Budget, seed: int) -> list[Minimum]:
    """Return as many answers as the problem wants; if there are fewer or the budget ends, last what ended the search.

    All `known` rows (m, d) meet the whole model: they are incumbents, by which programs become smaller.

    Raises:
        NotLinearError: linear constraints cannot express the model.
    """
    found: list[Minimum] = []
    changes: list[OtherChanges] = []
    values: list[OtherValues] = []
    problem, variety = model.problem, model.problem.variety
    repeating = variety.near
    while len(found) < problem.count:
        cuts: Sequence[Cut] = values if repeating else changes
        incumbent = Minimum("infeasible") if repeating and found else _incumbent(model, known, changes)
        best = _better(_clearly_valid_minimum(replace(model, cutoff=incumbent.cost), cuts, budget, seed), incumbent)
        if best.row is None and best.status == "infeasible" and found and not repeating:
            repeating = True
            continue
        found.append(best)
        if best.row is None:
            break
        groups = tuple(np.flatnonzero(problem.changed(best.row[None])[0]).tolist())
        changes.append(OtherChanges(groups))
        every = tuple(range(len(problem.groups)))
        values.append(OtherValues(best.row, every if variety.near else groups, variety.min_difference))
        if variety.near:  # nor that answer with a change on top
            values.append(OtherValues(best.row, groups, variety.min_difference, groups))
    return found


def nearest_possible(model: Model, rows: Floats, budget: Budget, seed: int) -> float | None:
    """Return a lower bound of the distance of all rows that a model allows; None if none is known.

    `rows` (m, d) are valid ones that the model allows. The target is loosened by the score tolerance of structures.
    """
    low = lower_bound(replace(model, margin=-LOOSE, cutoff=_incumbent(model, rows, ()).cost), budget, seed)
    return None if low.status in ("infeasible", "failed") else max(low.bound - SLACK, 0.0)


def _clearly_valid_minimum(model: Model, cuts: Sequence[Cut], budget: Budget, seed: int) -> Minimum:
    """Return the best row that meets the targets by more than rounding, with a larger margin if it must be."""
    found = minimise(model, cuts, budget, seed)
    for _ in range(TRIES - 1):
        if found.row is None or _surely_valid(model.problem, found.row[None])[0]:
            break
        model = replace(model, margin=10 * max(model.margin, LEAST_MARGIN), cutoff=np.inf)
        found = minimise(model, cuts, budget, seed)
    return found


def _surely_valid(problem: Problem, rows: Floats) -> Bools:
    """Return (m,) whether rows (m, d) meet the targets so clearly that no rounding matters."""
    scorer = problem.scorer
    if scorer is None or not len(rows):
        return np.zeros(len(rows), dtype=np.bool_)
    favourable, margin = scorer.margins(scorer.encoded(range(rows.shape[1]), rows))
    surely: Bools = favourable & (margin >= SURE)
    return surely


def _incumbent(model: Model, known: Floats, changes: Sequence[OtherChanges]) -> Minimum:
    """Return the cheapest known row that surely meets the targets and is not cut off; "infeasible" if there is none."""
    problem = model.problem
    changed = problem.changed(known)
    kept = np.ones(len(known), dtype=np.bool_)
    for cut in changes:
        kept &= ~changed[:, list(cut.groups)].all(axis=1)
    surely = known[kept][_surely_valid(problem, known[kept])]
    costs = model.aim.costs(problem, surely)
    return Minimum("limit", surely[at := costs.argmin()], float(costs[at])) if len(costs) else Minimum("infeasible")


def _better(found: Minimum, incumbent: Minimum) -> Minimum:
    """Return the cheaper one of a row that was found and the incumbent, whose cost was the cutoff.

    Where nothing that costs less is feasible, the incumbent is the optimum.
    """
    if incumbent.row is None or found.cost <= incumbent.cost:
        return found
    status = "optimal" if found.status == "infeasible" else found.status
    return replace(incumbent, status=status, bound=min(found.bound, incumbent.cost))


def first_infeasible(model: Model, budget: Budget, seed: int) -> Blocking | None:
    """Return the first family, in the order of the paper, with which nothing is feasible; None if some row may be.

    Validity and coherence come first, then the limit on changes, then what rules leave of each feature and of
    several, then further families.

    Raises:
        NotLinearError: linear constraints cannot express the model.
    """
    bare = replace(model, problem=_bare(model.problem), limited=False, ruled=False, families=())
    steps: Sequence[tuple[Blocking, Model]] = (
        ("validity", bare),
        ("sparsity", replace(bare, limited=True)),
        ("rules", replace(model, families=())),
        ("further", model),
    )
    for name, step in steps:
        if lower_bound(step, budget, seed).status == "infeasible":
            return name
    return None


def _bare(problem: Problem) -> Problem:
    """Return the problem without the rules of single groups: they may take any action of their domains."""
    groups = []
    for group in problem.groups:
        own, actions = problem.x0[list(group.columns)], group.domain.actions
        admissible = ~(np.isnan(actions) & ~np.isnan(own)).any(axis=1) & ~same(actions, own).all(axis=1)
        actions = np.concatenate([own[None], actions[admissible]])
        cost, peak = problem.bound_distance.parts(group.columns, actions, own)
        free = group.taking(GroupActions(actions, np.ones(len(actions)), 0, cost, peak))
        groups.append(replace(free, ground=tuple, own_allowed=True))
    return replace(problem, groups=tuple(groups))
