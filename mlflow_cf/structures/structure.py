"""A model opened: it scores codes by its own numbers, without the model's own code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from inspect import Parameter, isfunction, signature
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.links import Flags, Link, Tokens
from mlflow_cf.structures.pairs import PairTables
from mlflow_cf.structures.parts import Part


class Structure(Protocol):
    """A model over tokens; immutable and thread-safe. It answers score, restrict, sweep and bounds.

    Tokens are all it needs to know of a value: the cell of a tree, what enters the first layer of a network.
    """

    @property
    def kind(self) -> str:
        """What it is, with its size, for `describe()`."""
        ...

    @property
    def link(self) -> Link:
        """How sums become scores."""
        ...

    @property
    def outputs(self) -> int:
        """How many sums there are."""
        ...

    @property
    def steady(self) -> bool:
        """Whether the model behind it says the same of a row, to the last bit, whatever rows stand beside it.

        Trees do, but for forests that several threads add up; products of matrices are rounded by the shape of a batch.
        """
        ...

    def encode(self, column: int, codes: Floats) -> Tokens:
        """Return tokens (n, ...) of raw codes (n,) of one column."""
        ...

    def ends(self, column: int) -> Floats | None:
        """Return the raw numbers, ascending, up to which values of a column are all one to it; None if it tells all."""
        ...

    def ordered(self, column: int) -> bool:
        """Return whether numbers of a column are only compared, so that the model takes any number and not a few."""
        ...

    def sums(self, tokens: Sequence[Tokens]) -> Floats:
        """Return the sums (m, k) that `link` turns into scores, for one token array (m, ...) per column."""
        ...

    def score(self, tokens: Sequence[Tokens]) -> Floats:
        """Return scores (m, classes) as `OpenModel.score` does (regression: (m, 1)) for one token array per column."""
        ...

    def restrict(self, row: Sequence[Tokens], changed: Sequence[int]) -> Structure:
        """Return the structure of the `changed` columns alone; all others keep the tokens of `row`, one per column."""
        ...

    def sweep(
        self, rows: Sequence[Tokens], values: Sequence[Tokens | None], wanted: Flags | None = None
    ) -> list[Floats | None]:
        """Return, per column, the sums (p, t, k) of p rows with this one column's token replaced by each of `values`.

        Columns without values are not swept and get None. Where `wanted` (p, d) is False, any sums will do.
        """
        ...

    def bounds(self, allowed: Sequence[Tokens]) -> tuple[Floats, Floats]:
        """Return lower and upper bounds (k,) on the sums of all rows whose tokens are allowed (t, ...), t >= 1."""
        ...

    def pairs(self, row: Sequence[Tokens]) -> Pairs | None:
        """Return what two changes of a `row` (1, ...) together do to its sums; None where boxes tell as much."""
        ...

    def product(
        self, tokens: Sequence[Tokens], dimension: NDArray[np.intp], weights: Floats | None = None
    ) -> Floats | None:
        """Return the sums (m, k) of all rows that take one choice of every dimension, those of the last one fastest.

        They are rounded otherwise than `sums`. None where nothing is saved beside it.

        Args:
            tokens: per column, its token with every choice (t, ...) of its dimension; those of trees best ascend.
            dimension: (d,) the dimension of every column, 0 to n - 1.
            weights: (k, j) of the sums in those that are returned instead (m, j).
        """
        ...

    def parts(self) -> tuple[Part, ...] | None:
        """Return what it is made of, in plain arrays; the sums of several parts stand side by side.

        None if there is no formula for what happens to some number.
        """
        ...

    def boxes(self, values: Sequence[Tokens]) -> Boxes:
        """Return what bounds parts of the box of rows whose tokens are among `values` (t, ...) of their columns.

        The choices of all columns stand one after the other.
        """
        ...


def lacking(structure: object) -> list[str]:
    """Return what `Structure` asks for and an object has not: ``pairs``, or ``the parameter 'wanted' of sweep``."""
    found = []
    for name, asked in vars(Structure).items():
        if name.startswith("_"):
            continue
        if not hasattr(type(structure), name) and not hasattr(structure, name):
            found.append(name)
        elif isfunction(asked):
            wanted = list(signature(asked).parameters)[1:]
            taken = _positional(getattr(structure, name))
            found += [f"the parameter {each!r} of {name}" for each in wanted[taken:]]
    return found


def _positional(method: Callable[..., object]) -> int:
    """Return how many arguments a method takes without their names."""
    parameters = signature(method).parameters.values()
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return sys.maxsize
    return sum(
        parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )


def score_rows(structure: Structure, Z: Floats) -> Floats:
    """Return scores of coded rows (m, d)."""
    return structure.score([structure.encode(column, Z[:, column]) for column in range(Z.shape[1])])


class Pairs(Protocol):
    """What two changes of a row do to its sums beyond what each of them does alone."""

    def tables(
        self, values: Sequence[Tokens], first: NDArray[np.intp], second: NDArray[np.intp], most: int
    ) -> PairTables | None:
        """Return what changes to `values` (t, ...) of every column do, for pairs of columns (p,), (p,).

        The `first` are the smaller ones. No value is missing. None where the tables have more than `most` numbers.
        """
        ...


class Boxes(Protocol):
    """What bounds parts of one box of tokens."""

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the sums of all rows whose choices are allowed by each of `masks`."""
        ...

    def confined(self, mask: Flags, near: Flags, groups: Sequence[Sequence[int]]) -> tuple[Floats, Floats] | None:
        """Return bounds (g, k), (g, k) of a box with the columns of one of `groups` confined to their `near` choices.

        None where nothing is saved beside `bounds` for each of these parts.
        """
        ...

    def gains(self, mask: Flags, own: NDArray[np.intp], weights: Floats) -> Floats | None:
        """Return (choices,) what a weighted sum of rows with each choice gains at least if it is put back.

        That is for all rows of a box, with one column after the other put back to its `own` choice (d,); -1: it is not
        asked for, and what is returned for it means nothing. It is inf where no term falls, however sums are rounded.
        None where nothing is known.
        """
        ...
