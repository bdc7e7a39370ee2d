"""Ratings straight from a structure, for the candidates of a search; what leaves the package is the judge's alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem.goal import CompiledTarget, classes_of, compiled_target, margins_of, rate_sums
from mlflow_cf.problem.rating import BoundTarget, Rating
from mlflow_cf.structures.structure import Structure, Tokens


@dataclass(frozen=True, eq=False)
class Rater:
    """A structure and the target its scores are rated against.

    Attributes:
        structure: the opened model, known to agree with the judge.
        target: what candidates must be predicted as.
    """

    structure: Structure
    target: BoundTarget

    @cached_property
    def goal(self) -> CompiledTarget:
        """The target in numbers."""
        return compiled_target(self.target, self.structure.link)

    def tokens(self, columns: Sequence[int], tuples: Floats) -> list[Tokens]:
        """Return the structure's tokens of tuples (t, len(columns)), one array per column."""
        return [self.structure.encode(column, tuples[:, part]) for part, column in enumerate(columns)]

    def rate_sums(self, sums: Floats) -> Rating:
        """Rate m candidates by their sums (m, k)."""
        favourable, grade = np.empty(len(sums), dtype=np.bool_), np.empty(len(sums))
        rate_sums(sums, classes_of(self.goal, sums.shape[1]), self.goal, favourable, grade)
        return Rating(favourable, grade)

    def margins(self, tokens: Sequence[Tokens]) -> tuple[Bools, Floats]:
        """Return whether m candidates meet the target, and how far their scores are from where that would change."""
        sums = self.structure.sums(tokens)
        favourable, margin = np.empty(len(sums), dtype=np.bool_), np.empty(len(sums))
        margins_of(sums, classes_of(self.goal, sums.shape[1]), self.goal, favourable, margin)
        return favourable, margin

    def rate_tokens(self, tokens: Sequence[Tokens]) -> Rating:
        """Rate m candidates given by one token array per feature."""
        return self.rate_sums(self.structure.sums(tokens))

    def rate(self, Z: Floats) -> Rating:
        """Rate coded rows (m, d)."""
        return self.rate_tokens(self.tokens(range(Z.shape[1]), Z))
