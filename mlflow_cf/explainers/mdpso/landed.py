"""Where particles come down: rows repaired by rules, rated once each, and remembered."""

from __future__ import annotations

from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.explainers.mdpso.active import Active
from mlflow_cf.explainers.mdpso.fitness import Fitness, PaperSum, by_distance, gaps, refused
from mlflow_cf.features import Floats
from mlflow_cf.goal import Rating
from mlflow_cf.problem import Budget, Codes
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import batches
from mlflow_cf.structures.links import Encoded
from mlflow_cf.structures.structure import Structure

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

    def codes(self, places: Places) -> Codes:
        """Return the codes (m, A) of the active groups of rows at places (m,)."""
        return np.asarray(self._codes[places][:, self.at])

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
            rows, lost = new[out], refused(broken[new[out]], self._distance(codes[new[out]], numbers[new[out]]))
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
        rating = self._rating(codes, numbers)
        changed = self.problem.changed(self._rows(codes, numbers)) if numbers.size else codes != self.own
        favourable = rating.favourable & changed.any(axis=1)
        if self.paper is None:
            return by_distance(favourable, rating.grade, self._distance(codes, numbers))
        return self.paper.fitness(favourable, gaps(self.problem, favourable, rating.grade), self._rows(codes, numbers))

    def _rating(self, codes: Codes, numbers: Floats) -> Rating:
        if self.problem.scorer is None or numbers.size:
            return self.problem.rate(self._rows(codes, numbers))
        encoded = [table[codes[:, at]] for table, at in self._encoded_values]
        return self.problem.scorer.rate_sums(self._structure.sums(encoded))

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
        places, (costs, peaks) = codes + self._start, self._costs
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
    def _start(self) -> Codes:
        sizes = [len(self.problem.groups[number].actions) for number in self.groups.tolist()]
        return np.cumsum(sizes, dtype=np.intp) - sizes

    @cached_property
    def _costs(self) -> tuple[Floats, Floats]:
        groups = [self.problem.groups[number] for number in self.groups.tolist()]
        return np.concatenate([group.cost for group in groups]), np.concatenate([group.peak for group in groups])

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
        row = [encoded[0] for encoded in scorer.encoded(range(len(problem.space)), problem.x0[None])]
        return scorer.structure.restrict(row, columns)


def _keys(codes: Codes, numbers: Floats) -> list[bytes]:
    """Return what tells rows apart."""
    parts = np.ascontiguousarray(np.column_stack([codes, numbers.view(np.intp)]) if numbers.size else codes)
    whole: NDArray[np.void] = parts.view(np.dtype((np.void, parts.itemsize * parts.shape[1])))
    return cast("list[bytes]", whole.ravel().tolist())
