"""The trees of XGBoost and LightGBM as forests, read from the libraries' own dumps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import Column, Forest, Link, NotOpenedError, Structure, TreeEnsemble
from mlflow_cf_flavors.sklearn_columns import RawLevels, raw_columns

Booster = Any  # either library's

XGBOOST_LINKS: Final[dict[str, Link]] = {
    "binary:logistic": "sigmoid",
    "multi:softprob": "softmax",
    "multi:softmax": "softmax",
    "reg:squarederror": "identity",
    "reg:absoluteerror": "identity",
    "reg:pseudohubererror": "identity",
}
LIGHTGBM_LINKS: Final[dict[str, Link]] = {
    "binary sigmoid:1": "sigmoid",
    "multiclass": "softmax",
    "regression": "identity",
    "regression_l1": "identity",
    "huber": "identity",
    "fair": "identity",
    "quantile": "identity",
    "mape": "identity",
}


def number_columns(space: FeatureSpace) -> list[Column]:
    """Return the columns of a booster that takes the raw features as they are.

    Raises:
        NotOpenedError: levels, which the libraries split in ways of their own.
    """
    columns: list[Column] = []
    for source in raw_columns(space):
        if isinstance(source, RawLevels):
            raise NotOpenedError(f"the levels of {space.names[source.feature]}, split by the library itself")
        columns.append(source)
    return columns


def compile_xgboost(booster: Booster, rounds: tuple[int, int], space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    """Compile a Booster for the features of `space`."""
    del rows  # nothing to measure: the dump tells everything
    return TreeEnsemble.compile(xgboost_forest(booster, rounds), number_columns(space), space)


def compile_lightgbm(booster: Booster, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    """Compile a Booster for the features of `space`."""
    del rows  # nothing to measure: the first tree holds the constant
    return TreeEnsemble.compile(lightgbm_forest(booster), number_columns(space), space)


def xgboost_forest(booster: Booster, rounds: tuple[int, int]) -> Forest:
    """Return the trees of an XGBoost Booster; of the `rounds` (first, last + 1), or all for (0, 0)."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    gradient_booster, objective = learner["gradient_booster"], learner["objective"]["name"]
    if gradient_booster["name"] != "gbtree" or objective not in XGBOOST_LINKS:
        raise NotOpenedError(f"XGBoost's {gradient_booster['name']} with {objective}")
    model = gradient_booster["model"]
    ends = model["iteration_indptr"]
    first, last = (ends[rounds[0]], ends[rounds[1]]) if rounds != (0, 0) else (0, len(model["trees"]))
    trees = model["trees"][first:last]
    if any(any(tree["split_type"]) for tree in trees):
        raise NotOpenedError("XGBoost's splits of categories")
    left = [np.array(tree["left_children"]) for tree in trees]
    # a leaf's split_condition is its value; both are float32, written as the shortest decimals that give them back
    conditions = np.concatenate([np.array(tree["split_conditions"], dtype=np.float32) for tree in trees])
    leaf = np.concatenate(left) < 0
    return _forest(
        left=left,
        right=[np.array(tree["right_children"]) for tree in trees],
        column=np.where(leaf, -1, np.concatenate([tree["split_indices"] for tree in trees])),
        threshold=conditions,
        missing_left=np.concatenate([tree["default_left"] for tree in trees]),
        value=np.where(leaf, conditions, np.float32(0)),
        outputs=model["tree_info"][first:last],
        rule="< float32",
        link=XGBOOST_LINKS[objective],
        base=_xgboost_base(learner["learner_model_param"], XGBOOST_LINKS[objective]),
    )


def _xgboost_base(parameters: dict[str, str], link: Link) -> Floats:
    """Return what the sums start from; base_score is a probability where the link is a sigmoid."""
    scores = np.atleast_1d(np.array(json.loads(parameters["base_score"]), dtype=np.float32))
    if link == "sigmoid":
        scores = -np.log(np.float32(1) / scores - np.float32(1))
    return np.resize(scores, max(int(parameters["num_class"]), 1)).astype(np.float64)


def lightgbm_forest(booster: Booster) -> Forest:
    """Return the trees of a LightGBM Booster."""
    dump = booster.dump_model()
    objective = str(dump.get("objective", "")).strip()
    link = LIGHTGBM_LINKS.get(objective) or LIGHTGBM_LINKS.get(objective.split(" ")[0])
    if link is None or dump["average_output"]:
        raise NotOpenedError(f"LightGBM's {objective or 'own objective'}")
    trees = [list(_nodes(tree["tree_structure"])) for tree in dump["tree_info"]]
    nodes = [node for tree in trees for node in tree]
    if any("leaf_coeff" in node for node, _, _ in nodes):
        raise NotOpenedError("LightGBM's linear trees")
    splits = [node for node, _, _ in nodes if "split_feature" in node]
    if any(node["decision_type"] != "<=" or node["missing_type"] == "Zero" for node in splits):
        raise NotOpenedError("LightGBM's splits of categories, or zeros as missing values")
    threshold = np.array([node.get("threshold", 0.0) for node, _, _ in nodes], dtype=np.float64)
    return _forest(
        left=[np.array([left for _, left, _ in tree]) for tree in trees],
        right=[np.array([right for _, _, right in tree]) for tree in trees],
        column=np.array([node.get("split_feature", -1) for node, _, _ in nodes]),
        threshold=threshold,
        missing_left=np.array([_missing_left(node) for node, _, _ in nodes]),
        value=np.array([node.get("leaf_value", 0.0) for node, _, _ in nodes]),
        outputs=[number % dump["num_tree_per_iteration"] for number in range(len(trees))],
        rule="<= float64",
        link=link,
        base=np.zeros(dump["num_tree_per_iteration"]),
    )


def _missing_left(node: dict[str, Any]) -> bool:
    """Where a missing value goes; LightGBM reads it as 0 where the training rows had none."""
    if "split_feature" not in node:
        return False
    return bool(node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0)


def _nodes(root: dict[str, Any]) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the nodes of a dumped tree with the positions of their children, the root first."""
    queue = [root]
    position = 0
    while position < len(queue):
        node = queue[position]
        position += 1
        if "left_child" in node:
            queue += [node["left_child"], node["right_child"]]
            yield node, len(queue) - 2, len(queue) - 1
        else:
            yield node, -1, -1


def _forest(*, left: list[Any], right: list[Any], outputs: list[int], rule: Any, link: Link, **nodes: Any) -> Forest:
    """Join trees whose children are numbered within each tree."""
    sizes = np.array([len(tree) for tree in left])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    shift = np.repeat(starts, sizes)
    return Forest(
        roots=starts.astype(np.int32),
        outputs=np.array(outputs, dtype=np.int32),
        column=nodes["column"].astype(np.int32),
        threshold=nodes["threshold"].astype(np.float64),
        missing_left=nodes["missing_left"].astype(np.bool_),
        left=(np.concatenate(left) + shift).astype(np.int32),
        right=(np.concatenate(right) + shift).astype(np.int32),
        value=nodes["value"][:, None],
        rule=rule,
        base=nodes["base"],
        link=link,
    )
