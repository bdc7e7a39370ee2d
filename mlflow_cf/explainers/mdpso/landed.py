"""Where particles come down: rows repaired by rules, rated once each, and remembered.

Also how good rows are to a swarm: the order of the problem, or the sum that the paper prints (MD-PSO section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.mdpso.active import Active
from mlflow_cf.features import Floats
from mlflow_cf.policy import Distance
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import batches
from mlflow_cf.structures.structure import Encoded, Structure

Places = NDArray[np.intp]
UNRATED = -1  # the place of rows that the budget left out


class Landed:
    """The rows that one search meets, each rated once, at places in order of their appearance.

    Rows are codes (m, C) of the groups that may differ, and values (m, c) of continuous numbers.
    """

    def __init__(self, active: Active, budget: Budget, most: int, paper: PaperSum | None = None) -> None:
        """Set up for `most` rows; without `paper` they are compared by the problem's own distance."""
        self.active, self.problem, self.budget, self.paper = active, active.problem, budget, paper
        cascade = Cascade(self.problem)
        self.cascade = cascade if cascade.steps or cascade.joint_rules or not self.problem.plain_limits else None
        differing = np.union1d(active.numbers, np.array(cascade.steps, dtype=np.intp))
        self.groups: Codes = differing.astype(np.intp)
        self.at = np.searchsorted(self.groups, active.numbers)
        self.own: Codes = self.problem.own[self.groups]
        self.ended = False
        self._known: dict[bytes, int] = {}
        self._codes = np.empty((most, len(self.groups)), dtype=np.intp)
        self._numbers = np.empty((most, len(active.continuous)))
        unrated = np.full(most + 1, np.inf)
        self._fitness = Fitness(unrated, unrated.copy(), np.zeros(most + 1, dtype=np.bool_))

    def __len__(self) -> int:
        return len(self._known)

    def fitness(self, places: Places) -> Fitness:
        """Return the fitness of the rows at places (m,); unrated ones are worse than all others."""
        return self._fitness.take(places)

    def rows(self, places: Places) -> Floats:
        """Return rows (m, d)."""
        return self._rows(self._codes[places], self._numbers[places])

    def valid_beside(self, places: Places) -> Places:
        """Return the places of other valid rows than these, best first."""
        valid = self._fitness.valid.copy()
        valid[places] = False
        others = np.flatnonzero(valid)
        return np.asarray(others[self.fitness(others).order])

    def places(self, codes: Codes, numbers: Floats) -> Places:
        """Return the places (m,) of where particles come down, as `Active.land` says; `UNRATED` beyond the budget."""
        codes, numbers, broken = self._repaired(codes, numbers)
        keys, known = _keys(codes, numbers), self._known
        first: dict[bytes, int] = {}
        for at, key in enumerate(keys):
            if key not in known:
                first.setdefault(key, at)
        if first:
            new = np.fromiter(first.values(), dtype=np.intp, count=len(first))
            self._rate(list(first), new, codes, numbers, broken)
        return np.array([known.get(key, UNRATED) for key in keys])

    def _rate(self, keys: list[bytes], new: Places, codes: Codes, numbers: Floats, broken: Places | None) -> None:
        """Rate the rows at positions `new`, those that break rules without the model."""
        if broken is not None and (refuse := broken[new] > 0).any():
            out = np.flatnonzero(refuse)
            rows = new[out]
            far = self._distance(codes[rows], numbers[rows])
            lost = Fitness(1.0 + broken[rows].astype(np.float64), far, np.zeros(len(rows), dtype=np.bool_))
            self._keep([keys[at] for at in out.tolist()], codes[rows], numbers[rows], lost)
            kept = np.flatnonzero(~refuse)
            keys, new = [keys[at] for at in kept.tolist()], new[kept]
        rated = 0
        for part in batches(len(new), self.budget):
            rows = new[part]
            self._keep(keys[part], codes[rows], numbers[rows], self._rated(codes[rows], numbers[rows]))
            rated += len(rows)
        self.ended |= rated < len(new)

    def _keep(self, keys: list[bytes], codes: Codes, numbers: Floats, fitness: Fitness) -> None:
        start = len(self._known)
        part = slice(start, start + len(keys))
        self._known.update(zip(keys, range(start, start + len(keys)), strict=True))
        self._codes[part], self._numbers[part] = codes, numbers
        for name in ("first", "second", "valid"):
            getattr(self._fitness, name)[part] = getattr(fitness, name)

    def _rated(self, codes: Codes, numbers: Floats) -> Fitness:
        if self.problem.scorer is None or numbers.size:
            rating = self.problem.rate(self._rows(codes, numbers))
        else:
            encoded = [table[codes[:, at]] for table, at in self._encoded_values]
            rating = self.problem.scorer.rate_sums(self._structure.sums(encoded))
        changed = self.problem.changed(self._rows(codes, numbers)) if numbers.size else codes != self.own
        favourable = rating.favourable & changed.any(axis=1)
        if self.paper is None:
            return by_distance(favourable, rating.grade, self._distance(codes, numbers))
        return self.paper.fitness(favourable, gaps(self.problem, favourable, rating.grade), self._rows(codes, numbers))

    def _repaired(self, codes: Codes, numbers: Floats) -> tuple[Codes, Floats, Places | None]:
        """Return rows (m, C), (m, c) repaired as far as they can be, and how many rules each breaks, if any may."""
        problem = self.problem
        found = codes
        if len(self.at) < len(self.own):
            found = np.tile(self.own, (len(codes), 1))
            found[:, self.at] = codes
        if self.cascade is None:
            return found, numbers, None
        whole = np.tile(problem.own, (len(codes), 1))
        whole[:, self.groups] = found
        whole, _ = self.cascade.repaired(whole)
        found = whole[:, self.groups]
        numbers = numbers.copy()
        for at, place in enumerate(self.active.continuous.tolist()):
            unit = self.active.units[place]
            given = np.flatnonzero(found[:, self.at[place]] != codes[:, place])
            numbers[given, at] = unit.group.actions[found[given, self.at[place]], 0]
        broken = (problem.changes_left(whole) < 0).astype(np.intp)
        for number in self.cascade.steps:
            if not problem.groups[number].own_allowed:
                broken += whole[:, number] == problem.groups[number].own
        rows = self._rows(found, numbers)
        for joint in self.cascade.joint_rules:
            broken += ~(joint.rule.holds(rows, problem.x0) if numbers.size else joint.holds(whole))
        return found, numbers, broken

    def _distance(self, codes: Codes, numbers: Floats) -> Floats:
        """Return the distances (m,), bit for bit those of the problem: groups that cannot differ add 0."""
        problem = self.problem
        if numbers.size:
            return problem.bound_distance.distance(problem.columns, self._rows(codes, numbers), problem.x0)
        starts, costs, peaks = self._costs
        places = codes + starts
        total: Floats = np.add.accumulate(costs[places], axis=1)[:, -1]
        return total + problem.bound_distance.c * peaks[places].max(axis=1) if problem.bound_distance.c else total

    def _rows(self, codes: Codes, numbers: Floats) -> Floats:
        problem = self.problem
        rows = np.tile(problem.x0, (len(codes), 1))
        for number, column in zip(self.groups.tolist(), codes.T, strict=True):
            rows[:, problem.columns[number]] = problem.groups[number].actions[column]
        for values, place in zip(numbers.T, self.active.continuous.tolist(), strict=True):
            rows[:, self.active.units[place].group.columns[0]] = values
        return rows

    @cached_property
    def _costs(self) -> tuple[Codes, Floats, Floats]:
        """Where the tuples of every group start, and what all of them cost, and their peaks."""
        groups = [self.problem.groups[number] for number in self.groups.tolist()]
        costs, peaks = [group.cost for group in groups], [group.peak for group in groups]
        starts = np.cumsum([0, *(len(cost) for cost in costs[:-1])], dtype=np.intp)
        return starts, np.concatenate(costs), np.concatenate(peaks)

    @cached_property
    def _encoded_values(self) -> list[tuple[Encoded, int]]:
        """For every column that may differ, the encoded values of its group's tuples and the group's place."""
        scorer, found = self.problem.scorer, []
        if scorer is not None:
            for at, number in enumerate(self.groups.tolist()):
                group = self.problem.groups[number]
                found += [(table, at) for table in self.problem.encoded_group(scorer, group)]
        return found

    @cached_property
    def _structure(self) -> Structure:
        """The model with all groups fixed to the row but those that may differ."""
        problem, scorer = self.problem, self.problem.scorer
        if scorer is None:
            raise ValueError("the model was not opened")
        columns = [column for number in self.groups.tolist() for column in problem.columns[number]]
        if columns == list(range(len(problem.space))):
            return scorer.structure
        return scorer.structure.restrict([encoded[0] for encoded in problem.encoded_row], columns)


