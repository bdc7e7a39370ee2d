"""A search of few calls: a surrogate proposes batches of candidates, the model decides, and both are fitted together.

Each round proposes changes of the row, of candidates that came near, and of the answers so far. Of these, the batch
that promises most is asked about: the probability to be accepted, times the distance that would be saved (expected
improvement, Jones et al. 1998). The probability comes from the surrogate's raw score, corrected by what the model said
of this row's candidates before: a ridge regression on the changed groups and actions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr

from mlflow_cf.explainers.geco.geco import GeCo
from mlflow_cf.features import Floats
from mlflow_cf.goal import Rating, Scorer
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.snapping import codes_of, nearest_favourable_rows

Bools = NDArray[np.bool_]
FIRST_ROWS: Final = 240  # of single changes, most of which are asked about: they tell what every action does
ROWS: Final = 100  # of every further batch
PATIENCE: Final = 4  # batches that improve nothing before the search ends
WORTH: Final = 0.002  # expected improvement below which nothing more is asked, as a share of the distance
HOPEFUL: Final = 24  # candidates that are changed further
ANSWERS: Final = 6  # and of those that were accepted
MOST_PROPOSED: Final = 40_000
ACTIONS: Final = 48  # of every group, of those that are tried on hopeful candidates
SURROGATE_ROWS: Final = 20_000  # scored by the surrogate alone: they cost nothing but time
FROM_BACKGROUND: Final = 200
MOST_COLUMNS: Final = 300  # actions whose effects are fitted
PRIORS: Final = (1.0, 1.0, 0.5, 2.0)  # how strongly the fit holds to 0: offset, slope - 1, groups, actions
LEAST_SPREAD: Final = 0.1  # of raw scores around what is expected
STEPS: Final = 8  # of Newton's method
LIMIT: Final = 9.0  # of log odds


class SpentError(Exception):
    """Nothing more may be asked about this row."""


@dataclass(frozen=True, eq=False)
class _Evidence:
    """What the model said of candidates.

    Attributes:
        codes: (n, G) the candidates; raw: (n,) their raw scores by the surrogate, 0 where the decision changes.
        favourable: (n,); score: (n,) log odds of their grades.
        expected: (n,) what was expected of `score`.
    """

    codes: Codes
    raw: Floats
    favourable: Bools
    score: Floats
    expected: Floats

    def joined(self, other: _Evidence) -> _Evidence:
        """Return both."""
        names = ("codes", "raw", "favourable", "score", "expected")
        return _Evidence(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


class Guide:
    """The search for one row.

    Attributes:
        evidence: what the model said so far.
    """

    def __init__(
        self,
        problem: Problem,
        scorer: Scorer,
        rate: Callable[[Floats], Rating],
        budget: Budget,
        rng: np.random.Generator,
    ) -> None:
        """Set up for a problem whose model is not opened; `scorer` imitates it, `rate` asks it."""
        self._problem = problem
        self._opened = changed(problem, scorer=scorer, rate=scorer.rate, partial=None)
        self._scorer, self._rate, self._budget, self._rng = scorer, rate, budget, rng
        self._tried: set[bytes] = set()
        none = np.empty(0)
        self.evidence = _Evidence(np.empty((0, len(problem.groups)), np.intp), none, none.astype(np.bool_), none, none)
        least = 0.0 if problem.target is None else problem.target.target.min_probability or 0.0
        self._threshold = float(logit(least)) if 0.5 < least < 1 else 0.0

    def run(self) -> None:
        """Ask until nothing more is promising, or nothing more may be asked; the one who rates keeps what was said."""
        pool, size, idle, first = self._singles(), FIRST_ROWS, 0, True
        while len(pool) and not self._budget.spent:
            chosen = self._chosen(pool, size)
            best = self._cutoff()
            try:
                if not len(chosen) or not self._ask(chosen):
                    return
            except SpentError:
                return
            idle = idle + 1 if self._cutoff() >= best else 0
            if idle >= PATIENCE and np.isfinite(best):
                return
            pool, size = np.concatenate([self._proposed(), self._from_afar() if first else pool[:0]]), ROWS
            first = False

    def _ask(self, codes: Codes) -> bool:
        """Ask the model about candidates (m, G); return whether that was possible."""
        rows = self._problem.rows(codes)
        lawful = self._problem.check(rows)
        codes, rows = codes[lawful], rows[lawful]
        granted = self._budget.take(len(codes))
        if not granted:
            return not lawful.all() and not self._budget.spent
        codes, rows = codes[:granted], rows[:granted]
        raw = self._raw(codes)
        expected = self._expected(codes, raw)[0]
        rating = self._rate(rows)
        share = np.clip(rating.grade, expit(-LIMIT), expit(LIMIT))
        found = _Evidence(codes, raw, rating.favourable, logit(share) - self._threshold, expected)
        self.evidence = self.evidence.joined(found)
        return True

    def _raw(self, codes: Codes) -> Floats:
        """Return how far candidates (m, G) are beyond the decision, by the surrogate."""
        lacks = self._scorer.lacks(self._scorer.structure.sums(self._opened.encoded(codes)))
        return np.clip(np.nan_to_num(-lacks, nan=-LIMIT, posinf=LIMIT, neginf=-LIMIT), -LIMIT, LIMIT)

    # what may be asked about

    def _singles(self) -> Codes:
        """Return all single changes, or as many of them as are scored at once."""
        ids = np.arange(len(self._problem.actions.cost))
        return self._new(_children(self._problem, self._problem.own[None], ids)[:MOST_PROPOSED])

    def _from_afar(self) -> Codes:
        """Return what GeCo finds on the surrogate, and the nearest background rows that are known to be favourable."""
        wanted = changed(self._opened, count=max(self._problem.count, ANSWERS))
        rows = GeCo(last_resort=False).search(wanted, self._budget.anew(SURROGATE_ROWS), self._rng).rows
        known = nearest_favourable_rows(changed(self._opened, rate_background=self._problem.rate_background))
        far = np.concatenate([rows, known[:FROM_BACKGROUND]])
        return self._new(codes_of(self._problem, far))

    def _proposed(self) -> Codes:
        """Return changes of the row, of candidates that came near, and of answers."""
        seen = self.evidence
        distance = self._problem.distance(seen.codes)
        hopes = np.where(seen.favourable, -np.inf, self._expected(seen.codes, seen.raw, seen.score)[0])
        within = ~seen.favourable & (distance < self._cutoff())
        order = np.flatnonzero(within)[np.argsort(-hopes[within], kind="stable")]
        hopeful = seen.codes[_spread(seen.codes[order] != self._problem.own, order, HOPEFUL)]
        favourable = np.flatnonzero(seen.favourable)
        favourable = favourable[np.argsort(distance[favourable], kind="stable")]
        answers = seen.codes[_spread(seen.codes[favourable] != self._problem.own, favourable, ANSWERS, alike=2)]
        every = np.arange(len(self._problem.actions.cost))
        few = len(every) * len(answers) < MOST_PROPOSED
        parts = [
            _children(self._problem, np.concatenate([self._problem.own[None], hopeful]), self._some_actions()),
            _children(self._problem, answers, every if few else self._some_actions()),
        ]
        return self._new(np.concatenate(parts))

    def _some_actions(self) -> Codes:
        """Return the numbers of actions of every group: all of a few, else the nearest ones and some farther away."""
        table, kept = self._problem.actions, []
        for start, end in zip(table.start[:-1], table.start[1:], strict=True):
            ids = start + np.argsort(table.cost[start:end], kind="stable")
            if len(ids) > ACTIONS:
                half = ACTIONS // 2
                far = np.linspace(half, len(ids) - 1, half).astype(np.intp)
                ids = np.concatenate([ids[:half], ids[far]])
            kept.append(ids)
        return np.concatenate(kept)

    def _new(self, codes: Codes) -> Codes:
        """Return candidates (k, G) that were not asked about, meet the rules, and may be nearer than the answers."""
        problem = self._problem
        codes = codes[(codes[:, ~problem.own_allowed] != problem.own[~problem.own_allowed]).all(axis=1)]
        codes = codes[problem.distance(codes) < self._cutoff()]
        codes = np.unique(codes, axis=0)
        codes = codes[problem.held(codes)]
        fresh = np.array([code.tobytes() not in self._tried for code in codes], dtype=np.bool_)
        found: Codes = codes[fresh & (codes != problem.own).any(axis=1)]
        return found

    # what is asked about

    def _chosen(self, pool: Codes, size: int) -> Codes:
        """Return the candidates (k, G) of a pool that promise most."""
        distance = self._problem.distance(pool)
        _, likely = self._expected(pool, self._raw(pool))
        cutoff = self._cutoff()
        ends = np.full(len(pool), cutoff if np.isfinite(cutoff) else 1.05 * distance.max())
        gain = likely * np.maximum(ends - distance, 0.0)
        order = np.argsort(-gain, kind="stable")[:size]
        if np.isfinite(cutoff):
            order = order[gain[order] >= WORTH / size * cutoff] if gain[order].sum() >= WORTH * cutoff else order[:0]
        chosen = pool[order]
        self._tried |= {code.tobytes() for code in chosen}
        return chosen

    def _cutoff(self) -> float:
        """Return the distance below which a candidate would be one of the wanted answers; inf: any would be."""
        seen = self.evidence
        codes = seen.codes[seen.favourable]
        if not len(codes):
            return np.inf
        distance = np.sort(_nearest_of_sets(codes != self._problem.own, self._problem.distance(codes)))
        return float(distance[self._problem.count - 1]) if len(distance) >= self._problem.count else np.inf

    # what is expected

    def _expected(self, codes: Codes, raw: Floats, known: Floats | None = None) -> tuple[Floats, Floats]:
        """Return the expected scores (m,) of candidates, and the probabilities (m,) that they are accepted.

        Where the scores are `known`, these are returned if they tell candidates apart.
        """
        seen = self.evidence
        if len(seen.raw) < 4:
            return raw, expit(raw)
        graded = bool((np.abs(seen.score) < LIMIT - 1e-6).any())
        if graded and known is not None:
            return known, (known >= 0).astype(np.float64)
        columns = _Columns.of(self._problem, seen.codes, actions=graded)
        A, B = columns.matrix(seen.codes, seen.raw), columns.matrix(codes, raw)
        if not graded:
            found = raw + B @ _logistic(A, seen.raw, seen.favourable, columns.prior)
            return found, expit(found)
        found = raw + B @ np.linalg.solve(A.T @ A + np.diag(columns.prior), A.T @ (seen.score - seen.raw))
        near = np.abs(seen.score) < 4
        errors = (seen.score - seen.expected)[near][-4 * ROWS :]
        spread = max(LEAST_SPREAD, float(np.sqrt(np.mean(errors**2)))) if len(errors) else 1.0
        return found, ndtr(found / spread)


@dataclass(frozen=True, eq=False)
class _Columns:
    """The terms of a correction: an offset, the surrogate's raw score, changed groups, and actions that were tried."""

    own: Codes
    start: Codes
    ids: Codes
    prior: Floats

    @classmethod
    def of(cls, problem: Problem, codes: Codes, *, actions: bool) -> _Columns:
        """Return the terms for candidates (n, G); without `actions`, groups alone."""
        start, ids = problem.actions.start[:-1], np.empty(0, dtype=np.intp)
        if actions:
            changes = codes != problem.own
            ids, times = np.unique((codes + start)[changes], return_counts=True)
            ids = np.sort(ids[np.argsort(-times, kind="stable")[:MOST_COLUMNS]])
        sizes = (1, 1, codes.shape[1], len(ids))
        return cls(problem.own, start, ids, np.repeat(PRIORS, sizes))

    def matrix(self, codes: Codes, raw: Floats) -> Floats:
        """Return the terms (m, k) of candidates (m, G) with raw scores (m,)."""
        changes = codes != self.own
        actions = np.zeros((len(codes), len(self.ids)))
        if len(self.ids):
            sought = codes + self.start
            at = np.searchsorted(self.ids, sought).clip(max=len(self.ids) - 1)
            row, group = np.nonzero(changes & (self.ids[at] == sought))
            actions[row, at[row, group]] = 1.0
        return np.column_stack([np.ones(len(codes)), raw, changes, actions])


