"""Partial evaluation: candidates rated by the model restricted to what they change (GeCo section 6)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mlflow_cf.explainers.geco.deltas import Deltas, Places
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem, Rater, Rating
from mlflow_cf.structures.links import Tokens
from mlflow_cf.structures.structure import Structure

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

    def __init__(self, problem: Problem, rater: Rater, deltas: Deltas) -> None:
        self.problem, self.rater, self.deltas = problem, rater, deltas
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
        return self.rater.rate_sums(sums)

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
        return self.known[key].sums(self._tokens(changed - self.deltas.start[groups], key))

    def _mixed(self, places: Places) -> Floats:
        """Return the sums (m, outputs) of any candidates (m, k)."""
        deltas = self.deltas
        changed = np.bincount(deltas.group[places].ravel(), minlength=len(deltas.start) + 1)[:-1] > 0
        if len(places) < self.least or 2 * np.count_nonzero(changed) > len(changed):
            tables, codes = self.problem.token_tables, deltas.codes(places)
            return self.rater.structure.sums([t[codes[:, n]] for t, n in zip(tables, self._owner, strict=True)])
        groups = np.flatnonzero(changed)
        key = tuple(groups.tolist())
        at = np.full(len(changed) + 1, len(groups))  # a last column for `none`
        at[groups] = np.arange(len(groups))
        codes = np.tile(np.append(self.problem.own[groups], 0), (len(places), 1))
        group = deltas.group[places]
        np.put_along_axis(codes, at[group], places - np.append(deltas.start, deltas.none)[group], axis=1)
        return self._restricted(key).sums(self._tokens(codes, key))

    def _restricted(self, groups: Groups) -> Structure:
        return self.rater.structure.restrict(self._row, [c for number in groups for c in self.problem.columns[number]])

    def _tokens(self, codes: Codes, groups: Groups) -> list[Tokens]:
        """Return the tokens of every column of some groups for their codes (m, groups)."""
        tables, columns = self.problem.token_tables, self.problem.columns
        return [tables[c][codes[:, at]] for at, number in enumerate(groups) for c in columns[number]]

    @cached_property
    def _owner(self) -> list[int]:
        return [int(number) for number in self.problem.owner]

    @cached_property
    def _row(self) -> list[Tokens]:
        """The query row's own tokens, one per column."""
        return [table[self.problem.own[n]] for table, n in zip(self.problem.token_tables, self._owner, strict=True)]