def _keys(codes: Codes, numbers: Floats) -> list[bytes]:
    """Return what tells rows apart."""
    parts = np.ascontiguousarray(np.column_stack([codes, numbers.view(np.intp)]) if numbers.size else codes)
    whole: NDArray[np.void] = parts.view(np.dtype((np.void, parts.itemsize * parts.shape[1])))
    return cast("list[bytes]", whole.ravel().tolist())


Objective = Literal["distance", "paper"]
EVEN = 0.5  # the probability from which a label is wanted where no other is named


@dataclass(frozen=True, eq=False)
class Fitness:
    """The less the better: `first`, then `second`, (m,) each; `valid`: which rows meet target and constraints."""

    first: Floats
    second: Floats
    valid: Bools

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: NDArray[np.intp] | slice | Bools) -> Fitness:
        """Return that of some rows."""
        return Fitness(self.first[rows], self.second[rows], self.valid[rows])

    def at(self, row: int) -> Fitness:
        """Return that of one row."""
        return self.take(slice(row, row + 1))

    def better(self, other: Fitness) -> Bools:
        """Return (m,) which rows are better than those of another swarm of as many, or of one."""
        better: Bools = (self.first < other.first) | ((self.first == other.first) & (self.second < other.second))
        return better

    @property
    def best(self) -> int:
        """The best row, the first of equals."""
        least = np.flatnonzero(self.first == self.first.min())
        return int(least[self.second[least].argmin()])

    @property
    def order(self) -> NDArray[np.intp]:
        """(m,) the rows, best first."""
        return np.lexsort((self.second, self.first))


