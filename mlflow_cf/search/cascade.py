"""The action cascade: repair candidates until all rules hold, or reject them (GeCo section 3.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.search.sampling import draw_by_row

MOST_ROWS = 200_000  # rows built at once when all tuples of a group are tried


class Cascade:
    """Repairs candidates of one problem.

    Groups are visited in topological order. A group that must change gets a tuple; a group one of whose defining rules
    fails gets a tuple for which all of them hold: the row's own if it does, else one drawn by frequency. After the
    pass every rule is checked again, rejection rules included, and what fails is dropped.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        owner = {column: number for number, columns in enumerate(problem.columns) for column in columns}
        self.defining: dict[int, list[Rule]] = {}
        for rule in problem.links:
            if rule.defines is not None:
                self.defining.setdefault(owner[rule.defines], []).append(rule)
        # the groups whose values decide which tuples of a group qualify
        self.context = {
            number: sorted({owner[column] for rule in rules for column in rule.columns("x_cf")} - {number})
            for number, rules in self.defining.items()
        }

    def repair(self, codes: Codes) -> Codes:
        """Return the candidates (m, G) repaired; without those that cannot be, or that equal the row."""
        codes = codes.copy()
        kept = np.ones(len(codes), dtype=np.bool_)
        for number in self.problem.order:
            self._change_if_must(codes, number, kept)
            if number in self.defining:
                self._satisfy(codes, number, kept)
        if self.problem.links:
            Z = self.problem.rows(codes)
            for rule in self.problem.links:
                kept &= rule.holds(Z, self.problem.x0)
        changes = (codes != self.problem.own).sum(axis=1)
        most = self.problem.max_changes or len(self.problem.groups)
        kept &= (changes > 0) & (changes <= most)
        return np.asarray(codes[kept])

    def _change_if_must(self, codes: Codes, number: int, kept: Bools) -> None:
        group = self.problem.groups[number]
        stuck = np.flatnonzero(codes[:, number] == group.own)
        if group.own_allowed or not len(stuck):
            return
        if not group.proposals:  # no draw of a continuous feature met its rules
            kept[stuck] = False
        else:
            weights = np.broadcast_to(group.weights, (1, len(group.weights)))
            codes[stuck, number] = draw_by_row(weights, np.zeros(len(stuck), dtype=np.intp), self.rng)

    def _satisfy(self, codes: Codes, number: int, kept: Bools) -> None:
        """Give a new tuple to candidates that break a rule defining this group; mark those that have none."""
        problem, group = self.problem, self.problem.groups[number]
        Z = problem.rows(codes)
        holds = np.ones(len(codes), dtype=np.bool_)
        for rule in self.defining[number]:
            holds &= rule.holds(Z, problem.x0)
        broken = np.flatnonzero(~holds & kept)
        if not len(broken):
            return
        contexts = codes[broken][:, self.context[number]]
        _, first, which = np.unique(contexts, axis=0, return_index=True, return_inverse=True)
        which = which.ravel()
        qualifies = self._qualifying(Z[broken[first]], number)
        back = qualifies[which, group.own] & group.own_allowed
        codes[broken[back], number] = group.own
        weights = np.where(qualifies, group.weights, 0.0)
        drawable: Bools = np.any(weights > 0, axis=1)
        possible = ~back & drawable[which]
        codes[broken[possible], number] = draw_by_row(weights, which[possible], self.rng)
        kept[broken[~back & ~possible]] = False

    def _qualifying(self, contexts: Floats, number: int) -> Bools:
        """Return (u, t) whether each tuple of a group meets its defining rules beside the rest of each row (u, d)."""
        group, tuples = self.problem.groups[number], len(self.problem.groups[number].tuples)
        step = max(1, MOST_ROWS // tuples)
        parts: list[NDArray[np.bool_]] = []
        for start in range(0, len(contexts), step):
            rows = np.repeat(contexts[start : start + step], tuples, axis=0)
            rows[:, group.columns] = np.tile(group.tuples, (len(rows) // tuples, 1))
            holds = np.ones(len(rows), dtype=np.bool_)
            for rule in self.defining[number]:
                holds &= rule.holds(rows, self.problem.x0)
            parts.append(holds.reshape(-1, tuples))
        return np.concatenate(parts)
