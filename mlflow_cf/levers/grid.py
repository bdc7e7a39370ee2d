"""All combinations of the actions that a few groups may take, while all others keep the row's own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.rounding import loose

AT_ONCE: Final = 1_024  # combinations that are checked together, the nearest first


@dataclass(frozen=True, eq=False)
class Grid:
    """The combinations in C order.

    Attributes:
        problem: the row; groups: those that may change.
        choices: per group, the codes of its actions.
    """

    problem: Problem
    groups: Sequence[int]
    choices: Sequence[Codes]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many actions each group has."""
        return tuple(map(len, self.choices))

    @property
    def size(self) -> int:
        """How many combinations there are; none where another group must change, or no row can be lawful."""
        forced = set(np.flatnonzero(~self.problem.own_allowed).tolist()) - set(self.groups)
        return 0 if forced or self.problem.never else prod(self.shape)

    def codes(self, places: Codes) -> Codes:
        """Return the candidates (m, G) at `places` (m,) among the combinations."""
        codes = np.repeat(self.problem.own[None], len(places), axis=0)
        for group, some, at in zip(self.groups, self.choices, np.unravel_index(places, self.shape), strict=True):
            codes[:, group] = some[at]
        return codes

    def sums(self, scorer: Scorer) -> Floats:
        """Return the raw scores (size, k) of all; rounding may differ from that of single rows."""
        problem = self.problem
        if scorer.products is None:
            return scorer.structure.sums(problem.encoded(self.codes(np.arange(self.size))))
        taken = dict(zip(self.groups, self.choices, strict=True))
        tables = zip(problem.encoded_tables, problem.owner.tolist(), strict=True)
        values = [table[taken.get(number, problem.own[[number]])] for table, number in tables]
        return scorer.products.product(values, problem.owner)

    def distances(self) -> Floats:
        """Return the distance (size,) of all, added up in another order than `Problem.distance` does."""
        actions = self.problem.actions
        ids = [some + actions.start[group] for group, some in zip(self.groups, self.choices, strict=True)]
        far = reduce(np.add.outer, [actions.cost[some] for some in ids])
        if self.problem.bound_distance.c:
            far = far + self.problem.bound_distance.c * reduce(np.maximum.outer, [actions.peak[some] for some in ids])
        return np.asarray(far.ravel())

    def lawful(self, codes: Codes) -> Bools:
        """Return which of candidates (m, G) differ from the row and are what the rules over several groups allow."""
        return np.asarray((codes != self.problem.own).any(axis=1) & self.problem.held(codes))

    def nearest(self, may: Bools, sure: Bools) -> tuple[Codes, Bools]:
        """Return the nearest lawful candidates (m, G), none farther than the first sure one, and which are sure (m,).

        Args:
            may: (size,) which combinations may be answers; sure: (size,) which certainly are, if they are lawful.
        """
        far, some = self.distances(), np.flatnonzero(may)
        some = some[np.argsort(far[some], kind="stable")]
        kept, start, limit = [some[:0]], 0, np.inf
        while start < len(some) and far[some[start]] <= limit:
            part = some[start : start + AT_ONCE]
            codes = self.codes(part)
            part = part[self.lawful(codes) & self.problem.check(self.problem.rows(codes))]
            kept.append(part)
            if sure[part].any():
                limit = min(limit, loose(float(far[part[sure[part]]].min())))
            start += AT_ONCE
        places = np.concatenate(kept)
        places = places[far[places] <= limit]
        return self.codes(places), sure[places]
