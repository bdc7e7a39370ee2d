"""Linear models and networks that are asked by their coefficients.

To check a table takes them longer than to answer: of one row, a logistic model takes 90 microseconds, the product of
the row and its coefficients 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import sparse, special

from mlflow_cf_flavors.answers import Floats
from mlflow_cf_flavors.sklearn.arrays import agree, is_plain

Estimator = Any  # scikit-learn carries no types
Ask = Callable[[Any], Any]

_LINEAR: Final = frozenset(
    {
        "ElasticNet",
        "ElasticNetCV",
        "Lasso",
        "LassoCV",
        "LinearRegression",
        "LogisticRegression",
        "LogisticRegressionCV",
        "Ridge",
        "RidgeCV",
    }
)
_NETWORKS: Final = frozenset({"MLPClassifier", "MLPRegressor"})


@dataclass(frozen=True, eq=False)
class LayerByLayer:
    """Table -> what a linear model or a network says of it, to the last bit.

    Attributes:
        ask: the model's own call, for tables that it must look at.
        weights, biases: of every layer, those of the outputs last; of a linear model there is but one.
        activation: of all units but the outputs.
        classes: how many the model has; 0: it predicts a value.
    """

    ask: Ask
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: str
    classes: int

    def __call__(self, table: Any) -> Floats:
        """Return the shares (n, classes), or the values (n,), of a table."""
        if not self._reads(table):
            return np.asarray(self.ask(table))
        units = table
        for weights, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            units = self._activated(units @ weights + bias)
        outputs: Floats = units @ self.weights[-1] + self.biases[-1]
        return self._answers(outputs)

    def _reads(self, table: Any) -> bool:
        """Whether the model would take a table as it is."""
        if not is_plain(table, len(self.weights[0])) or table.dtype != np.float64 or not table.shape[0]:
            return False
        return bool(np.isfinite(table.data if sparse.issparse(table) else table).all())

    def _activated(self, units: Floats) -> Floats:
        match self.activation:
            case "relu":
                return np.maximum(units, 0, out=units)
            case "tanh":
                return np.tanh(units, out=units)
            case "logistic":
                return np.asarray(special.expit(units, out=units))
        return units

    def _answers(self, outputs: Floats) -> Floats:
        """Return what the model makes of its outputs (n, k), or (n,)."""
        from sklearn.utils.extmath import softmax

        if outputs.ndim > 1 and outputs.shape[1] > 1:
            return np.asarray(softmax(outputs, copy=False)) if self.classes else outputs
        single = outputs.reshape(-1)
        if not self.classes:
            return single
        likely = special.expit(single, out=single)
        return np.stack([1 - likely, likely], axis=1)


def by_layer(model: Estimator, ask: Ask, select: Callable[[Any], Any], rows: pd.DataFrame | None) -> Ask:
    """Return what answers as a fitted linear model or network does, by its coefficients; `ask` itself for others.

    Args:
        model: the estimator; ask: its `predict_proba`, or `predict`.
        select: rows -> what it takes.
        rows: some rows, on which both are compared to the last bit; None: nothing is compared.
    """
    if rows is None or not type(model).__module__.startswith("sklearn."):
        return ask
    name, classes = type(model).__name__, len(getattr(model, "classes_", ()))
    if name in _LINEAR and isinstance(model.coef_, np.ndarray):
        found = LayerByLayer(ask, (model.coef_.T,), (np.asarray(model.intercept_),), "identity", classes)
    elif name in _NETWORKS:
        found = LayerByLayer(ask, tuple(model.coefs_), tuple(model.intercepts_), model.activation, classes)
    else:
        return ask
    return found if agree(found, ask, select, rows) else ask
