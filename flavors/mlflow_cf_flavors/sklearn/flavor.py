"""scikit-learn estimators and pipelines, and every model with the same interface."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from operator import methodcaller
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model import CodedCalls, Label, OpenModel, ScoreKind
from mlflow_cf.model.own_code import listed, names_in, own_modules
from mlflow_cf_flavors.answers import (
    OwnAnswers,
    Rows,
    ValuesAlone,
    check_answers,
    check_columns,
    check_output,
    plain_labels,
)
from mlflow_cf_flavors.catboost.flavor import open as open_catboost
from mlflow_cf_flavors.sklearn.arrays import COMPARED, by_array, by_booster
from mlflow_cf_flavors.sklearn.calls import (
    Both,
    Named,
    OneByOne,
    OneThread,
    Prepared,
    PreparedOnce,
    Scores,
    both_of,
    whole,
)
from mlflow_cf_flavors.sklearn.coded import of_codes
from mlflow_cf_flavors.sklearn.first_step import first_step
from mlflow_cf_flavors.sklearn.forests import by_tree
from mlflow_cf_flavors.sklearn.layers import by_layer
from mlflow_cf_flavors.sklearn.steps import steps_of
from mlflow_cf_flavors.sklearn.structure import compile_model, found_in, levels_of

MLFLOW_FLAVOR: Final = "sklearn"

Estimator = Any  # scikit-learn carries no types


def accepts(model: object) -> bool:
    """Return whether `model` is an estimator; scikit-learn is not imported for the question."""
    base = sys.modules.get("sklearn.base")
    return base is not None and isinstance(model, base.BaseEstimator)


def load(path: Path) -> object:
    """Load the estimator of an MLflow model folder through MLflow's own loader."""
    import mlflow.sklearn

    return mlflow.sklearn.load_model(str(path))


def requirements(model: object) -> list[str]:
    """Return pinned requirements that restore `model`; nothing is inferred by loading it."""
    estimator: Estimator = model
    parts = [model, *estimator.get_params(deep=True).values()]  # with the settings of all estimators inside it
    roots = {_module(part).split(".")[0] for part in parts}
    needed = [*_PACKAGES, *(brought for package, brought in _OPTIONAL_PACKAGES.items() if package in roots)]
    return [f"{package}=={version(package)}" for package in needed]


