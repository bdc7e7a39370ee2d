"""XGBoost's trees and linear models, read from its own JSON, which gives every float32 back as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures import ClippedLine, Column, Forest, Increasing, Link, MonotoneStep, NotOpenedError, Subsets
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.sklearn.sources import stepped, unmixed
from mlflow_cf_flavors.sums import EXP, EXPIT, DenseModel, Sums, TreeModel, made

Tree = dict[str, Any]

LINKS: Final[dict[str, Link]] = {
    "binary:logistic": "sigmoid",
    "multi:softprob": "softmax",
    "multi:softmax": "softmax",
    **dict.fromkeys([f"reg:{loss}error" for loss in ("squared", "absolute", "pseudohuber", "quantile")], "identity"),
}


# Objectives whose answer is a function of the raw score that never falls.
FUNCTIONS: Final[dict[str, Increasing]] = {
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), EXP),
    "reg:logistic": EXPIT,
}


def xgboost_model(booster: Any, rounds: int, columns: Sequence[Column]) -> Sums:
    """Return a Booster that takes `columns`, and is asked for so many `rounds`, the first ones; for all with 0.

    Raises:
        NotOpenedError: an unknown kind of booster, or an unknown objective.
    """
    learner = json.loads(booster.save_raw("json"))["learner"]
    inside, objective = learner["gradient_booster"], learner["objective"]["name"]
    link, function = LINKS.get(objective, "identity"), FUNCTIONS.get(objective)
    if objective not in LINKS and function is None:
        raise NotOpenedError(say("objective_of", library="XGBoost", objective=str(objective)))
    base = _base(learner["learner_model_param"], link, function)
    match inside["name"]:
        case "gbtree":
            model: Sums = TreeModel(columns, _forest(inside["model"], rounds, base, link))
        case "dart":
            model = TreeModel(columns, _forest(inside["gbtree"]["model"], rounds, base, link, inside["weight_drop"]))
        case "gblinear":
            model = _linear(inside["model"]["weights"], base, link, columns)
        case name:
            raise NotOpenedError(say("booster", name=str(name)))
    return made(model, function)


def _forest(model: Tree, rounds: int, base: Floats, link: Link, kept: Sequence[float] = ()) -> Forest:
    """Return trees; those that were dropped while others were fitted (dart) count for what is `kept` of them."""
    count = model["iteration_indptr"][rounds] if rounds else len(model["trees"])
    trees = model["trees"][:count]
    sizes = np.array([len(tree["left_children"]) for tree in trees])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    shift = np.repeat(starts, sizes)
    left = _joined(trees, "left_children")
    leaf = left < 0
    conditions = _joined(trees, "split_conditions").astype(np.float32)  # a leaf's is its value
    value = np.where(leaf, conditions, np.float32(0))
    if len(kept):
        value *= np.repeat(np.asarray(kept[:count], dtype=np.float32), sizes)
    return Forest(
        roots=starts.astype(np.int32),
        outputs=np.asarray(model["tree_info"][:count], dtype=np.int32),
        column=np.where(leaf, -1, _joined(trees, "split_indices")).astype(np.int32),
        threshold=conditions.astype(np.float64),
        missing_left=_joined(trees, "default_left").astype(np.bool_),
        left=(left + shift).astype(np.int32),
        right=(_joined(trees, "right_children") + shift).astype(np.int32),
        value=value[:, None],
        rule="< float32",
        base=base,
        link=link,
        subsets=_subsets(trees, starts, len(leaf)),
    )


ZEROS: Final = MonotoneStep(lambda values: np.where(np.isnan(values), np.float32(0), values), ClippedLine())


def _linear(packed: Sequence[float], base: Floats, link: Link, columns: Sequence[Column]) -> DenseModel:
    """Return a linear model: weights, packed column after column, and the bias; missing values add nothing."""
    table = np.asarray(packed, dtype=np.float64).reshape(-1, len(base))
    seen = [stepped("XGBoost", column, ZEROS, np.dtype(np.float32)) for column in columns]
    # XGBoost 3.2 adds the first class's base score to all classes; where that changes, parity will not hold
    finished, weights, bias = unmixed(seen, "XGBoost", table[:-1], table[-1] + base[0])
    return DenseModel(finished, [weights], [bias], "identity", link)


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


def _base(parameters: dict[str, str], link: Link, function: Increasing | None) -> Floats:
    """Return the base raw scores; base_score is a probability where the link is a sigmoid, and else an answer."""
    scores = np.atleast_1d(np.array(json.loads(parameters["base_score"]), dtype=np.float32))
    if link == "sigmoid" or function is EXPIT:
        scores = -np.log(np.float32(1) / scores - np.float32(1))
    elif function is EXP:
        scores = np.log(scores)
    return np.resize(scores, max(int(parameters["num_class"]), 1)).astype(np.float64)
