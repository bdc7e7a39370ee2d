"""Candidates by code with their scores, and the order among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem


@dataclass(frozen=True, eq=False)
class Population:
    """Scored candidates, best first.

    Attributes:
        codes: (p, G).
        favourable: (p,) whether the target is met.
        score: (p,) distance, plus 1 and what the grade lacks to 1 if the target is not met (GeCo section 2).
        grade: (p,).
        fresh: (p,) whether the member came with the last selection.
    """

    codes: Codes
    favourable: Bools
    score: Floats
    grade: Floats
    fresh: Bools

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, members: NDArray[np.intp]) -> Population:
        """Return some members in the given order."""
        return Population(
            self.codes[members],
            self.favourable[members],
            self.score[members],
            self.grade[members],
            self.fresh[members],
        )

    def joined(self, other: Population) -> Population:
        """Return both populations one after the other, unsorted; only the other's members are fresh."""
        mine = (self.codes, self.favourable, self.score, self.grade, np.zeros(len(self), dtype=np.bool_))
        theirs = (other.codes, other.favourable, other.score, other.grade, np.ones(len(other), dtype=np.bool_))
        return Population(*(np.concatenate(pair) for pair in zip(mine, theirs, strict=True)))


def score_candidates(problem: Problem, codes: Codes) -> Population:
    """Rate codes (m, G) by the model and score them."""
    if not len(codes):  # many models refuse an empty table
        nothing, none = np.empty(0), np.empty(0, dtype=np.bool_)
        return Population(codes, none, nothing, nothing, none)
    rating = problem.rate_codes(codes)
    score = problem.distance(codes) + np.where(rating.favourable, 0.0, 2.0 - rating.grade)
    return Population(codes, rating.favourable, score, rating.grade, np.ones(len(codes), dtype=np.bool_))


def score_within(problem: Problem, codes: Codes, budget: Budget) -> Population:
    """Score the first of codes (m, G), as many as the budget allows."""
    parts = [score_candidates(problem, codes[:0])]
    done = 0
    while done < len(codes):
        granted = budget.take(budget.portion(len(codes) - done))
        if not granted:
            break
        parts.append(score_candidates(problem, codes[done : done + granted]))
        done += granted
    return Population(
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.favourable for part in parts]),
        np.concatenate([part.score for part in parts]),
        np.concatenate([part.grade for part in parts]),
        np.concatenate([part.fresh for part in parts]),
    )


def fittest(problem: Problem, population: Population, most: int, *, uphill: bool = False) -> Population:
    """Return the best members, at most `most`, best first.

    Order: favourable first, then score, number of changed groups, higher grade, codes; so no tie is left to chance.
    `uphill` puts the grade before the score among those that miss the target.
    """
    if len(population) > most:
        population = population.take(_shortlist(population, _first_key(population, uphill=uphill), most))
    changes = (population.codes != problem.own).sum(axis=1)
    first = _first_key(population, uphill=uphill)
    keys = (*population.codes.T[::-1], -population.grade, changes, population.score, first, ~population.favourable)
    return population.take(np.lexsort(keys)[:most])


def _first_key(population: Population, *, uphill: bool) -> Floats:
    missed = 1 - population.grade if uphill else population.score
    return np.where(population.favourable, population.score, missed)


def _shortlist(population: Population, first: Floats, most: int) -> NDArray[np.intp]:
    """Return the members up to the last place that counts, with its ties: only they need the full order."""
    kept = []
    for side in (population.favourable, ~population.favourable):
        members = np.flatnonzero(side)
        if 0 < most < len(members):
            members = members[first[members] <= np.partition(first[members], most - 1)[most - 1]]
        kept.append(members[: len(members) if most > 0 else 0])
        most -= len(members)
    return np.concatenate(kept)


def changed_sets(problem: Problem, codes: Codes) -> tuple[Bools, NDArray[np.intp]]:
    """Return the changed groups (p, G) of each member and the first member of every distinct set, in order."""
    changed = codes != problem.own
    packed = np.packbits(changed, axis=1)
    keys = packed.view([("", packed.dtype)] * packed.shape[1]).ravel()
    _, first = np.unique(keys, return_index=True)
    return changed, np.sort(first)


class Keys:
    """64-bit hashes of candidates.

    A collision (one in 10^10 for 100,000 candidates) loses one candidate of a search and nothing else.
    """

    def __init__(self, problem: Problem) -> None:
        sizes = [len(group.tuples) for group in problem.groups]
        ends = np.cumsum(sizes, dtype=np.intp)
        self.offsets: Codes = ends - sizes
        mixed = _mixed(np.arange(1, ends[-1] + len(sizes) + 1, dtype=np.uint64))
        self._table, self._salt = mixed[: ends[-1]], mixed[ends[-1] :]

    def of(self, codes: Codes) -> NDArray[np.uint64]:
        """Return a key (m,) for every candidate (m, G)."""
        keys: NDArray[np.uint64] = self._table[codes + self.offsets].sum(axis=1, dtype=np.uint64)
        return keys

    def contexts(self, codes: Codes) -> NDArray[np.uint64]:
        """Return a key (m, G) for what every group of every candidate stands beside: its other groups."""
        parts = self._table[codes + self.offsets]
        beside: NDArray[np.uint64] = parts.sum(axis=1, dtype=np.uint64)[:, None] - parts + self._salt
        return beside


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well-mixed words of consecutive numbers: the finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    words = numbers * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class Seen:
    """Remembers which candidates were scored already."""

    def __init__(self, problem: Problem) -> None:
        self.keys = Keys(problem)
        self._known = np.empty(0, dtype=np.uint64)

    def new(self, codes: Codes) -> NDArray[np.intp]:
        """Return the positions, in order, of codes (m, G) never met before, each once, and remember them."""
        keys = self.keys.of(codes)
        _, first = np.unique(keys, return_index=True)
        first.sort()
        unknown = first[~np.isin(keys[first], self._known)]
        self._pending = keys[unknown]
        return unknown

    def remember(self, count: int) -> None:
        """Keep the first `count` of the codes `new` just returned."""
        self._known = np.concatenate([self._known, self._pending[:count]])