def by_distance(favourable: Bools, grade: Floats, distance: Floats) -> Fitness:
    """Return fitness by validity, then what the grade lacks, then the problem's own distance."""
    first: Floats = np.where(favourable, -1.0, np.subtract(1.0, np.fmax(grade, 0.0), dtype=np.float64))
    return Fitness(first, distance, favourable)


class PaperSum:
    """The paper's objective: a weighted sum of what the score lacks, Gower's distance, and the number of changes.

    It has no weights in the paper, where a row of no changes beats any answer: each change costs 1, and the score never
    lacks more than a half.

    Attributes:
        problem: the row to explain.
        weights: of the three terms.
    """

    def __init__(self, problem: Problem, weights: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> None:
        self.problem, self.weights = problem, weights
        self._gower = BoundDistance.bind(Distance(0.0, 1.0, 0.0), problem.space)
        self._changed = BoundDistance.bind(Distance(1.0, 0.0, 0.0), problem.space)

    def fitness(self, favourable: Bools, gap: Floats, Z: Floats) -> Fitness:
        """Return the fitness of rows (m, d) whose scores lack so much."""
        columns, x0 = self.problem.columns, self.problem.x0
        l2 = self._gower.distance(columns, Z, x0)
        l3 = self._changed.distance(columns, Z, x0) * len(x0)
        total = self.weights[0] * gap + self.weights[1] * l2 + self.weights[2] * l3
        return Fitness(total, np.zeros(len(Z)), favourable)


def gaps(problem: Problem, favourable: Bools, grade: Floats) -> Floats:
    """Return l1 (m,): 0 if favourable, else how far the score is from what is wanted.

    Of two classes it is what the probability of the wanted one lacks, of several half of its distance to the best other
    one, of a regression the distance to the interval as a share of the spread of predictions, of bare labels 1.
    """
    grade, model = np.nan_to_num(grade, nan=0.0), None if problem.target is None else problem.target.model
    least = EVEN
    if problem.target is not None and model is not None and len(model.classes) == 2:
        least = max(EVEN, problem.target.target.min_probability or 0.0)
    gap = least - grade
    if model is not None and model.regression:
        gap = 1.0 - 2.0 * grade
    elif model is not None and model.score_kind == "none":
        gap = np.ones(len(grade))
    return np.where(favourable, 0.0, np.maximum(gap, 0.0))
