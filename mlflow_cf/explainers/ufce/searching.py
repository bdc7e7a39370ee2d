"""How lines are searched: by walks that halve what is left, or by response curves (UFCE section 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.ufce.lines import SearchLines, evenly
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import batches

AGAIN: Final = 64  # values tried one by one where a walk found nothing
Plausible = Callable[[Floats], Bools]


@dataclass(frozen=True, eq=False)
class Accepted:
    """Accepted candidates.

    Attributes:
        codes: (m, G) of each, repaired.
        line, position: (m,) where they come from.
    """

    codes: Codes
    line: Codes
    position: Codes

    @classmethod
    def together(cls, parts: list[Accepted], groups: int) -> Accepted:
        """Return all of them, one part after the other."""
        nothing = np.empty(0, dtype=np.intp)
        parts = [cls(np.empty((0, groups), dtype=np.intp), nothing, nothing), *parts]
        columns = zip(*((part.codes, part.line, part.position) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    def take(self, some: Codes | Bools) -> Accepted:
        """Return some of them."""
        return Accepted(self.codes[some], self.line[some], self.position[some])


@dataclass(eq=False)
class Acceptance:
    """What accepts candidates of one problem: few enough changes, all constraints, the target, and plausibility last.

    Attributes:
        problem, budget: as of a search.
        most: how many groups may differ.
        plausible: rows (m, d) -> (m,); None: not asked here.
    """

    problem: Problem
    budget: Budget
    most: int
    plausible: Plausible | None = None
    _cascade: Cascade = field(init=False)

    def __post_init__(self) -> None:
        self._cascade = Cascade(self.problem)

    def ask(self, lines: SearchLines, line: Codes, position: Codes) -> tuple[Accepted, Bools]:
        """Return the candidates at positions of lines, and which of them (m,) are accepted."""
        codes, sound = lines.candidates(line, position)
        accepted = np.zeros(len(codes), dtype=np.bool_)
        asked = np.flatnonzero(sound)
        codes[asked], kept = self._cascade.repaired(codes[asked])
        kept &= (codes[asked] != self.problem.own).sum(axis=1) <= self.most
        asked = asked[kept]
        for part in batches(len(asked), self.budget):
            accepted[asked[part]] = self.problem.rate_codes(codes[asked[part]]).favourable
        if self.plausible is not None and accepted.any():
            accepted[accepted] = self.plausible(self.problem.rows(codes[accepted]))
        return Accepted(codes, line, position), accepted


def scan(trial: Acceptance, lines: SearchLines, points: int) -> Accepted:
    """Return what is accepted of all candidates, or of so many a line; before the first one also by halves."""
    if not len(lines.all):
        return Accepted.together([], len(trial.problem.groups))
    some = [evenly(length, points) for length in lines.lengths.tolist()]
    line = np.repeat(np.arange(len(some)), [len(positions) for positions in some])
    position = np.concatenate(some)
    asked, accepted = trial.ask(lines, line, position)
    found = [asked.take(accepted)]
    previous = np.append(-1, position[:-1])
    previous[np.flatnonzero(np.diff(line, prepend=-1))] = -1
    first = np.flatnonzero(accepted)
    first = first[np.unique(line[first], return_index=True)[1]]
    gap = first[position[first] - previous[first] > 1]
    found += halve(trial, lines, line[gap], previous[gap] + 1, position[gap] - 1)[0]
    return Accepted.together(found, len(trial.problem.groups))


def walk(trial: Acceptance, lines: SearchLines) -> Accepted:
    """Return the last candidate accepted by each walk, and all levels accepted.

    What a walk that accepts nothing did not visit is tried one by one, the nearest first.
    """
    groups = len(trial.problem.groups)
    if not len(lines.all):
        return Accepted.together([], groups)
    walks, whole = np.flatnonzero(lines.walks), np.flatnonzero(~lines.walks)
    recorded, visited = halve(trial, lines, walks, np.zeros_like(walks), lines.lengths[walks] - 1)
    kept = Accepted.together(recorded, groups)
    last = np.full(len(lines.all), -1)
    last[kept.line] = np.arange(len(kept.line))  # the last one counts
    left = []
    for one in walks[last[walks] < 0].tolist():
        unvisited = np.setdiff1d(np.arange(lines.lengths[one]), list(visited.get(one, ())), assume_unique=True)
        left.append((one, unvisited[:AGAIN]))
    left += [(one, np.arange(lines.lengths[one])) for one in whole.tolist()]
    found = [kept.take(last[last >= 0])]
    if left:
        line = np.repeat([one for one, _ in left], [len(positions) for _, positions in left]).astype(np.intp)
        asked, accepted = trial.ask(lines, line, np.concatenate([positions for _, positions in left]))
        asked = asked.take(accepted)
        first = np.zeros(len(asked.line), dtype=np.bool_)
        first[np.unique(asked.line, return_index=True)[1]] = True
        found.append(asked.take(first | ~lines.walks[asked.line]))
    return Accepted.together(found, groups)


def halve(
    trial: Acceptance, lines: SearchLines, line: Codes, low: Codes, high: Codes
) -> tuple[list[Accepted], dict[int, set[int]]]:
    """Walk lines (k,) between positions side by side; return what is accepted, in order, and the positions visited.

    Each looks at the middle of what is left, goes nearer where that is accepted, and farther where it is not.
    """
    found: list[Accepted] = []
    visited: dict[int, set[int]] = {}
    low, high = low.copy(), high.copy()
    while (low <= high).any() and not trial.budget.spent:
        on = np.flatnonzero(low <= high)
        middle = (low[on] + high[on]) // 2
        for one, position in zip(line[on].tolist(), middle.tolist(), strict=True):
            visited.setdefault(one, set()).add(position)
        asked, accepted = trial.ask(lines, line[on], middle)
        found.append(asked.take(accepted))
        high[on[accepted]] = middle[accepted] - 1
        low[on[~accepted]] = middle[~accepted] + 1
    return found, visited
