"""Kinds of targets, and what each means in terms of a model's plain answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.policy import Target
from mlflow_cf.testing.worlds import GRADES

Floats = NDArray[np.float64]
Labels = tuple[Any, ...]
SURE: Final = 0.65
INTERVAL: Final = (0.9, 1.8)
JOBS: Final = {"a": -0.4, "b": 0.1, "c": 0.5}
CUTS: Final[Mapping[int, tuple[float, ...]]] = {2: (0.6,), 3: (0.0, 0.9)}


@dataclass(frozen=True)
class Reply:
    """What a model says of one row when asked without the package: its label or value, and its probabilities."""

    prediction: Any
    probabilities: Floats | None = None


@dataclass(frozen=True)
class Goal:
    """A kind of target.

    Attributes:
        n_labels: how many labels the model has; 0 for a regression.
        target: labels -> what `target=` says.
        met: (labels, the row's own reply, the counterfactual's reply) -> whether the target holds.
        probabilities: whether only models with probabilities can be asked.
        booster: whether boosting libraries train a Booster for it, instead of a model with scikit-learn's interface.
    """

    n_labels: int
    target: Callable[[Labels], Any]
    met: Callable[[Labels, Reply, Reply], bool]
    probabilities: bool = False
    booster: bool = False


def _last(labels: Labels, _: Reply, reply: Reply) -> bool:
    return bool(reply.prediction == labels[-1])


def _sure(labels: Labels, own: Reply, reply: Reply) -> bool:
    likely = reply.probabilities
    return _last(labels, own, reply) and likely is not None and bool(likely[-1] >= SURE)


GOALS: Final[Mapping[str, Goal]] = {
    "binary": Goal(2, lambda labels: labels[-1], _last, booster=True),
    "sure": Goal(2, lambda labels: Target(label=labels[-1], min_probability=SURE), _sure, probabilities=True),
    "multiclass": Goal(3, lambda labels: Target(label=labels[-1]), _last),
    "other": Goal(
        3, lambda _: Target.other(), lambda _, own, reply: bool(reply.prediction != own.prediction), booster=True
    ),
    "regression": Goal(
        0,
        lambda _: Target(low=INTERVAL[0], high=INTERVAL[1]),
        lambda _, __, reply: bool(INTERVAL[0] <= reply.prediction <= INTERVAL[1]),
    ),
}


def truth(rows: pd.DataFrame) -> Floats:
    """Return the value (n,) behind everything that generated models learn; every feature counts.

    Levels may be their positions.
    """
    ranks = {key: rank for rank, grade in enumerate(GRADES) for key in (grade, rank)}
    jobs = {key: value for rank, (job, value) in enumerate(JOBS.items()) for key in (job, rank)}
    value = (
        0.03 * (rows["age"].to_numpy(dtype=float) - 42)
        + 0.06 * (_filled(rows["income"], 14.0) - 17)
        - 0.03 * (rows["hours"].to_numpy(dtype=float) - 30)
        + 0.3 * np.array([ranks.get(grade, 0) for grade in rows["grade"].tolist()])
        + np.array([jobs.get(job, 0.0) for job in rows["job"].tolist()])
        + 0.15 * (_filled(rows["rooms"], 2.0) - 3)
    )
    if "since" in rows:
        value = value - 0.001 * (rows["since"] - pd.Timestamp(2020, 6, 1)).dt.days.to_numpy(dtype=float)
    member, old = rows["member"].to_numpy(dtype=bool), rows["age"].to_numpy(dtype=float) > 50
    return np.asarray(value + 0.5 * member - 0.9 * (member & old))


def positions(values: Floats, n_labels: int) -> NDArray[np.intp]:
    """Return the position (n,) of the label that each value stands for."""
    return np.searchsorted(CUTS[n_labels], values, side="right")


def _filled(column: pd.Series[Any], default: float) -> Floats:
    return column.to_numpy(dtype=float, na_value=default)
