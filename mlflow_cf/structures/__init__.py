"""Structures: the white box inside a model, compiled once and scored over codes."""

from mlflow_cf.structures.columns import Column, IntervalColumn, LevelColumn, NotOpenedError, NumberColumn
from mlflow_cf.structures.forest import Forest, Subsets
from mlflow_cf.structures.layers import Layers
from mlflow_cf.structures.structure import Link, Structure, score_rows
from mlflow_cf.structures.trees import TreeEnsemble

__all__ = [
    "Column",
    "Forest",
    "IntervalColumn",
    "Layers",
    "LevelColumn",
    "Link",
    "NotOpenedError",
    "NumberColumn",
    "Structure",
    "Subsets",
    "TreeEnsemble",
    "score_rows",
]
