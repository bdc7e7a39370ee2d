"""XGBoost: classifiers and regressors of its scikit-learn interface, and Boosters.

A Booster answers scores, not labels. Its label is the largest score of several classes, or the second of two classes
where its probability exceeds one half (binary:logitraw, binary:hinge: where its margin exceeds 0); the classes are
0, 1, ... Like MLflow, it asks all rounds, also those after the best one of early stopping.
"""

from __future__ import annotations

import copy
import json
import math
import sys
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from scipy.special import softmax

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
    margins,
    plain_labels,
    shares,
)
from mlflow_cf_flavors.boosting import BoosterColumns, coded_calls, compile_xgboost, wrong_types

if TYPE_CHECKING:
    from xgboost import Booster

MLFLOW_FLAVOR: Final = "xgboost"

_PROBABILITIES: Final = ("binary:logistic", "multi:softprob", "multi:softmax")
_LABELS: Final = (*_PROBABILITIES, "binary:logitraw", "binary:hinge")
_VALUES: Final = ("reg:", "count:")

Model = Any  # a Booster or a model of the scikit-learn interface


def accepts(model: object) -> bool:
    """Return whether `model` is a Booster or has XGBoost's scikit-learn interface."""
    xgboost = sys.modules.get("xgboost")
    return xgboost is not None and isinstance(model, (xgboost.Booster, xgboost.XGBModel))


def load(path: Path) -> object:
    """Load the model of an MLflow model folder through MLflow's own loader."""
    import mlflow.xgboost

    return mlflow.xgboost.load_model(str(path))


def requirements(model: object) -> list[str]:
    """Return pinned requirements that restore `model`."""
    interface = () if _is_booster(model) else ("scikit-learn",)
    return [f"{package}=={version(package)}" for package in ("xgboost", *interface, "numpy", "scipy", "pandas")]


def save(
    model: object, path: Path, *, signature: object, pip_requirements: list[str], allow_functions: bool = False
) -> None:
    """Write `model` as an MLflow model folder in XGBoost's own ubj format.

    Raises:
        InputError: the format would lose a part of the model that changes its answers.
    """
    import mlflow.xgboost

    del allow_functions  # a model holds none
    if not math.isnan(missing := _missing(model)):
        fact = f"MLflow's format forgets missing={missing:g}, and the model would answer differently once loaded"
        raise InputError("model", fact, "fit it with NaN for missing values and leave missing= out")
    if not _is_its_own(model):
        fix = "log it with mlflow.xgboost.log_model(model, name='model') and pass the model_uri of what it returns"
        raise InputError(
            "model", f"{type(model).__name__} is no class of XGBoost's, which others could not import", fix
        )
    mlflow.xgboost.save_model(
        model, str(path), signature=signature, pip_requirements=pip_requirements, model_format="ubj"
    )


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a fitted model; `rows` are some rows it must be able to answer.

    Scores come from a private copy that uses one thread: small batches are many times faster on one, and the model
    that was passed in is never touched. Raises InputError for what answers no label or number per row.
    """
    trained = _booster(model)
    objective = _objective(trained, booster=_is_booster(model))
    regression = objective.startswith(_VALUES) if _is_booster(model) else not hasattr(model, "classes_")
    check_output(model, output, regression=regression)
    private = _one_thread(model)
    ask = _ask(private, trained)
    check_columns(ask.columns.names, rows)
    opened_by = partial(_opened, private, None if regression else objective)
    opened = replace(opened_by(ask), by_codes=partial(coded_calls, opened_by, ask))
    if output == "label":
        opened = replace(opened, score=None, score_kind="none", both=None, by_codes=None)
    check_answers(opened, rows, wrong_types(rows))
    return replace(
        opened, compile=partial(compile_xgboost, ask.booster, ask.rounds, ask.columns, ask.missing), tolerance=1e-5
    )


@dataclass(frozen=True, eq=False)
class _Ask:
    """Rows, or their codes -> raw answers, (n,) or (n, k) float64.

    Attributes:
        booster: a private copy that uses one thread.
        columns: the table it takes.
        rounds: how many rounds it asks, the first ones; 0: all.
        missing: what stands for a missing value.
        in_place: whether the library scores this kind of booster without a DMatrix, to the same bits.
    """

    booster: Booster
    columns: BoosterColumns
    rounds: int
    missing: float
    in_place: bool

    @property
    def takes_arrays(self) -> bool:
        """Whether an array of numbers is answered as the table is."""
        return self.in_place and math.isnan(self.missing)

    def __call__(self, rows: Rows, kind: Literal["value", "margin"] = "value") -> Floats:
        if not self.in_place:
            return self._through_matrix(self.columns.table(rows), kind)
        numbers = self.columns.numbers(rows) if math.isnan(self.missing) else None
        answers = self.booster.inplace_predict(
            self.columns.table(rows) if numbers is None else numbers,
            iteration_range=(0, self.rounds),
            predict_type=kind,
            missing=self.missing,
        )
        return np.asarray(answers, dtype=np.float64)

    def _through_matrix(self, table: pd.DataFrame, kind: str) -> Floats:
        from xgboost import DMatrix

        matrix = DMatrix(table, missing=self.missing, nthread=1, enable_categorical=True)
        answers = self.booster.predict(matrix, output_margin=kind == "margin", iteration_range=(0, self.rounds))
        return np.asarray(answers, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Rows, or their codes -> (n, k) float64; a single answer beyond `threshold` is the second of two classes."""

    ask: _Ask
    objective: str
    threshold: float

    def __call__(self, rows: Rows) -> Floats:
        if self.objective == "multi:softmax":
            return np.asarray(softmax(self.ask(rows, "margin"), axis=1))
        if self.objective == "binary:hinge":
            return margins(self.ask(rows, "margin"))
        answers = self.ask(rows)
        if answers.ndim == 2:
            return answers
        if self.objective in _PROBABILITIES:
            return shares(answers)
        return margins(answers - self.threshold)


