"""Candidates stored by their changes alone, and scored by the model restricted to these (GeCo sections 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import Rating, Scorer
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.structures.structure import Encoded, Structure

Places = NDArray[np.intp]


class Deltas:
    """How candidates of one problem are written by their changes.

    A candidate is the ascending list of the places of its changed actions: the actions of all groups are numbered one
    group after the other. Candidates with fewer changes than others beside them, in (m, k), end in `none`.

    Attributes:
        start: (G,) place of every group's first action.
        own: (G,) places of the query row's own actions.
        none: the place that stands for no change.
        group: (none + 1,) group of every place; of `none` the number of groups.
        cells: (none + 1,) how many features a place stands for.
    """

    def __init__(self, problem: Problem) -> None:
        groups = problem.groups
        sizes = [len(group.actions) for group in groups]
        self.problem = problem
        self.start: Places = problem.actions.start[:-1]
        self.own: Places = self.start + problem.own
        self.none = len(problem.actions.cost)
        self.group: Codes = np.repeat(np.arange(len(groups) + 1), [*sizes, 1])
        self.cells = np.repeat([*(len(group.columns) for group in groups), 0], [*sizes, 1])
        self._cost, self._peak = np.append(problem.actions.cost, 0.0), np.append(problem.actions.peak, 0.0)

    def of(self, codes: Codes) -> Places:
        """Return the places (m, k) of candidates by code (m, G)."""
        changed = codes != self.problem.own
        counts = changed.sum(axis=1)
        row, group = np.nonzero(changed)
        places = np.full((len(codes), int(counts.max(initial=1))), self.none)
        places[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = (
            self.start[group] + codes[row, group]
        )
        return places

    def codes(self, places: Places) -> Codes:
        """Return the codes (m, G) of candidates (m, k)."""
        codes = np.tile(np.append(self.problem.own, 0), (len(places), 1))  # a last column for `none`
        group = self.group[places]
        np.put_along_axis(codes, group, places - np.append(self.start, self.none)[group], axis=1)
        return codes[:, :-1]

    def stacked(self, parts: Sequence[Places]) -> Places:
        """Return candidates (m, k) of several parts one after the other."""
        widest = max(part.shape[1] for part in parts)
        return np.concatenate(
            [np.pad(part, ((0, 0), (0, widest - part.shape[1])), constant_values=self.none) for part in parts]
        )

    def stored(self, places: Places) -> int:
        """Return how many values candidates (m, k) take: the changed ones alone."""
        return int(self.cells[places].sum())

    def changes(self, places: Places) -> NDArray[np.intp]:
        """Return how many groups candidates (m, k) change."""
        count: NDArray[np.intp] = (places < self.none).sum(axis=1)
        return count

    def distance(self, places: Places) -> Floats:
        """Return the distance (m,) of candidates (m, k), bit for bit that of their rows: what stays adds 0."""
        total, top = np.zeros(len(places)), np.zeros(len(places))
        for column in places.T:
            total += self._cost[column]
            if self.problem.bound_distance.c:
                top = np.maximum(top, self._peak[column])
        return total + self.problem.bound_distance.c * top

    def with_place(self, places: Places, more: Places) -> Places:
        """Return candidates (m, k + 1): those of `places` with one more place (m,), instead of any of its group."""
        beside = np.where(self.group[places] == self.group[more][:, None], self.none, places)
        grown: Places = np.sort(np.column_stack([beside, more]), axis=1)
        return grown

    def joined(self, one: Places, two: Places, lower: Bools) -> Places:
        """Return the unions of the changes of candidates (m, k) and (m, k).

        Args:
            one, two: the candidates.
            lower: (m, 2k - 1) which action of a group that both changed to keep: the lower one, or else the higher.
                An entry counts where both actions come to stand side by side in the ascending union.
        """
        union = np.sort(np.column_stack([one, two]), axis=1)
        group = self.group[union]
        twice = (group[:, 1:] == group[:, :-1]) & (union[:, 1:] < self.none)
        dropped = np.zeros(union.shape, dtype=np.bool_)
        dropped[:, 1:] |= twice & lower
        dropped[:, :-1] |= twice & ~lower
        union[dropped] = self.none
        joined: Places = np.sort(union, axis=1)
        return joined[:, : max(1, int(self.changes(joined).max(initial=1)))]


Groups = tuple[int, ...]

# A restriction costs about 70 us; of a hundred trees on 12 features (Adult) it spares a candidate 0.3 us (xgboost) to
# 0.8 us (forest), of a network 0.1 us, and more the wider the table. With these limits a search takes a third of the
# time on 29 features with 548 levels, half on 310 numbers, and on Adult and Credit what it took, give or take 6 %.
LEAST_ROWS = 32
LEAST_ROWS_NARROW = 30_000  # divided by the square of the number of features


class Partial:
    """Rates the candidates of one problem by an opened model.

    Candidates that change the same groups are rated together by the structure restricted to these groups, where they
    are enough; a restriction is kept for the search. All others are rated together by the structure restricted to the
    groups that any of them changes, or by whole rows if these are more than half of all groups, or candidates too few.
    """

    def __init__(self, problem: Problem, scorer: Scorer, deltas: Deltas) -> None:
        self.problem, self.scorer, self.deltas = problem, scorer, deltas
        self.least = max(LEAST_ROWS, LEAST_ROWS_NARROW // len(problem.space) ** 2)
        self.known: dict[Groups, Structure] = {}

    def rate(self, places: Places) -> Rating:
        """Rate candidates (m, k), m >= 1, as `Problem.rate_codes` does."""
        alone, others = self._sets(places)
        parts = [(rows, self._alike(places[rows])) for rows in alone]
        if len(others):
            parts.append((others, self._mixed(places[others])))
        sums = np.empty((len(places), parts[0][1].shape[1]))
        for rows, part in parts:
            sums[rows] = part
        return self.scorer.rate_sums(sums)

    def _sets(self, places: Places) -> tuple[list[Codes], Codes]:
        """Return the candidates of every set of groups that enough of them change, and all others."""
        every, base = np.arange(len(places)), len(self.deltas.start) + 1
        if len(places) < self.least or base ** places.shape[1] > np.iinfo(np.int64).max:
            return [], every
        number = np.zeros(len(places), dtype=np.int64)
        for column in self.deltas.group[places].T:
            number = number * base + column
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.diff(number[order], prepend=-1))
        sizes = np.diff(np.append(starts, len(order)))
        enough = sizes >= self.least
        alone = [order[s : s + n] for s, n in zip(starts[enough].tolist(), sizes[enough].tolist(), strict=True)]
        return alone, np.sort(order[np.repeat(~enough, sizes)])

    def _alike(self, places: Places) -> Floats:
        """Return the sums (m, outputs) of candidates (m, k) that change the same groups."""
        changed = places[:, places[0] < self.deltas.none]
        groups = self.deltas.group[changed[0]]
        key = tuple(groups.tolist())
        if key not in self.known:
            self.known[key] = self._restricted(key)
        return self.known[key].sums(self._encoded_values(changed - self.deltas.start[groups], key))

    def _mixed(self, places: Places) -> Floats:
        """Return the sums (m, outputs) of any candidates (m, k)."""
        deltas = self.deltas
        changed = np.bincount(deltas.group[places].ravel(), minlength=len(deltas.start) + 1)[:-1] > 0
        if len(places) < self.least or 2 * np.count_nonzero(changed) > len(changed):
            tables, codes = self.problem.encoded_tables, deltas.codes(places)
            return self.scorer.structure.sums([t[codes[:, n]] for t, n in zip(tables, self._owner, strict=True)])
        groups = np.flatnonzero(changed)
        key = tuple(groups.tolist())
        at = np.full(len(changed) + 1, len(groups))  # a last column for `none`
        at[groups] = np.arange(len(groups))
        codes = np.tile(np.append(self.problem.own[groups], 0), (len(places), 1))
        group = deltas.group[places]
        np.put_along_axis(codes, at[group], places - np.append(deltas.start, deltas.none)[group], axis=1)
        return self._restricted(key).sums(self._encoded_values(codes, key))

    def _restricted(self, groups: Groups) -> Structure:
        return self.scorer.structure.restrict(self._row, [c for number in groups for c in self.problem.columns[number]])

    def _encoded_values(self, codes: Codes, groups: Groups) -> list[Encoded]:
        """Return the encoded values of every column of some groups for their codes (m, groups)."""
        tables, columns = self.problem.encoded_tables, self.problem.columns
        return [tables[c][codes[:, at]] for at, number in enumerate(groups) for c in columns[number]]

    @cached_property
    def _owner(self) -> list[int]:
        return [int(number) for number in self.problem.owner]

    @cached_property
    def _row(self) -> list[Encoded]:
        """The query row's own encoded values, one per column."""
        return [table[self.problem.own[n]] for table, n in zip(self.problem.encoded_tables, self._owner, strict=True)]
