"""CatBoost: classifiers, regressors, and models of its plain class, whose objective says which of the two they are.

Of all of them CatBoost itself decides the label: by the probability one half, or the threshold that a model was given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.model import Label, OpenModel, ScoreKind
from mlflow_cf_flavors.answers import (
    ClearScore,
    Floats,
    OwnAnswers,
    check_answers,
    check_classes,
    check_columns,
    check_output,
    plain_labels,
)
from mlflow_cf_flavors.catboost.columns import FEW_ROWS, CatBoostColumns
from mlflow_cf_flavors.catboost.export import Model, objective_of, threshold_of
from mlflow_cf_flavors.catboost.structure import compile_catboost

MLFLOW_FLAVOR: Final = "catboost"

_RANKS: Final = ("YetiRank", "PairLogit", "Query", "Group", "LambdaMart", "StochasticFilter", "StochasticRank")
_SURVIVAL: Final = ("Cox", "SurvivalAft")
_SEVERAL: Final = ("RMSEWithUncertainty",)  # beside those of several targets, whose names begin with Multi
_INDEPENDENT: Final = ("MultiClassOneVsAll",)  # its probabilities do not sum to 1
_ONE_OF_SEVERAL: Final = ("MultiClass", *_INDEPENDENT)
_OWN: Final = "PythonUserDefined"
_ANSWERS: Final = {"probability": "Probability", "margin": "RawFormulaVal"}


def accepts(model: object) -> bool:
    """Return whether `model` is one of CatBoost's."""
    catboost = sys.modules.get("catboost")
    return catboost is not None and isinstance(model, catboost.CatBoost)


def load(path: Path) -> object:
    """Load the model of an MLflow model folder through MLflow's own loader."""
    import mlflow.catboost

    return mlflow.catboost.load_model(str(path))


def requirements(model: object) -> list[str]:
    """Return pinned requirements that restore `model`."""
    del model
    return [f"{package}=={version(package)}" for package in ("catboost", "numpy", "scipy", "pandas")]


def save(
    model: object, path: Path, *, signature: object, pip_requirements: list[str], allow_functions: bool = False
) -> None:
    """Write `model` as an MLflow model folder in CatBoost's own binary format.

    Raises:
        InputError: its class is not CatBoost's, and the format keeps no other.
    """
    import mlflow.catboost

    del allow_functions  # a model holds none
    if not _is_its_own(model):
        fix = "log it with mlflow.catboost.log_model(model, name='model') and pass the model_uri of what it returns"
        fact = f"{type(model).__name__} is no class of CatBoost's, which others could not import"
        raise InputError("model", fact, fix)
    mlflow.catboost.save_model(model, str(path), signature=signature, pip_requirements=pip_requirements)


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a fitted model; `rows` are some rows it must be able to answer.

    Every answer asks for one thread, as an argument of the call. Raises InputError for what answers no label or
    number per row.
    """
    objective = _checked_objective(model)
    _check_own(model, objective, output)
    trained: Model = model
    classes = plain_labels(trained.classes_)
    check_output(model, output, regression=not classes)
    columns = _columns(model, rows)
    check_columns(columns.names, rows)
    found = (
        _open_classifier(model, classes, objective, columns, rows) if classes else _open_regressor(model, columns, rows)
    )
    if output == "label":
        found = replace(found, score=None, score_kind="none", both=None)
    check_answers(found, rows, _wrong_types(columns, rows))
    return replace(found, compile=partial(compile_catboost, model, columns))


@dataclass(frozen=True, eq=False)
class _Ask:
    """Rows -> the answers of one kind, (n,) or (n, k), on one thread.

    Attributes:
        predict: a table or an array -> answers; columns: the table it takes.
        fast: whether arrays are answered as tables are, and so are asked instead.
    """

    predict: Callable[[Any], Any]
    columns: CatBoostColumns
    fast: bool

    def __call__(self, rows: pd.DataFrame) -> Any:
        table = self.columns.table(rows)
        array = self.columns.array(table) if self.fast else None
        return self.predict(table if array is None else array)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Rows -> (n, k) float64."""

    ask: _Ask

    def __call__(self, rows: pd.DataFrame) -> Floats:
        return np.asarray(self.ask(rows), dtype=np.float64)


