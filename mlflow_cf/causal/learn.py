"""Structural functions learned from the background, as plain arrays (CE-OCL section 2.1, causality)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats

Kind = Literal["linear", "tree", "mlp"]
Arrays = Mapping[str, NDArray[Any]]

SEED: Final = 0  # fixed: causal functions do not depend on the seed of searches
DEPTH: Final = 5
LEAST_ROWS: Final = 5  # of a leaf
WIDTHS: Final = (10, 20, 50, 100)  # of the hidden layer, the best of which is kept
FOLDS: Final = 5
ROUNDS: Final = 500  # of lbfgs


def fit(kind: Kind, inputs: Floats, child: Floats) -> Arrays:
    """Fit a function of inputs (n, k) to a number (n,), and return its arrays.

    Returns:
        `r2` on these rows, and the layers (`weights_0` (k, width), `bias_0`, ...) or the nodes of the tree (`column`,
        `threshold`, `left`, `right`, `value`).
    """
    from sklearn.metrics import r2_score  # noqa: PLC0415  half a second that no server needs

    low, width = float(child.min()), float(np.ptp(child))
    scaled = (child - low) / width if width else np.zeros(len(child))
    fitted, arrays = _FITS[kind](inputs, scaled)
    last = "value" if kind == "tree" else _last(arrays, "weights")
    arrays[last] = arrays[last] * width
    shifted = "value" if kind == "tree" else _last(arrays, "bias")
    arrays[shifted] = arrays[shifted] * (1.0 if kind == "tree" else width) + low
    spread = width and len(child) > 1  # else there is nothing to learn
    return {**arrays, "r2": np.array(float(r2_score(scaled, fitted.predict(inputs))) if spread else 1.0)}


def _last(arrays: Arrays, name: str) -> str:
    return max(key for key in arrays if key.startswith(name))


def _linear(inputs: Floats, child: Floats) -> tuple[Any, dict[str, NDArray[Any]]]:
    from sklearn.linear_model import LinearRegression  # noqa: PLC0415  as above

    fitted = LinearRegression().fit(inputs, child)
    return fitted, {"weights_0": fitted.coef_[:, None].copy(), "bias_0": np.array([fitted.intercept_])}


def _tree(inputs: Floats, child: Floats) -> tuple[Any, dict[str, NDArray[Any]]]:
    from sklearn.tree import DecisionTreeRegressor  # noqa: PLC0415  as above

    fitted = DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=LEAST_ROWS, random_state=SEED).fit(inputs, child)
    nodes = fitted.tree_
    inner = nodes.feature >= 0
    return fitted, {
        "column": np.where(inner, nodes.feature, -1).astype(np.int32),
        "threshold": np.where(inner, nodes.threshold, 0.0),
        "left": np.where(inner, nodes.children_left, 0).astype(np.int32),
        "right": np.where(inner, nodes.children_right, 0).astype(np.int32),
        "value": nodes.value[:, 0, :1].copy(),
    }


def _mlp(inputs: Floats, child: Floats) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Fit a network with one hidden layer of rectifiers; its width is the best one on held-out rows."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  as above
    from sklearn.model_selection import KFold, cross_val_score  # noqa: PLC0415
    from sklearn.neural_network import MLPRegressor  # noqa: PLC0415

    def network(width: int) -> Any:
        return MLPRegressor(hidden_layer_sizes=(width,), solver="lbfgs", max_iter=ROUNDS, random_state=SEED)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # more rounds would fit these rows better, not others
        best = WIDTHS[0]
        if len(child) >= 2 * FOLDS:
            folds = KFold(FOLDS, shuffle=True, random_state=SEED)
            scores = [cross_val_score(network(width), inputs, child, cv=folds, scoring="r2").mean() for width in WIDTHS]
            best = WIDTHS[int(np.argmax(scores))]
        fitted = network(best).fit(inputs, child)
    layers = zip(fitted.coefs_, fitted.intercepts_, strict=True)
    return fitted, {
        name: array
        for at, (weights, bias) in enumerate(layers)
        for name, array in ((f"weights_{at}", weights), (f"bias_{at}", bias))
    }


_FITS: Final[Mapping[Kind, Callable[[Floats, Floats], tuple[Any, dict[str, NDArray[Any]]]]]] = {
    "linear": _linear,
    "tree": _tree,
    "mlp": _mlp,
}
