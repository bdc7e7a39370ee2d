"""BRKGA with non-dominated sorting over sequences of actions (CSCF section 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlflow_cf.explainers.cscf.evaluation import Evaluated, Evaluator, front, unbeaten
from mlflow_cf.explainers.cscf.genes import decoded
from mlflow_cf.features import Floats
from mlflow_cf.plans.kernels import Ints
from mlflow_cf.search.population import row_keys


@dataclass(frozen=True)
class Evolution:
    """How a population evolves.

    Attributes:
        population: size of the first generation; offspring, mutants: new members of each later one.
        bias: how likely a gene comes from the elite parent.
        generations: how many there are, the first one included.
        most: longest sequences.
    """

    population: int
    offspring: int
    mutants: int
    bias: float
    generations: int
    most: int

    def run(self, evaluator: Evaluator, rng: np.random.Generator, seeds: Floats) -> tuple[Evaluated, int]:
        """Return the plans that no other one beats, and how many generations there were.

        All elites survive, so that the front never gets worse.

        Args:
            evaluator: of the row.
            rng: the only source of chance.
            seeds: (s, 2n) genes that the first generation starts with.
        """
        width = 2 * len(evaluator.possible)
        genes = np.concatenate([seeds, rng.random((max(self.population - len(seeds), 0), width))])
        members = self._evaluated(genes, evaluator)
        done = 1
        while done < self.generations and not evaluator.cut:
            kept = distinct(members)
            genes, members = genes[kept], members.take(kept)
            best = elites(members)
            fresh = self._next(genes, best, rng)
            added = self._evaluated(fresh, evaluator, all_of_them=not members.feasible.any())
            genes = np.concatenate([genes[best], fresh])
            members = Evaluated.together([members.take(best), added])
            done += 1
        return front(members), done

    def _evaluated(self, genes: Floats, evaluator: Evaluator, *, all_of_them: bool = True) -> Evaluated:
        return evaluator.evaluate(decoded(genes, evaluator.possible, self.most), all_of_them=all_of_them)

    def _next(self, genes: Floats, best: Ints, rng: np.random.Generator) -> Floats:
        """Return (offspring + mutants, 2n) new genes; where all are elites, both parents are."""
        rest = np.setdiff1d(np.arange(len(genes)), best, assume_unique=True)
        elite = genes[rng.choice(best, size=self.offspring)]
        other = genes[rng.choice(rest if len(rest) else best, size=self.offspring)]
        children = np.where(rng.random(elite.shape) < self.bias, elite, other)
        return np.concatenate([children, rng.random((self.mutants, genes.shape[1]))])


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
