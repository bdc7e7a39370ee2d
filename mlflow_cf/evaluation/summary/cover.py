"""The sets of rows that cover the most: greedily, at best, and what no others can exceed (maximum coverage).

Greedy choice covers at least 1 - 1/e of the most that is possible (Nemhauser, Wolsey and Fisher, 1978). Two bounds are
proved here for the table at hand: by the gains that are left after each greedy choice, and by Lagrangian relaxation of
"a row counts only if a chosen set has it", which reaches the bound of the linear program from above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.evaluation.summary.bits import Words, counts, flags_of, weights_of
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.features import Floats
from mlflow_cf.milp.program import Affine, Entries, Program
from mlflow_cf.milp.solve import Effort, solve
from mlflow_cf.problem import Codes

ROUNDS: Final = 100  # of Lagrangian relaxation; the bound hardly moves after these
PATIENCE: Final = 5  # rounds without a lower bound, after which prices change half as fast
DROPPED: Final = 0.8  # sets are left out when they are no more than this share of those before
MOST_FLAGS: Final = 2**28  # of rows and sets that are laid out for a program
MOST_ENTRIES: Final = 500_000  # of a program: HiGHS needs seconds to minutes for so many
EXACTLY: Final = 1e-6  # bounds are whole numbers of rows, up to rounding
SECONDS: Final = 30.0  # for a program where there is no other limit

Tie = Callable[[Codes, Words], int]


@dataclass(frozen=True)
class Cover:
    """Chosen sets.

    Attributes:
        chosen: the sets, in the order of what each adds.
        greedy: how many rows the greedy choice covers; covered: these ones.
        bound: no choice of as many sets covers more.
    """

    chosen: tuple[int, ...]
    greedy: int
    covered: int
    bound: int

    @property
    def optimal(self) -> bool:
        """Whether no other choice covers more."""
        return self.covered >= self.bound


def best_cover(bits: Words, rows: int, most: int, tie: Tie, clock: Clock, seed: int = 0) -> Cover:
    """Return the best choice of at most so many sets that can be found in time, and a bound on any.

    Args:
        bits: (c, w) the sets.
        rows: how many rows they are sets of.
        most: how many sets may be chosen.
        tie: which of several sets (k,) comes first that add as many of the rows (w,) that are left.
        clock: ends the search for a better choice and a lower bound.
        seed: of the solver of programs.
    """
    found = greedy_cover(bits, rows, most, tie)
    if found.optimal or clock.late:
        return found
    search = _Search(bits, rows, most, found)
    search.swap()
    search.relax(clock.part(0.5))
    search.solve(clock, seed)
    return replace(found, bound=search.bound) if search.covered == found.covered else search.cover(tie)


def greedy_cover(bits: Words, rows: int, most: int, tie: Tie) -> Cover:
    """Return the greedy choice, with the bound that follows from the gains after each step.

    A choice of as many sets covers at most what some sets cover already, and the largest gains that are left.
    """
    left, chosen, bound, covered = _all(rows), list[int](), rows, 0
    for _ in range(most + 1):
        gains = counts(bits, left)
        largest = np.partition(gains, -most)[-most:] if len(gains) > most else gains
        bound = min(bound, covered + int(largest.sum()))
        top = int(gains.max(initial=0))
        if not top or len(chosen) == most:
            break
        ties = np.flatnonzero(gains == top)
        best = int(ties[0]) if len(ties) == 1 else tie(ties, left)
        chosen.append(best)
        left &= ~bits[best]
        covered += top
    return Cover(tuple(chosen), covered, covered, bound)


def _all(rows: int) -> Words:
    """Return the set (w,) of all rows."""
    flags = np.full(-(-rows // 64), ~np.uint64(0))
    if rows % 64:
        flags[-1] = (np.uint64(1) << np.uint64(rows % 64)) - np.uint64(1)
    return flags


def covered_by(bits: Words, chosen: Sequence[int]) -> int:
    """Return how many rows some of the sets cover together."""
    return int(np.bitwise_count(np.bitwise_or.reduce(bits[list(chosen)], axis=0)).sum()) if len(chosen) else 0


class _Search:
    """Looks for a better choice than the greedy one, and lowers the bound.

    Attributes:
        chosen, covered: the best choice so far; bound: no choice covers more.
    """

    def __init__(self, bits: Words, rows: int, most: int, found: Cover) -> None:
        self._bits, self._rows, self._most, self._greedy = bits, rows, most, found
        self.chosen, self.covered, self.bound = list(found.chosen), found.covered, found.bound
        # the sets that a better choice may have, and their rows
        self._kept: Codes = np.flatnonzero(counts(bits, _all(rows)))
        self._kept_bits = bits if len(self._kept) == len(bits) else bits[self._kept]

    def cover(self, tie: Tie) -> Cover:
        """Return the best choice, ordered by what each set adds."""
        some = np.array(self.chosen, dtype=np.intp)

        def among(ties: Codes, left: Words) -> int:
            return int(np.flatnonzero(some == tie(some[ties], left))[0])

        found = greedy_cover(self._bits[some], self._rows, len(some), among)
        return Cover(tuple(some[list(found.chosen)].tolist()), self._greedy.covered, self.covered, self.bound)

    def swap(self) -> None:
        """Replace one chosen set by another as long as that covers more."""
        better = True
        while better and self.covered < self.bound:
            better = False
            for at in range(len(self.chosen)):
                others = self.chosen[:at] + self.chosen[at + 1 :]
                left = _all(self._rows) & ~np.bitwise_or.reduce(self._bits[others], axis=0, initial=np.uint64(0))
                better |= self._improve([*others, int(counts(self._bits, left).argmax())])

    def relax(self, clock: Clock) -> None:
        """Lower the bound by Lagrangian relaxation, and drop sets that no better choice can have.

        Every row has a price between 0 and 1. Then a choice covers at most what all rows are worth beyond their price,
        and the prices of the rows in its sets: the most of these are those of the dearest sets.
        """
        prices, step, best, since = self._first_prices(), 1.0, np.inf, 0
        for _ in range(ROUNDS):
            if clock.late or self.covered >= self.bound or not len(self._kept):
                break
            worth = weights_of(self._kept_bits, prices)
            most = min(self._most, len(worth))
            top = np.argpartition(worth, -most)[-most:]
            total = float((1.0 - prices).sum() + worth[top].sum())
            self._lower(total)
            slope = flags_of(self._kept_bits[top], self._rows).sum(axis=0) - 1.0
            self._improve(self._kept[top].tolist())
            self._drop(np.maximum(total - float(worth[top].min()) + worth, 0.0), total, top)
            best, since = (total, 0) if total < best - EXACTLY else (best, since + 1)
            step, since = (step / 2, 0) if since == PATIENCE else (step, since)
            size = float(slope @ slope)
            if not size or step < EXACTLY:
                break
            prices = np.clip(prices - step * (total - self.covered) / size * slope, 0.0, 1.0)

    def solve(self, clock: Clock, seed: int) -> None:
        """Find the best choice of the sets that are kept by a program, if it is small enough."""
        if self.covered >= self.bound or not len(self._kept) or len(self._kept) * self._rows > MOST_FLAGS:
            return
        flags = flags_of(self._kept_bits, self._rows).T
        kinds, weights = np.unique(np.packbits(flags[flags.any(axis=1)], axis=1), axis=0, return_counts=True)
        flags = np.unpackbits(kinds, axis=1, count=len(self._kept)).view(np.bool_)
        if flags.sum() > MOST_ENTRIES:
            return
        left = clock.left_s
        solved = solve(_program(flags, weights, self._most), Effort(SECONDS if left is None else left, seed=seed))
        if solved.values is not None:
            self._improve(self._kept[np.flatnonzero(solved.values[: len(self._kept)] > 0.5)].tolist())
        self._lower(-solved.bound)

    def _first_prices(self) -> Floats:
        """Return a price (n,) of each row: the less, the more of the chosen sets have it."""
        times = flags_of(self._bits[self.chosen], self._rows).sum(axis=0)
        return np.asarray(1.0 / np.maximum(times, 1.0))

    def _improve(self, chosen: list[int]) -> bool:
        """Take a choice if it covers more than the best one; return whether it does."""
        covered = covered_by(self._bits, chosen)
        if covered <= self.covered:
            return False
        self.chosen, self.covered = chosen, covered
        return True

    def _lower(self, bound: float) -> None:
        """Lower the bound to what no choice of the sets that are kept covers more than."""
        if np.isfinite(bound):
            self.bound = min(self.bound, max(int(np.floor(bound + EXACTLY)), self.covered))

    def _drop(self, bounds: Floats, total: float, top: Codes) -> None:
        """Drop the sets that a better choice cannot have: no choice with them covers more than `bounds` (k,)."""
        bounds[top] = total
        kept = np.floor(bounds + EXACTLY) > self.covered
        if kept.sum() < DROPPED * len(kept):  # copies take a while
            self._kept, self._kept_bits = self._kept[kept], self._kept_bits[kept]
        if not kept.any():
            self.bound = self.covered


def _program(flags: Bools, weights: Codes, most: int) -> Program:
    """Return the program that chooses sets, given which of them have each kind of row (r, k), and how many rows are."""
    program = Program()
    sets = program.add_binaries(flags.shape[1])
    rows = program.add_columns(len(flags))
    program.costs.append(Affine(rows, -weights.astype(np.float64), 0.0, -float(weights.sum()), 0.0))
    program.add_rows(1, 0.0, float(most), Entries(np.zeros(len(sets), dtype=np.intp), sets, 1.0))
    row, column = np.nonzero(flags)
    own = Entries(np.arange(len(rows)), rows, -1.0)
    program.add_rows(len(rows), 0.0, np.inf, Entries(row, sets[column], 1.0), own)
    return program