def save(
    model: object,
    path: Path,
    *,
    signature: object,
    pip_requirements: list[str],
    allow_functions: bool = False,
    code_paths: Sequence[str | Path] = (),
) -> None:
    """Write `model` as an MLflow model folder in skops format; InputError before anything is written if it can't.

    What is defined in `code_paths`, which the user hands over with the model, is trusted.
    """
    import mlflow.sklearn

    del allow_functions  # skops writes none
    trusted = _types_to_trust(model, names_in(code_paths))
    mlflow.sklearn.save_model(
        model,
        str(path),
        signature=signature,
        pip_requirements=pip_requirements,
        serialization_format=mlflow.sklearn.SERIALIZATION_FORMAT_SKOPS,
        skops_trusted_types=trusted,
    )


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a fitted estimator.

    `output` is ``label`` (leave the scores unused), ``score`` or ``value`` where the default is not wanted; `rows` are
    some rows it must be able to answer. Raises InputError for estimators that answer no label or number per row.
    """
    if _module(model).startswith("catboost"):  # it has no `feature_names_in_`, and names of its own
        return replace(open_catboost(model, output=output, rows=rows), flavor=MLFLOW_FLAVOR)
    regression = _check_kind(model, output)
    check_columns(_feature_names(model, rows), rows)
    opened = _open_regressor(model, rows) if regression else _open_classifier(model, output, rows)
    check_answers(opened, rows)
    tolerance = 1e-5 if _has_xgboost(model) else opened.tolerance  # it calculates in float32
    return replace(
        opened,
        compile=partial(compile_model, model),
        tolerance=tolerance,
        steps=partial(steps_of, model),
        levels=partial(levels_of, model),
    )


def _has_xgboost(model: Estimator) -> bool:
    """Whether XGBoost is this model, or somewhere inside it."""
    parts = [model]
    with suppress(AttributeError, RuntimeError, TypeError):  # a class of the user's own may not know its parameters
        parts += model.get_params(deep=True).values()
    return any(_module(part).startswith("xgboost") for part in parts)


def _open_regressor(model: Estimator, rows: pd.DataFrame | None) -> OpenModel:
    columns, select = _input(model, rows)
    last, select = _last(model, select, rows)
    decide = OwnAnswers(OneThread(_sooner(last, last.predict, select, rows)), select, np.float64)
    by_codes = partial(_values_by_codes, decide)
    return OpenModel(flavor=MLFLOW_FLAVOR, classes=(), decide=decide, columns=columns, by_codes=by_codes)


def _open_classifier(model: Estimator, output: str | None, rows: pd.DataFrame | None) -> OpenModel:
    columns, select = _input(model, rows)
    classes = _classes(model)
    predict = OneThread(model.predict)
    decide = OwnAnswers(predict, select)
    if output == "label":
        return OpenModel(MLFLOW_FLAVOR, classes, decide, columns=columns)
    last, select = _last(model, select, rows)
    score, kind, notes = _scores(last, predict, select, rows)
    if output == "score" and score is None:
        raise InputError("output", f"{type(model).__name__} has no scores", "use output='label'")
    if score is None:
        return OpenModel(MLFLOW_FLAVOR, classes, decide, score, kind, columns, notes)
    answers = _answers(last, predict.instead(last.predict), score)
    both = None
    if isinstance(score.select, Prepared) or not isinstance(answers, OneByOne):
        both = PreparedOnce(score.select, answers)
    by_codes = partial(_scores_by_codes, answers, score)
    return OpenModel(MLFLOW_FLAVOR, classes, decide, score, kind, columns, notes, both, by_codes=by_codes)


def _last(model: Estimator, select: Rows, rows: pd.DataFrame | None) -> tuple[Estimator, Rows]:
    """Return the estimator that answers, and rows -> the table that it takes.

    For a pipeline this is its last step, and what the others prepare; others take an array where that is the same.
    `rows` are some to try this on.
    """
    *steps, last = _flat(model)
    if not steps:
        return by_array(last, select, rows)
    transforms = [step.transform for step in steps]
    if rows is not None:
        transforms[0] = first_step(steps[0], select(rows.iloc[:COMPARED]))
    return last, Prepared(select, tuple(transforms))


def _flat(model: Estimator) -> list[Estimator]:
    """Return the steps of a pipeline, and of those inside it, or the estimator itself.

    In place of a search for parameters stands its best estimator, in place of a frozen one that which it holds: all
    that they do is done by these.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline

    if _module(model).startswith("sklearn.model_selection."):
        model = found_in(model)
    if type(model) is FrozenEstimator:
        return _flat(model.estimator)
    if type(model) is not Pipeline:
        return [model]
    steps = [step for _, step in model.steps if step is not None and not isinstance(step, str)]  # "passthrough"
    return [one for step in steps for one in _flat(step)]


def _sooner(
    model: Estimator, ask: Callable[[Any], Any], select: Callable[[Any], Any], rows: pd.DataFrame | None
) -> Callable[[Any], Any]:
    """Return what answers as the `ask` of an estimator does, in less time where that is known."""
    for by_parts in (by_tree, by_booster, by_layer):
        ask = by_parts(model, ask, select, rows)
    return ask


def _answers(last: Estimator, predict: OneThread, score: Scores) -> Both:
    """Return how to ask for labels and scores of what an estimator takes, in one pass where that saves anything.

    Args:
        last: the estimator that answers, alone or at the end of a pipeline.
        predict: what it takes -> its labels; score: rows -> its scores.
    """
    labels, scores = OwnAnswers(predict, whole), replace(score, select=whole)
    return both_of(labels, scores, last, _classes(last)) or OneByOne(labels, scores)


def _values_by_codes(decide: OwnAnswers, space: FeatureSpace, rows: pd.DataFrame) -> CodedCalls | None:
    """Return how a regressor is asked about codes: see `OpenModel.by_codes`; `decide`: how it is about rows."""
    given = of_codes(decide.select, space, rows)
    return None if given is None else CodedCalls(ValuesAlone(replace(decide, select=given)), None)


def _scores_by_codes(answers: Both, score: Scores, space: FeatureSpace, rows: pd.DataFrame) -> CodedCalls | None:
    """Return how a classifier is asked about codes: see `OpenModel.by_codes`.

    Args:
        answers: what it takes -> labels and scores; score: rows -> its scores.
        space: the features; rows: some rows.
    """
    given = of_codes(score.select, space, rows)
    if given is None:
        return None
    alone = replace(score, select=given) if isinstance(answers, OneByOne) else None
    return CodedCalls(PreparedOnce(given, answers), alone)


def _scores(
    model: Estimator, predict: OneThread, select: Rows, rows: pd.DataFrame | None
) -> tuple[Scores | None, ScoreKind, tuple[str, ...]]:
    if hasattr(model, "predict_proba"):
        return Scores(predict.instead(_sooner(model, model.predict_proba, select, rows)), select), "probability", ()
    if not hasattr(model, "decision_function"):
        return None, "none", (f"{type(model).__name__} has labels only, no scores",)
    score = Scores(predict.instead(model.decision_function), select)
    if rows is not None and len(rows) and score(rows.iloc[:1]).shape[1] != len(_classes(model)):
        return None, "none", ("decision_function has no column per class (one-vs-one); only labels are used",)
    return score, "margin", ()


