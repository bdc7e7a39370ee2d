"""The steps of scikit-learn's pipelines and the members of its ensembles, each tried by itself.

What stands behind a step that is not opened is tried with columns of numbers in the place of what that step makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd

from mlflow_cf.features import FeatureSpace
from mlflow_cf.model import ModelStep
from mlflow_cf.structures import NotOpenedError, NumberColumn
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.sklearn.columns import picked, through, transformed
from mlflow_cf_flavors.sklearn.structure import Inputs, found_in, inputs_of, sums_of

Estimator = Any  # scikit-learn carries no types


def steps_of(model: Estimator, space: FeatureSpace, rows: pd.DataFrame) -> list[ModelStep]:
    """Return the steps of a fitted estimator or pipeline for the features of `space`, given a few `rows`."""
    model = found_in(model)
    return list(_model(model, "", inputs_of(model, space, rows)))


def _model(model: Estimator, name: str, table: Inputs) -> Iterator[ModelStep]:
    """Yield the steps of an estimator, from the first to the last, and then itself."""
    model = found_in(model)
    kind = type(model).__name__
    if kind == "Pipeline":
        yield from _pipeline(model, name, table)
        return
    for inner, one in _members(model):
        yield from _model(one, _path(name, inner), table)
    yield ModelStep(name, kind, _reason(lambda: sums_of(model, table)))


def _members(model: Estimator) -> list[tuple[str, Estimator]]:
    """Return the models inside another one that are of different kinds, by their names."""
    match type(model).__name__:
        case "VotingClassifier" | "VotingRegressor" | "StackingClassifier" | "StackingRegressor":
            kept = [name for name, one in model.estimators if not isinstance(one, str)]
            return list(zip(kept, model.estimators_, strict=True))
        case "TransformedTargetRegressor":
            return [("regressor", model.regressor_)]
        case "CalibratedClassifierCV":
            return [("estimator", model.calibrated_classifiers_[0].estimator)]
        case "FrozenEstimator":
            return [("estimator", model.estimator)]
    return []


def _pipeline(model: Estimator, name: str, table: Inputs) -> Iterator[ModelStep]:
    steps = list(model.steps)
    for (inner, step), (_, after) in pairwise(steps):
        yield from _transformer(step, _path(name, inner), table)
        table = _behind(step, after, table)
    yield from _model(steps[-1][1], _path(name, steps[-1][0]), table)


def _transformer(step: Estimator, name: str, table: Inputs) -> Iterator[ModelStep]:
    """Yield a transformer, or what it is made of; itself too if it fails by itself."""
    kind = type(step).__name__
    if step is None or isinstance(step, str):
        return
    if kind == "Pipeline":
        inner = list(step.steps)
        for (label, one), (_, after) in zip(inner, [*inner[1:], ("", None)], strict=True):
            yield from _transformer(one, _path(name, label), table)
            table = _behind(one, after, table)
        return
    found = [] if kind != "ColumnTransformer" else list(_columns(step, name, table))
    yield from found
    if kind != "ColumnTransformer" or all(one.why is None for one in found):
        why = _reason(lambda: transformed(step, table.sources, table.names))
        if why is not None or kind != "ColumnTransformer":
            yield ModelStep(name, kind, why)


def _columns(step: Estimator, name: str, table: Inputs) -> Iterator[ModelStep]:
    for label, part, chosen in step.transformers_:
        places = picked(chosen, table.names)
        if places:
            sources, names = [table.sources[at] for at in places], [table.names[at] for at in places]
            yield from _transformer(part, _path(name, label), replace(table, sources=sources, names=names))


def _behind(step: Estimator, after: Estimator, table: Inputs) -> Inputs:
    """Return what a step hands on; numbers, as many as the one `after` it takes, where it is not opened."""
    try:
        sources, names = through([step], table.sources, table.names)
    except Exception:  # noqa: BLE001  told where the step itself is tried
        count = int(getattr(after, "n_features_in_", 0))
        sources = [NumberColumn(0) for _ in range(count)]
        names = _names(step, count)
    return replace(table, sources=sources, names=names)


def _names(step: Estimator, count: int) -> Sequence[str]:
    try:
        return [str(name) for name in step.get_feature_names_out()]
    except Exception:  # noqa: BLE001  of any class; then columns are picked by position
        return [str(number) for number in range(count)]


def _reason(attempt: Callable[[], object]) -> str | None:
    """Return why an attempt to open something fails; None if it succeeds."""
    try:
        attempt()
    except NotOpenedError as error:
        return error.what
    except Exception as error:  # noqa: BLE001  of any class
        return say("opening_failed", kind=type(error).__name__)
    return None


def _path(name: str, inner: str) -> str:
    return f"{name}.{inner}" if name else inner
