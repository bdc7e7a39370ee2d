"""The nearest row of a linear model or a network of rectifiers once more, by scipy's solver and without mlflow_cf.

All columns are real numbers between the least and the largest value of the background. What is minimised is
mlflow_cf's default distance: half the share of changed columns, half the mean change as a share of the range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from sklearn.pipeline import Pipeline

Floats = NDArray[np.float64]
Columns = NDArray[np.integer[Any]]
TIME_LIMIT_S = 60.0


@dataclass(eq=False)
class Program:
    """Variables of a row: how far each of d columns moves up and down, in ranges, whether it does, and hidden units.

    Attributes:
        d, hidden: how many columns and hidden units there are.
        lines, least: rows being built; each times the variables is at least a number.
    """

    d: int
    hidden: int
    lines: list[Floats] = field(default_factory=list)
    least: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.up, self.down, self.moved = (part * self.d + np.arange(self.d) for part in range(3))
        self.out, self.on = (3 * self.d + part * self.hidden + np.arange(self.hidden) for part in range(2))

    def require(self, parts: list[tuple[Columns, Floats | float]], least: float) -> None:
        """Add a row: columns times values are at least a number."""
        line = np.zeros(3 * self.d + 2 * self.hidden)
        for columns, values in parts:
            line[columns] += values
        self.lines.append(line)
        self.least.append(least)

    def add_moves(self, upper: Floats, lower: Floats) -> None:
        """Let a column move only if it does, and no farther than its least and largest value."""
        for at in range(self.d):
            up, down, moved = self.up[[at]], self.down[[at]], self.moved[[at]]
            self.require([(moved, upper[at]), (up, -1.0)], 0.0)
            self.require([(moved, lower[at]), (down, -1.0)], 0.0)

    def add_units(self, weights: Floats, start: Floats, reach: Floats) -> None:
        """Let hidden units be rectified sums of `start` (h,) and what the moves add by weights (d, h)."""
        spread = (np.abs(weights) * reach[:, None]).sum(axis=0)
        for unit in range(self.hidden):
            out, on, at = self.out[[unit]], self.on[[unit]], weights[:, unit]
            low, high = start[unit] - spread[unit], max(start[unit] + spread[unit], 0.0)
            self.require([(out, 1.0), (self.up, -at), (self.down, at)], start[unit])
            self.require([(out, -1.0), (self.up, at), (self.down, -at), (on, low)], low - start[unit])
            self.require([(out, -1.0), (on, high)], 0.0)

    def least_cost(self, upper: Floats, lower: Floats) -> float:
        """Return the least cost; NaN if the solver does not prove it."""
        size = 3 * self.d + 2 * self.hidden
        cost, whole, high = np.zeros(size), np.zeros(size), np.ones(size)
        cost[: 3 * self.d] = 0.5 / self.d
        whole[self.moved] = whole[self.on] = 1.0
        high[self.up], high[self.down], high[self.out] = upper, lower, np.inf
        found = milp(
            cost,
            integrality=whole,
            bounds=Bounds(0.0, high),
            constraints=LinearConstraint(np.array(self.lines), np.array(self.least)),
            options={"time_limit": TIME_LIMIT_S, "mip_rel_gap": 0.0},
        )
        return float(found.fun) if found.status == 0 else float("nan")


def nearest_distance(model: Pipeline, background: pd.DataFrame, row: pd.DataFrame) -> float:
    """Return the distance of the nearest row (1, d) that the model accepts; NaN if the solver does not prove one."""
    least, most = background.min().to_numpy(float), background.max().to_numpy(float)
    span, x = np.where(most > least, most - least, 1.0), row.to_numpy(float)[0]
    upper, lower = np.clip((most - x) / span, 0, None), np.clip((x - least) / span, 0, None)
    layers = _layers(model, list(background))
    program = Program(len(x), 0 if len(layers) == 1 else layers[0][0].shape[1])
    program.add_moves(upper, lower)
    weights, bias = layers[0]
    scaled, start = weights * span[:, None], x @ weights + bias
    if len(layers) == 1:
        program.require([(program.up, scaled[:, 0]), (program.down, -scaled[:, 0])], -float(start[0]))
    else:
        program.add_units(scaled, start, np.maximum(upper, lower))
        last, last_bias = layers[1]
        program.require([(program.out, last[:, 0])], -float(last_bias[0]))
    return program.least_cost(upper, lower)


def _layers(model: Pipeline, columns: list[str]) -> list[tuple[Floats, Floats]]:
    """Return weights (inputs, outputs) and biases of a scaled linear model or network, over unscaled columns."""
    preparation, estimator = model[0], model[-1]
    scaler = preparation.named_transformers_["numbers"]
    if list(preparation.feature_names_in_) != columns or len(scaler.mean_) != len(columns):
        raise ValueError("columns that are no numbers")
    if hasattr(estimator, "coefs_"):
        layers = list(zip(estimator.coefs_, estimator.intercepts_, strict=True))
    else:
        layers = [(estimator.coef_.T, estimator.intercept_)]
    weights, bias = layers[0]
    first = weights / scaler.scale_[:, None]
    return [(first, bias - scaler.mean_ @ first), *layers[1:]]
