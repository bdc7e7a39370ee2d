"""Python functions: a table of rows -> labels, scores or values, as the caller says with ``output``.

A function is used in memory. The only way to store one is a pickle, which runs code when it is loaded: `save` refuses
unless the user allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import mlflow.pyfunc
import numpy as np
import pandas as pd
from mlflow.models import Model
from mlflow.pyfunc import PyFuncModel
from mlflow.pyfunc.model import PythonModel

from mlflow_cf.errors import InputError
from mlflow_cf.model import Label, OpenModel, ScoreKind, switches
from mlflow_cf.quiet import quietly
from mlflow_cf.version import VERSION
from mlflow_cf_flavors.answers import (
    LABELS_ONLY,
    Answers,
    Floats,
    LargestScore,
    learned_labels,
    plain_labels,
    shares,
)

MLFLOW_FLAVOR: Final = "mlflow_cf_function"  # beside python_function in the MLmodel of a saved function

_OUTPUTS: Final = ("label", "score", "value")
_NO_SHARES: Final = "some scores are outside [0, 1]: they are no probabilities, and > 0.5 decides for the second class"


class Function(PythonModel):
    """A function in the role of MLflow's Python model."""

    def __init__(self, function: Callable[[pd.DataFrame], Any]) -> None:
        self.function = function

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Answer MLflow."""
        del context, params
        return self.function(model_input)


def accepts(model: object) -> bool:
    """Return whether `model` can be called, or is a saved function that MLflow has loaded."""
    if isinstance(model, PyFuncModel):
        return MLFLOW_FLAVOR in model.metadata.flavors
    return callable(model) and not isinstance(model, type)


def load(path: Path) -> object:
    """Load the function of an MLflow model folder through MLflow's own loader; this unpickles it.

    Raises:
        ArtifactError: one of MLflow's switches forbids that.
    """
    switches.check("model", "is a pickle of a Python function", *switches.PICKLES)
    return _plain(mlflow.pyfunc.load_model(str(path), suppress_warnings=True))


def requirements(model: object) -> list[str]:
    """Return pinned requirements that restore a function; what it imports itself only its author knows."""
    del model
    pins = [f"{package}=={version(package)}" for package in ("cloudpickle", "numpy", "pandas")]
    return [f"mlflow-cf=={VERSION}", *pins]


def save(
    model: object, path: Path, *, signature: object, pip_requirements: list[str], allow_functions: bool = False
) -> None:
    """Write the function as an MLflow model folder; MLflow pickles it.

    Raises:
        InputError: that is not allowed, or it cannot be pickled.
    """
    if not allow_functions:
        fact = "is a function, and the only way to store one is a pickle, which runs code when it is loaded"
        fix = "pass allow_functions=True if you trust whoever can write to the model store"
        raise InputError("model", f"{_name(model)} {fact}", fix)
    meta = Model()
    meta.add_flavor(MLFLOW_FLAVOR)
    try:
        with quietly(UserWarning):  # no example is given: the explained model around this one brings it
            mlflow.pyfunc.save_model(
                str(path),
                python_model=Function(_plain(model)),
                mlflow_model=meta,
                signature=signature,
                pip_requirements=pip_requirements,
            )
    except Exception as error:
        fact = f"this function cannot be pickled ({type(error).__name__}: {error})"
        raise InputError("model", fact, "open files, locks and connections inside of it") from error


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a function that answers every row of a table with its own columns; it must be safe to call in parallel.

    `output` is ``label`` (learned from `rows`), ``score`` or ``value``. Scores are (n,) for the second of the classes
    0 and 1, decided by > 0.5 (outside [0, 1] they are graded as they are, and are no probabilities), or (n, k), one per
    class 0, 1, ... or per column of a table, decided by the largest. Raises InputError where the answers for `rows` are
    nothing of the kind.
    """
    if output not in _OUTPUTS:
        fact = "a function does not say what it answers" if output is None else f"{output!r} is not known"
        raise InputError("output", fact, "pass output='label', 'score' or 'value'")
    if rows is None or not len(rows):
        raise InputError(
            "data", "rows are needed to learn what this function answers", "pass rows of the training table"
        )
    function = _plain(model)
    if output == "label":
        ask = _Ask(function, _column)
        return OpenModel(MLFLOW_FLAVOR, learned_labels(_learn(ask, rows)), ask, notes=(LABELS_ONLY,))
    if output == "value":
        values = _Ask(function, _value_column)
        _learn(values, rows)
        return OpenModel(MLFLOW_FLAVOR, (), values)
    return _open_scores(function, rows)


