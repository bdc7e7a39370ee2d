"""CatBoost: classifiers, regressors, and models of its plain class, whose objective says which of the two they are.

Of all of them CatBoost itself decides the label: by the probability one half, or the threshold that a model was given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model import Label, OpenModel, ScoreKind
from mlflow_cf.structures import Link, NotOpenedError, Structure
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
from mlflow_cf_flavors.catboost.columns import FEW_ROWS, CatBoostColumns, opened
from mlflow_cf_flavors.catboost.export import Model
from mlflow_cf_flavors.catboost.trees import catboost_forest
from mlflow_cf_flavors.sklearn.sources import Source, raw_columns
from mlflow_cf_flavors.sums import TreeModel

MLFLOW_FLAVOR: Final = "catboost"

_RANKS: Final = ("YetiRank", "PairLogit", "Query", "Group", "LambdaMart", "StochasticFilter", "StochasticRank")
_SURVIVAL: Final = ("Cox", "SurvivalAft")
_SEVERAL: Final = ("RMSEWithUncertainty",)  # beside those of several targets, whose names begin with Multi
_INDEPENDENT: Final = ("MultiClassOneVsAll",)  # its probabilities do not sum to 1
_ONE_OF_SEVERAL: Final = ("MultiClass", *_INDEPENDENT)
_EXPONENTS: Final = ("Poisson", "Tweedie")  # a regressor's answers are exponentials of its raw scores
_LINKS: Final[dict[str, Link]] = {"MultiClass": "softmax", "MultiClassOneVsAll": "identity"}  # others: two classes
_OWN: Final = "PythonUserDefined"
_THRESHOLD: Final = "binclass_probability_threshold"
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
    model: Model, path: Path, *, signature: object, pip_requirements: list[str], allow_functions: bool = False
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


def open(model: Model, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a fitted model; `rows` are some rows it must be able to answer.

    Every answer asks for one thread, as an argument of the call. Raises InputError for what answers no label or
    number per row.
    """
    objective = _objective(model)
    classes = plain_labels(model.classes_)
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


def compile_catboost(model: Model, table: CatBoostColumns, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    """Compile a model, which takes the columns of `table`, for the features of `space`."""
    del rows  # the export has all that is needed
    return catboost_trees(model, raw_columns(space, table.names), space).compile(space)


def catboost_trees(model: Model, sources: Sequence[Source], space: FeatureSpace) -> TreeModel:
    """Return the trees of a model that takes `sources`.

    Raises:
        NotOpenedError: statistics of categories, features of text, or an objective whose answers are no raw scores.
    """
    link = _link(model)
    facts, columns = opened(model, sources, space)
    return TreeModel(columns, catboost_forest(facts, link))


def _link(model: Model) -> Link:
    objective = _objective(model)
    if not len(model.classes_):
        if objective in _EXPONENTS and _answers_exponents(model):
            raise NotOpenedError(f"CatBoost's objective {objective}")
        return "identity"
    return _LINKS.get(objective, "sigmoid")


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
    scores, threshold = _Scores(ask), model.get_metadata().get(_THRESHOLD)
    # derived classes may decide otherwise
    both = ClearScore(labels, scores, classes) if _is_its_own(model) and threshold is None else None
    notes = () if threshold is None else (f"answers {classes[1]!r} from a probability of {float(threshold):g} on",)
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


def _objective(model: Model) -> str:
    """Return the objective of a fitted model, without its parameters.

    Raises:
        InputError: it is not fitted, or gives no label or number per row.
    """
    if not model.is_fitted():
        raise InputError("model", f"{type(model).__name__} is not fitted", "call its fit method first")
    metadata = model.get_metadata()
    known = json.loads(metadata["params"]).get("loss_function", {}) if "params" in metadata else {}
    objective = str(known.get("type", ""))
    if objective.startswith(_RANKS):
        raise InputError("model", f"its objective {objective} ranks rows", "wrap a classifier or regressor")
    if objective in _SURVIVAL:
        fact = f"its objective {objective} estimates survival; it gives no label or value per row"
        raise InputError("model", fact, "wrap a classifier or regressor, or a function of it with output=")
    if objective in _SEVERAL or (objective.startswith("Multi") and objective not in _ONE_OF_SEVERAL):
        raise InputError(
            "model", f"its objective {objective} answers several values per row", "wrap one model per output"
        )
    if objective.startswith(_OWN) and len(model.classes_):
        fix = "pass a function of it instead, such as lambda rows: model.predict(rows) > 0, with output='label'"
        raise InputError("model", "was fitted with an objective of your own, so its answers have no known meaning", fix)
    return objective


def _answers_exponents(model: Model) -> bool:
    """Whether a model answers the exponentials of its raw scores; the plain class answers raw scores."""
    from catboost import CatBoostRegressor

    return isinstance(model, CatBoostRegressor)


def _is_its_own(model: object) -> bool:
    """Whether the class of a model is the library's; derived ones may decide otherwise."""
    return type(model).__module__.split(".")[0] == "catboost"
