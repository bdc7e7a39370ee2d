"""Ratings straight from structures, for the candidates of a search; what leaves the package is the judge's alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem.lead import Lead
from mlflow_cf.problem.rating import BoundTarget, Rating
from mlflow_cf.problem.reach import reach, surely
from mlflow_cf.problem.sums import SumTarget, lacking, rate_sums, rounding, shortfalls
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.links import Tokens
from mlflow_cf.structures.structure import Structure


@dataclass(frozen=True, eq=False)
class Rater:
    """One structure or several as one, and the targets that all its sums are rated against.

    Attributes:
        own: the opened model, known to agree with the judge.
        structure: the same, or several requirements' structures joined.
        targets: one for every structure, of its sums.
    """

    own: Structure
    structure: Structure
    targets: tuple[SumTarget, ...]

    @classmethod
    def of(cls, requirements: Sequence[tuple[Structure, BoundTarget]], columns: int) -> Rater:
        """Return the rater of candidates over so many columns that must meet each target by the structure beside it."""
        structures = [structure for structure, _ in requirements]
        return cls.bound(structures, joined(structures, columns), [target for _, target in requirements])

    @classmethod
    def bound(cls, structures: Sequence[Structure], together: Structure, targets: Sequence[BoundTarget]) -> Rater:
        """Return the rater of structures that are joined already, each with the target beside it."""
        of_sums, start = [], 0
        for structure, target in zip(structures, targets, strict=True):
            of_sums.append(target.of_sums(structure.link, start, structure.outputs))
            start += structure.outputs
        return cls(structures[0], together, tuple(of_sums))

    def tokens(self, columns: Sequence[int], tuples: Floats) -> list[Tokens]:
        """Return the structure's tokens of tuples (t, len(columns)), one array per column."""
        return [self.structure.encode(column, tuples[:, part]) for part, column in enumerate(columns)]

    def rate_sums(self, sums: Floats) -> Rating:
        """Rate m candidates by their sums (m, k)."""
        favourable, grade, _ = rate_sums(sums, self.targets)
        return Rating(favourable, grade)

    def margins(self, tokens: Sequence[Tokens]) -> tuple[Bools, Floats]:
        """Return whether m candidates meet the targets, and how far their scores are from where that would change."""
        favourable, _, margin = rate_sums(self.structure.sums(tokens), self.targets)
        return favourable, margin

    def verdicts(self, sums: Floats, doubt: float) -> tuple[Bools, Bools]:
        """Return (m,) which candidates with sums (m, k) may meet the targets, and which certainly do.

        Scores may be off by `doubt`, in units of max(1, |score|). Few are so near that they have to be made.
        """
        near, lacks = rounding(sums, self.targets, doubt), lacking(sums, self.targets)
        may: Bools = lacks < 0
        sure = may.copy()
        close = np.flatnonzero(~(np.abs(lacks) > near))
        if not len(close):
            return may, sure
        favourable, _, margin = rate_sums(sums[close], self.targets)
        may[close] = favourable | (margin < doubt)
        sure[close] = favourable & (margin >= doubt)
        return may, sure

    def measures(self, tokens: Sequence[Tokens]) -> tuple[Bools, Floats, Floats]:
        """Return what `margins` does, and what the sums lack to meet the targets; see `shortfalls`."""
        sums = self.structure.sums(tokens)
        favourable, _, margin = rate_sums(sums, self.targets)
        return favourable, margin, shortfalls(sums, self.targets)

    def lacks(self, sums: Floats) -> Floats:
        """Return what candidates with sums (m, k) lack to meet the targets; see `lacking`."""
        return lacking(sums, self.targets)

    def reach(self, low: Floats, high: Floats, doubt: float) -> Floats:
        """Return (m,) how far into the targets sums between bounds (m, k) can come; below 0 they cannot.

        Sums may be off by `doubt`, in units of max(1, |sum|).
        """
        return reach(low, high, self.targets, doubt)

    def surely(self, low: Floats, high: Floats, doubt: float) -> Bools:
        """Return (m,) whether all sums between bounds (m, k) meet the targets, even if they are off by `doubt`."""
        return surely(low, high, self.targets, doubt)

    def lead(self, doubt: float) -> Lead | None:
        """Return the number that decides the targets, None if it is not a single one; see `Lead.of`."""
        return Lead.of(self.targets, doubt)

    def numbers(self, doubt: float) -> int:
        """Return how many numbers are made of every candidate to rate many together."""
        return self.structure.outputs if self.lead(doubt) is None else 1

    def rate_tokens(self, tokens: Sequence[Tokens]) -> Rating:
        """Rate m candidates given by one token array per feature."""
        return self.rate_sums(self.structure.sums(tokens))

    def rate(self, Z: Floats) -> Rating:
        """Rate coded rows (m, d)."""
        return self.rate_tokens(self.tokens(range(Z.shape[1]), Z))


def joined(structures: Sequence[Structure], columns: int) -> Structure:
    """Return structures over so many columns as one."""
    return structures[0] if len(structures) == 1 else Joined.of(structures, columns)