def _opened(model: Model, objective: str | None, ask: _Ask) -> OpenModel:
    """Return a model that is asked in some way; `objective`: of a classifier."""
    if objective is None:
        return OpenModel(MLFLOW_FLAVOR, (), ask, columns=ask.columns.names)
    kind: ScoreKind = "probability" if objective in _PROBABILITIES else "margin"
    columns = ask.columns
    if not _is_booster(model):
        # The library's classifier compares its booster's answer with 0.5, even a margin.
        scores, classes = _Scores(ask, objective, threshold=0.5), plain_labels(model.classes_)
        check_classes(model, classes)
        labels = OwnAnswers(model.predict, columns.table)
        both = ClearScore(labels, scores, classes) if _is_its_own(model) else None
        return OpenModel(MLFLOW_FLAVOR, classes, labels, scores, kind, columns.names, both=both)
    known = int(_learner(model)["learner_model_param"]["num_class"])
    scores, classes = _Scores(ask, objective, threshold=0.0), tuple(range(max(2, known)))
    decide, notes = LargestScore(scores, classes), _rounds_note(model)
    return OpenModel(MLFLOW_FLAVOR, classes, decide, scores, kind, columns.names, notes, decide.both)


def _rounds_note(booster: Booster) -> tuple[str, ...]:
    best, trained = booster.attr("best_iteration"), booster.num_boosted_rounds()
    if best is None or int(best) + 1 == trained:
        return ()
    return (f"asks all {trained} rounds, as MLflow does, also those after the best one ({int(best) + 1})",)


def _ask(model: Model, trained: Booster) -> _Ask:
    """Return how to ask `model`, the private copy of the one that was `trained`."""
    name = _learner(trained)["gradient_booster"]["name"]
    columns = BoosterColumns(tuple(trained.feature_names or ()), _levels(trained))
    if _is_booster(model):
        # On a dart booster the two ways of scoring differ in the last bit, and MLflow uses the matrix.
        return _Ask(model, columns, 0, math.nan, in_place=name == "gbtree")
    rounds = model.best_iteration + 1 if name != "gblinear" and hasattr(model, "best_iteration") else 0
    return _Ask(model.get_booster(), columns, rounds, _missing(model), in_place=name != "gblinear")


def _levels(booster: Booster) -> dict[str, pd.Index[Any]]:
    """Return the levels a booster numbers its category columns by; none if it was fitted on such numbers itself."""
    if "c" not in (booster.feature_types or ()):
        return {}
    levels = booster.get_categories(export_to_arrow=True).to_arrow()
    return {name: pd.Index(known.to_pylist()) for name, known in levels if known is not None}


def _one_thread(model: Model) -> Model:
    try:
        private = copy.deepcopy(model)
    except Exception as error:
        fix = "drop its callbacks first: model.set_params(callbacks=None)"
        raise InputError("model", f"{type(model).__name__} cannot be copied ({type(error).__name__})", fix) from error
    if _is_booster(private):
        private.set_param({"nthread": 1})
        return private
    private.get_booster().set_param({"nthread": 1})
    private.n_jobs = 1
    return private


def _booster(model: Model) -> Booster:
    try:
        booster: Booster = model if _is_booster(model) else model.get_booster()
        booster.num_boosted_rounds()
    except ValueError as error:  # scikit-learn's NotFittedError, or XGBoostError of an empty Booster
        raise InputError("model", f"{type(model).__name__} is not fitted", "fit or train it first") from error
    return booster


def _learner(booster: Booster) -> dict[str, Any]:
    """Return what a booster says about itself: its kind (gbtree, dart or gblinear), objective and sizes."""
    learner: dict[str, Any] = json.loads(booster.save_config())["learner"]
    return learner


def _objective(trained: Booster, *, booster: bool) -> str:
    """Return the objective; InputError if it gives no label or number per row."""
    learner = _learner(trained)
    targets, objective = int(learner["learner_model_param"].get("num_target", 1)), str(learner["objective"]["name"])
    if targets > 1:
        raise InputError("model", f"answers {targets} values per row", "wrap one model per output")
    if not objective.startswith(_VALUES) and objective not in _LABELS:
        raise _refused(objective, booster=booster)
    return objective


def _refused(objective: str, *, booster: bool) -> InputError:
    """Return why an objective gives no label or value per row, and what would."""
    asked = "model.predict(xgboost.DMatrix(rows))" if booster else "model.predict(rows)"
    if objective.startswith("survival:"):
        fact = f"its objective {objective} estimates survival, and leaves open what is wanted of a row"
        fix = f"wrap its estimates as a function: lambda rows: {asked}, with output='value' and a target=Target(low=..)"
    elif objective.startswith("rank:"):
        fact = f"its objective {objective} ranks rows among others of a query, and decides nothing about one row alone"
        fix = f"wrap the decision that its ranks lead to: lambda rows: ({asked} > cutoff) * 1, with output='label'"
    else:
        fact = f"its objective {objective} is not known here, so its answers have no known meaning"
        fix = f"wrap them as a function: lambda rows: {asked}, with output='value' and a target=Target(low=..)"
    return InputError("model", fact, fix)


def _is_its_own(model: object) -> bool:
    """Whether the class of a model is the library's; derived ones may decide otherwise."""
    return type(model).__module__.split(".")[0] == "xgboost"


def _is_booster(model: object) -> bool:
    import xgboost

    return isinstance(model, xgboost.Booster)


def _missing(model: object) -> float:
    return float(getattr(model, "missing", math.nan))
