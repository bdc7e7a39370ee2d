"""Whether a window differs from the reference by more than chance: permutations of whole requests.

Had nothing changed, it would not matter which requests came in the window and which in the reference. So they are
shuffled, many times, and what is seen is held against what shuffling gives. All series of a window are tested together
by the largest of their standardised statistics, step by step (Westfall and Young 1993, algorithm 4.1): series that
depend on each other are not paid for twice. Several windows share the stated rate equally (Bonferroni).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import pandas as pd
from scipy import sparse

from mlflow_cf.features import Floats
from mlflow_cf.monitoring.lines import Ints
from mlflow_cf.monitoring.series import Followed

LEAST: Final = 20  # requests of a window, and of the reference, that a test takes
LEAST_PERMUTATIONS: Final = 999
RESOLUTION: Final = 2  # the least p is that many times smaller than what one window has of the rate
AT_FIRST: Final = 199  # permutations, after which a window that is far from drifting is let go
FAR: Final = 4  # times the rate: a p beyond it does not become one below the rate
MOST_WINDOWS: Final = 200  # that are tested
AT_ONCE: Final = 64  # permutations
TIES: Final = 1e-9  # standardised statistics that differ by less are equal
SMOOTHED: Final = 0.5  # answers that are added to each cell, or an empty one would make an index infinite


@dataclass(frozen=True)
class Tested:
    """One hypothesis: that a mean, or a distribution, is the same in both.

    Attributes:
        measure, feature, group: of what.
        test: whether a mean or share is compared, or a whole distribution.
        columns: of the series: one, or one per cell.
    """

    measure: str
    feature: str
    group: str
    test: Literal["mean", "distribution"]
    columns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Drift:
    """What a window's test has found.

    Attributes:
        tested: (t,) hypotheses.
        psi: (t,) the population stability index; NaN for means.
        statistic: (t,) how far it is from what shuffling gives, in standard deviations of that.
        alone: (t,) p of each by itself.
        p: (t,) p of each among all of the window.
    """

    tested: tuple[Tested, ...]
    psi: Floats
    statistic: Floats
    alone: Floats
    p: Floats


def hypotheses(followed: Followed) -> tuple[Tested, ...]:
    """Return what is tested: every series but outcomes, which come later; distributions; and the mix of advice."""
    found = [
        Tested(one.measure, one.feature, one.group, "mean", (at,))
        for at, one in enumerate(followed.series)
        if one.part in ("answers", "features")
    ]
    mixes: dict[str, list[int]] = defaultdict(list)
    for at, one in enumerate(followed.series):
        if one.part == "cells" or one.measure == "advised":
            mixes[one.measure].append(at)
        elif not one.group and one.measure.startswith(("status.", "proof.")):
            mixes[one.measure.partition(".")[0]].append(at)
    mixed = (Tested(name, "", "", "distribution", tuple(places)) for name, places in mixes.items() if len(places) > 1)
    return (*found, *mixed)


def permutations_for(windows: int, alpha: float) -> int:
    """Return how many permutations let the test of one of so many windows find anything at all, and more."""
    return max(LEAST_PERMUTATIONS, math.ceil(RESOLUTION * windows / alpha) - 1)


@dataclass(frozen=True)
class Effort:
    """How long a window is tested.

    Attributes:
        permutations: at most; less where a window is so far from drifting that more would not change that.
        alpha: the rate of false alarms of all windows together. A window is said to drift only after all permutations,
            so that to let others go early costs no false alarm.
    """

    permutations: int
    alpha: float


def drift(followed: Followed, window: int, effort: Effort, rng: np.random.Generator) -> Drift | None:
    """Test a window against the reference, which is window 0; None where either has too few requests."""
    first, second = (np.flatnonzero(followed.window == at) for at in (0, window))
    if min(len(first), len(second)) < LEAST:
        return None
    tested = hypotheses(followed)
    both = np.concatenate([second, first])
    sums = sparse.hstack([followed.above[both], followed.below[both]], format="csr")
    statistics = Statistics(tested, np.array([one.below for one in followed.series]), np.asarray(sums.sum(axis=0))[0])
    columns = sums.T.tocsr()
    observed = np.asarray(sums[: len(second)].sum(axis=0)).reshape(-1, 1)
    found = [statistics.of(observed)]
    for permutations in sorted({min(AT_FIRST, effort.permutations), effort.permutations}):
        more = permutations + 1 - sum(one.shape[1] for one in found)
        found += [statistics.of(one) for one in _shuffled(columns, len(second), more, rng)]
        standardised = _standardised(np.concatenate(found, axis=1), tested)
        alone, p = stepped_down(standardised)
        if p.min() > FAR * effort.alpha:
            break
    far = np.where(np.isfinite(standardised[:, 0]), standardised[:, 0], 0.0)
    return Drift(tested, statistics.indices(observed)[:, 0], far, alone, p)


@dataclass(frozen=True, eq=False)
class Statistics:
    """How far two parts of the same units are apart.

    Attributes:
        tested: (t,) hypotheses.
        below: (k,) the column that each series is divided by.
        total: (k + b,) sums of both parts together.
    """

    tested: Sequence[Tested]
    below: Ints
    total: Floats

    def of(self, sums: Floats) -> Floats:
        """Return the statistics (t, n) of n ways to part, by the sums (k + b, n) of one part."""
        means = self._differences(sums)
        # a third power makes what is nearly distributed as chi squared nearly normal (Wilson and Hilferty 1931)
        mixed = np.cbrt(np.nan_to_num(self.indices(sums)))
        return np.stack(
            [means[one.columns[0]] if one.test == "mean" else mixed[at] for at, one in enumerate(self.tested)]
        )

    def indices(self, sums: Floats) -> Floats:
        """Return the population stability index (t, n): of cells, or of a share and what is left of it."""
        count = len(self.below)
        parts = (sums, self.total[:, None] - sums)
        found = np.full((len(self.tested), sums.shape[1]), np.nan)
        for at, one in enumerate(self.tested):
            places = list(one.columns)
            if one.test == "distribution":
                found[at] = stability(parts[0][places], parts[1][places])
            elif self.shares[at]:
                cells = [
                    np.stack([part[places[0]], part[count + self.below[places[0]]] - part[places[0]]]) for part in parts
                ]
                found[at] = stability(*cells)
        return found

    @cached_property
    def shares(self) -> list[bool]:
        """Which hypotheses are about a share."""
        return [one.measure.startswith(("status.", "proof.")) or one.measure in SHARES for one in self.tested]

    def _differences(self, sums: Floats) -> Floats:
        """Return the differences (k, n) of all means."""
        count = len(self.below)
        found = []
        for part in (sums, self.total[:, None] - sums):
            below = part[count + self.below]
            with np.errstate(divide="ignore", invalid="ignore"):
                found.append(np.where(below > 0, part[:count] / below, np.nan))
        differences: Floats = np.nan_to_num(found[0] - found[1])
        return differences


SHARES: Final = ("coverage", "advised")


def stability(one: Floats, other: Floats) -> Floats:
    """Return the population stability index (n,) of counts in cells (c, n) against other ones.

    It is the sum over cells of (p - q) ln(p / q), 0 for equal shares; half an answer is added to each cell.
    """
    p, q = ((counts + SMOOTHED) / (counts + SMOOTHED).sum(axis=0) for counts in (one, other))
    total: Floats = np.sum((p - q) * np.log(p / q), axis=0)
    return total


def stepped_down(statistics: Floats) -> tuple[Floats, Floats]:
    """Return the p of each hypothesis alone, and among all of them, each (t,).

    Args:
        statistics: (t, 1 + n) larger means farther apart; the first column is what is observed.
    """
    observed = statistics[:, :1] - TIES
    alone: Floats = (statistics >= observed).mean(axis=1)
    order = np.argsort(-observed[:, 0], kind="stable")
    largest = np.maximum.accumulate(statistics[order][::-1], axis=0)[::-1]  # of a hypothesis and all behind it
    p = np.empty(len(order))
    p[order] = np.maximum.accumulate((largest >= observed[order]).mean(axis=1))
    return alone, p


def _shuffled(columns: sparse.csr_matrix, size: int, permutations: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield the sums (k + b, n) of `size` units that are drawn from all (k + b, u), some draws at once."""
    units = columns.shape[1]
    for start in range(0, permutations, AT_ONCE):
        count = min(AT_ONCE, permutations - start)
        chosen = np.zeros((units, count))
        for at in range(count):
            chosen[rng.permutation(units)[:size], at] = 1.0
        yield columns @ chosen


def _standardised(statistics: Floats, tested: Sequence[Tested]) -> Floats:
    """Return statistics (t, n) of which none is larger by its unit alone; what never differs is never the largest."""
    mixed = np.array([one.test == "distribution" for one in tested])[:, None]
    spread = statistics.std(axis=1, keepdims=True)
    centred = np.where(mixed, statistics - statistics.mean(axis=1, keepdims=True), np.abs(statistics))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(spread > TIES, centred / spread, -np.inf)
    return found


def table(found: Drift, columns: pd.DataFrame) -> pd.DataFrame:
    """Return one line per hypothesis, with what `columns` has of it."""
    named = pd.DataFrame(
        [(one.measure, one.feature, one.group, one.test) for one in found.tested],
        columns=["measure", "feature", "group", "test"],
    )
    told = named.merge(columns, on=["measure", "feature", "group"], how="left", sort=False)
    return told.assign(psi=found.psi, statistic=found.statistic, p_alone=found.alone, p=found.p)
