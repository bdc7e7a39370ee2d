"""A model opened: it computes raw scores from encoded values by itself, without the model's own code.

Also encoded values, flags, and the link functions that turn raw scores into scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mlflow_cf.features import Floats


class Structure(Protocol):
    """A model over encoded values; immutable and thread-safe.

    It answers four questions: `sums` scores rows, `restrict` fixes columns, `sweep` scores single changes and
    `bounds` bounds the scores of sets of rows. What else it may offer stands in `mlflow_cf.structures.capabilities`.

    An encoded value is all that the model keeps of a raw one: the cell of a tree, the inputs of a first layer.
    """

    @property
    def kind(self) -> str:
        """What it is, with its size, for `describe()`."""
        ...

    @property
    def link(self) -> Link:
        """How raw scores become scores."""
        ...

    @property
    def outputs(self) -> int:
        """Number k of raw scores of a row."""
        ...

    def encode(self, column: int, codes: Floats) -> Encoded:
        """Return the encoded values (n, ...) of raw codes (n,) of one column; NaN is a missing value."""
        ...

    def sums(self, rows: Sequence[Encoded]) -> Floats:
        """Return the raw scores (m, k) of rows, one encoded array (m, ...) per column."""
        ...

    def restrict(self, row: Sequence[Encoded], changed: Sequence[int]) -> Structure:
        """Return the structure over the columns `changed` alone, in this order; the others keep the values of `row`.

        It offers what this one offers.

        Args:
            row: one encoded value (...) per column.
            changed: the columns that stay free.
        """
        ...

    def sweep(
        self, rows: Sequence[Encoded], values: Sequence[Encoded | None], wanted: Flags | None = None
    ) -> list[Floats | None]:
        """Return, per column, the raw scores (p, t, k) of p rows with this column alone set to each of its `values`.

        Args:
            rows: per column the encoded values (p, ...).
            values: per column the encoded values (t, ...) to set; None: the column is not swept, and gets None.
            wanted: (p, d) where False, the raw scores may be anything.
        """
        ...

    def bounds(self, allowed: Sequence[Encoded]) -> tuple[Floats, Floats]:
        """Return lower and upper bounds (k,), (k,) on the raw scores of all rows with allowed values.

        Args:
            allowed: per column the encoded values (t, ...) that it may take, at least one.
        """
        ...


def score_rows(structure: Structure, Z: Floats) -> Floats:
    """Return scores (m, classes), or (m, 1) of a regressor, of coded rows (m, d), as `OpenModel.score` does."""
    return score_encoded(structure, [structure.encode(column, Z[:, column]) for column in range(Z.shape[1])])


def score_encoded(structure: Structure, rows: Sequence[Encoded]) -> Floats:
    """Return scores (m, classes), or (m, 1) of a regressor, of rows of encoded values (m, ...) per column."""
    return linked(structure.sums(rows), structure.link)


# A single raw score of two classes is the probability of the second one (share), or its logit (sigmoid).
Link = Literal["identity", "share", "sigmoid", "softmax"]
TIE: Final = 1e-11  # shares this near to 0.5 are ties: the difference is rounding
Encoded = NDArray[Any]
Flags = NDArray[np.bool_]


def linked(totals: Floats, link: Link) -> Floats:
    """Turn raw scores (m, k) into scores (m, classes); a single linked raw score gives two classes."""
    if link == "softmax":
        return shares(totals)
    if link == "share" or (link == "sigmoid" and totals.shape[1] == 1):
        scores = np.empty((len(totals), 2))
        scores[:, 1] = totals[:, 0] if link == "share" else expit(totals[:, 0])
        scores[:, 0] = 1.0 - scores[:, 1]
        if link == "share":  # forests vote 0.5 for both classes of a tie, rounded alike
            scores[np.abs(scores[:, 1] - 0.5) <= TIE] = 0.5
        return scores
    if link == "sigmoid":  # one against the rest
        likely = expit(totals)
        total = likely.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, likely, 1.0) / np.where(total > 0, total, likely.shape[1]))
    return totals


def shares(values: Floats) -> Floats:
    """Return the softmax of every row of `values` (m, k)."""
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    found: Floats = raised / raised.sum(axis=1, keepdims=True)
    return found