def _name(model: object) -> str:
    return str(getattr(model, "__name__", type(model).__name__))


def _plain(model: Any) -> Callable[[pd.DataFrame], Any]:
    function: Callable[[pd.DataFrame], Any]
    function = model.unwrap_python_model().function if isinstance(model, PyFuncModel) else model
    return function


@dataclass(frozen=True)
class _Ask:
    """Rows -> answers, (n,) or (n, k), read by `reader`; ValueError if they are not one per row."""

    function: Callable[[pd.DataFrame], Any]
    reader: Callable[[Any], Answers]

    def __call__(self, rows: pd.DataFrame) -> Answers:
        # A copy, so that a function that adds columns to its table does not change ours.
        answers = self.reader(self.function(rows.copy()))
        if len(answers) != len(rows):
            raise ValueError(f"{len(answers)} answers for {len(rows)} rows")
        return answers


@dataclass(frozen=True)
class _Scores:
    """Rows -> (n, len(classes)) float64."""

    ask: _Ask
    width: int

    def __call__(self, rows: pd.DataFrame) -> Floats:
        scores = self.ask(rows)
        if scores.shape[1] != self.width:
            raise ValueError(f"{scores.shape[1]} scores per row where there were {self.width}")
        return shares(scores[:, 0]) if self.width == 1 else scores


def _open_scores(function: Callable[[pd.DataFrame], Any], rows: pd.DataFrame) -> OpenModel:
    ask = _Ask(function, _score_columns)
    scores = _learn(ask, rows)
    width = scores.shape[1]
    shares = bool(((scores >= 0) & (scores <= 1)).all())
    kind: ScoreKind = "probability" if shares and (width == 1 or np.allclose(scores.sum(axis=1), 1)) else "margin"
    if width == 1 and not shares:
        kind = "score"
    classes = _classes(function(rows.iloc[:1].copy()), width)
    judged = _Scores(ask, width)
    decide, notes = LargestScore(judged, classes), (_NO_SHARES,) if kind == "score" else ()
    return OpenModel(MLFLOW_FLAVOR, classes, decide, judged, kind, notes=notes, both=decide.both)


def _classes(answer: Any, width: int) -> tuple[Label, ...]:
    if isinstance(answer, pd.DataFrame) and width > 1:
        return plain_labels(answer.columns)
    return tuple(range(max(2, width)))


def _learn(ask: _Ask, rows: pd.DataFrame) -> Answers:
    """Return the answers for `rows`; InputError unless the first row gets the same one when it is asked alone."""
    try:
        answers, alone = ask(rows), ask(rows.iloc[:1])
    except Exception as error:
        fact = f"cannot answer these rows ({type(error).__name__}: {error})"
        raise InputError(
            "model", fact, "pass a table it takes as data, and say with output= what it answers"
        ) from error
    if not _alike(answers[:1], alone):
        fact = f"answers {answers[0]} for the first row among others, and {alone[0]} when it is asked alone"
        raise InputError("model", fact, "answer each row by its own values alone, and always the same")
    return answers


def _alike(one: Answers, other: Answers) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        return bool(np.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True))
    return bool(one.tolist() == other.tolist())


def _column(answer: Any) -> Answers:
    """Return an answer of one column (array, list, Series, table) as an array (n,)."""
    array = np.asarray(pd.Series(answer) if isinstance(answer, list) else answer)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"answers of shape {array.shape}, not one per row")
    return array


def _value_column(answer: Any) -> Answers:
    return _finite(_column(answer))


def _score_columns(answer: Any) -> Answers:
    scores = _finite(np.asarray(answer))
    if scores.ndim == 1:
        return scores.reshape(-1, 1)
    if scores.ndim != 2 or not scores.shape[1]:
        raise ValueError(f"answers of shape {scores.shape}, neither (n,) nor (n, classes)")
    return scores


def _finite(answers: Answers) -> Floats:
    numbers = np.asarray(answers, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("answers that are not finite")
    return numbers
