"""LightGBM: classifiers and regressors of its scikit-learn interface, and Boosters.

A Booster answers scores, not labels. Its label is the largest score of several classes, or the second of two classes
where its probability exceeds one half; the classes are 0, 1, ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.model import OpenModel, ScoreKind
from mlflow_cf.model.judge import Rows
from mlflow_cf_flavors.answers import (
    ClearScore,
    Floats,
    LargestScore,
    OwnAnswers,
    check_answers,
    check_classes,
    check_columns,
    check_output,
    plain_labels,
    shares,
)
from mlflow_cf_flavors.boosting import BoosterColumns, coded_calls, compile_lightgbm, wrong_types

if TYPE_CHECKING:
    from lightgbm import Booster

MLFLOW_FLAVOR: Final = "lightgbm"

# Scores of multiclassova do not sum to 1, and those of a classifier with a regression objective may be any number.
_PROBABILITIES: Final = ("binary", "multiclass", "cross_entropy")
_LABELS: Final = (*_PROBABILITIES, "multiclassova")
_RANKS: Final = ("lambdarank", "rank_xendcg")

Model = Any  # a Booster or a model of the scikit-learn interface


def accepts(model: object) -> bool:
    """Return whether `model` is a Booster or has LightGBM's scikit-learn interface."""
    lightgbm = sys.modules.get("lightgbm")
    return lightgbm is not None and isinstance(model, (lightgbm.Booster, lightgbm.LGBMModel))


def load(path: Path) -> object:
    """Load the model of an MLflow model folder through MLflow's own loader."""
    import mlflow.lightgbm

    return mlflow.lightgbm.load_model(str(path))


def requirements(model: object) -> list[str]:
    """Return pinned requirements that restore `model`."""
    interface = () if _is_booster(model) else ("scikit-learn", "skops")
    return [f"{package}=={version(package)}" for package in ("lightgbm", *interface, "numpy", "scipy", "pandas")]


def save(
    model: object, path: Path, *, signature: object, pip_requirements: list[str], allow_functions: bool = False
) -> None:
    """Write `model` as an MLflow model folder: a Booster in LightGBM's text format, all others in skops format.

    Raises:
        InputError: it holds types that are not in the table of trusted ones.
    """
    import mlflow.lightgbm

    del allow_functions  # skops writes none
    trusted = [] if _is_booster(model) else _types_to_trust(model)
    mlflow.lightgbm.save_model(
        model,
        str(path),
        signature=signature,
        pip_requirements=pip_requirements,
        serialization_format="skops",
        skops_trusted_types=trusted,
    )


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a fitted model; `rows` are some rows it must be able to answer, and tell how its columns are spelled.

    Every answer asks for one thread, as an argument of the call. Raises InputError for what answers no label or
    number per row.
    """
    booster = _booster(model)
    objective = _objective(model, booster, output)
    regression = objective not in _LABELS if _is_booster(model) else not hasattr(model, "classes_")
    check_output(model, output, regression=regression)
    columns = _columns(booster, rows)
    check_columns(columns.names, rows)
    ask = _ask(model, booster, columns, rows)
    opened_by = partial(_opened, model, booster, None if regression else objective)
    opened = replace(opened_by(ask), by_codes=partial(coded_calls, opened_by, ask))
    if output == "label":
        opened = replace(opened, score=None, score_kind="none", both=None, by_codes=None)
    check_answers(opened, rows, wrong_types(rows))
    return replace(opened, compile=partial(compile_lightgbm, booster, columns), levels=columns.told_apart)


@dataclass(frozen=True, eq=False)
class _Ask:
    """Rows, or their codes -> the answers of `library`, (n,) or (n, k) float64.

    Attributes:
        library: table -> answers; the model's own way.
        array: an array of numbers -> the same answers, many times faster; None where they would differ.
        columns: the table it takes.
    """

    library: Callable[[pd.DataFrame], Any]
    array: Callable[[Floats], Any] | None
    columns: BoosterColumns

    @property
    def takes_arrays(self) -> bool:
        """Whether an array of numbers is answered as the table is."""
        return self.array is not None

    def __call__(self, rows: Rows) -> Floats:
        numbers = self.columns.numbers(rows) if self.array is not None else None
        if self.array is None or numbers is None:
            answers = self.library(self.columns.table(rows))
        else:
            answers = self.array(numbers)
        return np.asarray(answers, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Rows, or their codes -> (n, k) float64."""

    ask: _Ask

    def __call__(self, rows: Rows) -> Floats:
        answers = self.ask(rows)
        return shares(answers) if answers.ndim == 1 else answers