def _input(model: Estimator, rows: pd.DataFrame | None) -> tuple[tuple[str, ...], Rows]:
    """Return the column names the estimator knows and how to hand it a table."""
    names = _feature_names(model, rows)
    if names:
        return names, Named(names)
    return (), methodcaller("to_numpy") if hasattr(model, "n_features_in_") else whole


def _feature_names(model: Estimator, rows: pd.DataFrame | None) -> tuple[str, ...]:
    names = tuple(str(name) for name in getattr(model, "feature_names_in_", ()))
    if rows is None or not _module(model).startswith("lightgbm"):
        return names
    # LightGBM remembers its columns with blanks turned into underscores.
    spelled = {str(column).replace(" ", "_"): str(column) for column in rows.columns}
    return tuple(spelled.get(name, name) for name in names)


def _classes(model: Estimator) -> tuple[Label, ...]:
    classes = model.classes_
    if isinstance(classes, list):
        raise InputError("model", f"{type(model).__name__} answers several outputs", "wrap one model per output")
    return plain_labels(classes)


def _check_kind(model: Estimator, output: str | None) -> bool:
    """Return whether `model` is a regressor; InputError for anything that cannot be explained."""
    from sklearn.base import is_classifier, is_outlier_detector, is_regressor

    if not is_classifier(model) and not is_regressor(model):
        kind = "an outlier detector" if is_outlier_detector(model) else "neither a classifier nor a regressor"
        fix = "pass a fitted classifier or regressor, or a pipeline that ends in one"
        raise InputError("model", f"{type(model).__name__} is {kind}", fix)
    _check_fitted(model)
    regression = bool(is_regressor(model))
    # the outputs of a network that classifies are its classes; `_classes` knows classifiers of several outputs
    if regression and getattr(model, "n_outputs_", 1) not in (1, None):
        raise InputError("model", f"{type(model).__name__} answers several outputs", "wrap one model per output")
    check_output(model, output, regression=regression)
    return regression


def _check_fitted(model: Estimator) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InputError("model", f"{type(model).__name__} is not fitted", "call its fit method first") from error


def _types_to_trust(model: Estimator, own: Collection[str]) -> list[str]:
    """Return the types that `model` needs of our fixed table and of modules of the user's `own`.

    Raises:
        InputError: it needs others, or skops cannot write it; with the way out.
    """
    import skops.io

    from mlflow_cf_flavors.sklearn.skops_types import ALL_TRUSTED

    try:
        found = skops.io.get_untrusted_types(data=skops.io.dumps(model))
    except Exception as error:
        raise InputError("model", f"skops cannot write {type(model).__name__} ({error})", _CLOUDPICKLE) from error
    unknown = sorted(name for name in set(found) - ALL_TRUSTED if name.split(".")[0] not in own)
    hidden = [name for name in unknown if name.startswith("__main__.") or "<" in name]
    left_out = own_modules(set(unknown).difference(hidden))
    if hidden:
        fix = f"{_CLOUDPICKLE}; it needs {listed(left_out.values())} there" if left_out else _CLOUDPICKLE
        raise InputError("model", f"uses functions or classes that no other process can import: {hidden}", fix)
    if left_out:
        used = [name for name in unknown if name.split(".")[0] in left_out]
        fix = f"pass {listed(left_out.values())}, so that the artifact brings it along"
        raise InputError("model", f"uses functions or classes of modules that are not installed: {used}", fix)
    if unknown:
        call = f"mlflow.sklearn.log_model(model, name='model', skops_trusted_types={sorted(found)})"
        fix = f"if you trust them, log the model with {call} and pass the model_uri of what it returns"
        raise InputError("model", f"holds types that are not in the table of trusted ones: {unknown}", fix)
    return sorted(found)


_PACKAGES: Final = ("scikit-learn", "skops", "numpy", "scipy", "pandas")
# the package of a model -> the distribution that brings it
_OPTIONAL_PACKAGES: Final = {
    **{name: name for name in ("xgboost", "lightgbm", "catboost")},
    "interpret": "interpret-core",
}
_CLOUDPICKLE: Final = (
    "log it yourself with mlflow.sklearn.log_model(model, name='model', serialization_format='cloudpickle') "
    "and pass the model_uri of what it returns"
)


def _module(model: object) -> str:
    return type(model).__module__
