"""Structures: the white box inside a model, compiled once and scored over codes.

These are the names that flavors need, ours and those of other packages: to describe a model's encoded columns and its
trees or layers, to compile them, and to take a structure apart again.
"""

from mlflow_cf.structures.activations import Activation
from mlflow_cf.structures.columns import (
    Affine,
    Column,
    IntervalColumn,
    LevelColumn,
    NotOpenedError,
    NumberColumn,
    Step,
)
from mlflow_cf.structures.forest import Forest, Subsets
from mlflow_cf.structures.layers import Layers
from mlflow_cf.structures.links import Link
from mlflow_cf.structures.parts import Choice, Dense, Leaves, Limits, Number, Part
from mlflow_cf.structures.structure import Structure, score_rows
from mlflow_cf.structures.trees import TreeEnsemble

__all__ = [
    "Activation",
    "Affine",
    "Choice",
    "Column",
    "Dense",
    "Forest",
    "IntervalColumn",
    "Layers",
    "Leaves",
    "LevelColumn",
    "Limits",
    "Link",
    "NotOpenedError",
    "Number",
    "NumberColumn",
    "Part",
    "Step",
    "Structure",
    "Subsets",
    "TreeEnsemble",
    "score_rows",
]