def _opened(model: Model, booster: Booster, objective: str | None, ask: _Ask) -> OpenModel:
    """Return a model that is asked in some way; `objective`: of a classifier."""
    if objective is None:
        return OpenModel(MLFLOW_FLAVOR, (), ask, columns=ask.columns.names)
    kind: ScoreKind = "probability" if objective in _PROBABILITIES else "margin"
    columns, scores = ask.columns, _Scores(ask)
    if _is_booster(model):
        numbers = tuple(range(max(2, booster.num_model_per_iteration())))
        decide = LargestScore(scores, numbers)
        return OpenModel(MLFLOW_FLAVOR, numbers, decide, scores, kind, columns.names, both=decide.both)
    classes = plain_labels(model.classes_)
    check_classes(model, classes)
    labels = OwnAnswers(partial(model.predict, num_threads=1), columns.table)
    its_own = type(model).__module__.split(".")[0] == "lightgbm"  # derived classes may decide otherwise
    both = ClearScore(labels, scores, classes) if its_own else None
    return OpenModel(MLFLOW_FLAVOR, classes, labels, scores, kind, columns.names, both=both)


def _ask(model: Model, booster: Booster, columns: BoosterColumns, rows: pd.DataFrame | None) -> _Ask:
    predict = getattr(model, "predict_proba", model.predict)
    own = _Ask(partial(predict, num_threads=1), None, columns)
    fast = replace(own, array=partial(booster.predict, num_threads=1))
    if rows is None or not len(rows):
        return own
    try:
        # Settings of the model, such as early stopping of its predictions, reach only its own predict.
        same = np.array_equal(_Scores(own)(rows), _Scores(fast)(rows))
    except Exception:  # noqa: BLE001  the rows are checked, and refused with a reason, by whoever opens the model
        same = False
    return fast if same else own


def _columns(booster: Booster, rows: pd.DataFrame | None) -> BoosterColumns:
    """Return the table the booster takes; LightGBM itself goes by position and remembers blanks as underscores."""
    names = tuple(booster.feature_name())
    if rows is None:
        return BoosterColumns(names, {})
    given = [str(column) for column in rows.columns]
    unnamed = tuple(f"Column_{position}" for position in range(len(names)))
    if names == unnamed and not set(names) & set(given):
        names = ()
    else:
        spelled = {name.replace(" ", "_"): name for name in given} | {name: name for name in given}
        names = tuple(spelled.get(name, name) for name in names)
    known = names or tuple(given)
    categories = [name for name in known if name in given and isinstance(rows[name].dtype, pd.CategoricalDtype)]
    levels = booster.pandas_categorical or []
    return BoosterColumns(names, _levels(rows, categories, levels) if len(categories) == len(levels) else {})


def _levels(rows: pd.DataFrame, categories: list[str], levels: list[list[Any]]) -> dict[str, pd.Index[Any]]:
    """Return the levels the booster numbers its category columns by; it knows them in the order of these columns."""
    for name, known in zip(categories, levels, strict=True):
        if known and not set(rows[name].cat.categories) & set(known):
            fact = "has none of the levels the model was fitted on, and LightGBM would take all of it as missing"
            raise InputError(f"data.{name}", fact, f"use levels such as {known[0]!r}")
    return {name: pd.Index(known) for name, known in zip(categories, levels, strict=True)}


def _booster(model: Model) -> Booster:
    try:
        booster: Booster = model if _is_booster(model) else model.booster_
    except ValueError as error:  # scikit-learn's NotFittedError
        raise InputError("model", f"{type(model).__name__} is not fitted", "call its fit method first") from error
    return booster


def _objective(model: Model, booster: Booster, output: str | None) -> str:
    """Return the objective; InputError if it gives no label or number per row."""
    named = booster.dump_model(num_iteration=1).get("objective") if _is_booster(model) else model.objective_
    if named is None or callable(named):
        values = output == "value" if _is_booster(model) else not hasattr(model, "classes_")
        if values:
            return "custom"
        fix = "pass a function of it instead, such as lambda rows: model.predict(rows) > 0, with output='label'"
        raise InputError("model", "was fitted with an objective of your own, so its answers have no known meaning", fix)
    objective = str(named).split()[0]
    if objective in _RANKS:
        raise InputError("model", f"its objective {objective} ranks rows", "wrap a classifier or regressor")
    return objective


def _is_booster(model: object) -> bool:
    import lightgbm

    return isinstance(model, lightgbm.Booster)


def _types_to_trust(model: object) -> list[str]:
    import skops.io

    from mlflow_cf_flavors.sklearn.skops_types import TRUSTED_TYPES

    call = "mlflow.lightgbm.log_model(model, name='model'"
    try:
        found = skops.io.get_untrusted_types(data=skops.io.dumps(model))
    except Exception as error:
        fix = f"log it yourself with {call}, serialization_format='cloudpickle') and pass its model_uri"
        raise InputError("model", f"skops cannot write {type(model).__name__} ({error})", fix) from error
    if unknown := sorted(set(found) - set(TRUSTED_TYPES["lightgbm"])):
        fix = (
            f"if you trust them, log the model with {call}, skops_trusted_types={sorted(found)}) and pass its model_uri"
        )
        raise InputError("model", f"holds types that are not in the table of trusted ones: {unknown}", fix)
    return sorted(found)
