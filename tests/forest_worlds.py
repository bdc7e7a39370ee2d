"""Models that are random forests over the small random tables, known to the search as structures too."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from worlds import problem_of, space_of

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace
from mlflow_cf.goal import BoundTarget
from mlflow_cf.goal.scorer import Scorer
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.problem import Problem
from mlflow_cf.structures import Forest, LevelColumn, Link, NumberColumn, TreeEnsemble, score_rows
from mlflow_cf.structures.layers.columns import Column

RULES = (
    "IF x_cf.grade > x.grade THEN x_cf.age >= x.age + 1",
    "IF x_cf.income > x.income THEN x_cf.rooms >= x.rooms",
    "IF x_cf.job = 'a' THEN x_cf.member = true",
    "x_cf.age + x_cf.rooms <= 26",  # defines nothing: candidates that break it are dropped
    "IF x_cf.member = true and x_cf.age < 23 THEN x_cf.income <= 1",
    "IF x_cf.age > x.age THEN x_cf.income != x.income",
)
DISTANCES = [(0.5, 0.5, 0.0), (0.0, 1.0, 0.0), (0.2, 0.3, 0.5), (0.5, 0.0, 0.5), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)]


def random_trees(
    seed: int, space: FeatureSpace, outputs: int, *, trees: int, depth: int, wide: bool = False
) -> TreeEnsemble:
    """Return random trees that test what the features hold: numbers between their values, and sets of levels.

    The leaves of `wide` trees have a value for every output, those of others add to one of them.
    """
    rng = np.random.default_rng(seed)
    columns: list[Column] = [
        LevelColumn(number, rng.permutation(len(feature.levels) + 2).astype(float))
        if feature.levels
        else NumberColumn(number)
        for number, feature in enumerate(space.features)
    ]
    lines: list[tuple[int, float, bool, int, int]] = []

    def grow(left: int) -> int:
        node = len(lines)
        lines.append((-1, 0.0, False, node, node))
        if left and rng.random() > 0.1:
            column = int(rng.integers(len(columns)))
            feature = space.features[column]
            values = np.arange(len(feature.levels) + 1) if feature.levels else feature.values
            threshold = float(rng.choice(values)) + float(rng.choice([0.0, 0.3]))
            missing_left = bool(rng.random() < 0.5)
            lines[node] = (column, threshold, missing_left, grow(left - 1), grow(left - 1))
        return node

    roots = [grow(depth) for _ in range(trees)]
    column, threshold, missing_left, left, right = (np.array(part) for part in zip(*lines, strict=True))
    link: Link = "sigmoid" if outputs == 1 else "softmax"
    forest = Forest(
        np.array(roots, dtype=np.int32), np.where(wide, -1, np.arange(trees) % outputs).astype(np.int32),
        column.astype(np.int32), threshold, missing_left, left.astype(np.int32), right.astype(np.int32),
        rng.normal(0, 1, (len(lines), outputs if wide else 1)).astype(rng.choice([np.float32, np.float64])),
        "<= float64",
        np.full(outputs, -0.5) if outputs == 1 else np.zeros(outputs), link,
    )  # fmt: skip
    return TreeEnsemble.compile(forest, columns, space)


def forest_model(seed: int, frame: pd.DataFrame, classes: tuple[Any, ...] = ("no", "yes"), **shape: int) -> OpenModel:
    """Return a random forest for the features of `frame`; without classes its sums are values."""
    space = space_of(frame)
    outputs = len(classes) if len(classes) > 2 else 1
    trees = random_trees(seed, space, outputs, trees=shape.get("trees", 4), depth=shape.get("depth", 4))
    if not classes:
        trees = replace(trees, link="identity")

    def score(rows: pd.DataFrame) -> np.ndarray:
        return score_rows(trees, space.covering(rows).encode(rows))

    def decide(rows: pd.DataFrame) -> np.ndarray:
        return np.array(classes)[score(rows).argmax(axis=1)] if classes else score(rows)[:, 0]

    return OpenModel(
        "test", classes, decide, score if classes else None, "probability" if classes else "none",
        compile=lambda _space, _rows: trees,
    )  # fmt: skip


def opened_problem(wrapped: ExplainedModel, query: pd.DataFrame, count: int = 1) -> Problem:
    """Return the search problem of a one-row table with the structure at hand, as a request would bind it."""
    assert wrapped.opened.structure is not None, wrapped.opened.note
    own = int(wrapped.judge.verdict(query).codes[0])
    target = BoundTarget(wrapped.policy.target, wrapped.model, own)
    scorer = Scorer.of([(wrapped.opened.structure, target)], len(wrapped.space))
    tables = wrapped.bound_policy.tables
    return replace(
        problem_of(wrapped, query, count),
        rate=scorer.rate,
        scorer=scorer,
        encoded_domains=tables.encoded,
        cells=tables.cells,
    )
