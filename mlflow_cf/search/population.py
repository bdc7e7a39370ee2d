"""Candidates by code with their scores, and the order among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.binding import same

LEAST_GRADE = 1e-15


@dataclass(frozen=True, eq=False)
class Population:
    """Scored candidates, best first.

    Attributes:
        codes: (p, G).
        favourable: (p,) whether the target is met.
        score: (p,) distance, plus a penalty for missing the target: 2 - grade (GeCo section 2), or one for the
            shortfall of raw scores.
        merit: (p,) how near each comes to the target, higher is better: its grade, or its negated shortfall of raw
            scores (`goal.raw_scores.lacking`).
        fresh: (p,) whether the member is new since the last selection.
    """

    codes: Codes
    favourable: Bools
    score: Floats
    merit: Floats
    fresh: Bools

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, members: NDArray[np.intp]) -> Population:
        """Return some members in the given order."""
        return Population(
            self.codes[members],
            self.favourable[members],
            self.score[members],
            self.merit[members],
            self.fresh[members],
        )

    @classmethod
    def together(cls, parts: Sequence[Population]) -> Population:
        """Return one or more populations one after the other, unsorted."""
        columns = zip(*((p.codes, p.favourable, p.score, p.merit, p.fresh) for p in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    def aged(self) -> Population:
        """Return the same members, none of them fresh."""
        return replace(self, fresh=np.zeros(len(self), dtype=np.bool_))

    def joined(self, other: Population) -> Population:
        """Return both populations one after the other, unsorted; only the other's members are fresh."""
        return Population.together([self.aged(), other])


def none_scored(problem: Problem) -> Population:
    """Return a population without members."""
    nothing, none = np.empty(0), np.empty(0, dtype=np.bool_)
    return Population(np.empty((0, len(problem.groups)), dtype=np.intp), none, nothing, nothing, none)


def score_candidates(problem: Problem, codes: Codes) -> Population:
    """Rate codes (m, G) by the model and score them."""
    if not len(codes):  # many models refuse an empty table
        return none_scored(problem)
    rating = problem.rate_codes(codes)
    score = problem.distance(codes) + np.where(rating.favourable, 0.0, 2.0 - rating.grade)
    return Population(codes, rating.favourable, score, rating.grade, np.ones(len(codes), dtype=np.bool_))


def log_odds(grade: Floats) -> Floats:
    """Return the logarithm of the odds (m,) of grades: those next to 0 differ in it, and gains add up better."""
    grade = grade.clip(LEAST_GRADE, 1.0 - LEAST_GRADE)
    odds: Floats = np.log(grade) - np.log1p(-grade)
    return odds


def batches(total: int, budget: Budget) -> Iterator[slice]:
    """Yield the next of `total` candidates to score in one go, as many as the budget allows in all."""
    done = 0
    while done < total:
        granted = budget.take(budget.batch_size(total - done))
        if not granted:
            return
        yield slice(done, done + granted)
        done += granted


def score_within(problem: Problem, codes: Codes, budget: Budget) -> Population:
    """Score the first of codes (m, G), as many as the budget allows."""
    parts = [score_candidates(problem, codes[part]) for part in batches(len(codes), budget)]
    return Population.together([none_scored(problem), *parts])


def fittest(problem: Problem, population: Population, most: int, *, uphill: bool = False) -> Population:
    """Return the best members, at most `most`, best first.

    Order: favourable first, then score, number of changed groups, higher merit, codes; so no tie is left to chance.
    `uphill` puts the merit before the score among those that miss the target.
    """
    if len(population) > most:
        population = population.take(shortlist(population.favourable, _first_key(population, uphill=uphill), most))
    missed, first = ~population.favourable, _first_key(population, uphill=uphill)
    order = np.lexsort((first, missed))
    equal = (first[order][1:] == first[order][:-1]) & (missed[order][1:] == missed[order][:-1])
    if equal.any():  # the rest of the order costs most, and seldom counts
        changes = (population.codes != problem.own).sum(axis=1)
        order = np.lexsort((*population.codes.T[::-1], -population.merit, changes, population.score, first, missed))
    return population.take(order[:most])


def _first_key(population: Population, *, uphill: bool) -> Floats:
    missed = -population.merit if uphill else population.score
    return np.where(population.favourable, population.score, missed)


def shortlist(favourable: Bools, first: Floats, most: int) -> NDArray[np.intp]:
    """Return the members up to the last place that counts, with its ties: only they need the full order.

    Args:
        favourable: (p,) these come first.
        first: (p,) then, the smaller the better.
        most: how many places count.
    """
    kept = []
    for side in (favourable, ~favourable):
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
    words = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)  # compared faster than bytes
    words[:, : packed.shape[1]] = packed
    count = words.shape[1] // 8
    keys = words.view(np.uint64 if count == 1 else [("", np.uint64)] * count)
    _, first = np.unique(keys.ravel(), return_index=True)
    return changed, np.sort(first)


