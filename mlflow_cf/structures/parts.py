"""What a structure is made of, in plain arrays: enough to write its raw scores as rows of a mixed-integer program.

Features are raw ones, in the order of the structure's columns. `Lookup.cells` says which cell a raw code is in: the
numbers of cell c are above ``cuts[c - 1]`` and at most ``cuts[c]``; every level has a cell, all unseen ones share one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.layers.columns import ClippedLine
from mlflow_cf.structures.structure import Flags, Link
from mlflow_cf.structures.trees.cells import Lookup

Activation = Literal["identity", "relu", "logistic", "tanh"]
Positions = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class LeafLimits:
    """The cells of one feature that leaves accept; a leaf that is not listed accepts all of them.

    Attributes:
        leaf: (n,) the leaves that are listed, ascending.
        low, high: (n,) first and last accepted cell of values that are not missing; high < low: none.
        missing: (n,) whether the cell of missing values is accepted, if they have one of their own.
        taken: (n, cells) which cells are accepted; None: all from `low` to `high`.
    """

    leaf: Positions
    low: Positions
    high: Positions
    missing: Flags
    taken: Flags | None


@dataclass(frozen=True, eq=False)
class Leaves:
    """Trees: a row reaches the leaf of every tree that accepts all its cells; raw scores are `base` plus leaf values.

    Attributes:
        lookups: (d,) how raw codes of a feature become cells; limits: (d,) the cells that leaves accept.
        tree: (leaves,) the tree of every leaf, ascending; unreachable leaves are left out.
        value: (leaves, k) what it adds to the raw scores.
        base: (k,) added to all rows; link: turns raw scores into scores.
    """

    lookups: tuple[Lookup, ...]
    limits: tuple[LeafLimits, ...]
    tree: Positions
    value: Floats
    base: Floats
    link: Link


@dataclass(frozen=True, eq=False)
class Number:
    """A number that adds ``affine(code) * weights`` to the first layer.

    Attributes:
        affine: the formula; missing: its value for a missing code, NaN if no row may have one.
        weights: (width,).
    """

    affine: ClippedLine
    missing: float
    weights: Floats


@dataclass(frozen=True, eq=False)
class Choice:
    """A feature that adds the row of `table` of its cell to the first layer.

    Attributes:
        lookup: how raw codes become cells.
        table: (cells, width).
    """

    lookup: Lookup
    table: Floats


@dataclass(frozen=True, eq=False)
class Dense:
    """Dense layers: the first is `bias` plus what features add, the next its activations times `weights` plus `biases`.

    Attributes:
        entries: (d,) per feature the terms that it adds to the first layer.
        bias: (width,) of the first layer.
        weights, biases: of the later layers, (inputs, outputs) and (outputs,).
        activation: between layers; link: turns the last layer into scores.
    """

    entries: tuple[tuple[Number | Choice, ...], ...]
    bias: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: Activation
    link: Link


Part = Leaves | Dense
