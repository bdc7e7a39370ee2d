"""Models of one kind as one structure whose raw scores stand side by side, the same number of each model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlflow_cf.features import FeatureSpace
from mlflow_cf.structures.combined import Combined, WeightedScores
from mlflow_cf.structures.layers.columns import NotOpenedError
from mlflow_cf.structures.layers.merged import LinearModels
from mlflow_cf.structures.layers.network import Layers
from mlflow_cf.structures.structure import Structure
from mlflow_cf.structures.trees.ensemble import TreeEnsemble
from mlflow_cf.structures.trees.merged import merged_trees
from mlflow_cf.words.statements import say


def merged(structures: Sequence[Structure], space: FeatureSpace) -> Structure:
    """Return the structures of models with the same classes as one; trees and linear models share what they have.

    Raises:
        NotOpenedError: their scores are made in different ways.
    """
    if len({(one.link, one.outputs) for one in structures}) > 1:
        raise NotOpenedError(say("not_alike"))
    trees = [one for one in structures if isinstance(one, TreeEnsemble)]
    if len(trees) == len(structures):
        return merged_trees(trees)
    linear = [one for one in structures if isinstance(one, Layers) and not one.weights]
    if len(linear) == len(structures):
        try:
            return LinearModels.of(linear, space).structure(space)
        except NotOpenedError:
            pass  # encoded in a way that is no line: side by side as they are
    link, outputs = structures[0].link, structures[0].outputs
    one_share = outputs == 1 and link in ("sigmoid", "share")
    scores = WeightedScores(
        tuple(one.link for one in structures),
        tuple(one.outputs for one in structures),
        np.eye(outputs * len(structures)),
        np.zeros(outputs * len(structures)),
    )
    name = f"scores of {len(structures)} models"
    return Combined.of(name, structures, len(space), scores, "share" if one_share else "identity")