def apart(changed: Bools, most: int) -> list[int]:
    """Return the first changed sets (s, G), at most `most`, that contain none of those before them.

    A set that contains another one may become it once redundant changes are undone: then both are one answer.
    """
    found: list[int] = []
    for position, flags in enumerate(changed):
        if len(found) == most:
            break
        if not (changed[found] <= flags).all(axis=1).any():
            found.append(position)
    return found


def first_of_sets(problem: Problem, population: Population) -> Population:
    """Return members, best first, without the favourable ones whose changed set a better favourable one has."""
    favourable = np.flatnonzero(population.favourable)
    _, first = changed_sets(problem, population.codes[favourable])
    kept = ~population.favourable
    kept[favourable[first]] = True
    return population.take(np.flatnonzero(kept))


def cutoff_of_sets(problem: Problem, population: Population) -> float:
    """Return the distance of the last answer wanted where no two favourable members have the same changed set."""
    favourable = np.flatnonzero(population.favourable)
    last = problem.count - 1
    return float(population.score[favourable[last]]) if len(favourable) > last else np.inf


def cutoff_of(problem: Problem, population: Population) -> float:
    """Return the distance of the last answer wanted among favourable members, best first; inf if there are too few."""
    favourable = population.codes[population.favourable]
    changed, first = changed_sets(problem, favourable)
    found = apart(changed[first], problem.count)
    return float(population.score[first[found[-1]]]) if len(found) == problem.count else np.inf


class Keys:
    """64-bit hashes of candidates.

    A collision (one in 10^10 for 100,000 candidates) loses one candidate of a search and nothing else.
    """

    def __init__(self, problem: Problem) -> None:
        self._start, places = problem.actions.start[:-1], len(problem.actions.cost)
        mixed = _mixed(np.arange(1, places + len(problem.groups) + 1, dtype=np.uint64))
        self._table, self._salt = mixed[:places], mixed[places:]
        self._places = np.append(self._table, np.uint64(0))

    def of(self, codes: Codes) -> NDArray[np.uint64]:
        """Return a key (m,) for every candidate (m, G)."""
        keys: NDArray[np.uint64] = self._table[codes + self._start].sum(axis=1, dtype=np.uint64)
        return keys

    def of_places(self, places: Codes) -> NDArray[np.uint64]:
        """Return a key (m,) for every candidate (m, k) written by its changes; other keys than those of codes."""
        keys: NDArray[np.uint64] = self._places[places].sum(axis=1, dtype=np.uint64)
        return keys

    def contexts(self, codes: Codes) -> NDArray[np.uint64]:
        """Return a key (m, G) for what every group of every candidate stands beside: its other groups."""
        parts = self._table[codes + self._start]
        beside: NDArray[np.uint64] = parts.sum(axis=1, dtype=np.uint64)[:, None] - parts + self._salt
        return beside


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well-mixed words of consecutive numbers: the finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    words = numbers * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def row_keys(rows: Floats) -> NDArray[np.uint64]:
    """Return a key (m,) for every row (m, k); those of different rows differ as `Keys` do."""
    words = np.ascontiguousarray(rows, dtype=np.float64).view(np.uint64)
    salt = _mixed(np.arange(1, words.shape[1] + 1, dtype=np.uint64))
    keys: NDArray[np.uint64] = _mixed(words ^ salt).sum(axis=1, dtype=np.uint64)
    return keys


class Seen:
    """Remembers which candidates were scored already."""

    def __init__(self, problem: Problem) -> None:
        self.keys = Keys(problem)
        self._known: set[int] = set()
        self._pending: list[int] = []

    def new(self, codes: Codes) -> NDArray[np.intp]:
        """Return the positions, in order, of codes (m, G) never met before, each once; `remember` them next."""
        return self._new(self.keys.of(codes))

    def new_places(self, places: Codes) -> NDArray[np.intp]:
        """Return the same of candidates (m, k) written by their changes; a search uses one of the two."""
        return self._new(self.keys.of_places(places))

    def remember(self, count: int) -> None:
        """Keep the first `count` of those just returned."""
        self._known.update(self._pending[:count])

    def _new(self, keys: NDArray[np.uint64]) -> NDArray[np.intp]:
        first: dict[int, int] = {}
        for position, key in enumerate(keys.tolist()):
            if key not in self._known:
                first.setdefault(key, position)
        self._pending = list(first)
        return np.fromiter(first.values(), dtype=np.intp, count=len(first))


def near_copies(problem: Problem, Z: Floats, row: Floats, times: int = 1) -> Bools:
    """Return (m,) which rows Z (m, d) are near-copies of a row (d,): equal levels, and about equal numbers.

    All numbers differ by less than `times` the least difference of the policy. Unless the nearest answers are wanted,
    near-copies also change the same groups.
    """
    least = times * problem.least_differences
    with np.errstate(invalid="ignore"):  # a missing value is far from all numbers
        copies: Bools = np.all(same(Z, row) | (np.abs(Z - row) < least), axis=1)
    if not problem.variety.near and copies.any():
        copies[copies] = (problem.changed(Z[copies]) == problem.changed(row[None])).all(axis=1)
    return copies
