"""Small random problems whose numbers are continuous, for what mixed-integer programs say of them."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from exact_worlds import Drawn, constraint_dicts, distances
from hypothesis import assume
from hypothesis import strategies as st
from worlds import FEATURES, wide_rows

from mlflow_cf.constraints import Constraints
from mlflow_cf.features import FeatureSpace
from mlflow_cf.problem import BoundPolicy


@dataclass(frozen=True)
class Continuous(Drawn):
    """A drawn row whose incomes are any numbers."""

    @cached_property
    def bound_policy(self) -> BoundPolicy:
        space = FeatureSpace.infer(self.frame, FEATURES)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is not a level of ", UserWarning)
            constraints = Constraints.read(self.constraints)
            return BoundPolicy.build(space, space.encode(self.frame), constraints, self.distance, "continuous")


@st.composite
def continuous(draw: Any, models: tuple[str, ...], tasks: tuple[str, ...]) -> Continuous:
    return Continuous(
        seed=draw(st.integers(0, 2**16)),
        grid=False,
        constraints=draw(constraint_dicts),
        distance=draw(distances),
        query=draw(wide_rows),
        count=1,
        model=draw(st.sampled_from(models)),
        task=draw(st.sampled_from(tasks)),
        goal=draw(st.sampled_from(["label", "other", "third"])),
        quantile=draw(st.sampled_from([0.5, 0.8, 0.95])),
        least=None,
    )


def linear_world(world: Drawn) -> Drawn:
    """Let only networks pass that rows can express."""
    parts = world.structure.parts()
    assume(all(getattr(part, "activation", "relu") in ("relu", "identity") for part in parts))
    return world


def some_row(world: Drawn, rng: np.random.Generator) -> np.ndarray:
    """Return a row of admissible tuples, and of numbers between them where any will do."""
    problem = world.row_task().problem
    row = world.x0.copy()
    for group in problem.groups:
        row[list(group.columns)] = group.actions[rng.integers(len(group.actions))]
        if group.interval is not None and rng.random() < 0.6:
            row[list(group.columns)] = rng.uniform(*group.interval)
    return row
