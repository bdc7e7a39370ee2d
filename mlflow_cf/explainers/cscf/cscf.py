"""CSCF (Naumann and Ntoutsi 2021): ordered actions that lead to a counterfactual, and what they cost."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import StrictBool

from mlflow_cf.explainers.cscf.evaluation import Evaluated, Evaluator, answers_among, front, unbeaten
from mlflow_cf.explainers.cscf.floor import least_cost
from mlflow_cf.explainers.cscf.possible import decoded, encoded, possible
from mlflow_cf.explainers.cscf.refine import Refining, reordered, short_plans
from mlflow_cf.explainers.explainer import Candidates, Facts, Span, asked, check_names, check_options
from mlflow_cf.features import Floats
from mlflow_cf.plans.kernels import Ints
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.search.population import row_keys

Pick = Literal["cheapest", "diverse"]
PLANS: Final = 32  # handed over for each answer wanted, as many again of other changed sets: .3 ms each over 30 columns
OPTIONS: Final = {
    "population": Span(2, 10_000, whole=True),
    "offspring": Span(1, 10_000, whole=True),
    "mutants": Span(0, 10_000, whole=True),
    "bias": Span(0, 1),
    "generations": Span(1, 10_000, whole=True),
    "max_steps": Span(1, 64, whole=True, optional=True),
    "pick": Pick,
}


@dataclass(frozen=True)
class CSCF:
    """Plans of actions, each done at most once, whose order decides what later ones cost.

    A genetic algorithm looks for plans that no other one beats in cost, Gower's distance, and how often each feature
    changes. Actions and relationships are the policy's; without actions, every mutable feature has one, and its effort
    is the weighted change as a share of its range. Actions that change or set a number rarely lead to observed values:
    models that declare some need ``values="continuous"`` or ``"grid"``. Answers are ordered by what they cost.

    Reference: Naumann and Ntoutsi, CSCF (2021), sections 3 and 4.

    Attributes:
        population: size of the first generation; offspring, mutants: new members of each later one.
        bias: how likely a gene comes from the elite parent.
        generations: how many there are, the first one included.
        round_objectives: whether efforts are rounded to 4 decimals and Gower's distance to 2, which keeps fronts small.
        min_change: by feature, how much a number must change to count as changed; by default 1e-9 of its range.
        max_steps: longest plans; None: as many as there are actions.
        pick: of several answers the ``cheapest`` first, or ``diverse`` ones: after the cheapest always the one that
            differs most from those before it in which features its steps change.
    """

    population: int = 500
    offspring: int = 400
    mutants: int = 100
    bias: float = 0.7
    generations: int = 150
    round_objectives: bool = True
    min_change: Mapping[str, float] = field(default_factory=dict)
    max_steps: int | None = None
    pick: Pick = "cheapest"

    name: ClassVar[str] = "cscf"
    polish: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = True
    discounts: ClassVar[bool] = True
    by_request: ClassVar[Mapping[str, Any]] = {**asked(OPTIONS), "round_objectives": StrictBool}

    def __post_init__(self) -> None:
        check_options(self, OPTIONS)
        for feature, least in self.min_change.items():
            Span(0, 1e12).check(f"explainer.min_change.{feature}", least)

    def check(self, facts: Facts, count: int) -> None:
        """Refuse what is said of features that are not there; warn where numbers would have to hit observed values."""
        del count
        check_names("explainer.min_change", self.min_change, facts.space)
        declared = () if facts.bound_policy.action_model is None else facts.bound_policy.action_model.actions
        if facts.bound_policy.values == "observed" and any(action.choices is None for action in declared):
            text = f"values='observed' leaves {self.name} few plans: numbers rarely become observed ones"
            warnings.warn(f"{text}; use 'continuous'", stacklevel=2)

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Evolve plans; return those that no other one beats, in the order of what they cost."""
        can = possible(problem, dict(self.min_change), discounts=self.discounts)
        told: dict[str, Any] = {"actions": [action.name for action in can.actions], "dropped": can.dropped}
        if not len(can):
            return Candidates(problem.x0[None][:0], {**told, "generations": 0, "front": 0}, costs=np.empty(0))
        evaluator = Evaluator(problem, can, budget, self.round_objectives)
        most = min(self.max_steps or len(can), len(can))
        short = short_plans(evaluator, most)
        short = Refining(evaluator, rng).run(short, any_distance=True)
        seeds = encoded(short.take(np.flatnonzero(short.feasible)[: self.population // 2]).sequences, can)
        found, done = short, 0
        if not evaluator.cut:
            found, done = self._evolved(evaluator, rng, seeds, most)
        found = self._refined(evaluator, rng, found, short)
        told |= {"inactive": evaluator.inactive, "generations": done, "front": len(found)}
        return self._candidates(evaluator, found, told, most)

    def _refined(self, evaluator: Evaluator, rng: np.random.Generator, found: Evaluated, short: Evaluated) -> Evaluated:
        """Return the best of plans, of short ones, and of cheaper ones with the same actions."""
        refining = Refining(evaluator, rng)
        several = [refining.run(found, any_distance=anywhere) for anywhere in (False, True)]
        best = answers_among(evaluator, [short, found, *several])
        cheaper = reordered(evaluator, best)
        refined = refining.run(cheaper, any_distance=True)
        return answers_among(evaluator, [best, cheaper, refined, reordered(evaluator, refined)])

    def _evolved(
        self, evaluator: Evaluator, rng: np.random.Generator, seeds: Floats, most: int
    ) -> tuple[Evaluated, int]:
        """Return the plans that no other one beats, and how many generations there were (BRKGA, section 5).

        All elites survive, so that the front never gets worse. Where all members are elites, both parents are.

        Args:
            evaluator: of the row.
            rng: the only source of chance.
            seeds: (s, 2n) genes that the first generation starts with.
            most: longest sequences.
        """
        width = 2 * len(evaluator.possible)
        genes = np.concatenate([seeds, rng.random((max(self.population - len(seeds), 0), width))])
        members = evaluator.evaluate(decoded(genes, evaluator.possible, most), all_of_them=True)
        done = 1
        while done < self.generations and not evaluator.cut:
            kept = distinct(members)
            genes, members = genes[kept], members.take(kept)
            best = elites(members)
            rest = np.setdiff1d(np.arange(len(genes)), best, assume_unique=True)
            elite = genes[rng.choice(best, size=self.offspring)]
            other = genes[rng.choice(rest if len(rest) else best, size=self.offspring)]
            children = np.where(rng.random(elite.shape) < self.bias, elite, other)
            fresh = np.concatenate([children, rng.random((self.mutants, width))])
            some = decoded(fresh, evaluator.possible, most)
            added = evaluator.evaluate(some, all_of_them=not members.feasible.any())
            genes = np.concatenate([genes[best], fresh])
            members = Evaluated.together([members.take(best), added])
            done += 1
        return front(members), done

    def _candidates(self, evaluator: Evaluator, found: Evaluated, told: Mapping[str, Any], most: int) -> Candidates:
        """Return plans: cheapest first, or diverse ones."""
        if self.pick == "diverse":
            found = found.take(diverse(found))
        found = found.take(_handed_over(evaluator.problem, found.states))
        plans = tuple(map(evaluator.walker.plan, found.sequences.actions, found.sequences.values))
        return Candidates(
            found.states,
            told,
            plans=plans,
            action_model=evaluator.possible.action_model,
            costs=found.cost,
            as_listed=self.pick == "diverse",
            least_cost=partial(least_cost, evaluator, most),
        )


def distinct(members: Evaluated) -> Ints:
    """Return the first of members with equal objectives; of what is no plan, the first of equal sequences."""
    worth = np.where(members.feasible[:, None], members.objectives, np.nan)
    sequences = np.concatenate([members.sequences.actions, members.sequences.values], axis=1)
    sequences[members.feasible] = np.nan
    _, first = np.unique(row_keys(np.concatenate([worth, sequences], axis=1)), return_index=True)
    return np.sort(first)


def elites(members: Evaluated) -> Ints:
    """Return the members of the first front: of the plans, or of what is least wrong as long as there are none."""
    least = np.flatnonzero(members.violations == members.violations.min())
    ahead: Ints = least[unbeaten(members.objectives[least], keep_weakly=True)]
    return ahead


def _handed_over(problem: Problem, states: Floats) -> Ints:
    """Return which ends (m, d) of plans, best first, become candidates: the first, and those of other changed sets."""
    most = PLANS * max(problem.count, 1)
    _, first = np.unique(problem.changed(states), axis=0, return_index=True)
    return np.union1d(np.arange(min(len(states), most)), np.sort(first)[:most])


@dataclass(frozen=True)
class SCF(CSCF):
    """What `CSCF` does, with the same options, without discounts: relationships do not count.

    Reference: Naumann and Ntoutsi, CSCF (2021).
    """

    name: ClassVar[str] = "scf"
    discounts: ClassVar[bool] = False


def diverse(plans: Evaluated) -> Ints:
    """Return the order of plans (m), the first of which is the cheapest: next is always the one that differs most.

    Plans differ by the features that the steps of one change, and those of the other do not; what counts is the most
    similar plan before. Ties go to the plan that stands first among `plans`.
    """
    changed = plans.objectives[:, 2:] > 0
    apart = np.full(len(plans), np.inf)
    order = np.zeros(len(plans), dtype=np.int64)
    for place in range(len(plans)):
        order[place] = chosen = int(apart.argmax())
        apart = np.minimum(apart, (changed != changed[chosen]).sum(axis=1))
        apart[order[: place + 1]] = -1.0
    return order
