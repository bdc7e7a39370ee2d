"""Ratings straight from a structure, for the candidates of a search; what leaves the package is the judge's alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.judge import Outcome
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

    def tokens(self, columns: Sequence[int], tuples: Floats) -> list[Tokens]:
        """Return the structure's tokens of tuples (t, len(columns)), one array per column."""
        return [self.structure.encode(column, tuples[:, part]) for part, column in enumerate(columns)]

    def rate_tokens(self, tokens: Sequence[Tokens]) -> Rating:
        """Rate m candidates given by one token array per feature."""
        scores = self.structure.score(tokens)
        if self.target.model.regression:
            return self.target.rate(Outcome(np.full(len(scores), -1, dtype=np.intp), None, scores[:, 0]))
        return self.target.rate(Outcome(scores.argmax(axis=1), scores))

    def rate(self, Z: Floats) -> Rating:
        """Rate coded rows (m, d)."""
        return self.rate_tokens(self.tokens(range(Z.shape[1]), Z))
