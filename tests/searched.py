"""A row bound to a function of codes instead of a model, for tests of what a search itself does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from mlflow_cf.constraints import Constraints
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import Rating
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy, Problem

Decide = Callable[[Floats], np.ndarray]


@dataclass
class Watched:
    """Rates coded rows and keeps what it was shown, call by call."""

    favourable: Decide
    seen: list[Floats] = field(default_factory=list)

    def __call__(self, Z: Floats) -> Rating:
        assert len(Z), "an empty table was scored"
        self.seen.append(Z.copy())
        return rating(self.favourable(Z))


def rating(flags: np.ndarray) -> Rating:
    return Rating(flags, flags.astype(float))


def bound(
    frame: pd.DataFrame,
    favourable: Decide,
    *,
    row: Sequence[float] = (0, 0, 0, 0.0),
    count: int = 1,
    constraints: Mapping[str, Any] | None = None,
    values: Any = "observed",
    distance: tuple[float, float, float] = (0.5, 0.5, 0.0),
) -> Any:
    """Return the problem of one coded row; its `rate` is a `Watched`."""
    problem: Problem = setting_of(frame, constraints, values, distance).bind(
        np.array(row, dtype=float),
        space=FeatureSpace.infer(frame),
        count=count,
        rate=Watched(favourable),
        rate_background=lambda: rating(favourable(FeatureSpace.infer(frame).encode(frame))),
    )
    return problem


def setting_of(
    frame: pd.DataFrame,
    constraints: Mapping[str, Any] | None = None,
    values: Any = "observed",
    distance: tuple[float, float, float] = (0.5, 0.5, 0.0),
) -> BoundPolicy:
    space = FeatureSpace.infer(frame)
    return BoundPolicy.build(space, space.encode(frame), Constraints.read(constraints), Distance(*distance), values)
