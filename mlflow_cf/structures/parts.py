"""What a structure is made of, in plain arrays: enough to write its sums as rows of a mixed-integer program.

Features are raw ones, in the order of the structure's columns. `Lookup.cells` says which cell a raw code is in: the
numbers of cell c are above ``cuts[c - 1]`` and at most ``cuts[c]``; every level has a cell, all unseen ones share one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.layers.activations import Activation
from mlflow_cf.structures.layers.columns import ClippedLine
from mlflow_cf.structures.links import Flags, Link
from mlflow_cf.structures.trees.cells import Lookup

Positions = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class LeafLimits:
    """What leaves ask of one feature; a leaf that is not listed takes all of its cells.

    Attributes:
        leaf: (n,) the leaves that ask something, ascending.
        low, high: (n,) the first and the last cell that each takes of values that are not missing; high < low: none.
        missing: (n,) whether it takes the cell that missing values have for themselves.
        taken: (n, cells) which cells it takes; None: all from `low` to `high`.
    """

    leaf: Positions
    low: Positions
    high: Positions
    missing: Flags
    taken: Flags | None


@dataclass(frozen=True, eq=False)
class Leaves:
    """Trees: a row falls into one leaf of every tree, the one that takes its cells, and sums are `base` plus values.

    Attributes:
        lookups: (d,) how raw codes of a feature become cells; limits: (d,) what leaves ask of it.
        tree: (leaves,) the tree of every leaf, ascending; leaves that no row reaches are left out.
        value: (leaves, k) what it adds to the sums.
        base: (k,) what sums start from; link: turns them into scores.
    """

    lookups: tuple[Lookup, ...]
    limits: tuple[LeafLimits, ...]
    tree: Positions
    value: Floats
    base: Floats
    link: Link


@dataclass(frozen=True, eq=False)
class Number:
    """A feature that adds ``affine(code) * weights`` to the sums of the first layer.

    Attributes:
        affine: the formula; missing: its value for a missing code, NaN if no row may have one.
        weights: (width,).
    """

    affine: ClippedLine
    missing: float
    weights: Floats


@dataclass(frozen=True, eq=False)
class Choice:
    """A feature that adds a row of `table` to the sums of the first layer, the one of its cell.

    Attributes:
        lookup: how raw codes become cells.
        table: (cells, width).
    """

    lookup: Lookup
    table: Floats


@dataclass(frozen=True, eq=False)
class Dense:
    """Layers: the sums of one are `bias` plus what enters, and their activations times `weights` enter the next.

    Attributes:
        entries: (d,) what each feature adds to the sums of the first layer: all of these together.
        bias: (width,) of the first layer.
        weights, biases: of the later layers, (inputs, outputs) and (outputs,).
        activation: between layers; link: turns the last sums into scores.
    """

    entries: tuple[tuple[Number | Choice, ...], ...]
    bias: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: Activation
    link: Link


Part = Leaves | Dense
