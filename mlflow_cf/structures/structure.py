"""A model opened: it computes raw scores from encoded values by itself, without the model's own code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mlflow_cf.features import Floats
from mlflow_cf.structures.links import Encoded, Flags, Link, linked


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
