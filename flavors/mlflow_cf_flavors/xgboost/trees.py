"""XGBoost's trees as a forest, read from its own JSON, which gives every float32 back as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures import Forest, Link, NotOpenedError, Subsets
from mlflow_cf.words.statements import say

Tree = dict[str, Any]

LINKS: Final[dict[str, Link]] = {
    "binary:logistic": "sigmoid",
    "multi:softprob": "softmax",
    "multi:softmax": "softmax",
    **dict.fromkeys([f"reg:{loss}error" for loss in ("squared", "absolute", "pseudohuber", "quantile")], "identity"),
}


def xgboost_forest(booster: Any, rounds: int) -> Forest:
    """Return the trees of so many `rounds` of a Booster, the first ones; of all for 0.

    Raises:
        NotOpenedError: a booster of another kind than trees that are added up, or an unknown objective.
    """
    learner = json.loads(booster.save_raw("json"))["learner"]
    gradient_booster, objective = learner["gradient_booster"], learner["objective"]["name"]
    if gradient_booster["name"] != "gbtree":
        raise NotOpenedError(say("booster", name=str(gradient_booster["name"])))
    if objective not in LINKS:
        raise NotOpenedError(say("objective_of", library="XGBoost", objective=str(objective)))
    model = gradient_booster["model"]
    count = model["iteration_indptr"][rounds] if rounds else len(model["trees"])
    trees = model["trees"][:count]
    sizes = np.array([len(tree["left_children"]) for tree in trees])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    shift = np.repeat(starts, sizes)
    left = _joined(trees, "left_children")
    leaf = left < 0
    conditions = _joined(trees, "split_conditions").astype(np.float32)  # a leaf's is its value
    subsets = _subsets(trees, starts, len(leaf))
    return Forest(
        roots=starts.astype(np.int32),
        outputs=np.asarray(model["tree_info"][:count], dtype=np.int32),
        column=np.where(leaf, -1, _joined(trees, "split_indices")).astype(np.int32),
        threshold=conditions.astype(np.float64),
        missing_left=_joined(trees, "default_left").astype(np.bool_),
        left=(left + shift).astype(np.int32),
        right=(_joined(trees, "right_children") + shift).astype(np.int32),
        value=np.where(leaf, conditions, np.float32(0))[:, None],
        rule="< float32",
        base=_base(learner["learner_model_param"], LINKS[objective]),
        link=LINKS[objective],
        subsets=subsets,
    )


def _joined(trees: Sequence[Tree], name: str) -> NDArray[Any]:
    return np.concatenate([tree[name] for tree in trees])


def _subsets(trees: Sequence[Tree], starts: Any, nodes: int) -> Subsets | None:
    """Return which nodes send some categories right, and everything else left."""
    if not any(len(tree["categories_nodes"]) for tree in trees):
        return None
    where = np.concatenate(
        [start + np.array(tree["categories_nodes"], np.intp) for start, tree in zip(starts, trees, strict=True)]
    )
    sizes, right = _joined(trees, "categories_sizes").astype(np.intp), _joined(trees, "categories").astype(np.intp)
    subset = np.full(nodes, -1, dtype=np.int32)
    subset[where] = np.arange(len(where))
    left = np.ones((len(where), int(right.max(initial=0)) + 2), dtype=np.bool_)
    left[np.repeat(np.arange(len(where)), sizes), right] = False
    return Subsets(subset, left, above=float(np.nextafter(np.float32(0), np.float32(-1))))  # below 0 is no category


def _base(parameters: dict[str, str], link: Link) -> Floats:
    """Return the base raw scores; base_score is a probability where the link is a sigmoid."""
    scores = np.atleast_1d(np.array(json.loads(parameters["base_score"]), dtype=np.float32))
    if link == "sigmoid":
        scores = -np.log(np.float32(1) / scores - np.float32(1))
    return np.resize(scores, max(int(parameters["num_class"]), 1)).astype(np.float64)
