"""Boxes of trees that grow by themselves: all of their rows reach the score, and sides end where they must."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier

import mlflow_cf
from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.problem import Budget
from mlflow_cf.regions import growth
from mlflow_cf.structures import GrowingBox, SupportsGrowing
from mlflow_cf.structures.growing import DOUBTFUL, ENDED, UNDECIDED
from mlflow_cf.structures.trees.growth import TreeGrowth

ROUNDING = 1e-4  # of sums of single precision


@dataclass(frozen=True, eq=False)
class Grid:
    """Random trees over a grid of numbers, and what weighted scores its rows have.

    Attributes:
        seed: of the trees; sizes: values of every column; trees, depth: how many, and how deep.
        outputs: raw scores; quantile: of the sums of all rows, what must be reached; doubtful: how much below may do.
    """

    seed: int
    sizes: tuple[int, ...]
    trees: int
    depth: int
    outputs: int
    quantile: float
    doubtful: float

    @cached_property
    def space(self) -> FeatureSpace:
        names = "abcdef"[: len(self.sizes)]
        pairs = zip(names, self.sizes, strict=True)
        return FeatureSpace(tuple(Feature(name, "real", "float64", values=np.arange(float(n))) for name, n in pairs))

    @cached_property
    def weights(self) -> np.ndarray:
        return np.array([1.0, -0.5, 0.25])[: self.outputs]

    @cached_property
    def totals(self) -> np.ndarray:
        """The weighted sums of all rows, with a dimension for every column."""
        rows = np.array(list(product(*map(range, self.sizes))), dtype=np.float64)
        encoded = [self.structure.encode(column, rows[:, column]) for column in range(len(self.sizes))]
        return (self.structure.sums(encoded) @ self.weights).reshape(self.sizes)

    @cached_property
    def structure(self) -> Any:
        return random_trees(
            self.seed, self.space, self.outputs, trees=self.trees, depth=self.depth, wide=self.seed % 2 == 1
        )

    @property
    def sure(self) -> float:
        """Between the sums of two rows, so that rounding decides nothing."""
        found = np.unique(self.totals.round(6))
        at = int(self.quantile * (len(found) - 1))
        return float(found[at : at + 2].mean())

    def started(self, pick: int) -> GrowingBox:
        """Return the box of one of the rows that reach the score."""
        boxes = self.structure.boxes(
            [self.structure.encode(n, np.arange(float(size))) for n, size in enumerate(self.sizes)]
        )
        assert isinstance(boxes, SupportsGrowing)
        good = np.argwhere(self.totals > self.sure - ROUNDING)
        shares = np.concatenate([np.full((2, size), 1 / size) for size in self.sizes], axis=1)
        box = boxes.growing(good[pick % len(good)], self.weights, self.sure - self.doubtful, self.sure, shares)
        assert box is not None
        return box

    def sums(self, ends: np.ndarray) -> np.ndarray:
        """Return the weighted sums of the rows of a box."""
        return self.totals[tuple(slice(low, high + 1) for low, high in ends.T.tolist())]

    def check(self, box: GrowingBox, *, complete: bool) -> None:
        """Check a box that has grown by all of its rows, and by those beyond its sides."""
        assert (self.sums(box.ends) > self.sure - ROUNDING).all()
        for side, column in product(range(2), range(len(self.sizes))):
            state, beyond = box.states[side, column], box.ends.copy()
            beyond[:, column] = box.ends[side, column] + 2 * side - 1
            left = 0 <= beyond[0, column] < self.sizes[column]
            assert state in ((ENDED, DOUBTFUL) if complete else (ENDED, DOUBTFUL, UNDECIDED))
            if left and state == ENDED:
                assert (self.sums(beyond) < self.sure - self.doubtful + ROUNDING).any()
            if state == DOUBTFUL:
                assert left
                assert (self.sums(beyond) > self.sure - self.doubtful - ROUNDING).all()


grids = st.builds(
    Grid,
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple),
    trees=st.integers(1, 12),
    depth=st.integers(1, 5),
    outputs=st.sampled_from([1, 3]),
    quantile=st.floats(0.0, 0.95),
    doubtful=st.sampled_from([0.0, 0.0, 0.3]),
)


def grown(box: GrowingBox, most_of_a_side: int, most: int) -> list[int]:
    """Let a box grow to its end, the large shares first; return how many parts every call bounded."""
    used = []
    for share in (0.3, 0.0):
        while count := box.go_on(most_of_a_side, most, share):
            used.append(count)
    return used


@given(grids, st.integers(0, 10**6), st.sampled_from([1, 3, 10**6]), st.sampled_from([1, 16]))
def test_boxes_that_grow_hold_what_enumeration_finds(grid: Grid, pick: int, most_of_a_side: int, most: int) -> None:
    box = grid.started(pick)
    used = grown(box, most_of_a_side, most)
    assert all(count < most + most_of_a_side for count in used)
    grid.check(box, complete=most_of_a_side == 10**6)


def test_slabs_are_parted_where_bounds_do_not_do() -> None:
    parts = []
    for seed in range(20):
        grid = Grid(seed, (7, 7, 7, 6), 12, 4, 1, 0.2, 0.0)
        box = grid.started(seed)
        parts += grown(box, 10**6, 1)  # one slab each
        grid.check(box, complete=True)
    assert max(parts) > 8
    assert len(parts) > 40


def test_the_clock_is_asked_between_slabs_that_are_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    go_on, take = TreeGrowth.go_on, Budget.take

    def growing(box: TreeGrowth, most_of_a_side: int, most: int, least_share: float) -> int:
        asked.append("grow")
        used = go_on(box, most_of_a_side, most, least_share)
        assert used <= most_of_a_side <= growth.MOST_PARTS
        return used

    def taking(budget: Budget, wanted: int, *, even_late: bool = False) -> int:
        asked.append("clock")
        return take(budget, wanted, even_late=even_late)

    monkeypatch.setattr(TreeGrowth, "go_on", growing)
    monkeypatch.setattr(Budget, "take", taking)
    monkeypatch.setattr(growth, "AT_ONCE", 1)  # slab
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 12, (400, 5)).astype(float), columns=list("abcde"))
    labels = (np.sin(table["a"]) + np.cos(table["b"]) + table["c"] * table["d"] / 60 > 0.6).astype(int)
    model = GradientBoostingClassifier(n_estimators=40, max_depth=4, random_state=0).fit(table, labels)
    explained = mlflow_cf.wrap(model, table, target=1)
    (answer,) = explained.explain(table[model.predict(table) == 0].head(1), region="all")
    assert answer.counterfactuals[0].region is not None
    assert asked.count("grow") > 3
    assert ("grow", "grow") not in set(pairwise(asked))
