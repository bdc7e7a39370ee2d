"""Compiling all kernels ahead, without any model of a user's: small models of every kind are explained.

Kernels are compiled for kinds of arrays, not for models, so that whatever is explained later finds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.engine.few_changes import try_few_changes
from mlflow_cf.engine.nearest import try_moves
from mlflow_cf.engine.nodes import tighten_boxes
from mlflow_cf.engine.sets.search import try_sets
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.metrics import Inliers
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Target
from mlflow_cf.request.portfolio import FEW
from mlflow_cf.structures import Column, Forest, Layers, LevelColumn, NumberColumn, Structure, TreeEnsemble, score_rows
from mlflow_cf.structures.capabilities import SupportsProduct
from mlflow_cf.wrapping import OtherModels, assemble

EVALUATIONS: Final = 2000  # some milliseconds: every kernel runs, and no search need end
FOR_PAIRS: Final = 20_000  # blocks look at two changes only where this leaves a search enough
_LEVELS: Final = np.array([0.0, 1.0, 2.0, 3.0, np.nan])


def warm_all() -> Iterator[tuple[str, float]]:
    """Compile every kernel that explainers use; yield model after model, and the seconds it took, mostly to compile."""
    for name, build in _MODELS.items():
        start = time.perf_counter()
        _explain(build())
        yield name, time.perf_counter() - start


def kept_in() -> str | None:
    """Return one of the folders where compiled kernels are kept; None where nothing can be kept."""
    path: str | None = tighten_boxes.stats.cache_path  # type: ignore[attr-defined]  # numba's dispatcher
    return path


def _explain(explained: ExplainedModel) -> None:
    structure, rows = explained.opened.structure, explained.background.iloc[:3]
    explained.explain(rows, max_evaluations=EVALUATIONS)
    if structure is None:
        return
    refused = explained.background[explained.outcome.codes == 0]
    explained.explain(refused.iloc[:3], max_evaluations=EVALUATIONS, certify=True, reasons=True)
    long = refused.iloc[np.resize(np.arange(len(refused)), 2 * FEW)]
    for count in (1, 2):
        explained.explain(long, max_evaluations=FOR_PAIRS, count=count, n_jobs=1)
        explained.explain(refused.iloc[:1], max_evaluations=FOR_PAIRS, count=count)
    codes = explained.space.encode(rows)
    encoded = [structure.encode(column, codes[:, column]) for column in range(codes.shape[1])]
    structure.sweep(encoded, encoded)
    part = structure.restrict([column[0] for column in encoded], [0, 1])
    part.sweep(encoded[:2], [None, encoded[1]])
    part.bounds(encoded[:2])
    if isinstance(structure, SupportsProduct):
        structure.product(encoded, np.arange(len(encoded)))
    try_few_changes(structure, codes)
    try_sets(structure, codes)
    try_moves(structure, codes)
    Inliers.fit(explained.space, codes)


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60), "level": rng.choice(list("abc"), 60)})


def _opened(build: Callable[[list[Column], FeatureSpace], Structure], *, twice: bool = False) -> ExplainedModel:
    """Wrap a model of two classes that is nothing but its structure; `twice`: it is another version of itself, too."""
    data = _table()
    space = FeatureSpace.infer(data)
    structure = build([NumberColumn(0), NumberColumn(1), LevelColumn(2, _LEVELS)], space)

    def score(rows: pd.DataFrame) -> Floats:
        return score_rows(structure, space.encode(rows))

    def decide(rows: pd.DataFrame) -> NDArray[np.generic]:
        return np.asarray(score(rows).argmax(axis=1))

    model = OpenModel("warm", (0, 1), decide, score, "probability", compile=lambda *_: structure)
    versions = {"twin": model} if twice else {}
    options = WrapOptions(target=1, robust_to=[{"model": one, "name": name} for name, one in versions.items()])
    return assemble(model, data, None, options, OtherModels(versions))


def _trees(value: type[np.floating[Any]], *, twice: bool = False) -> ExplainedModel:
    """Wrap two trees, of which each tests two columns, with leaf values in a library's precision.

    They accept a row if x and y are positive, so that rows in which neither is need two changes.
    """
    column = np.array([0, 2, -1, -1, -1, 1, 2, -1, -1, -1], dtype=np.int32)
    children = np.array([1, 2, 2, 3, 4, 6, 7, 7, 8, 9], dtype=np.int32)
    forest = Forest(
        roots=np.array([0, 5], dtype=np.int32),
        outputs=np.zeros(2, dtype=np.int32),
        column=column,
        threshold=np.where(column == 2, 1.0, 0.0),
        missing_left=np.zeros(10, dtype=np.bool_),
        left=children,
        right=np.array([4, 3, 2, 3, 4, 9, 8, 7, 8, 9], dtype=np.int32),
        value=np.linspace(-1, 1, 10, dtype=value)[:, None],
        rule="<= float64",
        base=np.array([-0.7]),
        link="sigmoid",
    )
    return _opened(lambda columns, space: TreeEnsemble.compile(forest, columns, space), twice=twice)


def _layers(*widths: int) -> ExplainedModel:
    """Wrap a linear model, or a network with so wide hidden layers of rectifiers, which accepts half of the rows."""
    rng = np.random.default_rng(0)
    shapes = list(zip([3, *widths], [*widths, 1], strict=True))
    weights, biases = [rng.normal(size=shape) for shape in shapes], [np.zeros(shape[1]) for shape in shapes]

    def build(columns: list[Column], space: FeatureSpace) -> Layers:
        structure = Layers.compile(columns, space, weights, biases, "relu", "sigmoid")
        codes = space.encode(_table())
        sums = structure.sums([structure.encode(column, codes[:, column]) for column in range(codes.shape[1])])
        halved = [*biases[:-1], -np.median(sums, axis=0)]
        return Layers.compile(columns, space, weights, halved, "relu", "sigmoid")

    return _opened(build)


def _function(classes: tuple[int, ...], target: Any) -> ExplainedModel:
    """Wrap a model that is not opened, which says what the first column is, or whether it is positive."""

    def decide(rows: pd.DataFrame) -> NDArray[np.generic]:
        values = rows["x"].to_numpy(dtype=np.float64)
        return (values > 0).astype(np.int64) if classes else values

    return assemble(OpenModel("warm", classes, decide), _table(), None, WrapOptions(target=target))


_MODELS: Final[dict[str, Callable[[], ExplainedModel]]] = {
    "boosted trees of XGBoost": lambda: _trees(np.float32),
    "other trees": lambda: _trees(np.float64),
    "several models of trees that must agree": lambda: _trees(np.float64, twice=True),
    "linear models": _layers,
    "networks with one hidden layer": lambda: _layers(4),
    "networks with several": lambda: _layers(4, 4),
    "classifiers that are not opened": lambda: _function((0, 1), 1),
    "regressions": lambda: _function((), Target(low=1.0)),
}
