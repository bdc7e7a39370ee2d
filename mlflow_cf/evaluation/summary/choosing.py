"""The choice of common changes from a table, each row verified before it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mlflow_cf.evaluation.summary.bits import Words, flags_of, packed
from mlflow_cf.evaluation.summary.changes import CommonChange, applied, plain, text_of
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.evaluation.summary.cover import Cover, best_cover
from mlflow_cf.evaluation.summary.refused import RefusedRows
from mlflow_cf.evaluation.summary.result import Cohort, Cohorts
from mlflow_cf.evaluation.summary.table import Table
from mlflow_cf.problem import Codes
from mlflow_cf.words.result import Proof

ROUNDS: Final = 50  # of choices, each without the rows that verification has refused
MOST_TIES: Final = 200  # changes of which the nearest is looked for, where they turn as many rows


@dataclass(frozen=True, eq=False)
class Choosing:
    """The choice of at most so many changes.

    Attributes:
        rows, table: which rows each change turns; rows that verification refuses are taken out of the table.
        most: how many changes.
        clock: when the search for a better choice ends.
    """

    rows: RefusedRows
    table: Table
    most: int
    clock: Clock
    _verified: dict[int, Words] = field(default_factory=dict)

    def cohorts(self) -> Cohorts:
        """Return the best choice that is found, all of its rows verified."""
        bits, rows, seed = self.table.bits, len(self.rows), self.rows.explained.policy.seed
        for _ in range(ROUNDS):
            cover = best_cover(bits, rows, self.most, self._nearest, self.clock, seed)
            if not self._refuses(cover):
                break
        return self._result(cover)

    def _refuses(self, cover: Cover) -> bool:
        """Verify what a choice turns; take the rows that are refused out of the table, and return if there are any."""
        bits, left, any_refused = self.table.bits, np.full(self.table.bits.shape[1], ~np.uint64(0)), False
        for change in cover.chosen:
            known = self._verified.get(change, np.zeros_like(left))
            at = self._places(bits[change] & left & ~known)
            accepted = self.rows.verified(self.table.family.change(change), at)
            any_refused |= not accepted.all()
            bits[change] &= ~self._set(at[~accepted])
            self._verified[change] = known | self._set(at[accepted])
            left &= ~bits[change]
        return any_refused

    def _result(self, cover: Cover) -> Cohorts:
        """Return a choice with the rows of each change, those among them that the table knows nothing of."""
        left, items = np.full(self.table.bits.shape[1], ~np.uint64(0)), list[Cohort]()
        unscored = self._set(np.flatnonzero(self.table.unscored))
        for number in cover.chosen:
            change = self.table.family.change(number)
            turned = self.table.bits[number] & left
            turned |= self._set(self._more(change, self._places(unscored & left)))
            left &= ~turned
            if turned.any():
                items.append(self._cohort(change, self._places(turned)))
        rows, covered = len(self.rows), sum(item.turned for item in items)
        bound = min(max(cover.bound + int(self.table.unscored.sum()), covered), rows)
        proof: Proof = "optimal" if covered == bound else "bounded" if bound < rows else "none"
        return Cohorts(
            items=tuple(items),
            rows=rows,
            groups=self.rows.sizes,
            most=self.most,
            bound=bound / rows,
            proof=proof,
            greedy=cover.greedy / rows,
            family=self.table.family.text,
        )

    def _more(self, change: CommonChange, at: Codes) -> Codes:
        """Return which of rows `at` (m,) a change turns that the table knows nothing of; none when the time is over."""
        if self.clock.late:
            return at[:0]
        X = self.rows.X[at]
        Z = applied(change, self.rows.space, X)
        kept = np.flatnonzero(self.rows.bound_policy.accepts(Z, X))
        some = at[kept[self.rows.turned(Z[kept], at[kept])]]
        return some[self.rows.verified(change, some)]

    def _cohort(self, change: CommonChange, turned: Codes) -> Cohort:
        counts = Counter(self.rows.groups[at] for at in turned) if self.rows.groups else Counter[str]()
        return Cohort(
            text=text_of(change, self.rows.space),
            changes=plain(change, self.rows.space),
            turned=len(turned),
            share=len(turned) / len(self.rows),
            distance=float(self.rows.distance(change, turned).mean()),
            by_group={name: counts[name] / rows for name, rows in self.rows.sizes.items()},
        )

    def _nearest(self, ties: Codes, left: Words) -> int:
        """Return which of changes (k,) that turn as many of some rows takes them least far; then the simplest, by text.

        Of very many, only the first are looked at: single changes, and pairs in the order of their features.
        """
        best: tuple[float, int, str, int] | None = None
        for number in ties[:MOST_TIES].tolist():
            change = self.table.family.change(number)
            far = self.rows.distance(change, self._places(self.table.bits[number] & left)).mean()
            key = (float(far), len(change), text_of(change, self.rows.space), number)
            best = key if best is None else min(best, key)
        return int(ties[0]) if best is None else best[3]

    def _places(self, some: Words) -> Codes:
        """Return the numbers of the rows of a set (w,)."""
        return np.flatnonzero(flags_of(some, len(self.rows)))

    def _set(self, at: Codes) -> Words:
        """Return rows `at` (m,) as a set (w,)."""
        flags = np.zeros(len(self.rows), dtype=np.bool_)
        flags[at] = True
        return packed(flags)
