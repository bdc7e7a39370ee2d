"""Candidates by their changes alone: GeCo's delta-representation (section 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem

Places = NDArray[np.intp]


class Deltas:
    """How candidates of one problem are written by their changes.

    A candidate is the ascending list of the places of its changed tuples: the tuples of all groups are numbered one
    group after the other. Candidates with fewer changes than others beside them, in (m, k), end in `none`.

    Attributes:
        start: (G,) place of every group's first tuple.
        own: (G,) places of the query row's own tuples.
        none: the place that stands for no change.
        group: (none + 1,) group of every place; of `none` the number of groups.
        cells: (none + 1,) how many features a place stands for.
    """

    def __init__(self, problem: Problem) -> None:
        groups = problem.groups
        sizes = [len(group.tuples) for group in groups]
        self.problem = problem
        self.start: Places = problem.start
        self.own: Places = self.start + problem.own
        self.none = len(problem.costs)
        self.group: Codes = np.repeat(np.arange(len(groups) + 1), [*sizes, 1])
        self.cells = np.repeat([*(len(group.columns) for group in groups), 0], [*sizes, 1])
        self._cost, self._peak = np.append(problem.costs, 0.0), np.append(problem.peaks, 0.0)

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
            lower: (m, 2k - 1) which tuple of a group that both changed to keep: the lower one, or else the higher.
                An entry counts where both tuples come to stand side by side in the ascending union.
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
