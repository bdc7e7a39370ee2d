"""What happens between the layers of a network; every function overwrites what it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from mlflow_cf.features import Floats

Activation = Literal["identity", "relu", "logistic", "tanh"]


def _rectified(sums: Floats) -> Floats:
    return np.maximum(sums, 0.0, out=sums)


def _logistic(sums: Floats) -> Floats:
    sums *= 0.5
    np.tanh(sums, out=sums)  # several times as fast as expit
    sums *= 0.5
    sums += 0.5
    return sums


def _tanh(sums: Floats) -> Floats:
    return np.tanh(sums, out=sums)


# "identity" never stands between layers, it is folded away
ACTIVATIONS: dict[Activation, Callable[[Floats], Floats]] = {"relu": _rectified, "logistic": _logistic, "tanh": _tanh}
