"""Lines of candidates: one group moves along its values, and up to two others follow by prediction.

They are searched by walks that halve what is left, or by response curves (UFCE section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.ufce.predictors import Predictors
from mlflow_cf.explainers.ufce.subspaces import Sequence as Values
from mlflow_cf.explainers.ufce.subspaces import Subspaces
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import batches

LEVELS: Final = 64  # of a group tried beside another
FEW_PAIRS: Final = 66  # of twelve groups: all are looked at
MOST_PAIRS: Final = 10  # of more groups, as in the paper's experiments
Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Line:
    """Candidates one after the other, the nearest first.

    Attributes:
        values: what one group becomes.
        fixed: other groups, each with its code.
        follow: the groups that are predicted, in order.
        key: the ordered pair of groups that it belongs to, or the group twice.
    """

    values: Values
    fixed: tuple[Pair, ...] = ()
    follow: tuple[int, ...] = ()
    key: Pair = (-1, -1)


class SearchLines:
    """One or more lines of one problem, filled where they are looked at.

    Attributes:
        lengths: (l,) how many candidates each line has.
        walks: (l,) which lines move away from the row in one direction.
    """

    def __init__(self, problem: Problem, predictors: Predictors, lines: Sequence[Line]) -> None:
        self.lengths = np.array([len(line.values.codes) for line in lines])
        self.walks = np.array([line.values.walks for line in lines])
        self._predictors = predictors
        self._start = np.cumsum(self.lengths) - self.lengths
        self._codes = np.concatenate([line.values.codes for line in lines])
        self._group = np.array([line.values.group for line in lines])
        self._base = np.tile(problem.own, (len(lines), 1))
        for number, line in enumerate(lines):
            for group, code in line.fixed:
                self._base[number, group] = code
        # (2, l) the groups predicted first and second, -1 for none
        self._follow = np.array([(*line.follow, -1, -1)[:2] for line in lines]).T

    def candidates(self, line: Codes, position: Codes) -> tuple[Codes, Bools]:
        """Return the candidates (m, G) at positions (m,) of lines (m,), and whether all that is predicted may be."""
        codes, sound = self._base[line], np.ones(len(line), dtype=np.bool_)
        codes[np.arange(len(line)), self._group[line]] = self._codes[self._start[line] + position]
        for follow in self._follow:
            wanted = follow[line]
            for number in np.unique(wanted[wanted >= 0]).tolist():
                asked = np.flatnonzero(wanted == number)
                codes[asked, number], inside = self._predictors.predicted(codes[asked], number)
                sound[asked] &= inside
        return codes, sound


def singles(subspaces: Subspaces) -> list[Line]:
    """Return the lines of single changes, group after group."""
    return [Line(values, key=(values.group,) * 2) for some in subspaces.sequences for values in some]


def doubles(subspaces: Subspaces, pairs: Iterable[Pair], third: int | None = None) -> Iterator[Line]:
    """Yield the lines of pairs: one moves, the other is predicted, and the other way round; of levels also all pairs.

    With a `third` group, that is predicted from both.
    """
    after = () if third is None else (third,)
    for pair in pairs:
        for i, j in (pair, pair[::-1]):
            yield from (Line(_few(values), (), (j, *after), (i, j)) for values in subspaces.sequences[i])
        if all(not values.walks for number in pair for values in subspaces.sequences[number]):
            yield from _both(subspaces, pair, after)


def threes(subspaces: Subspaces, pairs: Sequence[Pair]) -> list[tuple[int, int, int]]:
    """Return each pair with every other group, in order; a set of three comes once."""
    found: dict[frozenset[int], tuple[int, int, int]] = {}
    for pair in pairs:
        for third in subspaces.groups:
            if third not in pair:
                found.setdefault(frozenset((*pair, third)), (*pair, third))
    return list(found.values())


def nested(subspaces: Subspaces, groups: Sequence[int], most: int) -> Iterator[Line]:
    """Yield the lines of the last group beside some values, at most so many a direction, of the one or two others."""
    *others, last = groups
    some: list[list[Pair]] = []
    for number in others:
        found = [values.codes[evenly(len(values.codes), most)] for values in subspaces.sequences[number]]
        some.append([(number, code) for codes in found for code in codes.tolist()])
    for fixed in product(*some):
        yield from (Line(_few(values), fixed, (), (groups[0], groups[1])) for values in subspaces.sequences[last])


def _both(subspaces: Subspaces, pair: Pair, after: tuple[int, ...]) -> Iterator[Line]:
    """Yield the lines of every two levels, 64 pairs at most."""
    i, j = pair
    left = LEVELS
    for values in subspaces.sequences[i]:
        for code in values.codes.tolist():
            for others in subspaces.sequences[j]:
                some = others.codes[:left]
                left -= len(some)
                if len(some):
                    yield Line(Values(j, some, walks=False), ((i, code),), after, pair)


def _few(values: Values) -> Values:
    return values if values.walks else Values(values.group, values.codes[:LEVELS], walks=False)


def pairs_of(problem: Problem, groups: Sequence[int], mutual: Floats, most: int | None) -> list[Pair]:
    """Return the pairs of groups that tell most of each other by the information (d, d) of their features; ties: first.

    What two declared groups tell is what the best two of their features do. None: all, or `MOST_PAIRS` of very many.
    """
    first, second = (np.asarray(groups, dtype=np.intp)[places] for places in np.triu_indices(len(groups), 1))
    if all(len(columns) == 1 for columns in problem.columns):
        alone = np.array(problem.columns, dtype=np.intp)[:, 0]
        told = mutual[alone[first], alone[second]]
    else:
        both = zip(first.tolist(), second.tolist(), strict=True)
        told = np.array([mutual[np.ix_(problem.columns[i], problem.columns[j])].max() for i, j in both])
    if most is None:
        most = len(told) if len(told) <= FEW_PAIRS else MOST_PAIRS
    order = np.argsort(-told, kind="stable")[:most]
    return list(zip(first[order].tolist(), second[order].tolist(), strict=True))


def evenly(total: int, most: int) -> Codes:
    """Return positions of `total`, all of them or `most` evenly spread ones with the first and the last."""
    if total <= most:
        return np.arange(total)
    return np.linspace(0, total - 1, most).round().astype(np.intp)


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


class Acceptance:
    """What accepts candidates of one problem: few enough changes, all constraints, the target, and plausibility last.

    Attributes:
        problem, budget: as of a search.
        most: how many groups may differ.
        plausible: rows (m, d) -> (m,); None: not asked here.
    """

    def __init__(self, problem: Problem, budget: Budget, most: int, plausible: Plausible | None = None) -> None:
        self.problem, self.budget, self.most, self.plausible = problem, budget, most, plausible
        self._cascade = Cascade(problem)

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
    walks, whole = np.flatnonzero(lines.walks), np.flatnonzero(~lines.walks)
    recorded, visited = halve(trial, lines, walks, np.zeros_like(walks), lines.lengths[walks] - 1)
    kept = Accepted.together(recorded, groups)
    last = np.full(len(lines.walks), -1)
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