def _logistic(A: Floats, offset: Floats, favourable: Bools, prior: Floats) -> Floats:
    """Return the weights (k,) of terms (n, k) beside an offset (n,) that explain decisions (n,), held to 0."""
    weights = np.zeros(A.shape[1])
    for _ in range(STEPS):
        share = expit(np.clip(offset + A @ weights, -30, 30))
        curve = np.maximum(share * (1 - share), 1e-6)
        slope = A.T @ (favourable - share) - prior * weights
        step = np.linalg.solve((A.T * curve) @ A + np.diag(prior), slope)
        weights = weights + np.clip(step, -2, 2)
    return weights


def _children(problem: Problem, parents: Codes, ids: Codes) -> Codes:
    """Return (p * t, G) every parent with every one of the actions `ids` (t,)."""
    table = problem.actions
    found = np.repeat(parents, len(ids), axis=0)
    at = np.tile(ids, len(parents))
    found[np.arange(len(found)), table.group[at]] = table.code[at]
    return found


def _spread(sets: Bools, order: Codes, most: int, alike: int = 3) -> Codes:
    """Return the first positions of an order, no more than some `alike` of the same set (m, G)."""
    seen: dict[bytes, int] = {}
    kept = []
    for flags, position in zip(sets, order.tolist(), strict=True):
        times = seen[flags.tobytes()] = seen.get(flags.tobytes(), 0) + 1
        if times <= alike:
            kept.append(position)
        if len(kept) == most:
            break
    return np.array(kept, dtype=np.intp)


def _nearest_of_sets(sets: Bools, distance: Floats) -> Floats:
    """Return the least distance of every changed set."""
    _, place = np.unique(sets, axis=0, return_inverse=True)
    found = np.full(int(place.max()) + 1, np.inf)
    np.minimum.at(found, place.ravel(), distance)
    return found
