"""Structures: the white box inside a model, compiled once and scored over codes.

These are the names that flavors need, ours and those of other packages: to describe a model's encoded columns and its
trees or layers, to compile them, and to write a structure of one's own.
"""

from mlflow_cf.structures.capabilities import (
    CostBound,
    CostBounds,
    HiddenLayer,
    SupportsBoxes,
    SupportsBreaks,
    SupportsCosts,
    SupportsEnds,
    SupportsHidden,
    SupportsLeaves,
    SupportsPairs,
    SupportsParts,
    SupportsProduct,
    SupportsSteady,
)
from mlflow_cf.structures.combined import Combination, Combined, Increasing, WeightedMedian, WeightedScores
from mlflow_cf.structures.growing import GrowingBox, SupportsGrowing, SupportsSettling
from mlflow_cf.structures.layers.columns import (
    ClippedLine,
    Column,
    CurveColumn,
    IntervalColumn,
    LevelColumn,
    MonotoneStep,
    NotOpenedError,
    NumberColumn,
)
from mlflow_cf.structures.layers.network import Layers
from mlflow_cf.structures.parts import Activation, Choice, Dense, LeafLimits, Leaves, Number, Part
from mlflow_cf.structures.shapley import Attribution, Contributions, SupportsContributions
from mlflow_cf.structures.structure import Link, Structure, score_encoded, score_rows
from mlflow_cf.structures.trees.ensemble import TreeEnsemble
from mlflow_cf.structures.trees.forest import Forest, Subsets

__all__ = [
    "Activation",
    "Attribution",
    "Choice",
    "ClippedLine",
    "Column",
    "Combination",
    "Combined",
    "Contributions",
    "CostBound",
    "CostBounds",
    "CurveColumn",
    "Dense",
    "Forest",
    "GrowingBox",
    "HiddenLayer",
    "Increasing",
    "IntervalColumn",
    "Layers",
    "LeafLimits",
    "Leaves",
    "LevelColumn",
    "Link",
    "MonotoneStep",
    "NotOpenedError",
    "Number",
    "NumberColumn",
    "Part",
    "Structure",
    "Subsets",
    "SupportsBoxes",
    "SupportsBreaks",
    "SupportsContributions",
    "SupportsCosts",
    "SupportsEnds",
    "SupportsGrowing",
    "SupportsHidden",
    "SupportsLeaves",
    "SupportsPairs",
    "SupportsParts",
    "SupportsProduct",
    "SupportsSettling",
    "SupportsSteady",
    "TreeEnsemble",
    "WeightedMedian",
    "WeightedScores",
    "score_encoded",
    "score_rows",
]  # fmt: skip