def _open_regressor(model: Model, columns: CatBoostColumns, rows: pd.DataFrame | None) -> OpenModel:
    ask = _ask(partial(model.predict, thread_count=1), columns, rows)
    return OpenModel(MLFLOW_FLAVOR, (), OwnAnswers(ask, _whole, np.float64), columns=columns.names)


def _open_classifier(
    model: Model, classes: tuple[Label, ...], objective: str, columns: CatBoostColumns, rows: pd.DataFrame | None
) -> OpenModel:
    check_classes(model, classes)
    kind: ScoreKind = "margin" if objective in _INDEPENDENT else "probability"
    ask = _ask(partial(model.predict, prediction_type=_ANSWERS[kind], thread_count=1), columns, rows)
    labels = OwnAnswers(replace(ask, predict=partial(model.predict, prediction_type="Class", thread_count=1)), _whole)
    scores, threshold = _Scores(ask), threshold_of(model)
    # derived classes may decide otherwise
    both = ClearScore(labels, scores, classes) if _is_its_own(model) and threshold is None else None
    notes = () if threshold is None else (f"answers {classes[1]!r} where its probability exceeds {threshold:g}",)
    return OpenModel(MLFLOW_FLAVOR, classes, labels, scores, kind, columns.names, notes, both)


def _whole(rows: pd.DataFrame) -> pd.DataFrame:
    return rows


def _ask(predict: Callable[[Any], Any], columns: CatBoostColumns, rows: pd.DataFrame | None) -> _Ask:
    own = _Ask(predict, columns, fast=False)
    if rows is None or not len(rows):
        return own
    fast = replace(own, fast=True)
    try:
        same = np.array_equal(own(rows.iloc[:FEW_ROWS]), fast(rows.iloc[:FEW_ROWS]))
    except Exception:  # noqa: BLE001  the rows are checked, and refused with a reason, by whoever opens the model
        same = False
    return fast if same else own


def _columns(model: Model, rows: pd.DataFrame | None) -> CatBoostColumns:
    """Return the table that a model takes; one that was fitted on an array names its columns 0, 1, ..."""
    names = tuple(model.feature_names_)
    given = set() if rows is None else {str(column) for column in rows.columns}
    if names == tuple(map(str, range(len(names)))) and not given & set(names):
        names = ()
    return CatBoostColumns(names, frozenset(model.get_cat_feature_indices()))


def _wrong_types(columns: CatBoostColumns, rows: pd.DataFrame | None) -> str:
    """Return how to right a table with gaps in categories, which CatBoost refuses; empty if there are none."""
    if rows is None:
        return ""
    table = columns.table(rows)
    gaps = [str(table.columns[place]) for place in sorted(columns.categories) if table.iloc[:, place].isna().any()]
    return f"{gaps} have missing values: write them as a category of its own, such as 'missing'" if gaps else ""


def _checked_objective(model: Model) -> str:
    """Return the objective of a model.

    Raises:
        InputError: it is not fitted, or gives no label or number per row.
    """
    if not model.is_fitted():
        raise InputError("model", f"{type(model).__name__} is not fitted", "call its fit method first")
    objective = objective_of(model)
    if objective.startswith(_RANKS):
        raise InputError("model", f"its objective {objective} ranks rows", "wrap a classifier or regressor")
    if objective in _SURVIVAL:
        fact = f"its objective {objective} estimates survival; it gives no label or value per row"
        raise InputError("model", fact, "wrap a classifier or regressor, or a function of it with output=")
    if objective in _SEVERAL or (objective.startswith("Multi") and objective not in _ONE_OF_SEVERAL):
        raise InputError(
            "model", f"its objective {objective} answers several values per row", "wrap one model per output"
        )
    return objective


def _check_own(model: Model, objective: str, output: str | None) -> None:
    """Refuse an objective of the user's own unless its answers are said to be values."""
    from catboost import CatBoostRegressor

    if not objective.startswith(_OWN) or (isinstance(model, CatBoostRegressor) or output == "value"):
        return
    fix = "pass a function of it instead, such as lambda rows: model.predict(rows) > 0, with output='label'"
    raise InputError("model", "was fitted with an objective of your own, so its answers have no known meaning", fix)


def _is_its_own(model: object) -> bool:
    """Whether the class of a model is the library's; derived ones may decide otherwise."""
    return type(model).__module__.split(".")[0] == "catboost"
